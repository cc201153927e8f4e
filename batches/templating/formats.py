"""Numbers, amounts of money and dates as people of a locale write them. Pure; never asks what day it is.

What comes in is data: text from a table, or a number from JSON. It is read in one fixed notation (`1234.5`,
`2026-10-05`), or in the one that the template names with `from:`, and never guessed: "1,234" is a number to some and
another number to others.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Context, Decimal, DecimalException, DivisionByZero, InvalidOperation, Overflow
from functools import lru_cache
from typing import Any

from babel import Locale, UnknownLocaleError
from babel.dates import format_date
from babel.localedata import LocaleDataDict
from babel.numbers import (
    NumberPattern,
    get_currency_precision,
    get_decimal_symbol,
    get_group_symbol,
    is_currency,
    parse_pattern,
)

from batches.templating.problems import Fault, shown

DIGITS_MOST = 40
#: Digits after the point that a template may ask for.
PLACES_MOST = 12
STYLES = ("short", "medium", "long", "full")
#: Arithmetic of all filters: exact for any amount of money, and an error instead of a number that grows on and on.
ARITHMETIC = Context(
    prec=60, rounding=ROUND_HALF_UP, Emin=-99, Emax=99, traps=[DivisionByZero, InvalidOperation, Overflow]
)
_PLAIN = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?")
_ISO_DATE = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?(?: ?(?:Z|UTC|[+-][0-9]{2}:?[0-9]{2}))?)?"
)
_LOCALE = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{2,8}){0,2}")
_PATTERN = re.compile(r"[yMdEeQqwWG0-9 .,/'’\-\u00a0\u202f年月日]{1,40}")
_SPACES = "\u0020\u00a0\u202f"
_APOSTROPHES = "'’"


def decimal(value: object, source: str = "") -> Decimal:
    """The number that a value is; `source` is the locale whose separators it has. Raises Fault for all else."""
    if isinstance(value, Decimal):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return _number(str(value)) if abs(value) < 10**DIGITS_MOST else _no_number(value)
    if isinstance(value, float):
        return _number(plain(value)) if value - value == 0 else _no_number(value)
    if isinstance(value, str):
        text = value.strip()
        return _number(text) if not source else _localised(text, source)
    return _no_number(value)


@lru_cache(maxsize=4096)
def _number(text: str) -> Decimal:
    if len(text) > DIGITS_MOST or not _PLAIN.fullmatch(text):
        return _no_number(text)
    return Decimal(text)


@lru_cache(maxsize=4096)
def _localised(text: str, source: str) -> Decimal:
    """A number with the decimal and thousands separators of `source`, each where that locale has it."""
    if len(text) <= DIGITS_MOST and _notation(source).fullmatch(text):
        point = get_decimal_symbol(locale(source))
        whole, _, places = text.partition(point)
        digits = "".join(each for each in whole if each in "+-0123456789")
        return Decimal(f"{digits}.{places}" if places else digits)
    raise Fault(
        f"{shown(text)} is not a number as {source} writes it.",
        # A workbook's numbers come as 1234.5 whatever its cells look like; a CSV's as they are written in it.
        f"Correct the row, or change from: {shown(source)} in the template; without from it reads 1234.50, as Excel "
        "workbooks give their numbers.",
    )


@lru_cache(maxsize=64)
def _notation(source: str) -> re.Pattern[str]:
    where = locale(source)
    group = get_group_symbol(where)
    last, others = where.decimal_formats[None].grouping  # 3 and 3 in most places, 3 and 2 in India
    alike = next((kind for kind in (_SPACES, _APOSTROPHES) if group in kind), group)
    point = re.escape(get_decimal_symbol(where))
    between = f"[{re.escape(alike)}]"
    whole = rf"(?:[0-9]+|[0-9]{{1,{others}}}(?:{between}[0-9]{{{others}}})*{between}[0-9]{{{last}}})"
    return re.compile(rf"[+-]?{whole}(?:{point}[0-9]+)?")


def _no_number(value: object) -> Decimal:
    if value == "":
        raise Fault("An empty value is not a number.", "Fill it in, or give the field a default.")
    raise Fault(
        f"{shown(value)} is not a number.",
        "Write it as 1234.50, without separators between thousands, or say in the template how the rows write numbers: "
        'number: "de", from: "de".',
    )


class _Locale(Locale):
    """babel takes apostrophes in a finished number for the quotes of a pattern and drops every second pair of them
    (1'234'567 in German of Switzerland): there the typographic one separates, as CLDR has it."""

    @property
    def number_symbols(self) -> LocaleDataDict:
        return _symbols(str(self))


@lru_cache(maxsize=128)
def _symbols(name: str) -> LocaleDataDict:
    given = Locale.parse(name).number_symbols.items()
    own = {system: dict(symbols) for system, symbols in given if isinstance(symbols, Mapping)}
    for symbols in own.values():
        if symbols.get("group") == "'":
            symbols["group"] = "\u2019"
    return LocaleDataDict(own)


@lru_cache(maxsize=128)
def locale(name: str) -> Locale:
    """The locale of a language tag (`de`, `de-AT`, `pt_BR`). Raises Fault for one that is not known."""
    try:
        if not _LOCALE.fullmatch(name):
            raise ValueError(name)
        return _Locale.parse(name.replace("-", "_"))
    except (ValueError, UnknownLocaleError) as error:
        raise Fault(f"There is no locale {shown(name)}.", 'Write one such as "de", "en" or "de-AT".') from error


def number(value: object, language: object = "en", places: object = None, *, source: object = "") -> str:
    """`1234.5` as `1.234,5` in German: with the digits it has, or rounded (half up) to so many places."""
    digits = None if places is None else _places(places)
    return _formatted(f"{decimal(value, _text(source)):f}", _text(language), digits)


@lru_cache(maxsize=4096)
def _formatted(digits_given: str, language: str, places: int | None) -> str:
    value = Decimal(digits_given)  # by its digits: 1.5 and 1.50 are equal, and not written alike
    exponent = value.as_tuple().exponent
    digits = max(0, -exponent) if places is None and isinstance(exponent, int) else places or 0
    given = locale(language).decimal_formats[None].pattern
    return str(_pattern(given, digits).apply(_rounded(value, digits), locale(language)))


@lru_cache(maxsize=64)
def _pattern(given: str, places: int) -> NumberPattern:
    """A locale's own pattern with that many digits after the point."""
    digits = f".{'0' * places}" if places else ""
    return parse_pattern(re.sub(r"0(?:\.[0#]+)?(?=[^0#.,]|$)", lambda _: f"0{digits}", given, count=1))


def percent(value: object, language: object = "en", places: object = 0, *, source: object = "") -> str:
    """`0.19` as `19 %` in German."""
    digits = _places(places)
    where = locale(_text(language))
    share = _rounded(decimal(value, _text(source)), digits + 2)
    return str(_pattern(where.percent_formats[None].pattern, digits).apply(share, where))


def money(value: object, currency: object, language: object = "en", *, source: object = "") -> str:
    """`1234.5` as `1.234,50 €`: rounded (half up) to the places that the currency has."""
    return _amount(decimal(value, _text(source)), code(currency), _text(language))


@lru_cache(maxsize=4096)
def _amount(value: Decimal, currency: str, language: str) -> str:
    where = locale(language)
    rounded = _rounded(value, get_currency_precision(currency))
    return str(where.currency_formats["standard"].apply(rounded, where, currency=currency))


def code(currency: object) -> str:
    """A currency's code. Raises Fault for one that is none."""
    return _code(_text(currency))


@lru_cache(maxsize=128)
def _code(name: str) -> str:
    if len(name) != 3 or not name.isascii() or not name.isupper() or not is_currency(name):
        raise Fault(f"{shown(name)} is not a currency.", 'Write its code, such as "EUR" or "CHF".')
    return name


def date(value: object, style: object = "medium", language: object = "en", *, source: object = "") -> str:
    """`2026-10-05` as `5. Oktober 2026`: `style` is short, medium, long, full or a pattern such as `dd.MM.yyyy`."""
    if not isinstance(value, str):
        raise _no_date(value, _text(source))
    return _dated(value.strip(), checked_style(style), _text(language), _text(source))


@lru_cache(maxsize=4096)
def _dated(text: str, style: str, language: str, source: str) -> str:
    return format_date(_day(text, source), format=style, locale=locale(language))


def day(text: str) -> datetime.date:
    """The day of an ISO date. Raises Fault for all else."""
    return _day(text.strip(), "")


def checked_style(style: object) -> str:
    name = _text(style)
    if name in STYLES or (_PATTERN.fullmatch(name) and name.count("'") % 2 == 0):
        return name
    raise Fault(
        f"{shown(name)} is not a way to write a date.", f'Write {", ".join(STYLES)}, or a pattern such as "dd.MM.yyyy".'
    )


def checked_source(source: object) -> str:
    """A notation of dates for `from:`: d or dd, M or MM, and yyyy, once each, with marks between. Raises Fault."""
    text = _text(source)
    if text and sorted(each[0] for each in re.findall(r"[A-Za-z]+", text)) != ["M", "d", "y"]:
        _bad_source(text)
    return text


def _day(text: str, source: str) -> datetime.date:
    notation = _date_notation(source) if source else _ISO_DATE
    found = notation.fullmatch(text) if len(text) <= DIGITS_MOST else None
    if found is None:
        raise _no_date(text, source)
    named = found.groupdict() or dict(zip("yMd", found.groups(), strict=True))
    try:
        return datetime.date(int(named["y"]), int(named["M"]), int(named["d"]))
    except ValueError as error:
        raise Fault(f"There is no such day as {shown(text)}.", "Correct the row.") from error


@lru_cache(maxsize=64)
def _date_notation(source: str) -> re.Pattern[str]:
    parts = {"yyyy": "(?P<y>[0-9]{4})", "MM": "(?P<M>[0-9]{2})", "M": "(?P<M>[0-9]{1,2})"}
    parts |= {"dd": "(?P<d>[0-9]{2})", "d": "(?P<d>[0-9]{1,2})"}
    checked_source(source)
    pieces = re.split(r"([A-Za-z]+)", source)
    return re.compile("".join(_piece(piece, parts, source) for piece in pieces))


def _piece(piece: str, parts: dict[str, str], source: str) -> str:
    if not piece[:1].isalpha():
        return re.escape(piece)
    return parts.get(piece) or _bad_source(source)


def _bad_source(source: str) -> str:
    raise Fault(f"{shown(source)} does not say how dates are written.", 'Write it as "dd.MM.yyyy" or "M/d/yyyy".')


def _no_date(value: object, source: str) -> Fault:
    if value == "":
        return Fault("An empty value is not a date.", "Fill it in, or give the field a default.")
    asked = (
        f"as {source}, as the template says" if source else 'as 2026-10-05, or say in the template: from: "dd.MM.yyyy"'
    )
    return Fault(f"{shown(value)} is not a date.", f"Write it {asked}.")


def _rounded(value: Decimal, places: int) -> Decimal:
    return ARITHMETIC.quantize(value, Decimal(1).scaleb(-places))


def rounded(value: object, places: object = 0) -> Decimal:
    """A number rounded half up."""
    return _rounded(decimal(value), _places(places))


def _places(value: object) -> int:
    digits = value if isinstance(value, int) and not isinstance(value, bool) else None
    if digits is None or not 0 <= digits <= PLACES_MOST:
        raise Fault(f"{shown(value)} is no number of digits after the point.", f"Write one from 0 to {PLACES_MOST}.")
    return digits


def calculated(operation: str, left: object, right: object) -> Decimal:
    """`add`, `subtract`, `multiply` or `divide`, exact or rounded at 60 digits."""
    try:
        result: Decimal = getattr(ARITHMETIC, operation)(decimal(left), decimal(right))
    except DivisionByZero as error:
        raise Fault("A number is divided by zero.", "Correct the row, or test for it with if.") from error
    except DecimalException as error:
        raise Fault("The numbers are too large to calculate with.", "Correct the row.") from error
    return result


def plain(value: Any) -> str:
    """A number as digits, the same however it was stored: never with an exponent."""
    if isinstance(value, float):
        value = Decimal(repr(value))
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise Fault(f"{shown(value)} is not text, as this filter wants.", "Put it in quotes.")
    return value
