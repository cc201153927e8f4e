"""The only file that talks to django-q2. A message is a doorbell: losing one or ringing twice is harmless.

Tasks are named by dotted strings, so that the engine can ring without importing them; `tests/test_queue.py` proves
that each string resolves. With the ORM broker a message is a row of the same database: rung inside a transaction, it
is heard only when that commits.
"""

from __future__ import annotations

from datetime import datetime

from django_q.models import OrmQ, Schedule
from django_q.tasks import async_task

RUN_PUMP = "batches.tasks.run_pump"
ENSURE_PUMPS = "batches.tasks.ensure_pumps"
SWEEP = "batches.tasks.sweep"
CHECK_STORE = "batches.tasks.check_store"
CARRY_OUT = "batches.tasks.carry_out"
MARK_STALE = "batches.tasks.mark_stale"
WORK_ON_DRAFTS = "batches.tasks.work_on_drafts"
TELL = "batches.tasks.tell"
RETAIN = "batches.tasks.retain"
DELETE_COPIES = "batches.tasks.delete_copies"
WORK_ON_EXPORTS = "batches.tasks.work_on_exports"
#: A check of the largest upload takes three minutes, far longer than what django-q2 lets a task last else. The message
#: is handed out once more meanwhile, and whoever hears it finds the draft leased.
DRAFTS_TIMEOUT = 1800
#: One file of a large export takes hours where a bucket is slow. A turn ends before (`exporting.TURN_MOST`), and others
#: take over long before that from a worker that tells nothing (`exports.LEASE`).
EXPORTS_TIMEOUT = 4 * 3600

#: Every schedule, by name: what it runs and each how many minutes.
SCHEDULES = {
    "relaypdf: ensure pumps": (ENSURE_PUMPS, 1),
    "relaypdf: sweep": (SWEEP, 1),
    "relaypdf: check store": (CHECK_STORE, 10),
    "relaypdf: retention": (RETAIN, 1),
    "relaypdf: copies at providers": (DELETE_COPIES, 1),
    "relaypdf: bulk actions": (CARRY_OUT, 1),
    "relaypdf: notices": (TELL, 1),
}


def ring(pumps: int = 1) -> None:
    """Ask for pumps. Those that find no free slot end at once."""
    for _ in range(pumps):
        async_task(RUN_PUMP, save=False)


def ring_bulk_actions() -> None:
    """Ask for a worker that carries bulk actions out."""
    async_task(CARRY_OUT, save=False)


def ring_drafts() -> None:
    """Ask for a worker that checks and starts drafts."""
    async_task(WORK_ON_DRAFTS, save=False, timeout=DRAFTS_TIMEOUT)


def ring_exports() -> None:
    """Ask for a worker that builds exports."""
    async_task(WORK_ON_EXPORTS, save=False, timeout=EXPORTS_TIMEOUT)


def ring_staleness(template_id: int) -> None:
    """Ask for a look at what the published version of a template leaves stale."""
    async_task(MARK_STALE, template_id, save=False)


def waiting(*, now: datetime) -> int:
    """Messages that no cluster has taken yet, counted no further than a hundred.

    A taken message is locked until `retry` has passed, also when its taker was killed: it rings nobody until then.
    """
    return len(OrmQ.objects.filter(lock__lte=now).values_list("pk", flat=True)[:100])


def schedules() -> list[tuple[str, int, datetime | None]]:
    """Name, minutes between two runs and next run of each schedule; a cluster moves the last on as it starts one."""
    known = {row.name: row.next_run for row in Schedule.objects.filter(name__in=SCHEDULES).order_by("-pk")}
    return [(name, minutes, known.get(name)) for name, (_task, minutes) in SCHEDULES.items()]


def ensure_schedules() -> None:
    """One row per schedule, whatever was there before; safe to run twice and at once."""
    for name, (task, minutes) in SCHEDULES.items():
        rows = Schedule.objects.filter(name=name).order_by("pk")
        kept = rows.first()
        if kept is None:
            Schedule.objects.create(name=name, func=task, schedule_type=Schedule.MINUTES, minutes=minutes)
            kept = rows.first()
        assert kept is not None
        rows.exclude(pk=kept.pk).delete()
        Schedule.objects.filter(pk=kept.pk).update(func=task, schedule_type=Schedule.MINUTES, minutes=minutes)
