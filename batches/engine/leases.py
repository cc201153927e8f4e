"""Rows that one worker at a time may work on: taken, renewed and given back, each by one guarded update.

A lease is `lease_owner` with `lease_until`. An owner is one turn of one worker (`pumping.py` makes its name, with the
life of its cluster in it), so a turn that lost its row never matches it again, also where the same process takes it
anew. Whoever dies gives nothing back: the lease runs out, or is ended when its cluster is proven dead.

Jobs have rules of their own, by the hundred and under fencing tokens (`claims.py`), and so have pump slots.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.db.models import Model, Q, QuerySet

Row = TypeVar("Row", bound=Model)

#: A turn is asked for by a face's clock and taken by the database's; they may be so far apart.
CLOCKS_APART = timedelta(seconds=2)
#: Among the columns of whatever ends a turn.
NOBODY: dict[str, Any] = {"lease_owner": None, "lease_until": None}


def free(rows: QuerySet[Row], *, now: datetime) -> QuerySet[Row]:
    """Those of the rows that nobody works on at this moment."""
    return rows.filter(Q(lease_until=None) | Q(lease_until__lt=now))


def take(rows: QuerySet[Any], owner: str, *, until: datetime, now: datetime, **columns: Any) -> bool:
    """Take the one row that `rows` names, if it is free, and set its `columns` with that; false where it is not."""
    return bool(free(rows, now=now).update(lease_owner=owner, lease_until=until, **columns))


def renew(rows: QuerySet[Any], owner: str, *, until: datetime, **columns: Any) -> bool:
    """Keep the one row that `rows` names, its `columns` set with that; false, with nothing written, once it was lost.

    In a transaction it is the fence too: the row stays locked, so nobody takes it before what follows is committed.
    """
    return bool(held(rows, owner).update(lease_until=until, **columns))


def give_back(rows: QuerySet[Any], owner: str, **columns: Any) -> int:
    """End this owner's leases of the rows, their `columns` set with that; how many were still theirs."""
    return held(rows, owner).update(**NOBODY, **columns)


def held(rows: QuerySet[Row], owner: str) -> QuerySet[Row]:
    return rows.filter(lease_owner=owner)


def is_any_held(rows: QuerySet[Any], *, now: datetime) -> bool:
    """Whether some worker has one of the rows in hand."""
    return rows.filter(lease_until__gt=now).exists()


def release_life(rows: QuerySet[Any], life: str) -> int:
    """End the leases of workers of a cluster that is proven dead (`batches/lives.py`); how many."""
    return rows.filter(lease_until__isnull=False, lease_owner__contains=f":{life}:").update(**NOBODY)
