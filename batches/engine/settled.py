"""The counters of batches that have ended, why documents of them failed, and what they cost: kept, and voided in the
transaction that changes what they count.

A batch has ended when each of its items is cancelled or has a job at rest, and so has each job that was sent in its
turns, should it go on for another batch. Then its counters change only where a job leaves a state of rest
(`transitions.move_many`) or a person changes items; whoever does either calls `void_*` beside it, inside the same
transaction, which gives the batch another token. Of the cost only delivered submissions are kept: one becomes that, or
is that no more, in the very transaction that moves its job. `settle` reads the token first, counts after, and
writes under that token: it either counted what was changed, or finds the token gone, or is voided itself. A job that
pumps move on is counted by no kept row, so the busy road pays nothing (docs/decisions/0029-settled-counts.md).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db.models import Count, Exists, Max, Min, OuterRef, Q, QuerySet, Sum

from batches.engine import bulk
from batches.models import (
    ACTIVE_STATES,
    DELIVERED,
    FAILED_STATES,
    Batch,
    BatchItem,
    CauseCount,
    JobState,
    SettledCounts,
    Submission,
)

#: Longer than any transaction of ours: one that did not see the items yet is over when they are counted.
SETTLES_AFTER = timedelta(minutes=5)
#: So many batches a pass.
SETTLED_MOST = 50
#: Of a batch where documents failed in more ways than these, the causes are asked for each time.
CAUSES_MOST = 200


def void_jobs(job_ids: Iterable[int]) -> None:
    """These jobs leave a state of rest, in the caller's transaction: every batch that names them, or in whose turns
    they were sent, is counted again."""
    for chunk in bulk.chunks(sorted(set(job_ids)), bulk.VALUES_PER_LIST):
        naming = BatchItem.objects.filter(version__job__in=chunk).order_by().values_list("batch_id", flat=True)
        sending = Submission.objects.filter(job__in=chunk, batch__isnull=False).order_by()
        void(naming.union(sending.values_list("batch_id", flat=True)))


def void_items(item_ids: Iterable[int]) -> None:
    """These items were changed in the caller's transaction."""
    for chunk in bulk.chunks(sorted(set(item_ids)), bulk.VALUES_PER_LIST):
        void(BatchItem.objects.filter(pk__in=chunk).order_by().values_list("batch_id", flat=True).distinct())


def void(batch_ids: Iterable[int]) -> None:
    """Give each batch another token, in the caller's transaction, and take what was counted under the last."""
    # In one order, so that two of them do not wait for each other; also where there is no row yet, since one that is
    # counted just now must not be kept.
    rows = [SettledCounts(batch_id=batch_id, token=secrets.token_hex(16)) for batch_id in sorted(set(batch_ids))]
    columns = [field.name for field in SettledCounts._meta.concrete_fields if not field.primary_key]
    SettledCounts.objects.bulk_create(rows, update_conflicts=True, unique_fields=["batch"], update_fields=columns)


def settle(*, now: datetime, most: int = SETTLED_MOST) -> int:
    """Keep the counters of batches that were at rest a while ago and are so now, at most `most`; how many were kept."""
    moving = BatchItem.objects.filter(batch=OuterRef("pk"), cancelled_at=None, version__job__state__in=ACTIVE_STATES)
    sent = _sent_and_moving(OuterRef("pk"))
    uncounted = Batch.objects.filter(settled_counts__settled_at=None, writing_at=None)
    found = uncounted.filter(~Exists(moving), ~Exists(sent)).order_by("pk").values_list("pk", flat=True)
    return sum(_settled(batch_id, now=now) for batch_id in list(found[:most]))


def _settled(batch_id: int, *, now: datetime) -> bool:
    row = SettledCounts.objects.filter(batch=batch_id).first()
    if row is None:
        first_look = SettledCounts(batch_id=batch_id, token=secrets.token_hex(16), seen_at=now)
        SettledCounts.objects.bulk_create([first_look], ignore_conflicts=True)
        return False
    mine = SettledCounts.objects.filter(batch=batch_id, token=row.token)
    if row.seen_at is None:
        mine.update(seen_at=now)
        return False
    if row.seen_at > now - SETTLES_AFTER:
        return False
    counts = _counted(batch_id)  # after the token was read, as are the causes
    if counts.pop("moving") or _sent_and_moving(batch_id).exists():
        return False
    causes = _causes(batch_id) if counts["attention"] else []
    return bool(mine.update(settled_at=now, causes=causes, **counts, **_delivered(batch_id)))


def _sent_and_moving(batch: int | OuterRef) -> QuerySet[Submission]:
    """What was sent in its turns, of jobs that another batch has going on."""
    return Submission.objects.filter(batch=batch, job__state__in=ACTIVE_STATES)


def _delivered(batch_id: int) -> dict[str, Any]:
    """As `spending.spent_by_batch` counts, of the submissions whose PDF was stored."""
    found = Submission.objects.filter(DELIVERED, batch=batch_id).aggregate(
        delivered=Count("*"), billed=Sum("billed_amount"), billed_count=Count("billed_amount")
    )
    return found | {"billed": found["billed"] or Decimal(0)}


def _counted(batch_id: int) -> dict[str, int]:
    """As `selectors.progress_of` counts, of a batch at rest."""
    state = "version__job__state"
    is_cancelled = Q(cancelled_at__isnull=False) | Q(**{state: JobState.CANCELLED})
    is_failed = ~is_cancelled & Q(**{f"{state}__in": FAILED_STATES})
    counted: dict[str, int] = BatchItem.objects.filter(batch=batch_id).aggregate(
        saved=Count("pk", filter=~is_cancelled & Q(**{state: JobState.SAVED})),
        failed=Count("pk", filter=is_failed),
        cancelled=Count("pk", filter=is_cancelled),
        attention=Count("pk", filter=is_failed & Q(dismissed_at=None)),
        moving=Count("pk", filter=~is_cancelled & Q(**{f"{state}__in": ACTIVE_STATES})),
    )
    return counted


def _causes(batch_id: int) -> list[list[Any]] | None:
    """Why what needs a person failed, as `failures.needing_a_person` has it; None where there are too many causes."""
    job = "version__job__"
    failed = BatchItem.objects.filter(
        batch=batch_id, cancelled_at=None, dismissed_at=None, **{f"{job}state__in": FAILED_STATES}
    )
    alike = failed.order_by().values_list(
        f"{job}account", f"{job}failure_cause", f"{job}failure_class", f"{job}failure_code"
    )
    counted = alike.annotate(
        count=Count("pk"), first=Min(f"{job}state_changed_at"), last=Max(f"{job}state_changed_at")
    ).order_by("-count", f"{job}failure_cause")
    found = [CauseCount(*row).as_json() for row in counted[: CAUSES_MOST + 1]]
    return found if len(found) <= CAUSES_MOST else None
