"""How long is waited before a submission, a status read or a probe is made again."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from batches.conf import ENGINE
from batches.engine import retries
from batches.models.accounts import POLL_INITIAL_MS_LEAST, POLL_MAX_MS_LEAST
from batches.providers import errors
from tests.engine.samples import Dice
from tests.factories import NOW


@pytest.mark.parametrize("tries", [0, 1, 2, 5, 6, 16, 17, 1000])
def test_backoff_stays_between_a_quarter_second_and_its_growing_ceiling(tries: int) -> None:
    ceiling = min(ENGINE.backoff_most_seconds, ENGINE.backoff_first_seconds * 2**tries)
    rng = random.Random(1)
    for _ in range(200):
        wait = retries.backoff(tries, rng).total_seconds()
        assert 0.25 <= wait <= ceiling
    assert retries.backoff(tries, Dice(1)).total_seconds() == ceiling
    assert retries.backoff(tries, Dice(0)).total_seconds() == 0.25


def test_conflicts_are_asked_about_for_as_long_as_a_slow_render_takes() -> None:
    waits = [retries.conflict_wait(tries, Dice(1)).total_seconds() for tries in range(1, ENGINE.submit_tries_most)]
    assert waits == [6, 18, 54, 162, 240]
    assert [retries.conflict_wait(tries, Dice(0)).total_seconds() for tries in (1, 2)] == [3, 9]
    assert retries.conflict_wait(10_000, Dice(1)).total_seconds() == 240


@pytest.mark.parametrize(
    ("asked", "least", "most"),
    [
        (None, 1.0, 4.0),  # no word: a few seconds of our own
        (0.0, 0.0, 0.0),
        (-5.0, 0.0, 0.0),
        (7.25, 7.25, 7.25),
        (9_999_999_999.0, ENGINE.retry_after_most_seconds, ENGINE.retry_after_most_seconds),
        (float("inf"), ENGINE.retry_after_most_seconds, ENGINE.retry_after_most_seconds),
    ],
)
@pytest.mark.parametrize("place", [0, 0.5, 1])
def test_a_retry_after_is_kept_within_bounds_and_a_little_late(
    asked: float | None, least: float, most: float, place: float
) -> None:
    wait = retries.retry_after(errors.RateLimited("Slower.", retry_after=asked), Dice(place)).total_seconds()
    skew = ENGINE.retry_after_skew_seconds + place * ENGINE.retry_after_spread_seconds
    assert least + skew - 1e-6 <= wait <= most + skew + 1e-6


@pytest.mark.parametrize("polls", [0, 1, 3, 8, 32, 33, 10_000])
def test_status_reads_grow_apart_up_to_the_cap(polls: int) -> None:
    middle = min(15_000, 1000 * ENGINE.poll_growth ** min(polls, 100)) / 1000
    for place, factor in ((0, 0.8), (0.5, 1.0), (1, 1.2)):
        delay = retries.poll_delay(polls, initial_ms=1000, most_ms=15_000, rng=Dice(place)).total_seconds()
        assert delay == pytest.approx(middle * factor, abs=1e-6)


def test_a_cap_below_the_first_delay_wins() -> None:
    assert retries.poll_delay(0, initial_ms=5000, most_ms=300, rng=Dice(0.5)) == timedelta(milliseconds=300)


@pytest.mark.parametrize("polls", [0, 40])
def test_a_row_that_was_written_past_the_model_makes_no_hot_loop(polls: int) -> None:
    delay = retries.poll_delay(polls, initial_ms=0, most_ms=0, rng=Dice(0))
    assert delay >= timedelta(milliseconds=0.8 * (POLL_MAX_MS_LEAST if polls else POLL_INITIAL_MS_LEAST))


@pytest.mark.parametrize("failures", [-3, 0, 1, 2, 5, 17, 400])
def test_probes_come_later_and_later_up_to_the_cap(failures: int) -> None:
    ceiling = min(ENGINE.probe_most_seconds, ENGINE.probe_first_seconds * 2 ** max(failures - 1, 0))
    assert retries.probe_delay(failures, Dice(1)).total_seconds() == pytest.approx(ceiling)
    assert retries.probe_delay(failures, Dice(0)).total_seconds() == pytest.approx(0.7 * ceiling)


def test_the_six_tries_of_what_may_have_arrived_outlast_a_short_outage() -> None:
    later = NOW + timedelta(hours=1)
    waits = [
        retries.doubt_wait(tries, Dice(1), resend_until=later, now=NOW).total_seconds()
        for tries in range(1, ENGINE.submit_tries_most)
    ]
    assert waits == [2, 4, 30, 120, 240]
    assert retries.doubt_wait(4, Dice(0), resend_until=later, now=NOW).total_seconds() == 0.25


def test_a_repeat_waits_no_longer_than_half_of_what_its_window_has_left() -> None:
    until = NOW + timedelta(seconds=ENGINE.read_timeout + 40)
    assert retries.doubt_wait(5, Dice(1), resend_until=until, now=NOW).total_seconds() == 20
    assert retries.doubt_wait(5, Dice(1), resend_until=NOW, now=NOW).total_seconds() == 0.25
