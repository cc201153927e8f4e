"""Does the PDF hold the text that the document should show? A PDF without it is a failed render.

Two questions. Is there a font for every letter, digit and currency sign? The fonts answer that exactly. And did the
engine draw the text? Letters and digits of document and PDF are compared by script, as sets and as amounts, after
folding case and compatibility forms: shaping, ligatures, text order and `text-transform` must not raise false alarms,
and neither must a few words that turn out to be hidden. In scripts that are drawn with joined or stacked glyphs
the PDF doesn't tell every glyph's character; such unknown glyphs count as text there and nowhere else.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from functools import cache

import pypdfium2

from batches.sandbox.rendering.coverage import Coverage
from batches.sandbox.rendering.visible_text import visible_text

_FONT_FACE = re.compile(r"@font-face", re.IGNORECASE)

# pdfium gives these for glyphs without a known character.
_UNKNOWN_GLYPHS = frozenset("\ufffd\ufffe\uffff\x00")

_STACKED_SCRIPTS = frozenset(
    {
        *("ARABIC", "HEBREW", "SYRIAC", "DEVANAGARI", "BENGALI", "GURMUKHI", "GUJARATI", "ORIYA", "TAMIL"),
        *("TELUGU", "KANNADA", "MALAYALAM", "SINHALA", "THAI", "LAO", "TIBETAN", "MYANMAR", "KHMER"),
    }
)

_MIN_KNOWN_SHARE = 0.8
_MIN_KNOWN_SHARE_STACKED = 0.15
_MIN_AMOUNT_SHARE = 0.5
# A word or two that only layout could show to be hidden.
_ALLOWED_MISSING_KINDS = 3

_SHOWN_IN_MESSAGE = 12


class TextMissing(Exception):
    """The PDF lacks text that the document shows. `str()` says which script and how much."""


def require_text(html: str, pdf: bytes, fonts: Coverage) -> None:
    """Raises TextMissing when `fonts` can't show the visible text of `html`, or when `pdf` lacks it."""
    expected = visible_text(html)
    if expected.certain and not _FONT_FACE.search(html):
        _require_glyphs(expected.text, fonts)
    wanted = _by_script(expected.text)
    if not wanted:
        return
    found_text = pdf_text(pdf)
    found = _by_script(found_text)
    if not expected.certain:
        if not found:
            raise TextMissing("The PDF holds no text although the document shows some.")
        return
    unknown = sum(1 for character in found_text if character in _UNKNOWN_GLYPHS)
    for script, letters in wanted.items():
        _require_script(script, letters, found.get(script, Counter()), unknown)


def _require_glyphs(text: str, fonts: Coverage) -> None:
    missing = sorted(
        character
        for character in set(text)
        if character not in fonts and _is_word_or_money(character) and not _is_covered_in_parts(character, fonts)
    )
    if missing:
        shown = ", ".join(f"{character} (U+{ord(character):04X})" for character in missing[:_SHOWN_IN_MESSAGE])
        more = f" and {len(missing) - _SHOWN_IN_MESSAGE} more" if len(missing) > _SHOWN_IN_MESSAGE else ""
        raise TextMissing(f"No installed font has these characters of the document: {shown}{more}.")


def _is_word_or_money(character: str) -> bool:
    category = unicodedata.category(character)
    return category[0] in "LN" or category == "Sc"


def _is_covered_in_parts(character: str, fonts: Coverage) -> bool:
    parts = unicodedata.normalize("NFKD", character)
    return parts != character and all(part in fonts for part in parts)


def pdf_text(pdf: bytes) -> str:
    """The text of all pages. Raises TextMissing when the file can't be opened as a PDF."""
    try:
        with_pages = pypdfium2.PdfDocument(pdf)
        parts = []
        for page in with_pages:
            text = page.get_textpage()
            parts.append(text.get_text_range())
            text.close()
            page.close()
        with_pages.close()
    except pypdfium2.PdfiumError as error:
        raise TextMissing(f"The engine's output can't be opened as a PDF ({error}).") from error
    return "\n".join(parts)


def _require_script(script: str, wanted: Counter[str], found: Counter[str], unknown: int) -> None:
    stacked = script in _STACKED_SCRIPTS
    least = _MIN_KNOWN_SHARE_STACKED if stacked else _MIN_KNOWN_SHARE
    missing = wanted.keys() - found.keys()
    known = 1 - len(missing) / len(wanted)
    amount = (found.total() + (unknown if stacked else 0)) / wanted.total()
    few = len(missing) <= _ALLOWED_MISSING_KINDS and known > 0
    if (known < least and not few) or amount < _MIN_AMOUNT_SHARE:
        shown = "".join(sorted(missing)[:_SHOWN_IN_MESSAGE])
        raise TextMissing(
            f"The PDF lacks text of the document: of its {script.lower()} characters "
            f"{known:.0%} of the kinds and {min(amount, 1):.0%} of the amount are there"
            + (f"; missing are {shown}." if shown else ".")
        )


def _by_script(text: str) -> dict[str, Counter[str]]:
    scripts: dict[str, Counter[str]] = defaultdict(Counter)
    for character, count in Counter(text).items():
        for folded in _folded(character):
            script = _script(folded)
            if script:
                scripts[script][folded] += count
    return scripts


@cache
def _folded(character: str) -> str:
    return unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", character).casefold())


@cache
def _script(character: str) -> str:
    """The character's script by the first word of its Unicode name; empty for all but letters and digits."""
    category = unicodedata.category(character)
    if category.startswith("N"):
        return "DIGITS"
    if not category.startswith("L") or category == "Lm":
        return ""
    return unicodedata.name(character, "OTHER").split(maxsplit=1)[0].split("-")[0]
