"""The figures that people read, one function per kind: numbers, money, shares, sizes and lengths of time. Pure.

Each gives the whole phrase with its unit, so that no page, mail or command puts one together by itself. The words
and colours of states are `wording.py`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal


def documents(count: int) -> str:
    """`1 document`, `1,284 documents`."""
    return f"{count:,} document{'' if count == 1 else 's'}"


def share(part: float) -> str:
    """`24 %`; what is there is never 0 %, what lacks one is never 100 %."""
    if part >= 1:
        return "100 %"
    return f"{min(99, max(1, round(part * 100)))} %" if part >= 0.01 else "under 1 %"


def money(amount: Decimal, currency: str) -> str:
    """`1.61 USD`, `0.0013 USD`"""
    figure = f"{amount:,.2f}" if amount >= Decimal("0.10") or not amount else f"{amount:.4f}"
    return f"{figure} {currency}".strip()


def size(byte_count: int) -> str:
    """`840 bytes`, `12.5 kB`, `3.1 MB`, `2.0 GB`; a kB is 1,000 bytes."""
    if byte_count < 1000:
        return f"{byte_count} byte{'' if byte_count == 1 else 's'}"
    for unit, scale in (("kB", 1e3), ("MB", 1e6)):
        if byte_count < scale * 999.95:
            return f"{byte_count / scale:,.1f} {unit}"
    return f"{byte_count / 1e9:,.1f} GB"


def pace(interval_ms: float) -> str:
    """An account's pace by its effect: `one every 3 s`, `20 a second`."""
    if interval_ms <= 0:
        return "as fast as it goes"
    if interval_ms < 1000:
        return f"{1000 / interval_ms:,.3g} a second"
    return f"one every {round(interval_ms / 1000, 1):g} s"


def clock(instant: datetime) -> str:
    """`09:12:41 UTC`, of an instant of these hours."""
    return f"{instant.astimezone(UTC):%H:%M:%S} UTC"


def age(seconds: float) -> str:
    """How old something is: `12 s`, `3 min`, `2 h 10 min`, `5 days`; what lies ahead is `0 s` old."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min"
    if whole < 48 * 3600:
        return f"{whole // 3600} h" + (f" {whole % 3600 // 60} min" if whole % 3600 >= 60 else "")
    return f"{whole // 86400} days"


def length(seconds: float) -> str:
    """A measured time: `0.8 s`, `31 s`, `2.5 min`, `3 h`, `4 days`."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{round(seconds / 60, 1):g} min"
    return f"{round(seconds / 3600, 1):g} h" if seconds < 48 * 3600 else f"{seconds / 86400:.0f} days"


def duration(seconds: float) -> str:
    """A length of time for a person: `less than a minute`, `about 24 min`, `about 3 h 20 min`, `about 2 days`."""
    minutes = round(seconds / 60)
    if seconds < 50:
        return "less than a minute"
    if minutes < 60:
        return f"about {max(1, minutes)} min"
    if minutes < 24 * 60:
        hours, rest = divmod(minutes, 60)
        return f"about {hours} h" + (f" {rest} min" if rest else "")
    days = round(minutes / (24 * 60))
    return f"about {days} day{'' if days == 1 else 's'}"


def offset(seconds: float) -> str:
    """A step of a timeline: `+0.4 s`, `+12 s`, `+3 min 5 s`, `+2 h 10 min`."""
    if seconds < 10:
        return f"+{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"+{whole} s"
    if whole < 3600:
        return f"+{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    if whole < 48 * 3600:
        return f"+{whole // 3600} h" + (f" {whole % 3600 // 60} min" if whole % 3600 >= 60 else "")
    return f"+{whole // 86400} days"


def until(instant: datetime, *, now: datetime) -> str:
    """`in 7 days`, `in 31 hours`: rounded, so that seven days do not begin as six."""
    seconds = (instant - now).total_seconds()
    if seconds <= 0:
        return "now"
    for unit, one in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= 2 * one:
            return f"in {round(seconds / one)} {unit}s"
    return "in a minute" if seconds >= 60 else "in less than a minute"
