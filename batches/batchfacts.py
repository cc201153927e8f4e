"""What the page of one batch asks of single rows elsewhere: read with the batch itself, in one query.

Each by a question of its own would be half of all that the page asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import CharField, Count, Exists, IntegerField, Max, OuterRef, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce, Concat

from batches import attention, audits, selectors
from batches.engine import work
from batches.models import AuditEntry, Batch, BulkAction, Lane, PacingLane


@dataclass(frozen=True)
class Facts:
    """`pump_moved_at` is when any worker last gave a sign; `cooled_down_at` until when the provider asked that nothing
    new be sent, over or not."""

    starter: str
    action_count: int
    pump_moved_at: datetime | None
    cooled_down_at: datetime | None
    has_account_alerts: bool
    has_corrections: bool


def read(person: selectors.Person, public_id: str) -> tuple[Batch, Facts] | None:
    """The batch, with its sample and what is kept of both, as far as the person may see it."""
    near = ("created_by", "settled_counts", "sample", "sample__settled_counts")
    batch = _with_facts(selectors.visible_batches(person).select_related(*near)).filter(public_id=public_id).first()
    if batch is None:
        return None
    read = batch.__dict__
    return batch, Facts(
        starter=batch.created_by.get_username() if batch.created_by else read["told_starter"],
        action_count=read["action_count"],
        pump_moved_at=read["pump_moved_at"],
        cooled_down_at=selectors.instant(read["cool_down_until_us"]),
        has_account_alerts=read["has_account_alerts"],
        has_corrections=read["has_corrections"],
    )


def _with_facts(batches: QuerySet[Batch]) -> QuerySet[Batch]:
    subject = Concat(Value("batch "), OuterRef("public_id"), output_field=CharField())
    started = AuditEntry.objects.filter(at=OuterRef("created_at"), action="start_batch", subject=subject)
    lane = PacingLane.objects.filter(account=OuterRef("account"), lane=Lane.SUBMIT)
    actions = BulkAction.objects.filter(batch=OuterRef("pk")).order_by().values("batch")
    moved = work.signs().order_by().annotate(all=Value(1)).values("all").annotate(last=Max("heartbeat_at"))
    return batches.annotate(
        told_starter=Coalesce(Subquery(started.values("actor_words")[:1]), Value("")),
        action_count=Coalesce(Subquery(actions.annotate(count=Count("pk")).values("count")), 0),
        pump_moved_at=Subquery(moved.values("last")),
        cool_down_until_us=Coalesce(Subquery(lane.values("cool_down_until_us")[:1]), 0, output_field=IntegerField()),
        has_account_alerts=Exists(attention.open_about(OuterRef("account"))),
        has_corrections=Exists(audits.of_corrections(subject)),
    )
