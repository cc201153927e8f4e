"""Which rows a page shows, told back by the page: `41.ab12cd34ef,42.…`, a key and the revision that it has drawn."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

MOST_ROWS = 100
_SHOWN = re.compile(r"([A-Za-z0-9_]{1,40})\.([0-9a-f]{1,16})")


class Revised(Protocol):
    @property
    def key(self) -> str: ...

    @property
    def revision(self) -> str: ...


Row = TypeVar("Row", bound=Revised)


def shown(text: str) -> Mapping[str, str]:
    """The rows of a request, key to revision; what makes no sense is left out."""
    matches = (_SHOWN.fullmatch(part) for part in text.split(",")[:MOST_ROWS])
    return {match[1]: match[2] for match in matches if match}


def positions(drawn: Mapping[str, str]) -> list[int]:
    """The keys that are positions of items."""
    return [int(key) for key in drawn if key.isdigit() and len(key) <= 9]


def changed(rows: Iterable[Row], drawn: Mapping[str, str]) -> list[Row]:
    """Those of `rows` that look different from what the page has drawn."""
    return [row for row in rows if drawn.get(row.key) != row.revision]
