"""What a command did to documents of one batch, kept as a bulk action that is over: pages show it as they do their own.

The command plans and applies; nothing is done here. It is written after the deed, so a command that was ended half-way
has no such row, and only the audit log, which has an entry for each document, tells of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import uuid4

from django.db import transaction

from batches.engine import bulk_actions, keys
from batches.engine.bulk_actions import Judged
from batches.engine.contention import again_after_deadlock
from batches.engine.orders import Order, Result
from batches.models import Batch, BulkAction, Verb


@dataclass(frozen=True)
class Commanded:
    """One item as the command found it, and what became of it."""

    found: Judged
    result: Result


@again_after_deadlock
@transaction.atomic
def keep(
    batch: Batch,
    verb: Verb,
    rows: Sequence[Commanded],
    *,
    chosen_by: Mapping[str, Any],
    order: Order,
    now: datetime,
) -> BulkAction:
    """Write down that the verb was applied, with a result for each item. `now` is when it was."""
    by, account = order.by, order.account
    found = [row.found for row in rows]
    action = BulkAction.objects.create(
        public_id=keys.public_id("act"),
        workspace_id=batch.workspace_id,
        batch=batch,
        verb=verb,
        filter=dict(chosen_by),
        options={bulk_actions.ACCOUNT: account.slug} if account else {},
        plan=bulk_actions.summary(found, batch, account),
        reason=order.reason,
        actor=by.actor,
        actor_words=by.words[:150],
        from_where=by.from_where[:100],
        creation_key=uuid4().hex,
        planned_at=now,
        confirmed_at=now,
        finished_at=now,
    )
    bulk_actions.insert_items(action, found, [(row.result.result, row.result.words, now) for row in rows])
    action.results = bulk_actions.counts(action.pk)
    action.save(update_fields=["results"])
    return action
