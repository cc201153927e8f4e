"""What is going on, in sentences: of a batch in every state, and how long sending takes and what it costs."""

from __future__ import annotations

from decimal import Decimal

import pytest

from batches import sentences, wording
from batches.models import Batch, ProviderAccount
from batches.models.accounts import pace_seconds
from batches.selectors import Counts, Progress
from batches.wording import BatchState
from tests.factories import NOW

RESUME_IT = "When it may go on, resume it on its page."


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
