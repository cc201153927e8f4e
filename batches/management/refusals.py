"""Prints what a check of a manifest found: every kind of problem once, with its rows, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.core.management.base import OutputWrapper

from batches import rownumbers
from batches.management.tables import printable
from batches.manifests import Code

PLACES_SHOWN = 10
NOTHING_DONE = "Refused, nothing was stored or sent"
#: What a page asks of a file that does not speak for itself, a command is told.
OPTIONS = {
    Code.NOT_UTF8: "--encoding cp1252 says so here, for files of older spreadsheet programs in Western Europe.",
    Code.MISSING_COLUMN: "--map 'Invoice no=id' says so here, with the name of the column.",
}


def write_report(out: OutputWrapper, report: Mapping[str, Any]) -> None:
    """The errors, then the warnings, of a validation answer (manifests/README.md, "The answer"); notices last."""
    errors = report["errors"]
    if errors:
        kinds = f"{len(errors)} kind{'' if len(errors) == 1 else 's'} of error"
        is_taken = report.get("ok")
        out.write(f"Left out, the other rows are taken: {kinds}." if is_taken else f"{NOTHING_DONE}: {kinds}.")
        for problem in errors:
            _write_problem(out, "error", problem)
    for problem in report["warnings"]:
        _write_problem(out, "warning", problem)
    for notice in report.get("notices", ()):
        out.write(f"notice: {printable(notice['message'])} ({numbered(notice['rows'], notice['count'])})")


def _write_problem(out: OutputWrapper, kind: str, problem: Mapping[str, Any]) -> None:
    column = f", column {printable(problem['column'])}" if problem["column"] else ""
    where = f", {numbered(problem['rows'], problem['count'])}" if problem["rows"] else _line(problem)
    out.write(f"{kind} {problem['code']}{column}{where}: {printable(problem['message'])}")
    places = problem.get("places", ())
    if len(places) > 1:
        # In a file of one line every place is on line 1, which tells nothing.
        has_lines = any((place["line"] or 0) > 1 for place in places)
        for place in places[:PLACES_SHOWN]:
            line = f" (line {place['line']})" if has_lines and place["line"] else ""
            fix = f" {printable(place['fix'])}" if place.get("fix") not in (None, problem.get("fix")) else ""
            out.write(f"    row {rownumbers.said(place['row'])}{line}: {printable(place['message'])}{fix}")
        if len(places) > PLACES_SHOWN:
            out.write(f"    and {problem['count'] - PLACES_SHOWN:,} more")
    if problem.get("fix"):
        out.write(f"    {printable(problem['fix'])}")
    if problem["code"] in OPTIONS and not problem["rows"]:
        out.write(f"    {OPTIONS[problem['code']]}")


def numbered(rows: Sequence[int], count: int) -> str:
    """`row 3`, `rows 3, 7, 8`, `rows 1, 2, … (1,204 in all)`, of positions."""
    shown = ", ".join(str(rownumbers.said(row)) for row in rows[:PLACES_SHOWN])
    if len(rows) > PLACES_SHOWN:
        shown += f", … ({count:,} in all)"
    return f"row{'' if len(rows) == 1 else 's'} {shown}"


def _line(problem: Mapping[str, Any]) -> str:
    if not problem.get("line"):
        return ""
    character = f", character {problem['character']}" if problem.get("character") else ""
    return f", line {problem['line']}{character}"
