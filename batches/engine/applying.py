"""Applying a verb to items, whichever it is: the functions by verb, slices of them, and a fault that stays one item's.

Every face comes in here. Rights were checked by it; what is legal is decided under the locks, by `verbs.answer`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from batches.engine import mishaps, reconcile, repairs, versions, withdrawals
from batches.engine.orders import Order, Result
from batches.models import ItemResult, Verb

log = logging.getLogger(__name__)

#: Items of one transaction: their rows are locked for a few hundredths of a second.
ITEMS_AT_ONCE = 200
#: Verbs that ask the provider: never inside a transaction, and each item by itself.
ASKING = frozenset({Verb.RECONCILE})


class Apply(Protocol):
    """One verb over at most `ITEMS_AT_ONCE` items. A result for each of them, by primary key.

    In one transaction; only Reconcile, which asks the provider between reading and writing, takes one for each item.
    """

    def __call__(self, item_ids: Sequence[int], *, order: Order, now: datetime) -> dict[int, Result]: ...


APPLY: Mapping[Verb, Apply] = {
    Verb.CHECK_AGAIN: repairs.check_again,
    Verb.FETCH_AGAIN: repairs.fetch_again,
    Verb.RETRY: repairs.retry,
    Verb.REGENERATE: versions.regenerate,
    Verb.RECONCILE: reconcile.reconcile,
    Verb.CANCEL: withdrawals.cancel,
    Verb.DISMISS: withdrawals.dismiss,
    Verb.REOPEN: withdrawals.reopen,
}


def apply(verb: Verb, item_ids: Sequence[int], *, order: Order, now: datetime) -> dict[int, Result]:
    """Apply the verb to each item, in slices of one transaction each; what became of each, by primary key.

    Not to be called inside a transaction. Raises database errors when the database is away: what was done is done,
    and doing it again skips it with a sentence.
    """
    ids = list(dict.fromkeys(item_ids))
    results: dict[int, Result] = {}
    for start in range(0, len(ids), ITEMS_AT_ONCE):
        results |= _slice(verb, ids[start : start + ITEMS_AT_ONCE], order=order, now=now)
    # Nobody comes back here for what had to be put off.
    return {
        pk: Result(ItemResult.SKIPPED, each.words) if each.result is ItemResult.WAITING else each
        for pk, each in results.items()
    }


def _slice(verb: Verb, ids: Sequence[int], *, order: Order, now: datetime) -> dict[int, Result]:
    try:
        return APPLY[verb](ids, order=order, now=now)
    except mishaps.DATABASE_AWAY:
        raise
    except Exception as error:  # whatever it is, it may be one item's
        log.exception("%s failed over %d items", verb, len(ids))
        if len(ids) == 1:
            words = (
                f"An internal error stopped it ({type(error).__name__}); nothing was changed. The log has the trace."
            )
            return {ids[0]: Result(ItemResult.FAILED, words)}
    results: dict[int, Result] = {}
    for item_id in ids:
        results |= _slice(verb, [item_id], order=order, now=now)
    return results
