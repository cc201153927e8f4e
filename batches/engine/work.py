"""Is there work, and how many pumps would it keep busy? What the ringing of the doorbell is decided by."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Max, Q, QuerySet

from batches import figures
from batches.engine import claims, latewatch, slots, turns
from batches.models import AccountHealth, Job, JobState, ProviderAccount, PumpSlot

#: Due jobs that are worth a further pump.
JOBS_PER_PUMP = 20
#: Due work that no pump has moved for so long says that there is no cluster: one rings for it every two seconds.
STILL_SECONDS = 180.0
START_A_WORKER = "Start one with `manage.py runcluster`, or everything together with `manage.py runstack`."


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


def standstill(*, now: datetime) -> str:
    """Says, with what to do, that due work waits while no pump has moved for minutes; empty where one moves.

    One small query as long as pumps are at work.
    """
    return standstill_since(signs().aggregate(last=Max("heartbeat_at"))["last"], now=now)


def signs() -> QuerySet[PumpSlot]:
    """Where pumps write down that they move, in `heartbeat_at`."""
    return PumpSlot.objects.all()


def standstill_since(moved_at: datetime | None, *, now: datetime) -> str:
    """As `standstill`, of who knows when a pump last moved."""
    since = now - timedelta(seconds=STILL_SECONDS)
    if moved_at is not None and moved_at >= since:
        return ""
    first = _due(now).filter(due_at__lte=since).order_by("due_at").values_list("due_at", flat=True).first()
    if first is None:
        return ""
    still = figures.length((now - max(first, moved_at or first)).total_seconds() // 60 * 60)
    return f"No worker is running: documents wait, and nothing has moved for {still}. {START_A_WORKER}"


def _due(now: datetime) -> QuerySet[Job]:
    sendable = Q(state=JobState.PENDING, account__health=AccountHealth.OPEN) & turns.led_by_a_running_batch()
    return claims.claimable(now).filter(Q(state__in=claims.IN_PROGRESS_STATES) | sendable, due_at__lte=now)
