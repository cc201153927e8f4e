"""What a corrected row of a list of failed rows may say, and a row of another manifest may not. Pure.

Such a list leaves out what is not kept with a row (`evidence.py`) and guards its cells against formulas. A row of it
that comes back is read as it was before that, and what it still leaves out is what the version has that failed.
"""

from __future__ import annotations

from batches import cells
from batches.manifests import evidence
from batches.manifests.jsonrows import JsonValue, Number
from batches.manifests.keys import INLINE_SOURCES, SOURCES
from batches.manifests.values import is_markup

#: Columns that no row of a list of ours is without, whatever else was taken out of it.
_OURS = ("_row", "_last_state")


def restored(row: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """A row of a list of ours with its cells as they were before they were guarded; any other row as it is.

    A document that stands in the row was put there by a person, since the list never holds one.
    """
    if not all(name in row for name in _OURS):
        return row
    return {cells.unguarded(key): _restored(key, value) for key, value in row.items()}


def without_kept(row: dict[str, JsonValue]) -> tuple[dict[str, JsonValue], bool, bool]:
    """The row without what it leaves as it was; whether that is the document, and whether it is the options."""
    empty = [key for key in SOURCES if key in row and _is_empty(row[key])]
    named = [key for key in SOURCES if key in row and key not in empty]
    keeps_document = not named or (len(named) == 1 and evidence.is_placeholder(row[named[0]]))
    keeps_options = evidence.is_placeholder(row.get("options"))
    left_out = {*empty, *(named if keeps_document else ())}
    left_out |= {key for key in ("options", "meta") if evidence.is_placeholder(row.get(key))}
    return {key: value for key, value in row.items() if key not in left_out}, keeps_document, keeps_options


def _restored(key: str, value: JsonValue) -> JsonValue:
    if not isinstance(value, str) or isinstance(value, Number):
        return value
    if key in INLINE_SOURCES and (key != "html" or is_markup(value)):
        return value
    return cells.unguarded(value)


def _is_empty(value: JsonValue) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())
