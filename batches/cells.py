"""Cells of the CSV files that people open: guarded against formulas, and as they were when such a file comes back.

Pure. Which columns a list of failed rows adds stands here too, since it is what a list that comes back is known by:
only a file that bears them is freed of its guards, since in any other one a quote is what somebody wrote.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

#: The column of a list of failed rows that says where the row stood in its batch.
ROW = "_row"
#: What the failed list adds to the columns of the manifest, and a new upload of it ignores.
FAILED_COLUMNS = (ROW, "_code", "_reason", "_attempts", "_last_state")
_GUARD = "'"


def guarded(value: Any) -> Any:
    """A cell that no spreadsheet program runs as a formula (CWE-1236); numbers and names of ours pass.

    A text that looks guarded already is guarded once more, so that `unguarded` gives each text back as it was.
    """
    return f"{_GUARD}{value}" if isinstance(value, str) and _needs_guard(value) else value


def unguarded(cell: str) -> str:
    """The text that `guarded` made this cell of. An apostrophe that guards nothing is part of the text."""
    text = cell.removeprefix(_GUARD)
    return text if text != cell and _needs_guard(text) else cell


def is_failed_list(names: Collection[str]) -> bool:
    """Whether a header, or the keys of a row, are those of a list of failed rows, whatever else was taken out of it."""
    return ROW in names and any(name in names for name in FAILED_COLUMNS[1:])


def _needs_guard(text: str) -> bool:
    bare = text.lstrip(_GUARD)
    return bare[:1] in ("\t", "\r", "\n") or bare.lstrip()[:1] in ("=", "+", "-", "@")
