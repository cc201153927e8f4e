"""How items stand, as far as verbs ask: read in one query for a slice of them, never one by one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.db.models import Exists, F, OuterRef, QuerySet, Subquery

from batches.engine.retention_rules import input_gone
from batches.engine.verbs import Price, Standing
from batches.models import (
    MAYBE_THERE,
    NOTHING_THERE,
    PROVEN_UNBILLED,
    BatchItem,
    Deletion,
    DeletionWhat,
    DeletionWhere,
    JobState,
    Submission,
    SubmissionOutcome,
)
from batches.providers import PROVIDERS


def repeat_price(kind: str) -> Price | None:
    """What sending a document again costs at an account of this kind whose earlier sending may have arrived; None where
    it could be billed twice."""
    adapter = PROVIDERS.get(kind)
    if adapter is None or not adapter.capabilities.resend_is_harmless:
        return None
    return Price.MAYBE if adapter.capabilities.bills else Price.FREE


def of_items(items: QuerySet[BatchItem]) -> dict[int, Standing]:
    """The standing of each item, by primary key."""
    of_job = Submission.objects.filter(job=OuterRef("version__job"))
    open_in_doubt = of_job.filter(MAYBE_THERE, outcome=SubmissionOutcome.OPEN)
    running = BatchItem.objects.filter(
        version=OuterRef("version"), cancelled_at=None, batch__paused_at=None, batch__cancelled_at=None
    )
    rows = items.order_by().annotate(
        has_id=Exists(of_job.filter(provider_job_id__isnull=False)),
        may_bill=Exists(of_job.exclude(NOTHING_THERE).exclude(PROVEN_UNBILLED)),
        is_in_doubt=Exists(open_in_doubt),
        resend_until=Subquery(open_in_doubt.values("resend_until")[:1]),
        is_running=Exists(running),
        current_version=F("document__current_version"),
    )
    found = list(_read(rows))
    gone = inputs_gone(
        {row["version"]: row["version__input_deleted_at"] for row in found if row["version__input_deleted_at"]}
    )
    return {
        row["pk"]: Standing(
            state=JobState(row["version__job__state"]),
            failure_class=row["version__job__failure_class"],
            failure_code=row["version__job__failure_code"],
            is_cancelled=row["cancelled_at"] is not None,
            batch_is_cancelled=row["batch__cancelled_at"] is not None,
            is_dismissed=row["dismissed_at"] is not None,
            is_current=row["current_version"] == row["version"],
            is_final=row["document__is_final"],
            has_id=row["has_id"],
            in_doubt=row["is_in_doubt"],
            may_bill=row["may_bill"],
            resend_until=row["resend_until"],
            is_running=row["is_running"],
            version_number=row["version__number"],
            repeat_price=repeat_price(row["version__job__account__kind"]),
            kind=row["version__kind"],
            account=row["version__job__account__slug"],
            input_gone=gone.get(row["version"], ""),
        )
        for row in found
    }


def _read(rows: QuerySet[Any]) -> Iterable[dict[str, Any]]:
    return rows.values(
        "pk",
        "version",
        "version__number",
        "version__kind",
        "version__job__account__kind",
        "version__job__account__slug",
        "version__job__state",
        "version__job__failure_class",
        "version__job__failure_code",
        "cancelled_at",
        "batch__cancelled_at",
        "dismissed_at",
        "current_version",
        "document__is_final",
        "has_id",
        "is_in_doubt",
        "may_bill",
        "resend_until",
        "is_running",
        "version__input_deleted_at",
    )


def inputs_gone(deleted: Mapping[int, datetime]) -> dict[int, str]:
    """What is said of these versions' inputs, by their keys, from when each was deleted; asks for nothing where none
    was."""
    if not deleted:
        return {}
    rows = Deletion.objects.filter(version__in=deleted, what=DeletionWhat.INPUT, where=DeletionWhere.HERE)
    rules = dict(rows.values_list("version", "rule"))
    return {pk: input_gone(at, rules.get(pk, "")) for pk, at in deleted.items()}
