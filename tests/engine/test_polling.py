"""What a status read means: only two words end a job, and a read that failed proves nothing."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from batches.conf import ENGINE
from batches.engine import polling
from batches.engine.changes import Change, FollowStep
from batches.engine.effects import AccountEffect
from batches.engine.polling import PollContext
from batches.models import AlertKind, FailureClass, HoldReason, JobState, Lane
from batches.providers import errors
from batches.providers.base import JobPhase, ResultRef
from tests.engine.samples import Dice, accepted_submission, account, claim, exchange, status
from tests.factories import NOW

DEADLINE = NOW + timedelta(seconds=1800)


def context(*, at: datetime = NOW, place: float = 0.5, **account_fields: Any) -> PollContext:
    return PollContext(account(**account_fields), at, Dice(place))


def accepted(**fields: Any) -> Any:
    return claim(JobState.ACCEPTED, **fields)


def _goes_on(change: Change) -> None:
    assert change.move is None
    assert change.follow is not None
    assert change.follow.step is FollowStep.POLL
    assert change.after is not None
    assert change.after.due_at == change.follow.due_at == change.job_fields["due_at"]
    assert change.after.poll_count == change.job_fields["poll_count"]


@pytest.mark.parametrize("word", ["queued", "processing", "rendering-v2", "canceled", "done?", "", "x" * 500])
def test_a_word_that_is_not_final_is_kept_and_read_again(word: str) -> None:
    change = polling.judge_status(accepted(), status(JobPhase.RUNNING, word), context())
    _goes_on(change)
    assert change.job_fields["provider_status"] == word[:100]
    assert change.job_fields["provider_status_at"] == NOW
    assert change.follow.due_at == NOW + timedelta(seconds=1.6)


def test_success_goes_on_to_the_download_at_once_with_where_the_file_lies() -> None:
    expires_at = NOW + timedelta(hours=24)
    result = ResultRef("pdf_7", url="http://127.0.0.1:9/v1/files/7", size_bytes=900, expires_at=expires_at)
    change = polling.judge_status(accepted(), status(JobPhase.SUCCEEDED, "completed", result=result), context())
    assert change.move.to_state is JobState.RENDERED
    assert change.follow.step is FollowStep.FETCH
    assert change.after.state is JobState.RENDERED
    assert change.after.submission.result == change.submission_fields["result"]
    assert change.submission_fields["result"] == {
        "url": "http://127.0.0.1:9/v1/files/7",
        "size_bytes": 900,
        "expires_at": expires_at.isoformat(),
        "filename": "",
        "made_at": NOW.isoformat(),
    }


def test_success_after_the_deadline_is_success() -> None:
    change = polling.judge_status(
        accepted(), status(JobPhase.SUCCEEDED, "completed"), context(at=DEADLINE + timedelta(hours=1))
    )
    assert change.move.to_state is JobState.RENDERED


@pytest.mark.parametrize(
    ("code", "words", "shown"),
    [
        ("font_missing", "A font is missing.", "A font is missing."),
        ("", "", "The provider could not render this document."),
        ("c" * 300, "Long.", "Long."),
    ],
)
def test_a_failed_job_ends_with_the_providers_own_code_and_words(code: str, words: str, shown: str) -> None:
    change = polling.judge_status(
        accepted(), status(JobPhase.FAILED, "failed", error_code=code, error_words=words), context()
    )
    assert change.move.to_state is JobState.FAILED
    assert change.move.fields["failure_class"] == FailureClass.RENDER_FAILED
    assert change.move.fields["failure_code"] == code[:100]
    assert change.move.fields["failure_words"] == shown
    assert change.submission_fields["outcome"] == "render_failed"
    assert change.follow is None


def test_a_failure_for_want_of_credit_says_so_and_holds_the_account() -> None:
    failed = status(JobPhase.FAILED, "failure", error_words="No documents are left.", no_credit=True)
    change = polling.judge_status(accepted(), failed, context())
    assert change.move.fields["failure_class"] == FailureClass.INSUFFICIENT_CREDIT
    assert change.move.fields["failure_words"] == "No documents are left."
    assert (change.effect.hold, change.effect.words) == (HoldReason.CREDIT, "No documents are left.")


# --- failed and not billed ---

CAP = timedelta(milliseconds=15_000)


def unbilled(*, at: datetime = NOW, **fields: Any) -> Any:
    return status(
        JobPhase.FAILED, "failed", at=at, error_code="render_failed", error_words="No.", unbilled=True, **fields
    )


def test_the_first_time_that_it_is_read_as_failed_and_unbilled_it_is_read_once_more_a_poll_cap_later() -> None:
    change = polling.judge_status(accepted(), unbilled(), context(place=0))
    assert change.move is None
    assert change.submission_fields == {"failed_at": NOW}
    assert change.after.submission.failed_at == NOW
    assert change.follow.due_at == change.job_fields["due_at"] == NOW + CAP
    assert polling.judge_status(accepted(), unbilled(), context(place=1)).follow.due_at == NOW + CAP * 1.2


@pytest.mark.parametrize(("after", "believed"), [(0.0, False), (14.999, False), (15.0, True), (4000.0, True)])
def test_only_a_second_read_a_poll_cap_later_is_believed_and_renders_again(after: float, believed: bool) -> None:
    known = accepted(submission=accepted_submission(failed_at=NOW))
    at = NOW + timedelta(seconds=after)
    change = polling.judge_status(known, unbilled(at=at), context(at=at))
    assert (change.move is not None) is believed
    if not believed:
        assert change.follow.due_at >= NOW + CAP
        assert change.submission_fields == {"failed_at": NOW}, "the first read stays the first"
        return
    assert change.move.to_state is JobState.PENDING
    assert change.move.reason == "render_again"
    assert change.move.fields["deadline_at"] is None
    assert change.submission_fields == {
        "outcome": "render_failed",
        "closed_at": at,
        "failed_at": NOW,
        "failed_again_at": at,
    }
    kept = {name: change.move.fields[name] for name in ("failure_code", "failure_words")}
    assert kept == {"failure_code": "render_failed", "failure_words": "No."}, (
        "what it waits for is known while it waits"
    )
    assert "provider_job_id" not in change.submission_fields, "the closed one keeps its id"
    assert change.follow is None


@pytest.mark.parametrize(("sequence", "again"), [(1, True), (2, True), (3, False), (9, False)])
def test_at_most_two_more_submissions_follow(sequence: int, again: bool) -> None:
    known = accepted(submission=accepted_submission(failed_at=NOW, sequence=sequence))
    at = NOW + CAP
    change = polling.judge_status(known, unbilled(at=at), context(at=at))
    assert change.move.to_state is (JobState.PENDING if again else JobState.FAILED)


@pytest.mark.parametrize(
    ("failed_at", "after", "said"), [(None, 15, (15, None)), (0, 14.9, (0, None)), (0, 15, (0, 15))]
)
def test_the_last_submission_that_failed_keeps_when_it_was_read_as_unbilled(
    failed_at: float | None, after: float, said: tuple[float, float | None]
) -> None:
    """At the end of what is sent by itself one reading closes it; a second, a poll cap later, proves it unbilled."""

    def instant(seconds: float | None) -> datetime | None:
        return None if seconds is None else NOW + timedelta(seconds=seconds)

    known = accepted(submission=accepted_submission(failed_at=instant(failed_at), sequence=3))
    at = NOW + timedelta(seconds=after)
    fields = polling.judge_status(known, unbilled(at=at), context(at=at)).submission_fields
    assert (fields["failed_at"], fields["failed_again_at"]) == (instant(said[0]), instant(said[1]))


@pytest.mark.parametrize("failed_at", [None, NOW])
def test_a_failure_that_may_be_billed_is_final(failed_at: datetime | None) -> None:
    known = accepted(submission=accepted_submission(failed_at=failed_at))
    at = NOW + CAP
    change = polling.judge_status(known, status(JobPhase.FAILED, "failed", at=at, error_code="odd"), context(at=at))
    assert change.move.to_state is JobState.FAILED
    assert (change.submission_fields["failed_at"], change.submission_fields["failed_again_at"]) == (None, None)


def test_a_job_that_is_not_failed_after_all_starts_the_count_anew() -> None:
    known = accepted(submission=accepted_submission(failed_at=NOW))
    change = polling.judge_status(known, status(JobPhase.RUNNING, "processing"), context())
    assert change.submission_fields == {"failed_at": None}
    assert change.after.submission.failed_at is None
    done = polling.judge_status(known, status(JobPhase.SUCCEEDED, "completed"), context())
    assert done.move.to_state is JobState.RENDERED
    assert done.submission_fields["failed_at"] is None


@pytest.mark.parametrize("kind", [errors.NotSent, errors.ServerFault, errors.NotFound])
def test_a_read_that_failed_is_no_second_reading(kind: type[errors.ProviderError]) -> None:
    known = accepted(submission=accepted_submission(failed_at=NOW))
    at = NOW + CAP
    change = polling.judge_error(known, kind("No.", exchange=exchange("poll", at=at)), context(at=at))
    assert (change.move, change.submission_fields, change.after.submission.failed_at) == (None, {}, NOW)


@pytest.mark.parametrize(("polls", "seconds"), [(0, 1.6), (1, 2.56), (2, 4.096), (5, 15.0), (60, 15.0)])
def test_reads_grow_apart_with_every_read(polls: int, seconds: float) -> None:
    change = polling.judge_status(accepted(poll_count=polls), status(JobPhase.RUNNING, "processing"), context())
    assert (change.follow.due_at - NOW).total_seconds() == pytest.approx(seconds)


def test_the_first_read_comes_after_the_accounts_first_delay() -> None:
    assert polling.first_due(account(poll_initial_ms=700), None, now=NOW, rng=Dice(0.5)) == NOW + timedelta(
        milliseconds=700
    )


def test_the_read_that_would_jump_over_the_deadline_is_made_at_the_deadline() -> None:
    at = DEADLINE - timedelta(seconds=3)
    change = polling.judge_status(accepted(poll_count=40), status(JobPhase.RUNNING, "processing"), context(at=at))
    assert change.follow.due_at == DEADLINE


@pytest.mark.parametrize("seconds_past", [0, 1, 3600])
def test_a_read_at_or_after_the_deadline_that_is_not_final_ends_the_wait(seconds_past: float) -> None:
    at = DEADLINE + timedelta(seconds=seconds_past)
    change = polling.judge_status(
        accepted(poll_count=9), status(JobPhase.RUNNING, "rendering-v2", at=at), context(at=at)
    )
    assert change.move.to_state is JobState.DEADLINE_EXCEEDED
    assert change.move.fields["failure_class"] == FailureClass.DEADLINE_EXCEEDED
    kind, words = change.alert
    assert kind is AlertKind.DEADLINE_EXCEEDED
    for part in ("INV-7", f"{1800 + seconds_past:.0f} s", "“rendering-v2”", "10 status reads", "id is kept"):
        assert part in words
    assert change.submission_fields == {}, "the submission stays open, with its id"


@pytest.mark.parametrize("answered", [-timedelta(microseconds=1), timedelta(0), timedelta(seconds=20)])
def test_a_read_that_began_before_the_deadline_never_ends_the_wait_however_late_it_is_answered(
    answered: timedelta,
) -> None:
    """What it says is from before the deadline; the job may have been finished in between."""
    began = DEADLINE - timedelta(microseconds=1)
    known, about = accepted(poll_count=40), context(at=DEADLINE + answered)
    again = polling.judge_status(known, status(JobPhase.RUNNING, "processing", at=began), about)
    _goes_on(again)
    _goes_on(polling.judge_error(known, errors.AnswerLost("No.", exchange=exchange("poll", at=began)), about))
    assert again.follow.due_at >= DEADLINE, "the next one decides"


# --- reads that failed ---

READ_ERRORS = [
    errors.NotSent,
    errors.AnswerLost,
    errors.ServerFault,
    errors.ContractBroken,
    errors.NotFound,
    errors.Unauthorized,
    errors.RateLimited,
]


@pytest.mark.parametrize("kind", READ_ERRORS)
def test_a_failed_read_before_the_deadline_proves_nothing(kind: type[errors.ProviderError]) -> None:
    facts = exchange("poll", status=500)
    change = polling.judge_error(accepted(poll_count=2), kind("No.", exchange=facts), context())
    _goes_on(change)
    assert change.job_fields["poll_count"] == 3
    assert "provider_status" not in change.job_fields, "what was last seen stays on show"
    assert change.exchanges == ((facts, 71),)


@pytest.mark.parametrize(
    ("kind", "failure"),
    [
        (errors.NotSent, FailureClass.DEADLINE_EXCEEDED),
        (errors.AnswerLost, FailureClass.DEADLINE_EXCEEDED),
        (errors.ServerFault, FailureClass.DEADLINE_EXCEEDED),
        (errors.ContractBroken, FailureClass.DEADLINE_EXCEEDED),
        (errors.RateLimited, FailureClass.DEADLINE_EXCEEDED),
        (errors.NotFound, FailureClass.JOB_NOT_FOUND),
    ],
)
@pytest.mark.parametrize("with_exchange", [True, False])
def test_a_failed_read_after_the_deadline_ends_the_wait_with_the_id_kept(
    kind: type[errors.ProviderError], failure: FailureClass, with_exchange: bool
) -> None:
    facts = exchange("poll", at=DEADLINE) if with_exchange else None
    change = polling.judge_error(accepted(), kind("Gateway trouble.", exchange=facts), context(at=DEADLINE))
    assert change.move.to_state is JobState.DEADLINE_EXCEEDED
    assert change.move.fields["failure_class"] == failure
    said = "does not know this job" if kind is errors.NotFound else "Gateway trouble."
    assert said in change.move.words
    assert change.submission_fields == {}
    assert change.effect.transport_failure is (kind in (errors.NotSent, errors.AnswerLost, errors.ServerFault))
    assert change.effect.hold is None
    assert (change.effect.cool_down_until is not None) is (kind is errors.RateLimited), "other reads go on"


def test_a_refused_key_holds_the_account_and_never_ends_a_job() -> None:
    change = polling.judge_error(accepted(), errors.Unauthorized("Bad key."), context(at=DEADLINE))
    _goes_on(change)
    assert change.effect.hold is HoldReason.AUTH


def test_an_empty_wallet_holds_the_account_also_when_a_read_says_so_and_reading_goes_on() -> None:
    change = polling.judge_error(accepted(), errors.InsufficientCredit("No funds."), context())
    _goes_on(change)
    assert (change.effect.hold, change.effect.words) == (HoldReason.CREDIT, "No funds.")


@pytest.mark.parametrize(
    ("health", "reason", "ends"),
    [
        ("open", "", True),
        ("held", HoldReason.AUTH, False),  # with a refused key nobody can read; the wait goes on until it is replaced
        ("held", HoldReason.CREDIT, True),
        ("held", HoldReason.UNREACHABLE, True),
        ("held", HoldReason.PERSON, True),
    ],
)
def test_the_deadline_is_not_declared_while_the_key_is_refused(health: str, reason: str, ends: bool) -> None:
    about = context(at=DEADLINE, health=health, hold_reason=reason)
    change = polling.judge_error(accepted(), errors.ServerFault("Trouble."), about)
    assert (change.move is not None) is ends


def test_a_429_pauses_the_status_reads_of_the_account_and_not_its_submissions() -> None:
    change = polling.judge_error(accepted(), errors.RateLimited("Slower.", retry_after=40.0), context())
    _goes_on(change)
    assert change.effect.cool_down_lane is Lane.POLL
    until = change.follow.due_at
    assert change.effect.cool_down_until == until
    assert NOW + timedelta(seconds=40.5) <= until <= NOW + timedelta(seconds=41.5), "its wait, some skew, some jitter"


@pytest.mark.parametrize(("asked", "kept"), [(90.0, 90.0), (86_400.0, ENGINE.retry_after_most_seconds)])
def test_a_wait_that_a_5xx_asked_for_is_kept_within_bounds(asked: float, kept: float) -> None:
    change = polling.judge_error(accepted(), errors.ServerFault("Later.", retry_after=asked), context())
    assert change.follow.due_at == NOW + timedelta(seconds=kept)
    assert change.effect == AccountEffect(transport_failure=True, words="Later."), "it counts for the breaker"


@pytest.mark.parametrize("url", ["https://files.test/7\0", "https://files.test/\n7", "https://files.test/\ud83d"])
def test_an_address_that_no_database_takes_is_not_kept_and_the_id_finds_the_file(url: str) -> None:
    result = ResultRef("pdf_7", url=url, size_bytes=900)
    change = polling.judge_status(accepted(), status(JobPhase.SUCCEEDED, "completed", result=result), context())
    assert change.submission_fields["result"]["url"] == ""
    assert change.move.to_state is JobState.RENDERED


# --- what the words at a deadline are made of ---


def test_elapsed_is_counted_from_the_acceptance_whatever_state_it_came_back_from() -> None:
    since = NOW - timedelta(minutes=30)
    known = accepted_submission(accepted_at=since)
    late = claim(JobState.ACCEPTED, submission=known, deadline_at=NOW, state_changed_at=NOW - timedelta(seconds=9))
    change = polling.judge_status(late, status(JobPhase.RUNNING, "queued", at=NOW), context(at=NOW))
    assert "No result 1800 s after it was accepted (deadline 1800 s" in change.move.words


@pytest.mark.parametrize("word", ["warming", ""])
def test_where_the_last_read_failed_the_last_status_that_was_seen_is_said_too(word: str) -> None:
    seen = polling.judge_status(accepted(), status(JobPhase.RUNNING, word), context()).after
    change = polling.judge_error(seen, errors.ServerFault("Trouble."), context(at=DEADLINE))
    assert "The last status read failed: Trouble." in change.move.words
    assert ("The last status seen was “warming”." in change.move.words) is bool(word)


def test_where_no_status_was_ever_seen_that_is_said() -> None:
    change = polling.judge_error(accepted(), errors.ServerFault("Trouble."), context(at=DEADLINE))
    assert "No status was ever seen." in change.move.words


@pytest.mark.parametrize("kind", [errors.ServerFault, errors.NotFound])
def test_the_alert_names_the_provider_job_without_what_makes_it_a_key_and_what_to_do(
    kind: type[errors.ProviderError],
) -> None:
    known = accepted_submission(provider_job_id="pdf_0123456789")
    late = claim(JobState.ACCEPTED, submission=known)
    alert_kind, words = polling.judge_error(late, kind("Trouble."), context(at=DEADLINE)).alert
    assert alert_kind is AlertKind.DEADLINE_EXCEEDED
    assert "Provider job pdf_••••••89." in words
    assert "0123456789" not in words
    assert "Check again (free)" in words
