"""Where a page of a list in order of time begins or ends: the instant of its outermost row and its key, as one word of
an address. A word that is none is no place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Generic, TypeVar

from django.db.models import Model, Q, QuerySet

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Place = tuple[datetime, int]
Row = TypeVar("Row")
Found = TypeVar("Found", bound=Model)
#: Positions and keys of an address have no more digits.
DIGITS_MOST = 9


@dataclass(frozen=True)
class Page(Generic[Row]):
    """One page of a list. `before` and `after` are the cursors of the pages on either side, None where none is."""

    rows: Sequence[Row]
    before: str | None = None
    after: str | None = None


def word(at: datetime, key: int) -> str:
    return f"{(at - _EPOCH) // timedelta(microseconds=1)}-{key}"


def place(text: str) -> Place | None:
    microseconds, _, key = text.partition("-")
    if not all(part.isascii() and part.isdigit() and len(part) < 18 for part in (microseconds, key)):
        return None
    try:
        return _EPOCH + timedelta(microseconds=int(microseconds)), int(key)
    except OverflowError:
        return None


def beyond(column: str, direction: str, place: Place) -> Q:
    """The rows after (`gt`) or before (`lt`) a place in the order of `column`, then of their keys."""
    at, key = place
    return Q(**{f"{column}__{direction}": at}) | Q(**{column: at, f"pk__{direction}": key})


def page(found: QuerySet[Found], column: str, *, after: str, before: str, limit: int) -> Page[Found]:
    """The page behind the cursor `after`, or the one before `before`; newest first by `column`, then by key.

    Reads one row more than it gives. Cursors that make no sense are ignored.
    """
    older_than, newer_than = place(after), place(before)
    backwards = newer_than is not None and older_than is None
    if backwards and newer_than:
        found = found.filter(beyond(column, "gt", newer_than)).order_by(column, "pk")
    else:
        if older_than:
            found = found.filter(beyond(column, "lt", older_than))
        found = found.order_by(f"-{column}", "-pk")
    rows = list(found[: limit + 1])
    has_more, rows = len(rows) > limit, rows[:limit]
    if backwards:
        rows.reverse()
    has_newer = has_more if backwards else older_than is not None
    has_older = True if backwards else has_more
    words = [word(getattr(row, column), row.pk) for row in rows]
    return Page(
        rows,
        before=words[0] if words and has_newer else None,
        after=words[-1] if words and has_older else None,
    )


def number(text: str | None) -> int | None:
    """A position or a key as an address gives it; None where it is none."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= DIGITS_MOST else None
