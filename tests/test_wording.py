"""Words, colours and the bar: every state and every failure has its own."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from batches import figures, wording
from batches.engine import verbs
from batches.engine.answers import WHAT_TO_DO_UNKNOWN
from batches.engine.latewatch import ANSWERED
from batches.engine.verbs import Standing
from batches.models import FailureClass, HoldReason, JobState, Verb
from batches.providers import errors
from batches.selectors import Counts, Progress
from batches.templatetags.batches_extras import BAR_WIDTH, LEAST_SEGMENT, number, segments
from batches.wording import BatchState, Group
from tests.factories import NOW

COLOURS = {"saved", "moving", "waiting", "held", "failed", "stopped"}


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
    assert figures.duration(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.04, "+0.0 s"), (9.96, "+10.0 s"), (59.4, "+59 s"), (60, "+1 min"), (185, "+3 min 5 s"), (7800, "+2 h 10 min")],
)
def test_offsets(seconds: float, words: str) -> None:
    assert figures.offset(seconds) == words


@pytest.mark.parametrize(
    ("milliseconds", "words"), [(0, "as fast as it goes"), (50, "20 a second"), (3000, "one every 3 s")]
)
def test_paces(milliseconds: int, words: str) -> None:
    assert figures.pace(milliseconds) == words


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
    assert figures.size(size) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (7 * 86_400 - 1, "in 7 days"),  # an export that is kept for 7 days, looked at when it was built
        (6.4 * 86_400, "in 6 days"),
        (2 * 86_400 - 1, "in 48 hours"),
        (5400, "in 90 minutes"),
        (80, "in a minute"),
        (59, "in less than a minute"),
        (0, "now"),
    ],
)
def test_what_is_left_of_a_time(seconds: float, words: str) -> None:
    assert figures.until(NOW + timedelta(seconds=seconds), now=NOW) == words


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
