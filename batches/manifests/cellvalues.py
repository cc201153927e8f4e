"""What a workbook's cell says as text: numbers as Excel shows them where it matters, dates in ISO form. Pure.

A number keeps the digits and decimals that its format shows (`00000`, `0.00`, `0%`), never its grouping or currency
sign: a template formats amounts. Whole numbers have no `.0`. What Excel cannot have kept is Unfit.
"""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from functools import lru_cache
from typing import NamedTuple

from openpyxl.styles.numbers import BUILTIN_FORMATS, is_date_format
from openpyxl.utils.datetime import CALENDAR_MAC_1904, CALENDAR_WINDOWS_1900, from_excel

from batches.manifests.problems import Code, Unfit, shown

ERRORS = frozenset(
    {"#NULL!", "#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "#N/A", "#GETTING_DATA", "#SPILL!", "#CALC!"}
)
"""What a formula shows that could not be computed."""
_MOST_DIGITS = 15
_LONGEST_NUMBER = 330
_LONGEST_FORMAT = 255
_QUOTED = re.compile(r'"[^"]*"|\\.|_.|\*.|\[[^\]]*\]')
_PARTS = re.compile(r'"[^"]*"|\\.|_.|\*.|\[[^\]]*\]|.', re.DOTALL)
_DIGITS = re.compile(r"[0#?][0#?,]*(\.[0#?]*)?")


class _Format(NamedTuple):
    """What a number format shows of a number."""

    is_date: bool = False
    is_general: bool = True
    least_digits: int = 0
    """Digits before the point that are filled with zeros."""
    decimals: int = 0
    optional_decimals: int = 0
    is_percent: bool = False
    pattern: str = ""
    """Of digits that stand between letters and strokes (`INV-0000`): each NUL is a digit's place."""


def builtin_format(number: int) -> str:
    """The format that Excel knows by this number alone; `General` where it is not known."""
    return str(BUILTIN_FORMATS.get(number, "General"))


def number(given: str, number_format: str, *, is_1904: bool) -> str:
    """The text of a number cell, whose XML says `given`. Raises Unfit with whole sentences."""
    if len(given) > _LONGEST_NUMBER:
        raise _damaged(f"The cell holds a number of {len(given)} characters.")
    try:
        value = Decimal(given)
    except InvalidOperation as error:
        raise _damaged(f"The cell holds {shown(given, 40)}, which is no number.") from error
    if not value.is_finite() or abs(value.adjusted()) > _LONGEST_NUMBER:
        raise _damaged(f"The cell holds {shown(given, 40)}, which is no number.")
    form = _format(number_format[:_LONGEST_FORMAT])
    if form.is_date:
        return _date(value, number_format, is_1904=is_1904)
    if value.adjusted() >= _MOST_DIGITS:
        raise Unfit(
            Code.SPREADSHEET_DAMAGE,
            f"The number {shown(given, 40)} has more than {_MOST_DIGITS} digits: Excel keeps no more, and puts zeros "
            "in place of the others.",
            "Format the column as text, and type or paste the digits again.",
        )
    return _rounded(value, form)


def _rounded(value: Decimal, form: _Format) -> str:
    if form.is_percent:
        value *= 100
    exponent = value.adjusted() - _MOST_DIGITS + 1  # binary noise stands behind the digits that Excel keeps
    kept = value.quantize(Decimal(1).scaleb(exponent), ROUND_HALF_UP) if exponent < 0 else value
    if not form.is_general:
        most = form.decimals + form.optional_decimals
        kept = kept.quantize(Decimal(1).scaleb(-most), ROUND_HALF_UP)
    whole, _, fraction = f"{abs(kept):f}".partition(".")
    if form.pattern and kept >= 0:
        return _in_pattern(whole, form.pattern)
    least = 0 if form.is_general else form.decimals
    fraction = fraction[:least] + fraction[least:].rstrip("0")
    digits = whole.zfill(form.least_digits) + (f".{fraction}" if fraction else "")
    sign = "-" if kept < 0 and digits.strip("0.") else ""
    return f"{sign}{digits}{'%' if form.is_percent else ''}"


def _in_pattern(digits: str, pattern: str) -> str:
    """The digits at the places of the NULs, from the right; what is left over stands at the first place."""
    places = pattern.count("\0")
    digits = digits.zfill(places)
    over = len(digits) - places + 1
    queue = iter((digits[:over], *digits[over:]))
    return "".join(next(queue) if mark == "\0" else mark for mark in pattern)


def _date(value: Decimal, number_format: str, *, is_1904: bool) -> str:
    epoch = CALENDAR_MAC_1904 if is_1904 else CALENDAR_WINDOWS_1900
    is_duration = bool(re.search(r"\[(h+|m+|s+)\]", number_format, re.IGNORECASE))
    try:
        moment = from_excel(float(value), epoch, timedelta=is_duration)
    except (ValueError, OverflowError, TypeError) as error:
        raise _damaged(f"The cell holds {shown(str(value), 40)}, which is no date.") from error
    return _iso(moment)


def _iso(moment: datetime | date | time | timedelta | None) -> str:
    if isinstance(moment, datetime):
        rounded = _to_seconds(moment)
        return rounded.date().isoformat() if rounded.time() == time() else rounded.isoformat()
    if isinstance(moment, timedelta):
        seconds = round(moment.total_seconds())
        sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
        return f"{sign}{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    if isinstance(moment, time):
        return moment.replace(microsecond=0).isoformat()
    return moment.isoformat() if moment else ""


def _to_seconds(moment: datetime) -> datetime:
    """To whole seconds: a day's fraction has no exact spelling."""
    return (moment + timedelta(microseconds=500_000)).replace(microsecond=0)


@lru_cache(maxsize=500)
def _format(number_format: str) -> _Format:
    if is_date_format(number_format):
        return _Format(is_date=True)
    shown_of_positive = _QUOTED.sub("", number_format.split(";")[0])
    digits = _DIGITS.search(shown_of_positive)
    if digits is None or any(mark in shown_of_positive.lower() for mark in ("general", "e", "/")):
        return _Format()
    pattern = _pattern(number_format.split(";")[0])
    if pattern:
        return _Format(is_general=False, pattern=pattern)
    whole, _, fraction = digits[0].partition(".")
    return _Format(
        is_general=False,
        least_digits=whole.count("0"),
        decimals=fraction.count("0"),
        optional_decimals=fraction.count("#") + fraction.count("?"),
        is_percent="%" in shown_of_positive,
    )


def _pattern(number_format: str) -> str:
    """A format of a fixed number of digits with other characters before, between or behind them, each digit's place a
    NUL; "" for any other."""
    marks: list[str] = []
    for part in _PARTS.finditer(number_format):
        text = part[0]
        if text == "0":
            marks.append("\0")
        elif text.startswith('"'):
            marks.append(text[1:-1])
        elif text.startswith("\\"):
            marks.append(text[1:])
        elif text.startswith(("_", "*", "[")):
            continue
        elif text in "-+(): ":
            marks.append(text)
        else:
            return ""
    pattern = "".join(marks)
    return pattern if pattern.count("\0") > 1 and pattern.strip("\0") else ""


def _damaged(message: str) -> Unfit:
    return Unfit(Code.SPREADSHEET_DAMAGE, message, "Correct the cell, and save the workbook again.")
