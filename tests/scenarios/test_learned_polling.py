"""What durations teach: how often a document is read, and how soon its end is seen, through the real pump."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from datetime import timedelta

from batches.models import Duration, Job
from batches.providers.base import JobStatus
from tests.engine.simulated import Answer, Complete, SimulatedJob, SimulatedProvider, Word
from tests.scenarios.world import World


def finish_after(world: World, seconds: Callable[[random.Random], float]) -> dict[str, float]:
    """Let each job at the provider be finished so many seconds after it was accepted. Returns them by name."""
    rng = random.Random(11)
    durations: dict[str, float] = {}
    status = world.provider._status

    def timed(job: SimulatedJob, _answer: Answer) -> JobStatus:
        took = durations.setdefault(job.name, seconds(rng))
        done = world.clock.now() >= job.accepted_at + timedelta(seconds=took)
        return status(job, Complete() if done else Word("processing"))

    assert isinstance(world.provider, SimulatedProvider)
    world.provider._status = timed  # type: ignore[method-assign]  # the ledger and its checks stay the provider's own
    return durations


def saved_late(world: World, durations: dict[str, float]) -> list[float]:
    """From the end at the provider to saved, as a share of the duration."""
    shares = []
    for name, took in durations.items():
        (job,) = world.provider.jobs_of(name)
        saved_at = world.job(name).state_changed_at
        shares.append((saved_at - job.accepted_at).total_seconds() / took - 1)
    return shares


def hand_over(world: World, batch: int, count: int) -> list[str]:
    names = [f"B{batch}-{number:03}" for number in range(count)]
    world.hand_over(*names)
    return names


def test_a_steady_five_seconds_is_read_once_when_it_is_learned(make_world: Callable[..., World]) -> None:
    world = make_world(max_in_flight=500, submit_interval_ms=50, poll_interval_ms=0, poll_max_ms=15_000)
    durations = finish_after(world, lambda _rng: 5.0)
    hand_over(world, 1, 60)
    world.run_to_the_end()
    learning = len(world.provider.reads)
    assert learning / 60 < 2.0, "not even the first documents are read five times each"
    durations.clear()
    hand_over(world, 2, 150)
    world.run_to_the_end()
    assert (len(world.provider.reads) - learning) / 150 <= 1.25
    assert statistics.median(saved_late(world, durations)) < 0.15
    assert Duration.objects.count() == 210
    assert set(Duration.objects.values_list("batch_size", flat=True)) == {60, 150}


def test_many_accepted_at_once_wait_for_what_the_first_few_show(make_world: Callable[..., World]) -> None:
    world = make_world(max_in_flight=500, submit_interval_ms=5, submit_burst=50, poll_interval_ms=0, poll_max_ms=15_000)
    durations = finish_after(world, lambda _rng: 8.0)
    hand_over(world, 1, 150)
    world.run_to_the_end()
    assert len(world.provider.reads) / 150 < 1.6
    assert statistics.median(saved_late(world, durations)) < 0.6


def test_what_was_timed_anew_in_memory_outlives_the_pump(make_world: Callable[..., World]) -> None:
    """The next pump reads them when the first one would have, and none of them at once."""
    world = make_world(max_in_flight=500, submit_interval_ms=200, poll_interval_ms=0, poll_max_ms=60_000)
    finish_after(world, lambda _rng: 20.0)
    hand_over(world, 1, 40)
    world.run_until(lambda: Job.objects.filter(state="saved").count() >= 5, within=60)
    waiting = Job.objects.filter(state="accepted", poll_count=0)
    assert waiting.exists()
    latest = max(waiting.values_list("due_at", flat=True))
    assert latest < world.clock.now() + timedelta(seconds=15), "not the minute that they waited for at first"
