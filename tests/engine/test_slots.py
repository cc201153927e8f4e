"""Pump slots and the sweep: no more pumps than slots, and what the dead left behind is cleared."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from functools import partial

import pytest

from batches.conf import ENGINE
from batches.engine import slots
from batches.engine.sweep import sweep
from batches.models import Batch, Job, PumpSlot
from batches.storage.disk import DiskStore
from tests import factories
from tests.engine import racing
from tests.engine.deadlocks import end_once_by_deadlock
from tests.factories import NOW

pytestmark = pytest.mark.django_db
LEASE = timedelta(seconds=ENGINE.lease_seconds)


def test_as_many_pumps_as_slots_and_not_one_more(now: datetime) -> None:
    slots.ensure(2)
    first, second = (slots.acquire(f"pump-{number}", now=now) for number in range(2))
    assert first is not None
    assert second is not None
    assert (first.number, second.number) == (1, 2)
    assert slots.acquire("pump-3", now=now) is None
    slots.release(first, "pump-0", now=now)
    again = slots.acquire("pump-3", now=now)
    assert again is not None
    assert again.number == 1


def test_a_slot_whose_pump_died_is_free_after_its_lease(now: datetime) -> None:
    slots.ensure(1)
    slots.acquire("dead", now=now)
    assert slots.acquire("next", now=now + LEASE) is None
    assert slots.acquire("next", now=now + LEASE + timedelta(seconds=1)) is not None


def test_renewing_keeps_a_slot_and_tells_who_lost_it(now: datetime) -> None:
    slots.ensure(1)
    slot = slots.acquire("a", now=now)
    assert slot is not None
    later = now + timedelta(seconds=10)
    assert slots.renew(slot, "a", now=later)
    slot.refresh_from_db()
    assert (slot.lease_until, slot.heartbeat_at) == (later + LEASE, later)
    PumpSlot.objects.update(owner="b")
    assert not slots.renew(slot, "a", now=later)
    slots.release(slot, "a", now=later)
    slot.refresh_from_db()
    assert slot.owner == "b", "who lost it does not free it for another"


def test_the_number_of_slots_follows_the_number_of_workers(now: datetime) -> None:
    slots.ensure(3)
    slots.ensure(3)
    assert list(PumpSlot.objects.order_by("number").values_list("number", flat=True)) == [1, 2, 3]
    for number in range(3):
        slots.acquire(f"pump-{number}", now=now)
    slots.ensure(1)
    assert PumpSlot.objects.count() == 3, "a pump is never thrown out of its slot"
    PumpSlot.objects.update(owner=None, lease_until=None)
    slots.ensure(1)
    assert PumpSlot.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_pumps_that_start_at_once_never_share_a_slot() -> None:
    slots.ensure(2)

    def start(owner: str) -> int | None:
        slot = slots.acquire(owner, now=NOW)
        return slot.number if slot else None

    got = racing.answers([partial(start, f"pump-{number}") for number in range(5)])
    assert sorted(got, key=str) == [1, 2, None, None, None]


# --- the sweep ---


def test_the_sweep_clears_leases_that_ran_out_and_no_others(batch: Batch, store: DiskStore, now: datetime) -> None:
    ended = factories.make_job(batch=batch, lease_owner="dead", lease_until=now - timedelta(seconds=1), fencing_token=4)
    alive = factories.make_job(batch=batch, lease_owner="alive", lease_until=now)
    factories.make_job(batch=batch)
    slots.ensure(2)
    slots.acquire("dead", now=now - timedelta(minutes=1))
    report = sweep(store, now=now)
    the_rest = {key: count for key, count in report.as_dict().items() if "cleared" not in key}
    assert (report.leases_cleared, report.slots_cleared) == (1, 1)
    assert not any(the_rest.values())
    owners = dict(Job.objects.values_list("pk", "lease_owner"))
    assert (owners[ended.pk], owners[alive.pk]) == (None, "alive")
    ended.refresh_from_db()
    assert ended.fencing_token == 4, "only a claim raises it"
    assert not any(sweep(store, now=now).as_dict().values())


def test_the_sweep_removes_only_old_files_that_nobody_finished(store: DiskStore, db: None, now: datetime) -> None:
    for name, age in (("old", timedelta(hours=2)), ("new", timedelta(minutes=5))):
        with store.staging() as path:
            kept = path.with_name(name)
            kept.write_bytes(b"half a file")
            stamp = (now - age).timestamp()
            os.utime(kept, (stamp, stamp))
    assert sweep(store, now=now).temporaries_removed == 1
    assert [path.name for path in kept.parent.iterdir()] == ["new"]


@pytest.mark.django_db(transaction=True)
def test_slots_of_the_dead_are_given_back_though_it_met_a_deadlock(
    now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots.ensure(2)
    slots.acquire("host:life:1", now=now)
    end_once_by_deadlock(monkeypatch, type(PumpSlot.objects.all()), "update")
    slots.release_life("life")
    assert slots.free(now).count() == 2
