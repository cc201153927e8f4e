"""Cells that a spreadsheet program would run as formulas: guarded with a quote where we write CSV, freed where a list
of failed rows comes back. Pure.

`freed` undoes `guarded` for any text, and leaves alone what somebody's program freed already. Only a file that bears
our own columns is freed: in any other one a quote is what somebody wrote.
"""

from __future__ import annotations

from collections.abc import Iterable

QUOTE = "'"
#: The columns that tell a list of failed rows: the row's place in its batch, and why it failed.
ROW, CODE = "_row", "_code"


def guarded(text: str) -> str:
    """The cell as no program runs it (CWE-1236)."""
    return f"{QUOTE}{text}" if _is_formula(text.lstrip(QUOTE)) else text


def freed(text: str) -> str:
    """The cell as it was before it was guarded."""
    return text[1:] if text.startswith(QUOTE) and _is_formula(text.lstrip(QUOTE)) else text


def is_failed_list(names: Iterable[str]) -> bool:
    """Whether a header, or the keys of a row, are those of a list of failed rows."""
    return {ROW, CODE} <= set(names)


def _is_formula(text: str) -> bool:
    return text[:1] in ("\t", "\r", "\n") or text.lstrip()[:1] in ("=", "+", "-", "@")
