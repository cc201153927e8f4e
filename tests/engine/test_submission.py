"""What an answer to a submission means; and its bytes, which are sent again the same or not at all."""

from __future__ import annotations

import hashlib
import io
import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from batches.conf import ENGINE
from batches.engine import answers, preparing, steps
from batches.engine.changes import FollowStep
from batches.engine.effects import NO_EFFECT
from batches.engine.preparing import Input
from batches.models import AlertKind, FailureClass, HoldReason, JobState
from batches.providers import errors
from batches.providers.base import Accepted, DocumentSource, Finished, PreparedRequest, ResultRef
from batches.storage import ObjectMissing, StoreFull, StoreUnavailable
from batches.storage.disk import DiskStore
from tests.engine.samples import BODY, account, claim, exchange, open_submission, sending
from tests.factories import NOW
from tests.storage.listing import keys_in

RNG = random.Random(5)
ACCOUNT = account(deadline_seconds=600)


# --- an id came back ---


def test_an_accepted_document_is_read_until_its_deadline() -> None:
    change = answers.judge_answer(sending(), Accepted("pdf_7", "queued", exchange()), ACCOUNT, now=NOW)
    assert (change.move.from_state, change.move.to_state) == (JobState.SUBMITTING, JobState.ACCEPTED)
    assert change.submission_fields == {
        "in_doubt": False,
        "provider_job_id": "pdf_7",
        "accepted_at": NOW,
    }
    assert change.move.fields["deadline_at"] == NOW + timedelta(seconds=600)
    assert change.move.fields["due_at"] == NOW, "should this pump die, the next one reads at once"
    assert change.move.fields["provider_status"] == "queued"
    assert change.follow.step is FollowStep.POLL
    assert change.after.state is JobState.ACCEPTED
    assert change.after.submission.provider_job_id == "pdf_7"
    assert change.effect == NO_EFFECT, "in quiet times the account costs no statement"


@pytest.mark.parametrize(
    ("fields", "reached", "trial"),
    [
        ({"transport_failure_count": 1}, True, None),
        ({"on_probation": True}, False, True),
        ({"transport_failure_count": 2, "on_probation": True}, True, True),
    ],
)
def test_an_acceptance_ends_a_row_of_failures_and_a_trial(
    fields: dict[str, Any], reached: bool, trial: bool | None
) -> None:
    answer = Accepted("pdf_7", "queued", exchange())
    effect = answers.judge_answer(sending(), answer, account(**fields), now=NOW).effect
    assert (effect.reached, effect.trial_was_accepted) == (reached, trial)
    refused = answers.judge_error(sending(), errors.ServerFault("No."), account(**fields), now=NOW, rng=RNG).effect
    assert refused.trial_was_accepted is (False if trial else None)


def test_an_answer_that_is_the_result_goes_straight_to_the_download() -> None:
    result = ResultRef("pdf_7", url="http://127.0.0.1:9/f/7", size_bytes=12)
    change = answers.judge_answer(sending(), Finished("pdf_7", "completed", result, exchange()), ACCOUNT, now=NOW)
    assert change.move.to_state is JobState.RENDERED
    assert change.follow.step is FollowStep.FETCH
    assert change.submission_fields["result"]["url"] == "http://127.0.0.1:9/f/7"
    assert change.after.submission.result == change.submission_fields["result"]


# --- no id came back ---


@pytest.mark.parametrize(
    ("kind", "doubt_before", "to_state", "failure", "in_doubt", "tries", "outcome"),
    [
        (errors.AnswerLost, False, None, None, True, 1, None),
        (errors.ServerFault, True, None, None, True, 1, None),
        (errors.KeyConflict, False, None, None, True, 1, None),
        (errors.RateLimited, False, "pending", None, False, 0, None),
        (errors.RateLimited, True, None, None, True, 0, None),
        (errors.Unauthorized, False, "pending", None, False, 0, None),
        (errors.Unauthorized, True, None, None, True, 0, None),
        (errors.InsufficientCredit, False, "pending", None, False, 0, None),
        (errors.NotSent, False, "pending", None, False, 0, None),
        (errors.NotSent, True, None, None, True, 0, None),
        (errors.InvalidInput, False, "failed", FailureClass.INVALID_INPUT, False, 1, "refused"),
        (errors.InvalidInput, True, "unknown", FailureClass.UNKNOWN_OUTCOME, True, 1, None),
    ],
)
def test_where_job_and_submission_go(
    kind: type[errors.ProviderError],
    doubt_before: bool,
    to_state: str | None,
    failure: FailureClass | None,
    in_doubt: bool,
    tries: int,
    outcome: str | None,
) -> None:
    error = kind("The provider says no.", code="E1", exchange=exchange(status=400))
    change = answers.judge_error(sending(doubt_before=doubt_before), error, ACCOUNT, now=NOW, rng=RNG)
    assert (change.move.to_state.value if change.move else None) == to_state
    assert change.submission_fields["in_doubt"] is in_doubt
    assert change.submission_fields["try_count"] == tries
    assert change.submission_fields.get("outcome") == outcome
    assert change.exchanges == ((error.exchange, 71),)
    assert change.follow is None, "the job's lease is given back"
    if to_state is None:
        assert change.job_fields["due_at"] > NOW
    if failure:
        assert change.move.fields["failure_class"] == failure
        assert change.move.fields["failure_code"] == "E1"
        assert "The provider says no." in change.move.fields["failure_words"]


def test_a_key_that_is_bound_to_a_refusal_is_closed_and_the_job_waits_for_another() -> None:
    error = errors.InsufficientCredit("No funds.", replayed=True, exchange=exchange(status=402))
    change = answers.judge_error(sending(doubt_before=True), error, ACCOUNT, now=NOW, rng=RNG)
    assert change.move.to_state is JobState.PENDING
    assert change.submission_fields == {"in_doubt": False, "try_count": 0, "outcome": "refused", "closed_at": NOW}
    assert change.effect.hold is None


def test_a_stored_5xx_says_why_nothing_more_is_asked() -> None:
    error = errors.ServerFault("It failed.", replayed=True)
    change = answers.judge_error(sending(doubt_before=True), error, ACCOUNT, now=NOW, rng=RNG)
    assert change.move.to_state is JobState.UNKNOWN
    assert "repeats its first answer" in change.alert[1]
    assert "repeats its first answer" in change.move.fields["failure_words"]


def test_unknown_opens_an_alert_that_says_what_to_do() -> None:
    last = sending(doubt_before=True, try_count=ENGINE.submit_tries_most)
    change = answers.judge_error(last, errors.AnswerLost("Reset."), ACCOUNT, now=NOW, rng=RNG)
    assert change.move.to_state is JobState.UNKNOWN
    kind, words = change.alert
    assert kind is AlertKind.UNKNOWN_OUTCOME
    assert words.startswith("INV-7: Reset.")
    assert "reconcile it first" in words
    assert "outcome" not in change.submission_fields, "it stays open: nothing proves that it ended"


@pytest.mark.parametrize(
    ("kind", "price"), [("gotenberg", "free"), ("pdfmonkey", "bills 0 or 1"), ("lambda", "bills 0 or 1")]
)
def test_unknown_says_nothing_of_a_bill_where_nothing_is_billed_twice(kind: str, price: str) -> None:
    last, where = sending(doubt_before=True, try_count=ENGINE.submit_tries_most), account(kind=kind)
    claimed = replace(last.prepared.claim, submission=last.submission)
    lost = answers.judge_error(last, errors.ServerFault("503."), where, now=NOW, rng=RNG)
    used = answers.judge_tries_used(claimed, where, now=NOW)
    closed = answers.judge_window_closed(claimed, where, now=NOW)
    for change in (lost, used, closed):
        words = change.move.fields["failure_words"]
        assert words.endswith(
            f"A repeat makes no second document at this account: Retry ({price}) sends it again, once the service is "
            "back."
        )
        assert "accepted and billed" not in words
        assert change.alert[1] == f"INV-7: {words}"


def test_a_refusal_of_the_account_holds_it_with_the_providers_words() -> None:
    change = answers.judge_error(sending(), errors.Unauthorized("Bad key."), ACCOUNT, now=NOW, rng=RNG)
    assert (change.effect.hold, change.effect.words) == (HoldReason.AUTH, "Bad key.")


@pytest.mark.parametrize("others", [True, False])
def test_one_code_for_too_many_and_for_a_bad_key_is_read_by_what_is_in_flight(others: bool) -> None:
    asked = exchange(status=403, error_class="TooManyAtOnce")
    error = errors.TooManyAtOnce("Too many, or not allowed.", exchange=asked)
    change = answers.judge_error(replace(sending(), others_in_flight=others), error, ACCOUNT, now=NOW, rng=RNG)
    assert change.move.to_state is JobState.PENDING
    assert change.submission_fields == {"in_doubt": False, "try_count": 0}, "neither costs a try"
    assert change.effect.hold == (None if others else HoldReason.AUTH)
    assert bool(change.effect.cool_down_until) is others
    ((kept, _submission_id),) = change.exchanges
    assert kept == replace(asked, error_class="TooManyAtOnce" if others else "Unauthorized")


# --- other ends of a committed intent ---


def test_bytes_that_never_left_put_the_job_back_as_if_nothing_had_been() -> None:
    change = answers.judge_never_left(claim(JobState.SUBMITTING), now=NOW)
    assert (change.move.to_state, change.submission_fields) == (
        JobState.PENDING,
        {"in_doubt": False, "try_count": 0},
    )


def test_while_the_account_is_held_the_window_of_the_key_is_watched() -> None:
    soon = open_submission(resend_until=NOW + timedelta(seconds=4))
    assert answers.judge_held(claim(JobState.SUBMITTING, submission=soon), now=NOW).job_fields["due_at"] == (
        NOW + timedelta(seconds=4)
    )
    later = answers.judge_held(claim(JobState.SUBMITTING), now=NOW)
    assert later.job_fields["due_at"] == NOW + timedelta(seconds=ENGINE.poll_held_seconds)
    past = open_submission(resend_until=NOW - timedelta(seconds=4))
    assert answers.judge_held(claim(JobState.SUBMITTING, submission=past), now=NOW).job_fields["due_at"] == NOW
    keyless = open_submission(resend_until=None)
    assert answers.judge_held(claim(JobState.SUBMITTING, submission=keyless), now=NOW).job_fields["due_at"] > NOW


def test_a_window_that_closed_ends_as_unknown_and_never_as_failed() -> None:
    change = answers.judge_window_closed(claim(JobState.SUBMITTING), ACCOUNT, now=NOW)
    assert change.move.to_state is JobState.UNKNOWN
    assert change.move.fields["failure_class"] == FailureClass.UNKNOWN_OUTCOME
    assert "reconcile it first" in change.move.fields["failure_words"]
    assert change.alert[0] is AlertKind.UNKNOWN_OUTCOME


def test_an_id_that_was_recorded_late_ends_the_sending() -> None:
    known = open_submission(provider_job_id="pdf_9", in_doubt=False)
    change = answers.judge_id_known(claim(JobState.SUBMITTING, submission=known), ACCOUNT, now=NOW)
    assert change.move.to_state is JobState.ACCEPTED
    assert change.move.fields["deadline_at"] == NOW + timedelta(seconds=600)
    assert change.follow.step is FollowStep.POLL
    assert change.after.state is JobState.ACCEPTED


@pytest.mark.parametrize(
    ("state", "error", "to_state", "failure"),
    [
        (JobState.PENDING, errors.InvalidInput("Empty."), "failed", FailureClass.INVALID_INPUT),
        (JobState.PENDING, ObjectMissing("k"), "failed", FailureClass.INTERNAL),
        (JobState.SUBMITTING, ObjectMissing("k"), "unknown", FailureClass.INTERNAL),
        (JobState.PENDING, StoreUnavailable("Away."), None, None),
        (JobState.SUBMITTING, StoreFull("Full."), None, None),
    ],
)
def test_bytes_that_cannot_be_made_stop_the_document_and_a_store_that_is_away_only_delays_it(
    state: JobState, error: Any, to_state: str | None, failure: FailureClass | None
) -> None:
    change = answers.judge_unpreparable(claim(state), error, now=NOW, rng=RNG)
    assert (change.move.to_state.value if change.move else None) == to_state
    if change.move:
        assert change.move.fields["failure_class"] == failure
        assert error.words in change.move.words
    else:
        assert change.job_fields["due_at"] > NOW


# --- the exact bytes ---


class EchoingProvider:
    """Makes a request that is the document's text."""

    def prepare(self, source: DocumentSource) -> PreparedRequest:
        return PreparedRequest(route="/v1/pdf", body=f"{source.kind}:{source.text}".encode())


def _input(text: bytes | None, key: str | None = None) -> Input:
    return Input(kind="html", inline=text, key=key, filename="", options={})


def test_a_small_request_stays_in_its_row(store: DiskStore) -> None:
    prepared = preparing.prepare(claim(), _input(b"<p>"), EchoingProvider(), store)
    assert prepared.request.body == b"html:<p>"
    assert prepared.request_sha256 == hashlib.sha256(b"html:<p>").hexdigest()
    assert prepared.body_key is None
    assert not prepared.doubt_before
    assert keys_in(store) == []


def test_a_large_request_is_stored_before_any_row_names_it(store: DiskStore) -> None:
    text = b"x" * (ENGINE.inline_bytes_most + 1)
    prepared = preparing.prepare(claim(), _input(text), EchoingProvider(), store)
    with store.open(prepared.body_key) as stream:
        assert stream.read() == prepared.request.body


def test_a_large_input_is_read_from_the_store(store: DiskStore, tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes("<p>é</p>".encode())
    store.put("default/input", path)
    prepared = preparing.prepare(claim(), _input(None, "default/input"), EchoingProvider(), store)
    assert prepared.request.body == "html:<p>é</p>".encode()


def test_a_resend_takes_the_committed_bytes_wherever_they_lie(store: DiskStore, tmp_path: Path) -> None:
    again = preparing.prepare_again(claim(JobState.SUBMITTING), open_submission(), BODY, store)
    assert (again.request.body, again.doubt_before, again.is_resend) == (BODY, True, True)
    path = tmp_path / "body"
    path.write_bytes(BODY)
    store.put("default/body", path)
    known = open_submission(body_key="default/body", in_doubt=False)
    again = preparing.prepare_again(claim(JobState.SUBMITTING), known, None, store)
    assert (again.request.body, again.body_key, again.doubt_before) == (BODY, "default/body", False)


def test_committed_bytes_that_are_damaged_are_never_sent(store: DiskStore) -> None:
    with pytest.raises(ValueError, match="submission 71: the stored request bytes are damaged"):
        preparing.prepare_again(claim(JobState.SUBMITTING), open_submission(), BODY + b" ", store)


def test_committed_bytes_that_are_gone_say_so(store: DiskStore) -> None:
    store.put("default/other", io.BytesIO(b"the store itself is there"))
    with pytest.raises(ObjectMissing):
        preparing.prepare_again(claim(JobState.SUBMITTING), open_submission(body_key="default/gone"), None, store)


@pytest.mark.parametrize("held", [300_000_000_000, 10**30, "soon", None])
def test_an_accepted_document_keeps_its_id_whatever_the_accounts_row_holds(held: Any) -> None:
    """`judge_nothing` is the last word on a result: what it raised would end the pump with the id in memory."""
    odd = account(deadline_seconds=held)
    result = steps.Answered(sending().prepared.claim, sending(), Accepted("pdf_7", "queued", exchange()), NOW)
    change = answers.judge_nothing(result, OverflowError("a fault of ours"), odd, now=NOW)
    assert change.move.to_state is JobState.ACCEPTED
    assert change.submission_fields["provider_job_id"] == "pdf_7"
    assert NOW < change.move.fields["deadline_at"] <= NOW + timedelta(days=3650)
