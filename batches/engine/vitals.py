"""Whether the installation lives: pumps and their leases, the schedules, what the sweeps found, the oldest due work.

Read-only, each in a query or two whatever the number of documents. What a page says of it is `views/health.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import Count, Exists, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import TruncMinute

from batches import queue, storage
from batches.engine import claims, turns
from batches.models import (
    AccountHealth,
    Job,
    JobState,
    ProviderAccount,
    PumpSlot,
    StoreFinding,
    StoreSweep,
    SweepKind,
    SweepRun,
    Workspace,
)

#: A schedule that is due for so long was started by nobody: a cluster looks twice a minute.
SCHEDULE_LATE = timedelta(seconds=90)
MINUTES_SHOWN = 15
_WORKSPACE = "version__document__workspace"
#: Of the periodic sweep's row.
SWEEP = "sweep"


@dataclass(frozen=True)
class Pump:
    """One place for a pump, and who is in it."""

    number: int
    where: str
    is_alive: bool
    seen_at: datetime | None


@dataclass(frozen=True)
class Leases:
    """Documents that somebody works on, and those whose lease has run out and waits to be cleared."""

    held: int
    over: int


@dataclass(frozen=True)
class Schedule:
    """`is_late`: its time has passed and nobody started it, so no cluster runs."""

    name: str
    minutes: int
    next_at: datetime | None
    is_late: bool


@dataclass(frozen=True)
class StoreState:
    """`trouble` says why it cannot be used; empty where it can. `free_bytes` where the store knows it."""

    trouble: str
    free_bytes: int | None


@dataclass(frozen=True)
class Oldest:
    """The document that has been due for longest and that nobody works on. `is_seen`: it is in a workspace that was
    asked about."""

    job: Job
    due_at: datetime
    is_seen: bool


def pumps(*, now: datetime) -> tuple[list[Pump], Leases]:
    """Every place, and what all of them hold; without a place nothing can be held."""
    leased = Job.objects.filter(lease_until__isnull=False).order_by().values(one=Value(1))
    held = leased.filter(lease_until__gte=now).annotate(count=Count("pk")).values("count")
    over = leased.filter(lease_until__lt=now).annotate(count=Count("pk")).values("count")
    columns = ("number", "owner", "lease_until", "heartbeat_at", "held", "over")
    rows = list(
        PumpSlot.objects.annotate(held=Subquery(held), over=Subquery(over)).order_by("number").values_list(*columns)
    )
    found = [
        Pump(number, _where(owner or ""), lease_until is not None and lease_until >= now, seen_at)
        for number, owner, lease_until, seen_at, _held, _over in rows
    ]
    return found, Leases(rows[0][4] or 0, rows[0][5] or 0) if rows else Leases(0, 0)


def _where(owner: str) -> str:
    """`app-1, process 4711` of an owner's name (`pumping`)."""
    host, _, rest = owner.partition(":")
    return f"{host}, process {rest.partition(':')[0]}" if rest else host


def schedules(*, now: datetime) -> list[Schedule]:
    return [
        Schedule(name.partition(": ")[2] or name, minutes, next_at, next_at is None or next_at < now - SCHEDULE_LATE)
        for name, minutes, next_at in queue.schedules()
    ]


def backlog(*, now: datetime) -> int:
    """Messages that no cluster has taken yet, counted to a hundred."""
    return queue.waiting(now=now)


def last_sweep() -> SweepRun | None:
    return SweepRun.objects.filter(name=SWEEP).first()


def note_sweep(facts: Mapping[str, int], *, now: datetime) -> None:
    """Remember what the last pass did, and the last one that did anything."""
    row = {"ran_at": now, "facts": dict(facts)}
    if found := {name: count for name, count in facts.items() if count}:
        row |= {"found_at": now, "found": found}
    SweepRun.objects.update_or_create(name=SWEEP, defaults=row)


def store_sweeps() -> tuple[Sequence[StoreSweep], int]:
    """The walks through the store, and how many objects are not as the rows say by what they found."""
    order = list(SweepKind.values)
    findings = StoreFinding.objects.filter(resolved_at=None).order_by().values("resolved_at")
    counted = Subquery(findings.annotate(count=Count("pk")).values("count"))
    walks: list[Any] = sorted(
        StoreSweep.objects.annotate(open_findings=counted), key=lambda sweep: order.index(sweep.kind)
    )
    return walks, next((walk.open_findings or 0 for walk in walks), 0)


def store() -> StoreState:
    opened = storage.open_store(settings.STORAGE_URL)
    try:
        opened.ready()
    except storage.StoreError as error:
        return StoreState(error.words, None)
    return StoreState("", opened.free_bytes())


def database() -> str:
    """`PostgreSQL 17.2`"""
    version = connection.get_database_version()
    return f"{connection.display_name} {'.'.join(str(part) for part in version)}"


def oldest_due(workspaces: QuerySet[Workspace] | None, *, now: datetime) -> Oldest | None:
    """Of what could be worked on at this moment the longest due. Two queries: one step of an index per account and
    state, then the document."""

    def first(state: JobState, also: Q = Q()) -> Subquery:  # noqa: B008 - never changed
        mine = claims.claimable(now).filter(also, account=OuterRef("pk"), state=state, due_at__lte=now)
        return Subquery(mine.order_by("due_at", "pk").values("pk")[:1])

    rows = ProviderAccount.objects.order_by().annotate(
        submitting=first(JobState.SUBMITTING),
        accepted=first(JobState.ACCEPTED),
        rendered=first(JobState.RENDERED),
        pending=first(JobState.PENDING, turns.led_by_a_running_batch() & Q(account__health=AccountHealth.OPEN)),
    )
    found = {pk for row in rows.values_list("submitting", "accepted", "rendered", "pending") for pk in row}
    is_seen = Value(True) if workspaces is None else Exists(workspaces.filter(pk=OuterRef(_WORKSPACE)))
    named = _with_document(Job.objects.filter(pk__in=found - {None})).annotate(is_seen=is_seen)
    job: Any = named.order_by("due_at", "pk").first()
    return Oldest(job, job.due_at, job.is_seen) if job else None


def _with_document(jobs: QuerySet[Job]) -> QuerySet[Job]:
    named = jobs.select_related("version__document", "lead_batch", "account")
    return named.only(
        "due_at",
        "state",
        "version__number",
        "version__document__business_id",
        "version__document__public_id",
        "version__document__workspace",
        "lead_batch__name",
        "lead_batch__public_id",
        "account__name",
        "account__slug",
    )


def saved_per_minute(workspaces: QuerySet[Workspace] | None, *, now: datetime) -> list[int]:
    """Documents saved in each of the last whole minutes, oldest first; `workspaces` None: of all."""
    until = now.replace(second=0, microsecond=0)
    since = until - timedelta(minutes=MINUTES_SHOWN)
    saved = Job.objects.filter(state=JobState.SAVED, state_changed_at__gte=since, state_changed_at__lt=until)
    arms = [saved]
    if workspaces is not None:
        # A batch has documents of its own workspace. To look at those instead would be to look at a million versions.
        unled = saved.filter(lead_batch=None, version__document__workspace__in=workspaces)
        arms = [saved.filter(lead_batch__workspace__in=workspaces), unled]
    each = [
        arm.order_by().annotate(minute=TruncMinute("state_changed_at")).values_list("minute").annotate(count=Count("*"))
        for arm in arms
    ]
    counts: Counter[datetime] = Counter()
    for minute, count in each[0].union(*each[1:], all=True):
        counts[minute] += count
    return [counts[since + timedelta(minutes=number)] for number in range(MINUTES_SHOWN)]
