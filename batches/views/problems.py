"""Puts a check's answer into what the templates draw: problems with their places, rows by outcome.

The answer itself: `manifests/README.md`, "The answer".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from batches import rownumbers

PLACES_SHOWN = 50
ROWS_NAMED = 200

#: Each outcome of a plan in the order of the page: its label and what it means.
OUTCOMES: Mapping[str, tuple[str, str]] = {
    "new": ("New", "Made and sent as version 1."),
    "changed": ("Changed", "Known id with other content: a new version."),
    "revive": ("Taken up again", "Cancelled before it was ever sent; sent now."),
    "unchanged": ("Unchanged", "Saved or under way already; nothing is sent."),
    "attached_failed": ("Failed before", "The same content failed before; nothing is sent for it."),
    "attached_deleted": ("Deleted", "Saved before, and its file deleted by retention; nothing is sent."),
    "invalid": ("Invalid", "Cannot be used; see the errors."),
}


#: As `OUTCOMES`, of corrected rows.
CORRECTIONS: Mapping[str, tuple[str, str]] = {
    "corrected": ("Corrected", "Failed, and its content differs: a new version, sent."),
    "unchanged": ("Unchanged", "Failed, and its content is what failed: nothing is sent."),
    "left_alone": ("Left alone", "Not failed, so there is nothing to correct."),
    "refused": ("Refused", "Cannot be replaced; see why."),
    "invalid": ("Invalid", "Cannot be read; see the errors."),
    "untouched": ("Stay as they are", "All rows of the batch but the corrected ones."),
}
CORRECTIONS_SHOWN = 50


@dataclass(frozen=True)
class CorrectionGroup:
    """Rows of one outcome, the first ones by name."""

    label: str
    count: int
    rows: Sequence[Mapping[str, Any]]
    is_open: bool

    @property
    def more_count(self) -> int:
        return self.count - len(self.rows)


def corrections(report: Mapping[str, Any]) -> list[CorrectionGroup]:
    """The rows of a corrections file by what would become of them; what is refused stands first, and open."""
    found = report.get("rows_by_outcome", {})
    groups = []
    for key in ("refused", "corrected", "left_alone", "unchanged"):
        rows = found.get(key, [])
        if rows:
            count = max(report["summary"].get(key, 0), len(rows))
            groups.append(CorrectionGroup(CORRECTIONS[key][0], count, rows[:CORRECTIONS_SHOWN], key == "refused"))
    return groups


@dataclass(frozen=True)
class Outcome:
    count: int
    label: str
    meaning: str


def outcomes(summary: Mapping[str, int], *, corrects: bool = False) -> list[Outcome]:
    """The rows of a check by what happens to them; outcomes without rows are left out."""
    table = CORRECTIONS if corrects else OUTCOMES
    return [Outcome(summary[key], *words) for key, words in table.items() if summary.get(key)]


def without_sending(summary: Mapping[str, int]) -> str:
    """What a start that sends nothing would list: `12 saved or under way, 18 failed before`."""
    words = {"unchanged": "saved or under way", "attached_failed": "failed before", "attached_deleted": "deleted"}
    return ", ".join(f"{summary[key]:,} {label}" for key, label in words.items() if summary.get(key))


def plan_words(summary: Mapping[str, int]) -> str:
    """`10 new, 2 unchanged`"""
    return ", ".join(f"{outcome.count:,} {outcome.label.lower()}" for outcome in outcomes(summary))


def presented(problems: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Problems with the places that are shown one by one, and the numbers of the rows beyond them."""
    return [_presented(problem) for problem in problems]


def _presented(problem: Mapping[str, Any]) -> dict[str, Any]:
    places: Sequence[Mapping[str, Any]] = problem.get("places", [])
    shown = places[:PLACES_SHOWN]
    named = {place["row"] for place in shown}
    # In a file of one line every place is on line 1, which tells nothing.
    has_lines = any((place.get("line") or 0) > 1 for place in places)
    rest = [] if _names_both(problem, places) else [row for row in problem["rows"] if row not in named]
    more = ", ".join(str(rownumbers.said(row)) for row in rest[:ROWS_NAMED]) + (", …" if len(rest) > ROWS_NAMED else "")
    return {
        **problem,
        "where": _where(problem, places, has_lines=has_lines),
        "has_lines": has_lines,
        # A single place says nothing that the problem's own words do not say.
        "places_shown": shown if len(places) > 1 else [],
        # What all rows have in common is said once; then only their numbers follow.
        "are_alike": len({(place["message"], place["fix"]) for place in shown}) == 1,
        "more_rows": more,
        "more_count": len(rest),
    }


def _names_both(problem: Mapping[str, Any], places: Sequence[Mapping[str, Any]]) -> bool:
    """One row that repeats another: the words and the place name both."""
    return len(problem["rows"]) == 2 and len(places) == 1


def _where(problem: Mapping[str, Any], places: Sequence[Mapping[str, Any]], *, has_lines: bool) -> str:
    """`row 2, line 9`, `row 2`, `rows 1 and 2`, `14 rows`, `line 3, character 7`, or nothing for the whole file."""
    rows = problem["rows"]
    if _names_both(problem, places):
        return f"rows {rownumbers.said(rows[0])} and {rownumbers.said(rows[1])}"
    if len(rows) > 1 and len(places) != 1:
        return f"{len(rows):,} rows"
    at = places[0] if places else problem
    parts = [] if at.get("row") is None else [f"row {rownumbers.said(at['row'])}"]
    if (has_lines or not places) and at.get("line") is not None:
        parts.append(f"line {at['line']}")
    if not places and at.get("character"):
        parts.append(f"character {at['character']}")
    return ", ".join(parts)
