"""Pump slots: at most so many pumps run at once, on all hosts together, and each shows that it is alive."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Q, QuerySet

from batches.conf import ENGINE
from batches.engine.contention import again_after_deadlock
from batches.models import PumpSlot


def acquire(owner: str, *, now: datetime) -> PumpSlot | None:
    """Take a free slot, or None: then enough pumps are at work and this one ends at once."""
    until = now + timedelta(seconds=ENGINE.lease_seconds)
    for slot in free(now).order_by("number"):
        taken = free(now).filter(pk=slot.pk).update(owner=owner, lease_until=until, heartbeat_at=now)
        if taken:
            return PumpSlot.objects.get(pk=slot.pk)
    return None


def free(now: datetime) -> QuerySet[PumpSlot]:
    return PumpSlot.objects.filter(Q(lease_until=None) | Q(lease_until__lt=now))


def renew(slot: PumpSlot, owner: str, *, now: datetime) -> bool:
    """False when the slot was lost to another pump."""
    until = now + timedelta(seconds=ENGINE.lease_seconds)
    return bool(PumpSlot.objects.filter(pk=slot.pk, owner=owner).update(lease_until=until, heartbeat_at=now))


def release(slot: PumpSlot, owner: str, *, now: datetime) -> None:
    PumpSlot.objects.filter(pk=slot.pk, owner=owner).update(owner=None, lease_until=None, heartbeat_at=now)


@again_after_deadlock
def release_life(life: str) -> int:
    """Free the slots of a cluster that is proven dead (`batches/lives.py`); how many there were."""
    return PumpSlot.objects.filter(owner__contains=f":{life}:").update(owner=None, lease_until=None)


def ensure(count: int) -> None:
    """Make the rows 1 … `count`; more than that are removed unless a pump is in them."""
    PumpSlot.objects.bulk_create([PumpSlot(number=number) for number in range(1, count + 1)], ignore_conflicts=True)
    PumpSlot.objects.filter(number__gt=count, owner=None).delete()
