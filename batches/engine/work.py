"""Is there work, and how many pumps would it keep busy? What the ringing of the doorbell is decided by."""

from __future__ import annotations

from datetime import datetime

from django.db.models import Q, QuerySet

from batches.engine import claims, latewatch, slots, turns
from batches.models import AccountHealth, Job, JobState, ProviderAccount

#: Due jobs that are worth a further pump.
JOBS_PER_PUMP = 20


def pumps_wanted(*, now: datetime) -> int:
    """How many more pumps would find something to do: 0 when nothing is due or every slot is taken."""
    free = slots.free(now).count()
    if not free:
        return 0
    due = len(_due(now).values_list("pk", flat=True)[: JOBS_PER_PUMP * free])
    probes = ProviderAccount.objects.filter(health=AccountHealth.HELD, archived_at=None, probe_at__lte=now)
    if not due:
        return 1 if probes.exists() or latewatch.is_due(now=now) else 0
    return min(free, 1 + due // JOBS_PER_PUMP)


def _due(now: datetime) -> QuerySet[Job]:
    sendable = Q(state=JobState.PENDING, account__health=AccountHealth.OPEN) & turns.led_by_a_running_batch()
    return claims.claimable(now).filter(Q(state__in=claims.IN_PROGRESS_STATES) | sendable, due_at__lte=now)
