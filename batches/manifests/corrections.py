"""What a corrected row of a list of failed rows may say, and a row of another manifest may not. Pure.

Such a list leaves out what is not kept with a row (`evidence.py`) and guards its cells against formulas. A row of it
that comes back is read as it was before that, and what it still leaves out is what the version has that failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from batches import cells
from batches.manifests import damage, evidence
from batches.manifests.jsonrows import JsonValue, Number
from batches.manifests.keys import INLINE_SOURCES, NO_DATA, REMARK, SOURCES, TEMPLATE
from batches.manifests.values import is_markup


class Asked(NamedTuple):
    """A row without what it leaves as it was: its document, its options, or neither."""

    row: dict[str, JsonValue]
    keeps_document: bool = False
    keeps_options: bool = False


def restored(row: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """A row of a list of ours with its cells as they were before they were guarded; any other row as it is."""
    if not cells.is_failed_list(row):
        return row
    return {
        cells.unguarded(key): restored_cell(key, value)
        if isinstance(value, str) and not isinstance(value, Number)
        else value
        for key, value in row.items()
    }


def restored_cell(key: str, cell: str) -> str:
    """A cell of such a list as it was. A document that stands in it was put there by a person: the list holds none."""
    if key in INLINE_SOURCES and (key != "html" or is_markup(cell)):
        return cell
    return cells.unguarded(cell)


def place_of(original: Mapping[str, Any]) -> int | None:
    """Where a row stood in its batch, as the list of failed rows says; None where it does not."""
    cell = str(original.get(cells.ROW, ""))
    return int(cell) if cell.isascii() and cell.isdigit() and len(cell) <= 9 else None


def without_kept(row: dict[str, JsonValue], *, has_default_template: bool = False) -> Asked:
    """What the row asks for. One that is filled into a template brings its document along, whatever else it says."""
    empty = [key for key in SOURCES if key in row and _is_empty(row[key])]
    named = [key for key in SOURCES if key in row and key not in empty]
    is_filled = row.get(TEMPLATE) is not None or (has_default_template and not named)
    keeps_document = not is_filled and (not named or (len(named) == 1 and evidence.is_placeholder(row[named[0]])))
    keeps_options = evidence.is_placeholder(row.get("options"))
    left_out = {*empty, *(named if keeps_document else ())}
    left_out |= {key for key in ("options", "meta") if evidence.is_placeholder(row.get(key))}
    asked = {key: value for key, value in row.items() if key not in left_out}
    return Asked(asked, keeps_document, keeps_options)


def lost_datum(row: dict[str, JsonValue], *, has_default_template: bool = False) -> str | None:
    """Where the row of a template holds what only tells of a longer value: nothing can be filled from that."""
    if row.get(TEMPLATE) is None and not (has_default_template and not any(row.get(key) for key in SOURCES)):
        return None
    data = {key: value for key, value in row.items() if key not in NO_DATA and not key.startswith(REMARK)}
    data["data"] = row.get("data")
    return next((path for path, value in damage.leaves(data) if evidence.is_placeholder(value)), None)


def _is_empty(value: JsonValue) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())
