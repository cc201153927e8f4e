"""What a command did to documents of one batch, kept as a bulk action that is over: pages show it as they do their own.

The command plans and applies; nothing is done here. It is written after the deed, so a command that was ended half-way
has no such row, and only the audit log, which has an entry for each document, tells of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import uuid4

from django.db import transaction

from batches.engine import bulk, keys
from batches.engine.audit import By
from batches.engine.contention import again_after_deadlock
from batches.engine.orders import Result
from batches.engine.verbs import Answer
from batches.models import Batch, BulkAction, BulkActionItem, ItemResult, Verb


@dataclass(frozen=True)
class Commanded:
    """One item as the command found it, and what became of it. `cause` is its failure's, empty where it had none."""

    item_id: int
    version_id: int
    cause: str
    state: str
    answer: Answer
    result: Result


@again_after_deadlock
@transaction.atomic
def keep(
    batch: Batch,
    verb: Verb,
    rows: Sequence[Commanded],
    *,
    chosen_by: Mapping[str, Any],
    by: By,
    reason: str,
    now: datetime,
) -> BulkAction:
    """Write down that the verb was applied, with a result for each item. `now` is when it was."""
    action = BulkAction.objects.create(
        public_id=keys.public_id("act"),
        workspace_id=batch.workspace_id,
        batch=batch,
        verb=verb,
        filter=dict(chosen_by),
        plan=_summary(batch, rows),
        reason=reason,
        actor=by.actor,
        actor_words=by.words[:150],
        from_where=by.from_where[:100],
        creation_key=uuid4().hex,
        planned_at=now,
        confirmed_at=now,
        finished_at=now,
    )
    bulk.insert(
        BulkActionItem,
        [
            {
                "action_id": action.pk,
                "position": position,
                "item_id": row.item_id,
                "version_id": row.version_id,
                "cause": row.cause,
                "job_state": row.state,
                "to_confirm": row.answer.to_confirm,
                "renders_most": row.answer.renders_most,
                "result": row.result.result,
                "words": row.result.words,
                "at": now,
            }
            for position, row in enumerate(rows)
        ],
    )
    return action


def _summary(batch: Batch, rows: Sequence[Commanded]) -> dict[str, Any]:
    """As the plan of a bulk action says it."""
    eligible = [row for row in rows if row.answer.allowed]
    skipped = Counter(row.result.words for row in rows if row.result.result is ItemResult.SKIPPED)
    renders_most = sum(row.answer.renders_most for row in eligible)
    price = batch.account.price_per_job
    return {
        "total": len(rows),
        "eligible": len(eligible),
        "skipped": [{"words": words, "count": count} for words, count in skipped.most_common()],
        "to_confirm": [],
        "renders_most": renders_most,
        "estimate": None if price is None else str(price * renders_most),
        "currency": batch.account.price_currency,
    }
