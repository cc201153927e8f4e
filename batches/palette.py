"""The colours of pages as numbers: read from `static/batches/tokens.css`, and which text stands on which ground. Pure.

The design page of the admin shows each pair with its contrast; a test asks at least `READABLE` of all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

TOKENS = Path(__file__).parent / "static" / "batches" / "tokens.css"

#: WCAG 2.2 AA: of text, and of what has to be made out without being read (a part of a bar, the edge of focus).
READABLE, VISIBLE = 4.5, 3.0

STATES = ("saved", "moving", "waiting", "held", "failed", "stopped")
GROUNDS = ("bg", "surface", "surface-2")

_COLOUR = r"#[0-9a-f]{3,6}"
_TOKEN = re.compile(rf"--([\w-]+):\s*(?:light-dark\(({_COLOUR}), ({_COLOUR})\)|({_COLOUR}));")


@dataclass(frozen=True)
class Colour:
    name: str
    light: str
    dark: str


@dataclass(frozen=True)
class Pair:
    """`front` on `ground`, and how much they differ in light and in dark."""

    front: str
    ground: str
    least: float
    light: float
    dark: float

    @property
    def is_enough(self) -> bool:
        return min(self.light, self.dark) >= self.least


def colours(css: str) -> dict[str, Colour]:
    """The tokens that are colours, in the order of the file."""
    return {name: Colour(name, light or both, dark or both) for name, light, dark, both in _TOKEN.findall(css)}


def pairs(known: Mapping[str, Colour]) -> list[Pair]:
    return [
        Pair(
            front,
            ground,
            least,
            contrast(known[front].light, known[ground].light),
            contrast(known[front].dark, known[ground].dark),
        )
        for front, ground, least in _pairs()
    ]


def _pairs() -> Iterator[tuple[str, str, float]]:
    for ground in GROUNDS:
        for text in ("text", "muted", "faint", "accent"):
            yield text, ground, READABLE
        yield "focus", ground, VISIBLE
    for state in STATES:
        yield state, f"{state}-tint", READABLE
        yield state, "surface", READABLE
        yield "text", f"{state}-tint", READABLE
    yield "accent", "accent-tint", READABLE
    yield "text", "accent-tint", READABLE
    for ground in ("accent-solid", "accent-solid-hover", "danger-solid", "danger-solid-hover"):
        yield "on-accent", ground, READABLE


def contrast(one: str, other: str) -> float:
    """Of two colours as `#rrggbb` or `#rgb`, 1 to 21, by WCAG 2.2."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return round((lighter + 0.05) / (darker + 0.05), 2)


def _luminance(colour: str) -> float:
    digits = colour.removeprefix("#")
    if len(digits) == 3:
        digits = "".join(digit * 2 for digit in digits)
    red, green, blue = (_linear(int(digits[at : at + 2], 16) / 255) for at in (0, 2, 4))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4
