"""A pump may stop or die at any instant: the next one goes on with the same keys, and nothing is billed twice."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from batches.conf import ENGINE
from batches.engine import outliers, pacing
from batches.models import Artifact, Exchange, Job, JobEvent, PacingLane, Submission
from tests.engine.simulated import Lose, Word
from tests.scenarios.world import World
from tests.storage.listing import keys_in

NAMES = [f"INV-{number}" for number in range(1, 9)]
MANY = [f"INV-{number}" for number in range(1, 41)]


def pdf_keys(world: World) -> list[str]:
    return [key for key in keys_in(world.store) if key.endswith(".pdf")]


# --- asked to stop ---


def test_a_pump_that_is_stopped_gives_everything_back_at_once(world: World) -> None:
    world.hand_over(*MANY)
    world.pump(stopping=lambda: len(world.provider.arrivals) >= 5).run()
    assert not Job.objects.exclude(lease_owner=None).exists()
    assert Job.objects.filter(state="pending", due_at__lte=world.clock.now()).count() >= len(MANY) - 12
    stopped_at = world.clock.now()
    world.run_until(lambda: len(world.provider.arrivals) >= 10)
    assert world.clock.now() < stopped_at + timedelta(seconds=ENGINE.lease_seconds / 2), "nobody waits for a lease"


def test_intents_whose_bytes_never_left_go_back_to_pending(world: World) -> None:
    world.hand_over(*MANY)
    world.pump(stopping=lambda: len(world.provider.arrivals) >= 5).run()
    assert JobEvent.objects.filter(reason="never_left").exists(), "slots were given out ahead"
    assert not Job.objects.filter(state="submitting").exists()
    assert not Submission.objects.filter(job__state="pending", in_doubt=True).exists()
    world.run_to_the_end()
    world.assert_saved(MANY)
    assert len(world.provider.arrivals) == len(MANY)
    assert set(Submission.objects.values_list("sequence", "try_count")) == {(1, 1)}


def test_a_stop_waits_for_the_answer_that_is_on_its_way(world: World) -> None:
    world.provider.submit_seconds = 6.0
    world.hand_over("INV-1")
    world.pump(stopping=lambda: len(world.provider.arrivals) == 1).run()
    assert world.states() == {"INV-1": "accepted"}
    assert Submission.objects.get().provider_job_id == "pdf_1"
    assert world.job("INV-1").lease_owner is None


def test_a_stop_begins_no_further_download_or_status_read(world: World) -> None:
    world.hand_over(*MANY)
    world.store.is_full = True
    world.run_until(lambda: set(world.states().values()) == {"rendered"})
    world.clock.advance(60)
    world.store.is_full = False
    world.provider.download_seconds = 8.0
    fetched, read = len(world.provider.downloads), len(world.provider.reads)
    world.pump(stopping=lambda: len(world.provider.downloads) > fetched).run()
    assert len(world.provider.downloads) - fetched <= ENGINE.fetch_threads
    assert len(world.provider.reads) == read
    assert not Job.objects.exclude(lease_owner=None).exists()
    world.provider.download_seconds = 0.0
    world.run_to_the_end()
    world.assert_saved(MANY)


def test_what_comes_back_after_the_wait_is_kept_and_its_job_given_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A status read that outlasts the pump's own patience says “still rendering”: nobody waits for its lease."""
    world.provider.script("INV-1", status=itertools.repeat(Word("processing")))
    world.hand_over("INV-1")
    world.run_until(lambda: len(world.provider.jobs) == 1)
    fetch_status = world.provider.fetch_status

    def slowly(*given: Any, **named: Any) -> Any:
        status = fetch_status(*given, **named)
        world.clock.wait(threading.Event(), 3 * (ENGINE.read_timeout + ENGINE.connect_timeout))
        return status

    monkeypatch.setattr(world.provider, "fetch_status", slowly)
    before = len(world.provider.reads)
    world.clock.advance(5)
    world.pump(stopping=lambda: len(world.provider.reads) > before).run()
    job = world.job("INV-1")
    assert (job.state, job.lease_owner) == ("accepted", None)
    assert Exchange.objects.filter(kind="poll").count() == len(world.provider.reads)


def test_a_fault_in_the_look_for_odd_ones_costs_no_lease(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    def broken(_saved: object) -> int:
        looks.append(1)
        raise ArithmeticError("a fault of ours")

    monkeypatch.setattr(outliers, "look_at_versions", broken)
    world.hand_over(*NAMES)
    world.run_to_the_end()
    world.assert_saved(NAMES)
    assert looks


# --- killed ---

INSTANTS: dict[str, Callable[[World], bool]] = {
    "an intent is committed and nothing has left": lambda world: Submission.objects.exists(),
    "the provider has one and nobody here knows": lambda world: len(world.provider.jobs) >= 1,
    "an id is committed": lambda world: Submission.objects.filter(provider_job_id__isnull=False).exists(),
    "half of them are at the provider": lambda world: len(world.provider.jobs) >= len(NAMES) // 2,
    "the provider has finished one": lambda world: any(job.read_count >= 2 for job in world.provider.jobs.values()),
    "one is known to be finished": lambda world: Job.objects.filter(state="rendered").exists(),
    "a file is stored and not marked": lambda world: any(key.endswith(".pdf") for key in world.store.puts),
    "one is saved": lambda world: Artifact.objects.exists(),
}


@pytest.mark.parametrize("instant", INSTANTS)
def test_a_pump_that_is_killed_is_taken_over_after_its_leases(world: World, instant: str) -> None:
    world.provider.download_seconds = 1.0  # so that "finished" is written before the file is here
    world.hand_over(*NAMES)
    world.kill_when(lambda: INSTANTS[instant](world))
    assert world.killed()
    died_at = world.clock.now()
    world.run_to_the_end()
    world.assert_saved(NAMES)
    assert world.clock.now() <= died_at + timedelta(seconds=30), "work goes on within 30 s"
    assert len({arrival.key for arrival in world.provider.arrivals}) == len(NAMES), "the same key each time"
    assert len(pdf_keys(world)) == len(NAMES)
    assert Submission.objects.count() == len(NAMES)


@pytest.mark.parametrize(("download_seconds", "known_as"), [(0.0, "accepted"), (1.0, "rendered")])
def test_killed_between_storing_and_marking_it_is_saved_once_as_one_object(
    world: World, download_seconds: float, known_as: str
) -> None:
    """A quick download may be stored before the database knows that the job was finished."""
    world.provider.download_seconds = download_seconds
    world.hand_over("INV-1")
    world.kill_when(lambda: len(pdf_keys(world)) == 1)
    assert world.killed()
    assert world.states() == {"INV-1": known_as}
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
    assert [key for key in world.store.puts if key.endswith(".pdf")] == pdf_keys(world) * 2, "the same key twice"
    assert Artifact.objects.count() == 1


@pytest.mark.parametrize("look", range(3, 100, 8))
def test_killed_at_any_look_at_the_clock_nothing_is_lost_or_doubled(world: World, look: int) -> None:
    names = NAMES[:4]
    world.provider.script("INV-2", submit=[Lose()])
    world.provider.script("INV-3", status=[Word("processing")] * 3)
    world.hand_over(*names)
    looks = 0

    def count() -> bool:
        nonlocal looks
        looks += 1
        return looks >= look

    for _ in range(3):
        looks = 0
        world.kill_when(count)
        world.killed()
        world.clock.advance(ENGINE.lease_seconds + 1)
    world.run_to_the_end()
    world.assert_saved(names)
    assert len({arrival.key for arrival in world.provider.arrivals}) == len(names)
    assert not Job.objects.exclude(lease_owner=None).exists()


# --- stalled, and overtaken ---


def stall_when(world: World, condition: Callable[[], bool], *, seconds: float = 20.0) -> list[datetime]:
    """The pump is suspended for longer than its leases, and another pump finishes its work meanwhile.

    The list holds the instant at which the first one goes on, once that has come.
    """
    goes_on: list[datetime] = []

    def look() -> None:
        if condition():
            world.clock.on_look = None
            world.clock.advance(seconds)
            world.run_to_the_end()
            goes_on.append(world.clock.now())

    world.clock.on_look = look
    return goes_on


def test_the_late_write_of_an_overtaken_pump_is_refused_and_kept_as_evidence(world: World) -> None:
    world.hand_over("INV-1")
    stall_when(world, lambda: len(world.provider.jobs) == 1)
    pump = world.pump()
    pump.run()
    world.assert_saved(["INV-1"])
    assert pump.tally.stale == 1
    first, second = world.provider.arrivals
    assert (first.key, second.became) == (second.key, "replayed")
    assert "stale_write_refused" in world.reasons("INV-1")
    assert world.job("INV-1").exchanges.filter(kind="submit").count() == 2


def test_an_overtaken_pump_that_stored_the_file_does_not_save_it_a_second_time(world: World) -> None:
    world.hand_over("INV-1")
    stall_when(world, lambda: any(key.endswith(".pdf") for key in world.store.puts))
    pump = world.pump()
    pump.run()
    world.assert_saved(["INV-1"])
    assert pump.tally.stale == 1
    assert Artifact.objects.count() == len(pdf_keys(world)) == 1
    assert world.reasons("INV-1").count("stored") == 1


@pytest.mark.parametrize(
    "condition",
    [
        lambda world: Job.objects.exclude(lease_owner=None).exists(),
        lambda world: Submission.objects.exists(),
        lambda world: len(world.provider.arrivals) >= 3,
    ],
    ids=["claimed", "intent committed", "sending"],
)
def test_an_overtaken_pump_forgets_what_it_lost_and_wastes_no_slots_on_it(
    world: World, condition: Callable[[World], bool]
) -> None:
    world.hand_over(*NAMES)
    goes_on = stall_when(world, lambda: condition(world))
    pump = world.pump()
    pump.run()
    world.assert_saved(NAMES)
    assert len({arrival.key for arrival in world.provider.arrivals}) == len(NAMES)
    lane = PacingLane.objects.get(lane="submit")
    assert pacing.from_us(lane.next_slot_us) <= goes_on[0] + timedelta(seconds=1), "at most what it had once asked for"
    assert pump.tally.slots_missed <= len(NAMES)
