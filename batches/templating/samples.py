"""Invented data for a template, by what it reads: to look at it filled, and to show what its rows look like."""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import prod
from typing import Any

from batches.templating.reads import Read, steps

#: Items that a list gets.
ITEMS = 2
#: Values in all: lists within lists multiply. Of the fields beyond, only the place that is named holds something.
PLACES_MOST = 50_000
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
    room = PLACES_MOST
    for read in sorted(reads, key=lambda each: len(steps(each.path))):
        path = steps(read.path)
        is_whole = _places(path) <= room
        room -= _places(path) if is_whole else 0
        _put(data, path, read.sample or _by_name(read.path), is_whole=is_whole)
    return data


def columns(reads: Iterable[Read]) -> dict[str, str]:
    """A table's columns for the fields and what their cells hold; the items of a list are numbered."""
    inner = [read for read in reads if read.path != "id"]
    holders = {read.path[:at] for read in inner for at, mark in enumerate(read.path) if mark in ".["}
    found: dict[str, str] = {}
    for read in inner:
        if read.path in holders:
            continue  # what is in it has columns of its own
        for at in range(ITEMS if "[]" in read.path else 1):
            found[read.path.replace("[]", f"[{at}]")] = read.sample or _by_name(read.path)
    return found


def _places(path: Iterable[str | int | None]) -> int:
    """How many values the path has where each list is filled up to the place that it names."""
    return prod(ITEMS if step is None else step + 1 for step in path if not isinstance(step, str))


def _put(at: Any, path: list[str | int | None], value: str, *, is_whole: bool) -> None:
    """`is_whole`: lists are filled up to the place that is named; else that place alone holds something."""
    step, rest = path[0], path[1:]
    if isinstance(at, list):
        wanted = range(ITEMS) if step is None else range(int(step) + 1) if isinstance(step, int) else range(0)
        at.extend([None if rest else value] * (len(wanted) - len(at)))
        for place in (wanted if is_whole else wanted[-1:]) if rest else ():
            at[place] = _held(at[place], rest)
            _put(at[place], rest, value, is_whole=is_whole)
    elif isinstance(at, dict) and isinstance(step, str):
        if not rest:
            at.setdefault(step, value)
            return
        at[step] = _held(at.get(step), rest)
        _put(at[step], rest, value, is_whole=is_whole)


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
