"""Invented data for a template, by what it reads: to look at it filled, and to show what its rows look like."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from batches.templating.reads import Read

#: Items that a list gets.
ITEMS = 2
_STEP = re.compile(r"""\[\]|\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]|\.?([^.\[\]]+)""")
#: By a part of a field's last name, where nothing in the template says more.
_BY_NAME: tuple[tuple[str, str], ...] = (
    (r"e-?mail", "una.park@example.com"),
    (r"date|(^|_)due($|_)|(^|_)day($|_)", "2026-10-05"),
    (r"iban", "DE02 1203 0000 0000 2020 51"),
    (r"zip|postcode|postal", "10115"),
    (r"city|town|place", "Berlin"),
    (r"street|address", "Chausseestraße 12"),
    (r"country", "Germany"),
    (r"currency", "EUR"),
    (r"company|customer|firm", "Park & Sons Ltd"),
    (r"name", "Una Park"),
    (r"qty|quantity|count|pages", "2"),
    (r"rate|percent|share", "0.19"),
    (r"amount|total|price|sum|net|gross|tax|vat|cost|fee", "1234.50"),
    (r"number|(^|_)(no|id|ref)($|_)|code|sku", "A-1001"),
)


def example(reads: Iterable[Read]) -> dict[str, Any]:
    """A row's data with every field that is read, optional ones too; lists have two items."""
    data: dict[str, Any] = {}
    for read in sorted(reads, key=lambda each: len(steps(each.path))):
        _put(data, steps(read.path), read.sample or _by_name(read.path))
    return data


def columns(reads: Iterable[Read]) -> dict[str, str]:
    """A table's columns for the fields and what their cells hold; the items of a list are numbered."""
    inner = [read for read in reads if read.path != "id"]
    found: dict[str, str] = {}
    for read in inner:
        if any(other.path.startswith((f"{read.path}.", f"{read.path}[")) for other in inner):
            continue  # what is in it has columns of its own
        for at in range(ITEMS if "[]" in read.path else 1):
            found[read.path.replace("[]", f"[{at}]")] = read.sample or _by_name(read.path)
    return found


def steps(path: str) -> list[str | int | None]:
    """The names and places that a path goes through; None for each item of a list."""
    found: list[str | int | None] = []
    for step in _STEP.finditer(path):
        if step[0] == "[]":
            found.append(None)
        elif step[1] is not None:
            found.append(int(step[1]))
        else:
            found.append(step[3] if step[2] is None else step[2])
    return found


def _put(at: Any, path: list[str | int | None], value: str) -> None:
    step, rest = path[0], path[1:]
    if isinstance(at, list):
        wanted = range(ITEMS) if step is None else range(int(step) + 1) if isinstance(step, int) else ()
        for place in wanted:
            if place >= len(at):
                at.append({} if rest else value)
            if rest:
                at[place] = _held(at[place], rest)
                _put(at[place], rest, value)
    elif isinstance(at, dict) and isinstance(step, str):
        if not rest:
            at.setdefault(step, value)
            return
        at[step] = _held(at.get(step), rest)
        _put(at[step], rest, value)


def _held(known: Any, rest: list[str | int | None]) -> Any:
    """What holds the rest of a path: a list where it begins with a place, else an object."""
    is_list = not isinstance(rest[0], str)
    if is_list:
        return known if isinstance(known, list) else []
    return known if isinstance(known, dict) else {}


def _by_name(path: str) -> str:
    names = [step for step in steps(path) if isinstance(step, str)]
    name = names[-1] if names else "value"
    for pattern, value in _BY_NAME:
        if re.search(pattern, name, re.IGNORECASE):
            return value
    words = re.sub(r"[_\-]+", " ", name).strip()
    return f"Sample {words}"


def of_fields(fields: Iterable[Mapping[str, Any]]) -> list[Read]:
    """Reads as `TemplateVersion.fields` keeps them."""
    return [Read.from_dict(each) for each in fields]
