"""Words, colours and the bar: every state and every failure has its own."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pytest

from batches import sentences, wording
from batches.engine import verbs
from batches.engine.answers import WHAT_TO_DO_UNKNOWN
from batches.engine.latewatch import ANSWERED
from batches.engine.verbs import Standing
from batches.models import Batch, FailureClass, HoldReason, JobState, ProviderAccount, Verb
from batches.models.accounts import pace_seconds
from batches.providers import errors
from batches.selectors import Counts, Progress
from batches.templatetags.batches_extras import BAR_WIDTH, LEAST_SEGMENT, number, segments
from batches.wording import BatchState, Group
from tests.factories import NOW

COLOURS = {"saved", "moving", "waiting", "held", "failed", "stopped"}

RESUME_IT = "When it may go on, resume it on its page."


def test_every_state_has_a_badge_and_every_failure_something_to_do() -> None:
    assert set(wording.JOB_BADGES) == set(JobState)
    assert set(wording.GROUP_BADGES) == set(Group)
    assert set(wording.BATCH_BADGES) == set(BatchState)
    assert set(wording.WHAT_TO_DO) == set(FailureClass)
    assert set(wording.HOLD_WHAT_TO_DO) == set(HoldReason)
    badges = [*wording.JOB_BADGES.values(), *wording.GROUP_BADGES.values(), *wording.BATCH_BADGES.values()]
    assert {badge.colour for badge in badges} <= COLOURS


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "less than a minute"),
        (49, "less than a minute"),
        (50, "about 1 min"),
        (3599, "about 1 h"),
        (12_000, "about 3 h 20 min"),
        (86_400, "about 1 day"),
        (200_000, "about 2 days"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert wording.duration(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.04, "+0.0 s"), (9.96, "+10.0 s"), (59.4, "+59 s"), (60, "+1 min"), (185, "+3 min 5 s"), (7800, "+2 h 10 min")],
)
def test_offsets(seconds: float, words: str) -> None:
    assert wording.offset(seconds) == words


@pytest.mark.parametrize(
    ("milliseconds", "words"), [(0, "as fast as it goes"), (50, "20 a second"), (3000, "one every 3 s")]
)
def test_paces(milliseconds: int, words: str) -> None:
    assert wording.pace(milliseconds) == words


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (999_960, "1.0 MB"),
        (2_000_000_000, "2.0 GB"),
    ],
)
def test_sizes(size: int, words: str) -> None:
    assert wording.size(size) == words


def test_a_masked_id_fetches_nothing() -> None:
    assert wording.masked("pdf_0123456789abcdef") == "pdf_••••••ef"
    assert wording.masked("short") == "•••••"


def test_numbers_are_whole_and_unknown_is_a_dash() -> None:
    assert (number(1284), number(0), number(None)) == ("1,284", "0", "–")


# --- the bar ----------------------------------------------------------------------------------------------------------


def test_the_bar_is_full_and_shows_even_three_of_a_hundred_thousand() -> None:
    progress = Progress(
        BatchState.RUNNING,
        Counts(saved=60_000, failed=3, in_progress=39_997),
        {JobState.PENDING: 39_990, JobState.ACCEPTED: 7},
    )
    drawn = segments(progress)
    assert [segment.colour for segment in drawn] == ["saved", "failed", "moving", "waiting"]
    assert all(segment.width >= LEAST_SEGMENT for segment in drawn)
    assert sum(segment.width for segment in drawn) == pytest.approx(BAR_WIDTH, abs=0.5)
    for left, right in pairwise(drawn):
        assert left.x + left.width == pytest.approx(right.x, abs=0.2)


def test_the_bar_of_nothing_is_empty() -> None:
    assert segments(Progress()) == []


# --- sentences ------------------------------------------------------------------------------------------------------


def batch_at(**account: object) -> Batch:
    return Batch(name="B", account=ProviderAccount(name="Sandbox", **{"submit_interval_ms": 3000, **account}))


@pytest.mark.parametrize(
    ("state", "counts", "states", "attention", "sentence"),
    [
        (
            BatchState.RUNNING,
            Counts(saved=1, in_progress=470),
            {"pending": 463, "submitting": 1, "accepted": 4, "rendered": 2},
            0,
            "Rendering: 5 at the provider, 2 being fetched, 463 waiting for their turn at one every 3 s.",
        ),
        (
            BatchState.RUNNING,
            Counts(in_progress=1, held=4),
            {"accepted": 1},
            0,
            "Rendering: 1 at the provider. 4 held.",
        ),
        (
            BatchState.RUNNING,
            Counts(in_progress=11),
            {"pending": 11},
            0,
            "Waiting for their turn: 11 documents, one every 3 s.",
        ),
        (
            BatchState.RUNNING,
            Counts(in_progress=3),
            {"submitting": 1, "pending": 2},
            0,
            "Sending: 1 at the provider, 2 waiting for their turn at one every 3 s.",
        ),
        (BatchState.RUNNING, Counts(in_progress=2), {"rendered": 2}, 0, "Fetching: 2 being fetched."),
        (BatchState.COMPLETE, Counts(saved=12), {}, 0, "All 12 documents are saved."),
        (BatchState.COMPLETE, Counts(saved=1), {}, 0, "The document is saved."),
        (
            BatchState.PARTIALLY_COMPLETE,
            Counts(saved=9, failed=3),
            {},
            3,
            "Ended: 9 of 12 documents are saved. 3 documents need a person.",
        ),
        (
            BatchState.PARTIALLY_COMPLETE,
            Counts(saved=9, failed=3),
            {},
            1,
            "Ended: 9 of 12 documents are saved, 3 failed. 1 document needs a person.",
        ),
        (BatchState.FAILED, Counts(failed=2), {}, 0, "Ended: none of 2 documents was saved."),
        (BatchState.CANCELLED, Counts(saved=1, cancelled=2), {}, 0, "Cancelled; 1 of 3 documents had been saved."),
        (BatchState.PAUSED, Counts(held=1), {}, 0, "Paused: 1 document waits and nothing new is sent."),
        (
            BatchState.RUNNING,
            Counts(in_progress=1),
            {"submitting": 1},
            0,
            "Sending: 1 at the provider.",
        ),
        (
            BatchState.HELD,
            Counts(held=60),
            {},
            0,
            "Nothing is sent while Sandbox is held: 60 documents wait, nothing is lost.",
        ),
    ],
)
def test_the_status_sentence(
    state: BatchState, counts: Counts, states: dict[str, int], attention: int, sentence: str
) -> None:
    assert sentences.status_sentence(batch_at(), Progress(state, counts, states, attention)) == sentence


@pytest.mark.parametrize(
    ("state", "counts", "states", "sentence"),
    [
        (
            BatchState.PAUSED,
            Counts(held=2),
            {},
            (
                "Paused: 2 documents wait and nothing new is sent. It was paused because: 5 failed, the limit is 5. "
                + RESUME_IT
            ),
        ),
        (
            BatchState.RUNNING,
            Counts(held=2, in_progress=1),
            {"accepted": 1},
            ("Paused because: 5 failed, the limit is 5; 1 still at the provider. 2 held. " + RESUME_IT),
        ),
        (
            BatchState.RUNNING,
            Counts(in_progress=29),
            {"accepted": 27, "rendered": 2},
            ("Paused because: 5 failed, the limit is 5; 27 still at the provider, 2 being fetched. " + RESUME_IT),
        ),
        (BatchState.COMPLETE, Counts(saved=2), {}, "All 2 documents are saved."),
    ],
)
def test_a_paused_batch_says_so_and_why_until_it_has_ended(
    state: BatchState, counts: Counts, states: dict[str, int], sentence: str
) -> None:
    batch = batch_at()
    batch.public_id, batch.paused_at, batch.pause_reason = "bat_1", NOW, "5 failed, the limit is 5"
    assert sentences.status_sentence(batch, Progress(state, counts, states)) == sentence


@pytest.mark.parametrize(
    ("states", "repeats", "held", "sentence"),
    [
        (
            {"submitting": 15},
            15,
            True,
            (
                "Nothing new is sent while Sandbox is held; nothing is lost. No clear answer came for 15 documents; "
                "they are sent again with the same key from 09:00:00 UTC on."
            ),
        ),
        (
            {"submitting": 3, "accepted": 2},
            1,
            False,
            (
                "Rendering: 4 at the provider. No clear answer came for 1 document; it is sent again with the same key "
                "from 09:00:00 UTC on."
            ),
        ),
        (
            {"submitting": 1, "pending": 2},
            1,
            False,
            (
                "Waiting for their turn: 2 documents, one every 3 s. No clear answer came for 1 document; it is sent "
                "again with the same key from 09:00:00 UTC on."
            ),
        ),
        ({"accepted": 2}, 0, True, "Rendering: 2 at the provider."),
    ],
)
def test_a_running_batch_tells_of_a_hold_and_of_what_is_sent_again(
    states: dict[str, int], repeats: int, held: bool, sentence: str
) -> None:
    batch = batch_at()
    counts = Counts(in_progress=sum(states.values()))
    progress = Progress(BatchState.RUNNING, counts, states, repeat_count=repeats, repeat_at=NOW)
    assert sentences.status_sentence(batch, progress, [batch.account] if held else []) == sentence


@pytest.mark.parametrize(
    ("progress", "sentence"),
    [
        (
            Progress(BatchState.RUNNING, Counts(cancelled=3, in_progress=2), {"accepted": 1, "rendered": 1}),
            "Cancelled because: wrong prices; 2 are still at the provider and will be saved.",
        ),
        (
            Progress(BatchState.RUNNING, Counts(in_progress=2), {"accepted": 1, "pending": 1}, unneeded_count=1),
            (
                "Cancelled because: wrong prices; 1 is still at the provider and will be saved. "
                "1 could not be rendered and is not sent again."
            ),
        ),
        (
            Progress(BatchState.RUNNING, Counts(in_progress=2), {"pending": 2}),
            "Cancelled because: wrong prices; nothing new of it is sent. 2 are sent all the same, for another batch.",
        ),
        (
            Progress(BatchState.HELD, Counts(held=1, saved=1)),
            "Cancelled because: wrong prices; nothing new of it is sent. 1 held.",
        ),
        (
            Progress(BatchState.CANCELLED, Counts(saved=1, cancelled=2)),
            "Cancelled because: wrong prices; 1 of 3 documents had been saved.",
        ),
        (
            Progress(BatchState.PARTIALLY_COMPLETE, Counts(saved=1, failed=1, cancelled=1)),
            "Ended: 1 of 3 documents are saved, 1 failed. It was cancelled because: wrong prices.",
        ),
        (Progress(BatchState.COMPLETE, Counts(saved=2)), "All 2 documents are saved."),
    ],
)
def test_a_cancelled_batch_says_so_and_why_and_what_still_becomes_of_it(progress: Progress, sentence: str) -> None:
    batch = batch_at()
    batch.cancelled_at = NOW
    assert sentences.status_sentence(batch, progress, cancelled_because="wrong prices.") == sentence


def test_what_nobody_needs_any_more_is_not_counted_as_waiting() -> None:
    progress = Progress(BatchState.RUNNING, Counts(in_progress=9), {"pending": 8, "accepted": 1}, unneeded_count=8)
    assert sentences.breakdown(progress) == "1 rendering, 8 not sent again"
    assert sentences.sending_estimate(batch_at(), progress) == ""


@pytest.mark.parametrize(
    ("state", "is_paused", "is_cancelled", "label"),
    [
        (BatchState.RUNNING, False, False, None),
        (BatchState.RUNNING, True, False, "Paused"),
        (BatchState.RUNNING, False, True, "Cancelled"),
        (BatchState.HELD, True, False, "Paused"),
        (BatchState.PAUSED, True, False, None),
        (BatchState.COMPLETE, True, False, None),
        (BatchState.CANCELLED, False, True, None),
    ],
)
def test_a_second_badge_says_that_nothing_new_is_sent(
    state: str, is_paused: bool, is_cancelled: bool, label: str | None
) -> None:
    badge = wording.second_badge(state, is_paused=is_paused, is_cancelled=is_cancelled)
    assert (badge.label if badge else None) == label


def test_the_sentence_tells_the_pace_of_the_slowest_limit() -> None:
    batch = batch_at(submit_interval_ms=50, submit_windows=[[20, 60], [5, 10]])
    waiting = Progress(BatchState.RUNNING, Counts(in_progress=2), {"pending": 2})
    assert sentences.status_sentence(batch, waiting) == "Waiting for their turn: 2 documents, one every 3 s."


@pytest.mark.parametrize(
    ("text", "ended"),
    [("month end", "month end."), ("Gone.", "Gone."), ("Why?", "Why?"), ("", ""), (" a ", "a.")],
)
def test_words_of_a_person_end_in_a_full_stop(text: str, ended: str) -> None:
    assert wording.sentence(text) == ended


def test_a_stored_file_that_was_lost_is_told_apart_from_one_that_never_came() -> None:
    lost = ("expired", wording.OBJECT_LOST)
    assert wording.failure_label(*lost) != wording.failure_label("expired", "")
    assert "backup" in wording.what_to_do(*lost)
    assert "before we had it" in wording.what_to_do("expired", "")
    assert wording.what_to_do("", "") == wording.failure_label("", "") == ""


#: How documents of a class may stand, by which the advice is judged.
STANDS: dict[str, list[Standing]] = {
    FailureClass.TRANSIENT: [Standing(JobState.FAILED)],
    FailureClass.RATE_LIMITED: [Standing(JobState.FAILED)],
    FailureClass.AUTH: [Standing(JobState.FAILED)],
    FailureClass.INSUFFICIENT_CREDIT: [Standing(JobState.FAILED)],
    FailureClass.INVALID_INPUT: [Standing(JobState.FAILED)],
    FailureClass.RENDER_FAILED: [
        Standing(JobState.FAILED, has_id=True),
        Standing(JobState.FAILED, has_id=True, may_bill=True),
    ],
    FailureClass.INTERNAL: [Standing(JobState.FAILED), Standing(JobState.FAILED, in_doubt=True, may_bill=True)],
    FailureClass.BAD_OUTPUT: [Standing(JobState.FAILED, has_id=True, may_bill=True)],
    FailureClass.IDEMPOTENCY_CONFLICT: [Standing(JobState.UNKNOWN, in_doubt=True, may_bill=True)],
    FailureClass.UNKNOWN_OUTCOME: [
        Standing(JobState.UNKNOWN, in_doubt=True, may_bill=True, resend_until=NOW + timedelta(hours=1))
    ],
    FailureClass.DEADLINE_EXCEEDED: [Standing(JobState.DEADLINE_EXCEEDED, has_id=True, may_bill=True)],
    FailureClass.JOB_NOT_FOUND: [Standing(JobState.DEADLINE_EXCEEDED, has_id=True, may_bill=True)],
    FailureClass.EXPIRED: [Standing(JobState.EXPIRED, has_id=True, may_bill=True)],
}
NAMED = re.compile(f"({'|'.join(verb.label for verb in Verb)}) \\(([^)]*)\\)")


@pytest.mark.parametrize("failure_class", FailureClass)
def test_advice_names_verbs_that_such_a_document_allows_for_the_price_that_it_says(failure_class: str) -> None:
    text, suggested = wording.WHAT_TO_DO[failure_class], wording.suggested_verb(failure_class, "")
    by_label = {verb.label: verb for verb in Verb}
    named = {by_label[label]: price for label, price in NAMED.findall(text)}
    assert named
    assert suggested is None or suggested in named
    stands = [replace(standing, failure_class=failure_class) for standing in STANDS[failure_class]]
    for verb, price in named.items():
        answers = [verbs.answer(verb, standing, now=NOW) for standing in stands]
        assert {answer.price.value for answer in answers if answer.price} == {price}, verb
    said = {label for label in by_label if label in text}
    assert {by_label[label] for label in said} == set(named), "a verb is named with its price"


def test_no_text_sends_a_person_elsewhere_where_a_verb_would_do() -> None:
    texts = [*wording.WHAT_TO_DO.values(), wording.what_to_do("expired", wording.OBJECT_LOST), WHAT_TO_DO_UNKNOWN]
    for words in ("new id", "at the provider first", "before anything else"):
        assert not [text for text in texts if words in text]


def test_every_reason_that_the_engine_gives_an_event_has_words() -> None:
    engine = Path(wording.__file__).parent / "engine"
    reasons = {
        reason
        for path in engine.glob("*.py")
        for reason in re.findall(r'\breason="([a-z_]+)"', path.read_text(encoding="utf-8"))
    }
    assert len(reasons) > 20
    assert reasons | {ANSWERED} <= set(wording.EVENT_WORDS)


def test_every_provider_error_has_words() -> None:
    named = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert set(wording.ERROR_WORDS) == named - {"ProviderError", "Refused"}


@pytest.mark.parametrize(
    ("account", "count", "seconds"),
    [
        ({"submit_interval_ms": 3000}, 1, 0),
        ({"submit_interval_ms": 3000}, 101, 300),
        ({"submit_interval_ms": 50, "submit_windows": [[20, 60], [5, 10]]}, 120, 300),
        ({"submit_interval_ms": 3000, "submit_burst": 5}, 5, 0),
        ({"submit_interval_ms": 3000}, 0, 0),
    ],
)
def test_the_slowest_limit_decides_how_long_sending_takes(
    account: dict[str, object], count: int, seconds: float
) -> None:
    assert pace_seconds(batch_at(**account).account, count) == seconds


def test_the_estimate_tells_cost_only_where_a_price_is_known() -> None:
    assert sentences.estimate(batch_at().account, 1240).cost == ""
    priced = batch_at(price_per_job=Decimal("0.0013"), price_currency="USD").account
    assert sentences.estimate(priced, 1240).cost == "1.61 USD"
    assert sentences.estimate(priced, 12).cost == "0.0156 USD"
    assert sentences.estimate(priced, 0).cost == "0.00 USD"
