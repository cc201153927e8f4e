"""How many items the batch of each job has: what a duration and a passed deadline say beside the time it took."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from django.db.models import Count

from batches.models import BatchItem


class LedJob(Protocol):
    """A job's row, or what was read of it."""

    @property
    def pk(self) -> int: ...

    @property
    def version_id(self) -> int: ...

    @property
    def lead_batch_id(self) -> int | None: ...


class BatchSizes:
    """One pump's. A batch never grows, so each is counted once, by one statement for all that are new."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}

    def of(self, jobs: Sequence[LedJob]) -> dict[int, int]:
        """Items by job id: of the batch that leads it, else of the newest that holds its version; 0 without any."""
        batches = {job.pk: job.lead_batch_id for job in jobs}
        unled = {job.version_id: job.pk for job in jobs if job.lead_batch_id is None}
        if unled:  # no live item needs it: all of its batches were cancelled, or its items were
            items = BatchItem.objects.filter(version_id__in=unled).order_by("pk").values_list("version_id", "batch_id")
            batches |= {unled[version_id]: batch_id for version_id, batch_id in items}
        self._count(batch_id for batch_id in batches.values() if batch_id is not None)
        return {job_id: self._known.get(batch_id or 0, 0) for job_id, batch_id in batches.items()}

    def _count(self, batch_ids: Iterable[int]) -> None:
        fresh = set(batch_ids) - self._known.keys()
        if fresh:
            counted = BatchItem.objects.filter(batch_id__in=fresh).order_by().values("batch_id")
            self._known |= dict(counted.annotate(count=Count("pk")).values_list("batch_id", "count"))
