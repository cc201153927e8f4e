"""Where a page of a list in order of time begins or ends: the instant of its outermost row and its key, as one word of
an address. A word that is none is no place."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.db.models import Q

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Place = tuple[datetime, int]


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
