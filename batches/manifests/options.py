"""The render options a row may set: names and values as the official n8n node of RelayPDF sends them
(provider notes A2; names confirmed, value ranges inferred from the node's form). Pure.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from typing import Any

from batches.manifests.jsonrows import JsonValue, Number, plain
from batches.manifests.problems import shown

_FORMATS = {name.lower(): name for name in ("A0", "A1", "A2", "A3", "A4", "A5", "A6")} | {
    name: name for name in ("letter", "legal", "tabloid", "ledger")
}
_WAITS = ("load", "domcontentloaded", "networkidle0", "networkidle2")
_MOST_OPTIONS = 50
_SIDES = ("top", "right", "bottom", "left")
_LENGTH = re.compile(r"\d+(\.\d+)?(px|in|cm|mm)?\Z", re.ASCII)
_PAGE_RANGES = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*\Z", re.ASCII)

Checked = tuple[Any, None] | tuple[None, str]
"""The value to send, or the end of the sentence `options.x has to be …`."""


def checked(value: JsonValue) -> tuple[dict[str, Any], list[tuple[str, str, str]]]:
    """The options to send, and what is wrong with the rest as (column, message, fix).

    Spelling of page formats is made the provider's (`a4` becomes `A4`); nothing else is changed.
    """
    if value is None:
        return {}, []
    if not isinstance(value, dict) or len(value) > _MOST_OPTIONS:
        fix = 'Write options as {"format": "A4", "landscape": true}.'
        return {}, [("options", f"options has to be an object of at most {_MOST_OPTIONS} options.", fix)]
    options: dict[str, Any] = {}
    wrong = []
    for name, given in value.items():
        check = _CHECKS.get(name)
        if check is None:
            wrong.append(_unknown(name))
            continue
        kept, complaint = check(given)
        if complaint is None:
            options[name] = kept
        else:
            wrong.append((f"options.{name}", f"options.{name} has to be {complaint}.", _SEE_README))
    return options, wrong


def _unknown(name: str) -> tuple[str, str, str]:
    lowered = {known.lower(): known for known in _CHECKS}
    close = difflib.get_close_matches(name[:40].lower(), lowered, n=1)
    fix = f"Did you mean {lowered[close[0]]}?" if close else f"Known options: {', '.join(_CHECKS)}."
    return (f"options.{shown(name, 40).strip(chr(34))}", f"{shown(name, 40)} is not an option.", fix)


def _boolean(value: JsonValue) -> Checked:
    return (value, None) if isinstance(value, bool) else (None, "true or false")


def _text(value: JsonValue) -> Checked:
    return (str(value), None) if _is_text(value) else (None, "text")


def _length(value: JsonValue) -> Checked:
    if isinstance(value, str) and _is_text(value) and _LENGTH.match(value):
        return value, None
    return None, 'a length in quotes such as "210mm" (px, in, cm or mm)'


def _page_ranges(value: JsonValue) -> Checked:
    if isinstance(value, str) and _is_text(value):
        ranges = value.replace(" ", "")
        if _PAGE_RANGES.match(ranges) and all(map(_is_rising, ranges.split(","))):
            return value, None
    return None, 'page numbers such as "1-3,5"'


def _format(value: JsonValue) -> Checked:
    if isinstance(value, str) and value.lower() in _FORMATS:
        return _FORMATS[value.lower()], None
    return None, f"one of {', '.join(_FORMATS.values())}"


def _wait(value: JsonValue) -> Checked:
    return (str(value), None) if value in _WAITS else (None, f"one of {', '.join(_WAITS)}")


def _between(low: float, high: float, *, whole: bool, unit: str = "") -> Callable[[JsonValue], Checked]:
    def check(value: JsonValue) -> Checked:
        number = plain(value) if isinstance(value, Number) else None
        if isinstance(number, float) and number.is_integer():
            number = int(number)
        if isinstance(number, int | float) and low <= number <= high and not (whole and isinstance(number, float)):
            return number, None
        return None, f"a {'whole ' if whole else ''}number from {low:g} to {high:g}{unit}"

    return check


def _margin(value: JsonValue) -> Checked:
    wanted = 'an object such as {"top": "10mm", "left": "15mm"} (top, right, bottom, left; px, in, cm or mm)'
    if not isinstance(value, dict) or any(side not in _SIDES for side in value):
        return None, wanted
    if any(_length(given)[1] is not None for given in value.values()):
        return None, wanted
    return {side: str(given) for side, given in value.items()}, None


def _is_text(value: JsonValue) -> bool:
    return isinstance(value, str) and not isinstance(value, Number)


def _is_rising(page_range: str) -> bool:
    first, _, last = page_range.partition("-")
    return 0 < int(first) <= int(last or first)


def names() -> Iterator[str]:
    """The known option names, in the order of the documentation."""
    return iter(_CHECKS)


#: Options that are HTML of their own, printed on each page.
HTML = frozenset({"headerTemplate", "footerTemplate"})
#: Options that are true or false, and those that are a number: a cell of a table has only text for them.
SWITCHES = ("landscape", "printBackground", "preferCSSPageSize")
NUMBERS = frozenset({"scale", "timeout"})
_SEE_README = "Correct the value; the README of manifests lists all options."
_CHECKS: dict[str, Callable[[JsonValue], Checked]] = {
    "format": _format,
    **dict.fromkeys(SWITCHES, _boolean),
    "scale": _between(0.1, 2, whole=False),
    "waitUntil": _wait,
    "timeout": _between(1, 60_000, whole=True, unit=" (milliseconds)"),
    "pageRanges": _page_ranges,
    "width": _length,
    "height": _length,
    "headerTemplate": _text,
    "footerTemplate": _text,
    "margin": _margin,
}
