"""The filters of templates: a table, each a pure function of text, numbers and lists.

All text is plain text until it is printed, and then it is escaped: no filter can make markup of data. The one that
gives markup, `newline_to_br`, escapes first and takes no filter behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from markupsafe import Markup

from batches.templating import formats
from batches.templating.limits import LIMITS
from batches.templating.problems import Fault, shown

Check = Callable[[Any], object]
_SHORTER = "Make it shorter."


@dataclass(frozen=True)
class Filter:
    """`least` and `most` are the arguments after the value. `checks` look at arguments that are written out, by their
    position or name; `keywords` are the names, with the parameter that each is."""

    apply: Callable[..., Any]
    least: int = 0
    most: int = 0
    checks: Mapping[int | str, Check] = field(default_factory=dict)
    keywords: Mapping[str, str] = field(default_factory=dict)
    cost: int = 1
    """Steps of work for each item of a list that it goes through."""


def is_there(value: object) -> bool:
    """Whether `if` takes it: not what is absent, null or false, nor an empty text or list, as empty cells give."""
    return not (value is None or value is False or value == "" or (isinstance(value, list) and not value))


def text(value: object) -> str:
    """A value as it is printed, before it is escaped. Raises Fault for a list or an object."""
    if isinstance(value, Markup):
        raise Fault("Nothing may come behind newline_to_br.", "Write it as the last filter.")
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | Decimal):
        return formats.plain(value)
    kind = "a list" if isinstance(value, Sequence) else "an object with fields of its own"
    raise Fault(f"This is {kind}, not one value.", "Name one of its fields, or go through it with for.")


def _bounded(length: int) -> None:
    if length > LIMITS.value_characters:
        raise Fault(f"The text would be {length:,} characters; {LIMITS.value_characters:,} are allowed.", _SHORTER)


def _append(value: object, more: object) -> str:
    _bounded(len(text(value)) + len(text(more)))
    return text(value) + text(more)


def _replace(value: object, old: object, new: object = "") -> str:
    given, wanted, other = text(value), text(old), text(new)
    if not wanted:
        raise Fault("There is nothing to replace.", "Name the text that is replaced.")
    _bounded(len(given) + given.count(wanted) * (len(other) - len(wanted)))
    return given.replace(wanted, other)


def _truncate(value: object, most: object = 50, end: object = "…") -> str:
    length, mark, given = _whole(most), text(end), text(value)
    return given if len(given) <= length else given[: max(0, length - len(mark))] + mark


def _split(value: object, mark: object) -> list[str]:
    if not text(mark):
        raise Fault("Text is split at some mark.", "Name it.")
    return text(value).split(text(mark))


def _join(value: object, mark: object = ", ") -> str:
    parts = [text(each) for each in items(value)]
    _bounded(sum(map(len, parts)) + len(text(mark)) * len(parts))
    return text(mark).join(parts)


def items(value: object) -> Sequence[object]:
    """The items of a list. Raises Fault for anything else."""
    if isinstance(value, list | tuple | range):
        return value
    kind = "text" if isinstance(value, str) else "no list"
    raise Fault(f"{shown(value)} is {kind}, and a list is wanted.", "Give the row a list, or split the text at a mark.")


def _size(value: object) -> int:
    return len(value) if isinstance(value, list | tuple | range) else len(text(value))


def _map(value: object, name: object) -> list[object]:
    return [_of(each, text(name)) for each in items(value)]


def _sum(value: object, name: object = "") -> Decimal:
    total: object = Decimal(0)
    for each in items(value):
        total = formats.calculated("add", total, _of(each, text(name)) if name else each)
    return formats.decimal(total)


def _of(item: object, name: str) -> object:
    found = item.get(name) if isinstance(item, Mapping) else None
    if found is None:
        raise Fault(f"An item of the list has no {shown(name)}.", "Correct the row.")
    return found


def _end(value: object, at: int) -> object:
    found = items(value)
    if not found:
        raise Fault("The list is empty.", "Test for it with if.")
    return found[at]


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Fault(f"{shown(value)} is no number of characters.", "Write a whole number.")
    return value


def _newline_to_br(value: object) -> Markup:
    given = text(value)
    _bounded(len(given))
    return Markup("<br>\n").join(given.replace("\r\n", "\n").split("\n"))  # which escapes each line


def _calculation(operation: str) -> Filter:
    return Filter(lambda left, right: formats.calculated(operation, left, right), 1, 1)


def _text_only(change: Callable[[str], str]) -> Filter:
    return Filter(lambda value: change(text(value)))


_FROM = {"from": "source"}

FILTERS: Mapping[str, Filter] = {
    # how people write it
    "number": Filter(formats.number, 0, 2, {0: formats.locale, "from": formats.locale}, _FROM),
    "money": Filter(formats.money, 1, 2, {0: formats.code, 1: formats.locale, "from": formats.locale}, _FROM),
    "percent": Filter(formats.percent, 0, 2, {0: formats.locale, "from": formats.locale}, _FROM),
    "date": Filter(
        formats.date, 0, 2, {0: formats.checked_style, 1: formats.locale, "from": formats.checked_source}, _FROM
    ),
    # numbers
    "plus": _calculation("add"),
    "minus": _calculation("subtract"),
    "times": _calculation("multiply"),
    "divided_by": _calculation("divide"),
    "round": Filter(formats.rounded, 0, 1),
    # text
    "upcase": _text_only(str.upper),
    "downcase": _text_only(str.lower),
    "capitalize": _text_only(lambda given: given[:1].upper() + given[1:]),
    "strip": _text_only(str.strip),
    "append": Filter(_append, 1, 1),
    "prepend": Filter(lambda value, more: _append(more, value), 1, 1),
    "replace": Filter(_replace, 2, 2),
    "remove": Filter(_replace, 1, 1),
    "truncate": Filter(_truncate, 0, 2),
    "newline_to_br": Filter(_newline_to_br),
    # lists
    "split": Filter(_split, 1, 1),
    "join": Filter(_join, 0, 1),
    "size": Filter(_size),
    "first": Filter(lambda value: _end(value, 0)),
    "last": Filter(lambda value: _end(value, -1)),
    "map": Filter(_map, 1, 1),
    "sum": Filter(_sum, 0, 1, cost=4),
    # what is not there
    "default": Filter(lambda value, other="": value if is_there(value) else other, 0, 1),
}
#: Filters of other engines that some would look for, and why they are not here.
REFUSED: Mapping[str, str] = {
    "safe": "Values are always escaped: data never becomes markup.",
    "raw": "Values are always escaped: data never becomes markup.",
    "escape": "Every value is escaped already, exactly once.",
    "h": "Every value is escaped already, exactly once.",
    "escape_once": "Every value is escaped already, exactly once.",
}
