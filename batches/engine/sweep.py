"""The periodic healing pass. Pumps heal what they meet by themselves; this tidies what nobody meets."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from batches.engine import links, outliers, running, stopping
from batches.engine.contention import again_after_deadlock
from batches.models import Job, PumpSlot
from batches.storage import ArtifactStore

#: Half-written files of a killed worker are surely nobody's after this long.
TEMPORARY_AGE = timedelta(hours=1)
#: One pass handles at most this many rows, so that it never outgrows its minute.
ROWS_MOST = 1000


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

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


def sweep(store: ArtifactStore, *, now: datetime) -> SweepReport:
    """Clear leases that ran out and files that no worker will finish. Safe to run any number of times at once."""
    leases = _clear_leases(now=now)
    slots = PumpSlot.objects.filter(lease_until__lt=now).update(owner=None, lease_until=None)
    late = links.tell_late(now=now)
    stopped = stopping.sweep(now=now)
    unneeded = running.end_unneeded(now=now, most=ROWS_MOST)
    notices = outliers.sweep(now=now)
    # The store comes last: where it cannot be asked, the rows are tidy all the same.
    removed = store.sweep_temporaries(older_than=TEMPORARY_AGE, now=now)
    return SweepReport(leases, slots, removed, late, stopped, unneeded, notices)


@again_after_deadlock
def _clear_leases(*, now: datetime) -> int:
    expired = list(Job.objects.filter(lease_until__lt=now).values_list("pk", flat=True)[:ROWS_MOST])
    # The guard is repeated: a pump may have claimed one of them since.
    return Job.objects.filter(pk__in=expired, lease_until__lt=now).update(lease_owner=None, lease_until=None)
