"""What conditions compare, and when something counts as there. Never guesses: text from a table that is a number is
compared as one, and what cannot be compared is an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal

from batches.templating import filters, formats
from batches.templating.problems import Fault, shown

#: The words of Liquid for what is not there.
ABSENT = NOTHING, EMPTY, BLANK = None, object(), object()


def equal(left: object, right: object) -> bool:
    for one, other in ((left, right), (right, left)):
        if other is NOTHING:
            return one is None
        if other is EMPTY:
            return one is None or one == "" or one == []
        if other is BLANK:
            return one is None or one == [] or (isinstance(one, str) and not one.strip())
    if isinstance(left, bool) or isinstance(right, bool):
        if isinstance(left, str) or isinstance(right, str):
            raise Fault(
                f"{shown(left)} and {shown(right)} cannot be compared: one is text, the other true or false.",
                'Rows of a table hold text: compare with "true" in quotes.',
            )
        return left is right
    if _is_number(left) or _is_number(right):
        numbers = _numbers(left, right)
        return numbers is not None and numbers[0] == numbers[1]
    return left == right


def _less(left: object, right: object) -> bool:
    numbers = _numbers(left, right)
    if numbers is not None:
        return numbers[0] < numbers[1]
    if isinstance(left, str) and isinstance(right, str):
        days = _days(left, right)
        if days is not None and (days[0] != days[1] or left.strip() == right.strip()):
            return days[0] < days[1]
    raise Fault(
        f"{shown(left)} and {shown(right)} cannot be compared by size: they are not two numbers or two dates.",
        "Write numbers as 1234.50 and dates as 2026-10-05, without the time of day.",
    )


def _days(left: str, right: str) -> tuple[date, date] | None:
    try:
        return formats.day(left), formats.day(right)
    except Fault:
        return None


def _contains(left: object, right: object) -> bool:
    if isinstance(left, str):
        return filters.text(right) in left
    return any(equal(each, right) for each in filters.items(left))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _numbers(left: object, right: object) -> tuple[Decimal, Decimal] | None:
    try:
        return formats.decimal(left), formats.decimal(right)
    except Fault:
        return None


OPERATORS: Mapping[str, Callable[[object, object], bool]] = {
    "==": equal,
    "!=": lambda left, right: not equal(left, right),
    "<": _less,
    ">": lambda left, right: _less(right, left),
    "<=": lambda left, right: not _less(right, left),
    ">=": lambda left, right: not _less(left, right),
    "contains": _contains,
}
