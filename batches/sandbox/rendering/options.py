"""The vendor's `options` object, read for an engine: page, margins, scale, page ranges, and what was ignored.

Where the document's own CSS says something about the page (`@page`), the CSS wins, as the engine has it.
Sources of the names: RelayPDF's n8n node 0.1.2 (see `batches/sandbox/README.md`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

_IN = 72.0
_MM = 72.0 / 25.4
_PX = 0.75
_UNITS = {"px": _PX, "pt": 1.0, "in": _IN, "cm": 10 * _MM, "mm": _MM, "pc": 12.0}

FORMATS = {
    "a0": (841 * _MM, 1189 * _MM),
    "a1": (594 * _MM, 841 * _MM),
    "a2": (420 * _MM, 594 * _MM),
    "a3": (297 * _MM, 420 * _MM),
    "a4": (210 * _MM, 297 * _MM),
    "a5": (148 * _MM, 210 * _MM),
    "a6": (105 * _MM, 148 * _MM),
    "letter": (8.5 * _IN, 11 * _IN),
    "legal": (8.5 * _IN, 14 * _IN),
    "tabloid": (11 * _IN, 17 * _IN),
    "ledger": (17 * _IN, 11 * _IN),
}
DEFAULT_MARGIN = 0.4 * _IN

_HONOURED = {
    "format",
    "landscape",
    "printBackground",
    "scale",
    "pageRanges",
    "width",
    "height",
    "margin",
}
# The engine loads nothing and runs no script, so there is nothing to wait for.
_WITHOUT_EFFECT = {"preferCSSPageSize", "waitUntil", "timeout"}

_LENGTH = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)\s*", re.IGNORECASE)
_RANGE = re.compile(r"\s*(\d+)?\s*(-)?\s*(\d+)?\s*")

MIN_SIDE, MAX_SIDE = 20.0, 14400.0


class BadOption(ValueError):
    """An option has a value that can't be used. `str()` says which, and what would do."""


@dataclass(frozen=True)
class PageSetup:
    """Lengths in points. `ranges` are inclusive, one-based, open at None; empty means all pages."""

    width: float
    height: float
    margin_top: float
    margin_right: float
    margin_bottom: float
    margin_left: float
    scale: float
    print_background: bool
    ranges: tuple[tuple[int, int | None], ...]
    warnings: tuple[str, ...]


def page_setup(options: dict[str, Any]) -> PageSetup:
    """Read `options`. Raises BadOption; names it does not know are listed in `warnings`."""
    width, height = _paper(options)
    margins = _margins(options.get("margin"))
    scale = options.get("scale", 1)
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not 0.1 <= scale <= 2:
        raise BadOption("options.scale must be a number from 0.1 to 2")
    ignored = sorted(set(options) - _HONOURED - _WITHOUT_EFFECT)
    return PageSetup(
        width=width,
        height=height,
        margin_top=margins[0],
        margin_right=margins[1],
        margin_bottom=margins[2],
        margin_left=margins[3],
        scale=float(scale),
        print_background=_flag(options, "printBackground", default=True),
        ranges=page_ranges(options.get("pageRanges")),
        warnings=tuple(f"options.{name} is not supported by the sandbox and was ignored" for name in ignored),
    )


def whole(setup: PageSetup) -> PageSetup:
    """The same setup for all pages of the document."""
    return replace(setup, ranges=())


def page_ranges(value: Any) -> tuple[tuple[int, int | None], ...]:
    """Ranges such as `1-3,5` or `4-`. Raises BadOption."""
    if value in (None, ""):
        return ()
    if not isinstance(value, str):
        raise BadOption("options.pageRanges must be text such as '1-3,5'")
    found: list[tuple[int, int | None]] = []
    for part in value.split(","):
        match = _RANGE.fullmatch(part)
        if match is None or not (match[1] or match[3]):
            raise BadOption(f"options.pageRanges: {part.strip()!r} is not a page or a range such as '1-3'")
        first = int(match[1] or 1)
        last = (int(match[3]) if match[3] else None) if match[2] else first
        if first < 1 or (last is not None and last < first):
            raise BadOption(f"options.pageRanges: {part.strip()!r} runs backwards or starts before page 1")
        found.append((first, last))
    return tuple(found)


def chosen_pages(ranges: tuple[tuple[int, int | None], ...], count: int) -> list[int]:
    """Zero-based indexes of the pages to keep, in document order, each once."""
    if not ranges:
        return list(range(count))
    return [
        index
        for index in range(count)
        if any(first <= index + 1 and (last is None or index + 1 <= last) for first, last in ranges)
    ]


def _paper(options: dict[str, Any]) -> tuple[float, float]:
    name = options.get("format", "a4")
    if not isinstance(name, str) or name.lower() not in FORMATS:
        raise BadOption(f"options.format must be one of {', '.join(FORMATS)}")
    width, height = FORMATS[name.lower()]
    if options.get("width") is not None:
        width = _length(options["width"], "width")
    if options.get("height") is not None:
        height = _length(options["height"], "height")
    if not all(MIN_SIDE <= side <= MAX_SIDE for side in (width, height)):
        raise BadOption("options.width and options.height must lie between 20pt and 14400pt")
    return (height, width) if _flag(options, "landscape", default=False) else (width, height)


def _margins(margin: Any) -> tuple[float, float, float, float]:
    if margin is None:
        return (DEFAULT_MARGIN,) * 4
    if not isinstance(margin, dict):
        raise BadOption("options.margin must be an object with top, right, bottom and left")
    sides = []
    for side in ("top", "right", "bottom", "left"):
        sides.append(_length(margin[side], f"margin.{side}") if margin.get(side) is not None else DEFAULT_MARGIN)
    return (sides[0], sides[1], sides[2], sides[3])


def _length(value: Any, name: str) -> float:
    """A length in points: a number counts as CSS pixels, text may carry px, pt, in, cm, mm or pc."""
    match = _LENGTH.fullmatch(str(value)) if isinstance(value, int | float | str) else None
    unit = match[2].lower() or "px" if match else ""
    if match is None or isinstance(value, bool) or unit not in _UNITS:
        raise BadOption(f"options.{name} must be a length such as '10mm', '1in' or '96px'")
    return float(match[1]) * _UNITS[unit]


def _flag(options: dict[str, Any], name: str, *, default: bool) -> bool:
    value = options.get(name, default)
    if not isinstance(value, bool):
        raise BadOption(f"options.{name} must be true or false")
    return value
