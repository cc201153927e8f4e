"""A batch's own stop rules: so many failures, or so many per cent of what has ended, and it pauses by itself.

Asked when failures were written, once for a group of them, and by the sweep. Only what failed in the batch's own time
counts: documents that had failed before it was handed over, or before a person let it go on, do not.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from django.core.exceptions import ValidationError
from django.db import InterfaceError, OperationalError
from django.db.models import Count, Q, QuerySet

from batches.engine import running
from batches.engine.errors import IntakeRefused
from batches.models import FAILED_STATES, Batch, BatchItem, JobState

log = logging.getLogger(__name__)

#: A share of fewer ended documents says nothing: of 20 one is 5 %, so that a low limit is not met by a single bad row.
ENDED_LEAST = 20
WHAT_TO_DO = "Nothing new of it is sent; what the provider has is still saved. Look at what failed, and why, first."


@dataclass(frozen=True)
class Rules:
    """How a batch shares its account with others (`weight`, 1 to 100), and when it pauses by itself."""

    weight: int = 1
    stop_after_failures: int | None = None
    stop_after_percent: int | None = None

    def apply(self, batch: Batch) -> None:
        """Put them on a batch that is not written yet. Raises `IntakeRefused` for what its row would not take."""
        given = asdict(self)
        for name, value in given.items():
            setattr(batch, name, value)
        try:
            batch.clean_fields(exclude=[field.name for field in batch._meta.fields if field.name not in given])
        except ValidationError as error:
            words = "; ".join(f"{name}: {' '.join(said)}" for name, said in error.message_dict.items())
            raise IntakeRefused(words) from error


NO_RULES = Rules()


def after_failures(job_ids: Sequence[int], *, now: datetime) -> None:
    """Pause the batches whose rule these failures fulfil. Never raises for the database: the sweep asks again."""
    try:
        concerned = BatchItem.objects.filter(version__job__in=job_ids, cancelled_at=None).values("batch")
        _stop(_watched().filter(pk__in=concerned), now=now)
    except (OperationalError, InterfaceError):
        log.warning("the stop rules could not be asked; the sweep asks them", exc_info=True)


def sweep(*, now: datetime) -> int:
    """Ask every running batch's rules; returns how many were paused."""
    return _stop(_watched(), now=now)


def _watched() -> QuerySet[Batch]:
    """Running batches with a rule."""
    has_rule = Q(stop_after_failures__isnull=False) | Q(stop_after_percent__isnull=False)
    return Batch.objects.filter(has_rule, paused_at=None, cancelled_at=None).order_by("pk")


def _stop(batches: QuerySet[Batch], *, now: datetime) -> int:
    stopped = 0
    for batch in batches:
        failed, ended = _ended_since(batch)
        words = verdict(failed, ended, after=batch.stop_after_failures, percent=batch.stop_after_percent)
        if words:
            alert = f"{batch.name} was paused by its own rule: {words} {WHAT_TO_DO}"
            stopped += running.stop(batch.pk, reason=words, alert=alert, now=now)
    return stopped


def verdict(failed: int, ended: int, *, after: int | None, percent: int | None) -> str:
    """Why the batch has to stop, in words; empty while it may go on. Pure."""
    if after is not None and failed >= after:
        documents = "document" if failed == 1 else "documents"
        return f"{failed:,} {documents} failed, the limit is {after:,}."
    if percent is not None and ended >= ENDED_LEAST and failed * 100 >= percent * ended:
        return f"{failed:,} of {ended:,} finished documents failed, the limit is {percent} %."
    return ""


def _ended_since(batch: Batch) -> tuple[int, int]:
    """How many of its live documents failed, and how many ended at all, since its rules began to count."""
    since = max(batch.created_at, batch.stop_counts_from or batch.created_at)
    failed = Q(version__job__state__in=FAILED_STATES)
    ended = BatchItem.objects.filter(
        failed | Q(version__job__state=JobState.SAVED),
        batch=batch,
        cancelled_at=None,
        version__job__state_changed_at__gte=since,
    )
    counts = ended.aggregate(failed=Count("pk", filter=failed), ended=Count("pk"))
    return counts["failed"], counts["ended"]
