"""The periodic healing pass. Pumps heal what they meet by themselves; this tidies what nobody meets.

Its parts know nothing of each other, so a fault in one is logged and the others are done all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from batches.engine import (
    drafts,
    exports,
    inbox,
    links,
    mishaps,
    outliers,
    received,
    running,
    settled,
    stopping,
    wakeups,
    webhook_health,
    webhook_setup,
    writing,
)
from batches.engine.contention import again_after_deadlock
from batches.models import Job, PumpSlot
from batches.storage import ArtifactStore

#: Half-written files of a killed worker are surely nobody's after this long.
TEMPORARY_AGE = timedelta(hours=1)
#: Rows of a batch that nobody added for so long were left by somebody who is gone.
WRITING_AGE = timedelta(hours=1)
#: One pass handles at most this many rows, so that it never outgrows its minute.
ROWS_MOST = 1000
#: Unmatched events of the last day whose bodies one pass reads again.
EVENTS_READ_MOST = 200


@dataclass(frozen=True)
class SweepReport:
    """What one pass did, in rows and files."""

    leases_cleared: int
    slots_cleared: int
    temporaries_removed: int
    late_downloads: int
    batches_stopped: int
    unneeded_ended: int
    notices_changed: int
    events_matched: int
    secrets_ended: int
    silences_changed: int
    batches_given_up: int
    drafts_swept: int
    exports_swept: int
    received_removed: int
    counts_settled: int

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


def sweep(store: ArtifactStore, *, now: datetime) -> SweepReport:
    """Clear leases that ran out and files that no worker will finish. Safe to run any number of times at once."""
    # The store comes last: it may be slow to say that it cannot be asked.
    return SweepReport(
        leases_cleared=_part("clearing leases", lambda: _clear_leases(now=now)),
        slots_cleared=_part("clearing slots", lambda: _clear_slots(now=now)),
        late_downloads=_part("looking for late downloads", lambda: links.tell_late(now=now)),
        batches_stopped=_part("asking the stop rules", lambda: stopping.sweep(now=now)),
        unneeded_ended=_part("ending what is not needed", lambda: running.end_unneeded(now=now, most=ROWS_MOST)),
        notices_changed=_part("judging stored PDFs", lambda: outliers.sweep(now=now)),
        events_matched=_part("matching webhook events", lambda: _match_events(now=now)),
        secrets_ended=_part("ending replaced secrets", lambda: webhook_setup.end_previous(now=now)),
        silences_changed=_part("looking whether webhooks come", lambda: webhook_health.sweep(now=now)),
        batches_given_up=_part(
            "giving up unwritten batches", lambda: writing.end_forgotten(older_than=now - WRITING_AGE, now=now)
        ),
        drafts_swept=_part("sweeping drafts", lambda: drafts.sweep(store, now=now)),
        exports_swept=_part("sweeping exports", lambda: exports.sweep(store, now=now)),
        received_removed=_part("removing what was received", lambda: received.sweep(store, now=now)),
        counts_settled=_part("settling counters", lambda: settled.settle(now=now)),
        temporaries_removed=_part(
            "removing temporaries", lambda: store.sweep_temporaries(older_than=TEMPORARY_AGE, now=now)
        ),
    )


def _part(what: str, work: Callable[[], int]) -> int:
    """How many rows or files it was; 0 where it failed, and then the log says why."""
    done = 0
    with mishaps.contained(what):
        done += work()
    return done


def _match_events(*, now: datetime) -> int:
    named = wakeups.settle_left(now=now, most=ROWS_MOST) + wakeups.match_recorded(now=now, most=ROWS_MOST)
    return named + inbox.match_others(now=now, most=EVENTS_READ_MOST)


@again_after_deadlock
def _clear_leases(*, now: datetime) -> int:
    expired = list(Job.objects.filter(lease_until__lt=now).values_list("pk", flat=True)[:ROWS_MOST])
    # The guard is repeated: a pump may have claimed one of them since.
    return Job.objects.filter(pk__in=expired, lease_until__lt=now).update(lease_owner=None, lease_until=None)


@again_after_deadlock
def _clear_slots(*, now: datetime) -> int:
    return PumpSlot.objects.filter(lease_until__lt=now).update(owner=None, lease_until=None)
