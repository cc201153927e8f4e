"""Business ids: what is accepted, and the one spelling under which an id is kept. Pure."""

from __future__ import annotations

import re
import unicodedata

from batches.manifests.jsonrows import JsonValue, Number
from batches.manifests.problems import Code, Unfit, shown

MAX_ID_CHARACTERS = 200
_WHOLE = re.compile(r"-?\d+\Z", re.ASCII)
_UNPRINTABLE = frozenset({"Cc", "Zl", "Zp"})
#: Invisible at the ends of a copied cell: zero-width space, (non-)joiners, direction marks, word joiner, BOM.
_INVISIBLE = "\u00ad\u180e\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"


def normalised(value: JsonValue) -> str:
    """The id that `value` stands for: trimmed (also no-break and zero-width), NFC, 1 to 200 characters.

    A whole JSON number is kept digit for digit, so 7 and "7" are the same id and 0010 in quotes keeps
    its zeros. Raises Unfit for everything else: decimals and exponents, true and null, lists, control
    characters, half emoji, `.` and `..`.
    """
    if value is None:
        raise Unfit(Code.MISSING_ID, "The row has no id.", _FIX_MISSING)
    if isinstance(value, Number):
        return _from_number(value)
    if not isinstance(value, str):
        kind = {bool: "true or false", list: "a list", dict: "an object"}[type(value)]
        raise Unfit(Code.BAD_ID, f"The id is {kind}; it has to be text or a whole number.", _FIX_QUOTES)
    text = _trimmed(value)
    if not text:
        raise Unfit(Code.MISSING_ID, "The id is empty.", _FIX_MISSING)
    _check_characters(text)
    text = unicodedata.normalize("NFC", text)
    if text in {".", ".."}:
        raise Unfit(Code.BAD_ID, f"The id {shown(text)} means a folder.", "Give the document another id.")
    return _checked_length(text)


def is_trimmed(value: JsonValue) -> bool:
    """Whether `normalised` takes something off the ends of `value`."""
    ends = (value[:1], value[-1:]) if isinstance(value, str) else ()
    return any(end.isspace() or end in _INVISIBLE for end in ends if end)


def visible_key(business_id: str) -> str:
    """Equal for ids that differ in invisible characters only."""
    if business_id.isascii():
        return business_id
    seen = "".join(character for character in business_id if unicodedata.category(character) != "Cf")
    return unicodedata.normalize("NFC", seen)


def has_invisible(business_id: str) -> bool:
    """Whether a zero-width, direction or other format character stands inside the id."""
    return not business_id.isascii() and any(unicodedata.category(character) == "Cf" for character in business_id)


def look_alike_key(business_id: str) -> str:
    """Equal for ids that file systems or eyes take for the same (case, width, invisible characters)."""
    if business_id.isascii():
        return business_id.lower()
    return visible_key(unicodedata.normalize("NFKC", business_id).casefold())


def _from_number(value: Number) -> str:
    if not _WHOLE.match(value):
        message = f"The id {value[:40]} is a number with a fraction or an exponent, which has no one spelling."
        raise Unfit(Code.BAD_ID, message, _FIX_QUOTES)
    return _checked_length(str(value))


def _trimmed(value: str) -> str:
    start, end = 0, len(value)
    while start < end and (value[start].isspace() or value[start] in _INVISIBLE):
        start += 1
    while end > start and (value[end - 1].isspace() or value[end - 1] in _INVISIBLE):
        end -= 1
    return value[start:end]


def _check_characters(text: str) -> None:
    if text.isascii() and text.isprintable():
        return
    for character in text:
        category = unicodedata.category(character)
        if category == "Cs":
            message = f"The id {shown(text)} holds half of a character (a lone surrogate)."
            raise Unfit(Code.BAD_ID, message, "Write the id out again; an emoji was probably cut in two.")
        if category in _UNPRINTABLE:
            message = f"The id {shown(text)} holds a control character or a line break."
            raise Unfit(Code.BAD_ID, message, "Remove that character from the id.")


def _checked_length(text: str) -> str:
    if len(text) > MAX_ID_CHARACTERS:
        message = f"The id {shown(text, 40)} has {len(text):,} characters; {MAX_ID_CHARACTERS} are allowed."
        raise Unfit(Code.BAD_ID, message, "Use a shorter id.")
    return text


_FIX_MISSING = 'Give every row an "id" that is unique in the file.'
_FIX_QUOTES = "Write the id in quotes, as text."
