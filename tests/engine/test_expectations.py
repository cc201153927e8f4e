"""What is learned from durations: no drift over many rounds, few reads, little delay, and the old forgotten."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from batches.conf import ENGINE
from batches.engine import expectations, reads
from batches.engine.expectations import PollPlan, Sample
from tests.engine.samples import Dice

#: How long an answer takes, in seconds: an end is known a little later than the read began.
ANSWER = 0.005
#: A plan is made anew after so many documents.
EVERY = 50


@dataclass(frozen=True)
class Cost:
    """What a stretch of documents cost: status reads each, and delay as a share of the duration."""

    reads: float
    median_delay: float
    mean_delay: float


def live(duration: Callable[[random.Random, int], float], documents: int, *, seed: int = 7) -> list[tuple[int, float]]:
    """Learn from one's own reads only, round after round, as the engine does: (reads, delay share) of each document."""
    rng = random.Random(seed)
    samples: list[Sample] = []
    plan: PollPlan | None = None
    seen = []
    for number in range(documents):
        if number % EVERY == 0:
            plan = expectations.plan(samples[-expectations.SAMPLES_MOST :])
        took = duration(rng, number)
        at, after, reads = plan.first_delay(rng) if plan else rng.uniform(0.8, 1.2), 0.0, 1
        while at < took:
            after = at
            at += min(15.0, plan.next_delay(at, rng)) if plan else min(15, 1.6**reads) * rng.uniform(0.8, 1.2)
            reads += 1
        samples.append(Sample(after, at + ANSWER))
        seen.append((reads, at / took - 1))
    return seen


def cost(seen: list[tuple[int, float]]) -> Cost:
    shares = [share for _reads, share in seen]
    return Cost(statistics.mean(reads for reads, _share in seen), statistics.median(shares), statistics.mean(shares))


@pytest.mark.parametrize("seconds", [1.0, 5.0, 12.0, 30.0])
def test_a_steady_duration_costs_one_read_and_little_delay_and_does_not_drift_in_a_hundred_rounds(
    seconds: float,
) -> None:
    seen = live(lambda _rng, _number: seconds, 10_000)
    for start in range(500, 10_000, 500):
        stretch = cost(seen[start : start + 500])
        assert stretch.reads <= 1.1, (start, stretch)
        assert stretch.mean_delay < 0.09, (start, stretch)
    assert cost(seen[500:]).median_delay < 0.06


@pytest.mark.parametrize(
    ("name", "duration", "reads", "median"),
    [
        ("nearly steady", lambda rng, _n: max(0.5, rng.gauss(5, 0.25)), 1.5, 0.12),
        ("wavering", lambda rng, _n: max(0.5, rng.gauss(5, 1)), 2.5, 0.15),
        ("threefold", lambda rng, _n: rng.uniform(1, 3), 2.5, 0.15),
        ("two kinds", lambda rng, _n: 2.0 if rng.random() < 0.7 else 12.0, 2.5, 0.15),
        # Anything from 1 to 30 s cannot be both read 2.5 times and seen at once: the reads are kept to.
        ("anything", lambda rng, _n: rng.uniform(1, 30), 2.5, 0.27),
    ],
)
def test_durations_that_differ_are_seen_soon_for_few_reads(
    name: str, duration: Callable[[random.Random, int], float], reads: float, median: float
) -> None:
    found = cost(live(duration, 4000)[1000:])
    assert found.reads <= reads, (name, found)
    assert found.median_delay < median, (name, found)


@pytest.mark.parametrize("later", [2.0, 8.0])
def test_a_provider_that_becomes_faster_or_slower_is_noticed(later: float) -> None:
    seen = live(lambda _rng, number: 5.0 if number < 1500 else later, 4500)
    after = cost(seen[-500:])
    assert after.reads <= 1.2, after
    assert after.mean_delay < 0.12, after


def test_too_few_durations_teach_nothing() -> None:
    assert expectations.plan([Sample(4, 5)] * (expectations.SAMPLES_LEAST - 1)) is None
    assert expectations.plan([Sample(4, 5)] * expectations.SAMPLES_LEAST) is not None


def test_brackets_that_say_only_finished_by_then_never_move_the_end_up() -> None:
    known = [Sample(4.8, 5.0)] * 5
    early = expectations.spread(known)
    late = expectations.spread(known + [Sample(0.0, 9.0)] * 100)
    assert early.quantile(0.99) == late.quantile(0.99) == 5.0


def test_a_job_that_was_finished_as_soon_as_it_was_accepted_is_a_duration_too() -> None:
    samples = [Sample(0.0, 0.0)] * 10 + [Sample(1.9, 2.0)] * 10
    known = expectations.plan(samples)
    assert known is not None
    assert known.worst_seconds == 2.0
    assert known.reads[-1] == pytest.approx(2.0 * 1.02)


def test_after_nothing_but_jobs_that_were_finished_at_once_a_slower_one_is_still_read() -> None:
    known = expectations.plan([Sample(0.0, 0.0)] * 20)
    assert known is not None
    assert known.worst_seconds == 0.0
    assert known.next_delay(3.0, Dice(0.5)) > 0


def test_the_distribution_is_the_share_of_each_when_all_is_known_exactly() -> None:
    known = [Sample(1.9, 2.0)] * 30 + [Sample(9.9, 10.0)] * 10
    found = expectations.spread(known)
    assert found.values == (2.0, 10.0)
    assert found.weights == pytest.approx((0.75, 0.25))
    assert (found.quantile(0.75), found.quantile(0.76)) == (2.0, 10.0)


def test_a_scout_is_read_early_and_then_at_the_planned_instant() -> None:
    plan = PollPlan((10.0,), 10.0, 50)
    scout = plan.first_delay(Dice(0.02))
    assert 4.0 <= scout < 10.0
    assert plan.first_delay(Dice(0.5)) == pytest.approx(10.0)
    assert 8.0 + plan.next_delay(8.0, Dice(0.5)) == pytest.approx(10.0)


def test_reads_past_everything_that_was_seen_grow_apart() -> None:
    plan = PollPlan((5.0,), 5.2, 50)
    waits = [plan.next_delay(elapsed, Dice(0.5)) for elapsed in (5.0, 5.5, 8.0, 20.0, 100.0)]
    assert waits == sorted(waits)
    assert waits[0] == pytest.approx(0.5)
    assert waits[-1] > 60


def test_where_webhooks_come_the_first_read_only_catches_what_they_miss() -> None:
    samples = [Sample(4.8, 5.0)] * 40
    assert expectations.plan(samples, woken=True).first_delay(Dice(0.5)) > 1.3 * expectations.plan(samples).reads[0]


@pytest.mark.parametrize(
    ("byte_count", "expected"), [(0, 0), (16 * 1024, 0), (16 * 1024 + 1, 1), (64 * 1024, 1), (10**6, 3), (10**9, 4)]
)
def test_size_classes(byte_count: int, expected: int) -> None:
    assert expectations.size_class(byte_count) == expected


def test_the_shortest_step_is_longer_than_what_is_gathered_so_that_no_read_follows_at_once() -> None:
    assert ENGINE.poll_step_least_seconds > reads.GATHER.total_seconds()
