"""Carrying bulk actions out: slices of a few seconds under a lease, in groups that are one transaction each.

What is done to a group and what is written down of it are committed together, so whoever dies leaves either both or
neither, and the next worker goes on with what waits. Each item is judged again when its turn comes. A group's first
lock is its action's row: an abort waits for the group under way, and a worker that lost its lease finds it out there.

A verb that asks the provider goes item by item, with no transaction open while it asks. Whoever dies before the result
is written down leaves an item that is asked after once more: that is free, and nothing of it moves or is sent twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, QuerySet

from batches import rights
from batches.engine import applying, audit, bulk, bulk_actions, leases, mishaps, reconcile
from batches.engine.audit import By
from batches.engine.clock import Clock
from batches.engine.contention import again_after_deadlock
from batches.engine.orders import Order, Result
from batches.engine.readpace import ReadPace
from batches.models import BulkAction, BulkActionItem, ItemResult, Verb, Workspace

log = logging.getLogger(__name__)

#: One slice: short, so that what is confirmed meanwhile starts within five seconds although all pumps are busy.
SLICE = timedelta(seconds=4)
LEASE = timedelta(seconds=15)
#: While a provider is asked about one item: its answers, one after the other, each within its time limit.
ASKING_LEASE = timedelta(minutes=5)
#: For a slot among the account's status reads; then the item waits for another slice.
ASKING_PATIENCE = timedelta(seconds=2)
#: Actions that take turns within a slice, a group each: a small one does not wait for the end of a large one.
ACTIONS_MOST = 8
FAULT = "A fault of our own stopped it here, and nothing of it was done; the log has the details. Report it."


@dataclass(frozen=True)
class Tally:
    """What one slice did, in groups and items. `is_work_left`: somebody should go on at once."""

    groups: int = 0
    items: int = 0
    is_work_left: bool = False


class _NotOurs(Exception):
    """The action ended, or another worker has it."""


def carry_out(clock: Clock, *, owner: str, stopping: Callable[[], bool]) -> Tally:
    """One slice over the confirmed actions that no other worker has. Harmless when there are none."""
    ends_at = clock.now() + SLICE
    taken = [key for key in due(now=clock.now())[:ACTIONS_MOST] if _take(key, owner, now=clock.now())]
    unfinished, groups, items = list(taken), 0, 0
    try:
        while unfinished:
            for action_id in list(unfinished):
                if stopping() or clock.now() >= ends_at:
                    return Tally(groups, items, is_work_left=True)
                done = _group(action_id, owner, clock)
                groups, items = groups + 1, items + (done or 0)
                if done is None:
                    unfinished.remove(action_id)
    finally:
        leases.give_back(BulkAction.objects.filter(pk__in=taken), owner)
    return Tally(groups, items, is_work_left=bool(taken) and bool(due(now=clock.now())))


def due(*, now: datetime) -> list[int]:
    """Confirmed actions that are not finished and that no worker has, the one that waits longest first."""
    return list(_free(now).order_by("confirmed_at", "pk").values_list("pk", flat=True))


def release_life(life: str) -> int:
    """Give back the actions that workers of a cluster had which is proven dead (`batches/lives.py`); how many."""
    return leases.release_life(BulkAction.objects.all(), life)


def _open() -> QuerySet[BulkAction]:
    return BulkAction.objects.filter(confirmed_at__isnull=False, finished_at__isnull=True)


def _free(now: datetime) -> QuerySet[BulkAction]:
    return leases.free(_open(), now=now)


def _take(action_id: int, owner: str, *, now: datetime) -> bool:
    return leases.take(_open().filter(pk=action_id), owner, until=now + LEASE, now=now)


def _group(action_id: int, owner: str, clock: Clock) -> int | None:
    """Do the next group; how many items it settled, None when nothing is left for this worker.

    Where the group fails as a whole, its items are done one by one, and the one at fault is marked. A verb that asks
    the provider has one item in a group, so that is the one.
    """
    asks = BulkAction.objects.filter(pk=action_id, verb__in=applying.ASKING).exists()
    try:
        if asks:
            return _ask(action_id, owner, clock)
        return _settle(action_id, owner, now=clock.now(), most=applying.ITEMS_AT_ONCE)
    except _NotOurs:
        return None
    except mishaps.DATABASE_AWAY:
        raise
    except Exception:  # whatever it is, it may be one item's, and the others are not to wait for it
        log.exception("a group of bulk action %s failed; its items are done one by one", action_id)
    if asks:
        _mark_fault(action_id, owner, now=clock.now())
        return 1
    return _one_by_one(action_id, owner, clock)


def _one_by_one(action_id: int, owner: str, clock: Clock) -> int | None:
    ends_at = clock.now() + SLICE
    for settled in range(applying.ITEMS_AT_ONCE):
        if clock.now() >= ends_at:
            return settled
        try:
            if _settle(action_id, owner, now=clock.now(), most=1) is None:
                return None
        except _NotOurs:
            return None
        except mishaps.DATABASE_AWAY:
            raise
        except Exception:  # whatever it is, it is this item's: it is marked, or it would stop all behind it
            log.exception("an item of bulk action %s failed; it is marked and the others go on", action_id)
            _mark_fault(action_id, owner, now=clock.now())
    return applying.ITEMS_AT_ONCE


@again_after_deadlock
def _settle(action_id: int, owner: str, *, now: datetime, most: int) -> int | None:
    """Apply the verb to the next items and write down what became of them, in one transaction; None: that was all."""
    with transaction.atomic():
        action = _ours(action_id, owner, now=now)
        waiting = _next_or_end(action, most, now=now)
        if not waiting:
            return None
        # Regenerating and attaching happen under the workspace, so no item gets another version while it is held.
        Workspace.objects.select_for_update(no_key=True).get(pk=action.workspace_id)
        replaced = {
            row.pk
            for row in BulkActionItem.objects.filter(pk__in=[row.pk for row in waiting]).exclude(
                version=F("item__version")
            )
        }
        wanted = [row.item_id for row in waiting if row.pk not in replaced]
        results = applying.APPLY[Verb(action.verb)](wanted, order=_order(action, waiting), now=now) if wanted else {}
        skipped = Result(ItemResult.SKIPPED, bulk_actions.REPLACED)
        _write(waiting, {row.pk: results.get(row.item_id, skipped) for row in waiting}, now=now)
        return len(waiting)


def _ask(action_id: int, owner: str, clock: Clock) -> int | None:
    """One item of a verb that asks the provider. How many it settled, None when that was all."""
    turn = _turn(action_id, owner, now=clock.now())
    if turn is None:
        return None
    row, order, is_replaced = turn
    result = Result(ItemResult.SKIPPED, bulk_actions.REPLACED)
    if not is_replaced:
        pace = ReadPace(clock, patience=ASKING_PATIENCE)
        result = reconcile.reconcile([row.item_id], order=order, now=clock.now(), pace=pace)[row.item_id]
    return _write_down(action_id, owner, row, result, now=clock.now())


@again_after_deadlock
def _turn(action_id: int, owner: str, *, now: datetime) -> tuple[BulkActionItem, Order, bool] | None:
    """The next item, its order, and whether it names another version by now; the lease lasts while it is asked after.

    None: nothing is left, and the action is finished.
    """
    with transaction.atomic():
        action = _ours(action_id, owner, now=now, lease=ASKING_LEASE)
        waiting = _next_or_end(action, 1, now=now)
        if not waiting:
            return None
        row = waiting[0]
        is_replaced = not BulkActionItem.objects.filter(pk=row.pk, version=F("item__version")).exists()
        return row, _order(action, waiting), is_replaced


@again_after_deadlock
def _write_down(action_id: int, owner: str, row: BulkActionItem, result: Result, *, now: datetime) -> int:
    with transaction.atomic():
        _ours(action_id, owner, now=now)
        if result.result is ItemResult.WAITING:
            return 0  # put off
        _write([row], {row.pk: result}, now=now)
        return 1


def _next_or_end(action: BulkAction, most: int, *, now: datetime) -> list[BulkActionItem]:
    """The items whose turn it is. None: the action is done, or may not go on, and that is written."""
    waiting = _next(action, most)
    if not waiting:
        _finish(action, now=now)
    elif why := _why_no_more(action):
        bulk_actions.end(action, why, by=audit.ENGINE, now=now)
        return []
    return waiting


def _why_no_more(action: BulkAction) -> str:
    """Why the rest is left undone: what was so when it was confirmed may not be so any more. Empty: it goes on."""
    if action.workspace.archived_at is not None:
        return "The workspace was archived before its turn."
    chosen = bulk_actions.account_of(action)
    if chosen is not None and chosen.archived_at is not None:
        return f"The account {chosen.slug} was archived before its turn."
    if action.actor is not None and not rights.may(action.actor, action.verb, action.workspace):
        return f"{action.actor_words} may no longer do this here; the right was taken away before its turn."
    return ""


def _next(action: BulkAction, most: int) -> list[BulkActionItem]:
    waiting = BulkActionItem.objects.filter(action=action, result=ItemResult.WAITING)
    return list(waiting.order_by("position").only("pk", "item_id", "job_state", "to_confirm")[:most])


@again_after_deadlock
def _mark_fault(action_id: int, owner: str, *, now: datetime) -> None:
    with transaction.atomic():
        try:
            action = _ours(action_id, owner, now=now)
        except _NotOurs:
            return
        waiting = _next(action, 1)
        _write(waiting, {row.pk: Result(ItemResult.FAILED, FAULT) for row in waiting}, now=now)


def _ours(action_id: int, owner: str, *, now: datetime, lease: timedelta = LEASE) -> BulkAction:
    """The action, its row locked and its lease renewed. Raises `_NotOurs`."""
    if not leases.renew(_open().filter(pk=action_id), owner, until=now + lease):
        raise _NotOurs
    return BulkAction.objects.select_related("batch", "workspace", "actor").get(pk=action_id)


def _order(action: BulkAction, rows: Sequence[BulkActionItem]) -> Order:
    """What the person ordered who confirmed it: these items as they were shown. The action's items are the record.

    The right to final documents is theirs still, or is none.
    """
    may_final = bulk_actions.asked_of(action).may_regenerate_final
    if may_final and action.actor is not None:
        may_final = rights.may(action.actor, rights.REGENERATE_FINAL, action.workspace)
    return Order(
        by=By(action.actor, action.actor_words, action.from_where),
        reason=action.reason,
        planned={row.item_id: bulk_actions.planned_of(row) for row in rows},
        may_regenerate_final=may_final,
        is_audited=False,
        account=bulk_actions.account_of(action),
    )


def _write(rows: Sequence[BulkActionItem], results: dict[int, Result], *, now: datetime) -> None:
    written = [
        {"pk": row.pk, "result": results[row.pk].result, "words": results[row.pk].words, "at": now} for row in rows
    ]
    bulk.guarded_update(BulkActionItem, written)


def _finish(action: BulkAction, *, now: datetime) -> None:
    facts = bulk_actions.counts(action.pk)
    over = BulkAction.objects.filter(pk=action.pk)
    over.update(finished_at=now, results=facts, **leases.NOBODY)
    bulk_actions.record(action, "finish_bulk_action", audit.ENGINE, reason=action.reason, now=now, facts=facts)
