"""The sweep of retention: whose turn it is, how long one lasts, and where the walk stands. It finds with `retention.py`
and deletes with `deleting.py`.

One worker at a time holds the row of the walk. It is no fence that anything relies on: each request asks once more
under the locks of the jobs, and each deletion may be done twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from batches.engine import deleting, leases, retention
from batches.engine.clock import Clock
from batches.engine.retention import Survey
from batches.engine.retention_rules import Policy
from batches.models import StoreSweep, SweepKind
from batches.storage import ArtifactStore

#: One slice, so that other tasks of the cluster start soon; and how long another worker leaves the walk alone.
SLICE = timedelta(seconds=5)
LEASE = timedelta(minutes=5)
#: A new round begins this long after the last one began.
ROUND_EVERY = timedelta(hours=1)
#: Which of the two walks goes on, and behind which key, as the row of the walk holds it.
WALKS = {"versions": retention.versions, "batches": retention.batches}


@dataclass
class Report:
    """What one slice did. `is_busy`: another worker has it, or no round is due."""

    survey: Survey = field(default_factory=Survey)
    deleted: int = 0
    is_busy: bool = False
    is_round_over: bool = False


def sweep(store: ArtifactStore, clock: Clock, *, owner: str, seconds: timedelta = SLICE) -> Report:
    """One slice over all workspaces; most calls find that no round is due, and finish only what was left requested."""
    now = clock.now()
    StoreSweep.objects.bulk_create([StoreSweep(kind=SweepKind.RETENTION)], ignore_conflicts=True)
    rows = StoreSweep.objects.filter(kind=SweepKind.RETENTION)
    if not leases.take(rows, owner, until=now + LEASE, now=now):
        return Report(is_busy=True)
    done = Report()
    try:
        _finish_left(store, clock, done, ends_at=now + seconds)
        row = rows.get()
        is_between = row.started_at is None or row.finished_at is not None
        if is_between and row.started_at is not None and now < row.started_at + ROUND_EVERY:
            done.is_busy = True
            return done
        if is_between:
            rows.update(started_at=now, finished_at=None, position="")
            row.position = ""
        place = _walk(retention.policies(), row.position, store, clock, done, by="sweep", ends_at=now + seconds)
        done.is_round_over = place == ""
        leases.renew(rows, owner, until=now + LEASE, position=place)
        if done.is_round_over:
            leases.renew(rows, owner, until=now + LEASE, finished_at=clock.now())
    finally:
        leases.give_back(rows, owner)
    return done


def run(known: Mapping[int, Policy], store: ArtifactStore, clock: Clock, *, by: str) -> Report:
    """All of it at once for these policies, as a command does; beside a sweep, each deletion is requested by one."""
    done = Report(is_round_over=True)
    _finish_left(store, clock, done, ends_at=None)
    _walk(known, "", store, clock, done, by=by, ends_at=None)
    return done


def _finish_left(store: ArtifactStore, clock: Clock, done: Report, *, ends_at: datetime | None) -> None:
    """What was requested by somebody who died, or waited for something."""
    while (ends_at is None or clock.now() < ends_at) and (left := deleting.due(now=clock.now())):
        done.deleted += deleting.carry_out(left, store, now=clock.now())


def _walk(
    known: Mapping[int, Policy],
    place: str,
    store: ArtifactStore,
    clock: Clock,
    done: Report,
    *,
    by: str,
    ends_at: datetime | None,
) -> str:
    """Go on behind that place until the time is up; the place then, "" at the end of the round."""
    name, _, key = place.partition(":")
    for each in list(WALKS)[list(WALKS).index(name) if name in WALKS else 0 :]:
        after = int(key) if each == name and key.isdigit() else 0
        while (page := WALKS[each](known, after=after, now=clock.now())) is not None:
            found, after = page
            requested = retention.request(found, known, by=by, now=clock.now())
            done.survey.add(found)
            for start in range(0, len(requested), deleting.CARRIED_AT_ONCE):
                some = requested[start : start + deleting.CARRIED_AT_ONCE]
                done.deleted += deleting.carry_out(some, store, now=clock.now())
            if ends_at is not None and clock.now() >= ends_at:
                return f"{each}:{after}"
    return ""
