"""Starting pumps: one to a slot, another one rung for when work is left, and room for others with a single worker."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError
from django.utils import timezone
from django_q.models import OrmQ

from batches import lives, queue, tasks
from batches.conf import ENGINE
from batches.engine import checking, exports, pumping, slots
from batches.engine.clock import SystemClock
from batches.engine.pump import Pump, Tally
from batches.models import Job, JobState, PumpSlot
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Pump]:
    """The pumps that were run; each ends at once."""
    ran: list[Pump] = []

    def run(self: Pump) -> Tally:
        ran.append(self)
        return self.tally

    monkeypatch.setattr(Pump, "run", run)
    return ran


def work_to_do(count: int = 1) -> None:
    batch = factories.make_batch()
    for _ in range(count):
        factories.make_job(batch=batch)


def test_without_a_free_slot_a_pump_ends_at_once(runs: list[Pump]) -> None:
    slots.ensure(1)
    assert slots.acquire("somebody", now=timezone.now())
    work_to_do()
    assert pumping.run_pump(stopping=lambda: False) is None
    assert (runs, OrmQ.objects.count()) == ([], 0)


def test_a_pump_has_a_slot_while_it_runs_and_gives_it_back(runs: list[Pump]) -> None:
    slots.ensure(1)
    assert pumping.run_pump(stopping=lambda: False) is not None
    (pump,) = runs
    assert pump.slot is not None
    assert pump.slot.owner == pump.owner
    assert PumpSlot.objects.get().owner is None


def test_a_pump_that_fails_gives_its_slot_back(monkeypatch: pytest.MonkeyPatch) -> None:
    slots.ensure(1)

    def run(self: Pump) -> Tally:
        raise ZeroDivisionError

    monkeypatch.setattr(Pump, "run", run)
    with pytest.raises(ZeroDivisionError):
        pumping.run_pump(stopping=lambda: False)
    assert PumpSlot.objects.get().owner is None


@pytest.mark.parametrize(("jobs", "stopping", "rung"), [(0, False, 0), (1, False, 1), (40, False, 3), (40, True, 0)])
def test_who_leaves_work_behind_rings_for_the_next_unless_everything_stops(
    runs: list[Pump], jobs: int, stopping: bool, rung: int
) -> None:
    slots.ensure(3)
    work_to_do(jobs)
    pumping.run_pump(stopping=lambda: stopping)
    assert OrmQ.objects.count() == rung


def test_messages_that_wait_are_not_rung_for_again() -> None:
    slots.ensure(3)
    work_to_do(40)
    assert pumping.ring_if_needed() == 3
    assert pumping.ring_if_needed() == 0
    tasks.ensure_pumps()
    assert OrmQ.objects.count() == 3


def test_two_pumps_never_have_the_same_name(runs: list[Pump]) -> None:
    slots.ensure(2)
    pumping.run_pump(stopping=lambda: False)
    pumping.run_pump(stopping=lambda: False)
    first, second = runs
    assert first.owner != second.owner
    assert len(first.owner) <= Job._meta.get_field("lease_owner").max_length


# --- a dead cluster ---


def test_what_a_dead_cluster_held_is_given_back_but_for_what_may_be_on_its_way(runs: list[Pump]) -> None:
    slots.ensure(3)
    pumping.run_pump(stopping=lambda: False, life="dead00")
    pumping.run_pump(stopping=lambda: False, life="alive0")
    dead, alive = (pump.owner for pump in runs)
    until = timezone.now() + timedelta(seconds=ENGINE.lease_seconds)
    batch = factories.make_batch()
    states = (JobState.PENDING, JobState.SUBMITTING, JobState.ACCEPTED, JobState.RENDERED)
    for owner in (dead, alive):
        slots.acquire(owner, now=timezone.now())
        for state in states:
            factories.make_job(batch=batch, state=state, lease_owner=owner, lease_until=until)
    pumping.take_over("dead00")
    pumping.take_over("dead00")
    left = Job.objects.exclude(lease_owner=None).order_by("id").values_list("lease_owner", "state")
    assert list(left) == [(dead, JobState.SUBMITTING), *((alive, state) for state in states)]
    assert list(PumpSlot.objects.order_by("number").values_list("owner", flat=True)) == [None, alive, None]


def test_a_cluster_that_stopped_cleanly_leaves_no_line_that_looks_like_trouble(
    runs: list[Pump], caplog: pytest.LogCaptureFixture
) -> None:
    slots.ensure(1)
    with caplog.at_level(logging.DEBUG, logger=pumping.__name__):
        pumping.take_over("clean0")
        pumping.run_pump(stopping=lambda: False, life="dead00")
        slots.acquire(runs[0].owner, now=timezone.now())
        pumping.take_over("dead00")
    told = [record.levelname for record in caplog.records if "a cluster is dead" in record.message]
    assert told == ["DEBUG", "INFO"]


def test_ringing_gives_back_first_and_then_rings_for_it(
    runs: list[Pump], settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots.ensure(1)
    pumping.run_pump(stopping=lambda: False, life="dead00")
    slots.acquire(runs[0].owner, now=timezone.now())
    work_to_do()
    settings.LIVES_DIR = tmp_path
    tasks.ensure_pumps()
    assert OrmQ.objects.count() == 0, "every slot is taken, by all that is known"
    monkeypatch.setattr(lives, "bury", lambda folder, take_over: take_over("dead00"))
    tasks.ensure_pumps()
    assert OrmQ.objects.count() == 1


# --- a single worker ---


class Hand:
    """A clock that is moved by hand."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    def now(self) -> datetime:
        return self.at


@pytest.fixture
def hand(now: datetime) -> Hand:
    return Hand(now)


def _rule(hand: Hand, settings: Any, *, workers: int, stopping: bool = False) -> Any:
    settings.CLUSTER_WORKERS = workers
    return pumping._one_worker_makes_room(lambda: stopping, hand.now, started_at=hand.at)


def test_with_one_worker_a_pump_makes_room_when_somebody_waits(
    hand: Hand, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = 0
    monkeypatch.setattr(queue, "waiting", lambda *, now: waiting)
    rule = _rule(hand, settings, workers=1)
    waiting = 1
    assert not rule(), "not before it has worked for a while"
    hand.at += timedelta(seconds=ENGINE.pump_yield_seconds)
    assert rule()
    waiting = 0
    hand.at += timedelta(seconds=ENGINE.pump_yield_seconds)
    assert not rule()


def test_with_more_workers_a_pump_stays(hand: Hand, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "waiting", lambda *, now: 99)
    rule = _rule(hand, settings, workers=2)
    hand.at += timedelta(minutes=5)
    assert not rule()


@pytest.mark.parametrize("what", [checking, exports])
def test_a_pump_makes_room_while_the_worker_that_is_left_has_a_draft_or_an_export_in_hand(
    hand: Hand, settings: Any, monkeypatch: pytest.MonkeyPatch, what: Any
) -> None:
    monkeypatch.setattr(queue, "waiting", lambda *, now: 1)
    is_busy = True
    monkeypatch.setattr(what, "is_busy", lambda *, now: is_busy)
    rule = _rule(hand, settings, workers=2)
    hand.at += timedelta(seconds=ENGINE.pump_yield_seconds)
    assert rule()
    is_busy = False
    hand.at += timedelta(seconds=ENGINE.pump_yield_seconds)
    assert not rule()


def test_a_stop_is_a_stop_at_once(hand: Hand, settings: Any) -> None:
    assert _rule(hand, settings, workers=1, stopping=True)()


def test_a_database_that_is_away_is_no_reason_to_end(
    hand: Hand, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*, now: datetime) -> int:
        raise OperationalError("gone")

    monkeypatch.setattr(queue, "waiting", away)
    rule = _rule(hand, settings, workers=1)
    hand.at += timedelta(minutes=1)
    assert not rule()


# --- the clock of all hosts ---


def test_the_clock_follows_the_databases_and_never_runs_backwards() -> None:
    clock = SystemClock()
    clock.calibrate()
    readings = [clock.now() for _ in range(50)]
    assert readings == sorted(readings)
    assert abs((readings[0] - timezone.now()).total_seconds()) < 60
    assert readings[0].utcoffset() == timedelta(0)


def test_the_sweep_runs_on_the_configured_store() -> None:
    slots.ensure(1)
    slots.acquire("dead", now=timezone.now() - timedelta(hours=1))
    tasks.sweep()
    assert PumpSlot.objects.get().owner is None
