"""What differs between two texts, as lines to show: bounded whatever the texts are. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

#: Longer lines are compared and shown in pieces, since generated HTML is often one line.
PIECE = 160
#: Pieces of both texts that are compared, and lines that are shown.
MOST_COMPARED = 6_000
MOST_SHOWN = 1_500
CONTEXT = 3

_KINDS = {"+": ("added", "New"), "-": ("removed", "Old"), "@": ("place", ""), " ": ("same", "")}


@dataclass(frozen=True)
class Line:
    """One line. `kind` is added, removed, same or place (where the next lines stand); `mark` and `word` say so too."""

    kind: str
    mark: str
    word: str
    text: str


@dataclass(frozen=True)
class Differences:
    """The lines, at most `MOST_SHOWN`. `is_too_large`: the texts differ in too many places to be compared line by line;
    then only the first lines that differ are shown."""

    lines: tuple[Line, ...]
    is_cut: bool = False
    is_too_large: bool = False


def between(old: str, new: str) -> Differences:
    """The unified differences, three lines around each; no lines where the texts are equal."""
    before, after = list(_pieces(old)), list(_pieces(new))
    start = _common(before, after)
    is_too_large = len(before) + len(after) - 2 * start > MOST_COMPARED
    if is_too_large:
        # What follows the first difference, side by side, without looking for what moved.
        first = max(0, start - CONTEXT)
        half = MOST_SHOWN // 2
        lines = [*(f" {piece}" for piece in before[first:start])]
        lines += [f"-{piece}" for piece in before[start : start + half]]
        lines += [f"+{piece}" for piece in after[start : start + half]]
        return Differences(tuple(map(_line, lines)), is_cut=True, is_too_large=True)
    found = list(difflib.unified_diff(before, after, n=CONTEXT, lineterm=""))[2:]
    return Differences(tuple(map(_line, found[:MOST_SHOWN])), is_cut=len(found) > MOST_SHOWN)


def of_settings(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Names whose values differ, with both; None for what is not set."""
    names = sorted({*old, *new})
    return [(name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)]


def _pieces(text: str) -> Iterable[str]:
    for line in text.splitlines():
        if len(line) <= PIECE:
            yield line
            continue
        for start in range(0, len(line), PIECE):
            yield line[start : start + PIECE]


def _common(before: list[str], after: list[str]) -> int:
    """How many pieces both texts begin with."""
    for count, (old, new) in enumerate(zip(before, after, strict=False)):
        if old != new:
            return count
    return min(len(before), len(after))


def _line(text: str) -> Line:
    kind, word = _KINDS[text[0]]
    is_place = kind == "place"
    return Line(kind, "" if is_place else text[0], word, text.strip("@ ") if is_place else text[1:])
