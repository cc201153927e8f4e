"""The small values of a row: file name, web address, meta. Pure; each raises Unfit with whole sentences."""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import urlsplit

from batches.manifests import addresses
from batches.manifests.jsonrows import JsonValue, Number, plain
from batches.manifests.problems import Code, Unfit, shown

MetaValue = str | int | float | bool | None

_MAX_FILENAME_CHARACTERS = 200
_MAX_URL_CHARACTERS = 2_048
_MAX_META_CHARACTERS = 10_000
_MARKDOWN_PATH = re.compile(r"[^\s<>#*]{1,300}\.(md|markdown)\Z", re.IGNORECASE)
_SEPARATORS = frozenset({"Cc", "Zl", "Zp"})
_MARKUP_SPACE = "\ufeff \t\r\n\f\v\u0085\u00a0\u2028\u2029"


def is_text(value: JsonValue) -> bool:
    """Whether `value` is JSON text (a JSON number is kept as text too, but is none)."""
    return isinstance(value, str) and not isinstance(value, Number)


def is_markup(value: str) -> bool:
    """Whether `html` is the document itself: it starts with `<` after white space and a byte-order mark."""
    return value.lstrip(_MARKUP_SPACE).startswith("<")


def filename(value: JsonValue) -> str:
    """The name wished for the PDF, trimmed and in NFC; "" when there is none."""
    if value is None:
        return ""
    if not isinstance(value, str) or not is_text(value):
        raise Unfit(Code.BAD_FILENAME, "filename has to be text.", "Write it in quotes.")
    name = unicodedata.normalize("NFC", value.strip())
    complaint = _filename_complaint(name)
    if complaint:
        fix = "Use a plain name such as invoice-2026-001.pdf."
        raise Unfit(Code.BAD_FILENAME, f"The filename {shown(name)} {complaint}.", fix)
    return name


def url(value: str) -> str:
    """A full https address of a host that is public as far as its text says, trimmed."""
    address = value.strip()
    complaint = _url_complaint(address)
    if complaint:
        fix = "Give a full address such as https://example.com/report."
        raise Unfit(Code.BAD_URL, f"The url {shown(address)} {complaint}.", fix)
    return address


def check_markdown(value: str) -> None:
    """Refuse a path where the text belongs: its few letters would be printed and billed."""
    if _MARKDOWN_PATH.match(value.strip()):
        message = f"markdown holds {shown(value.strip())}, which looks like a path."
        raise Unfit(Code.MISSING_FILE, message, "markdown is always the text itself: put it there.")


def meta(value: JsonValue) -> dict[str, MetaValue]:
    """What the caller wants kept with the row: an object of text, numbers, true, false and null."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Unfit(Code.WRONG_TYPE, "meta has to be an object.", _FIX_META)
    kept: dict[str, MetaValue] = {}
    for key, given in value.items():
        item = plain(given)
        if isinstance(item, list | dict) or (isinstance(given, Number) and isinstance(item, str)):
            message = f"In meta, {shown(key, 40)} has to be text, a number, true, false or null."
            raise Unfit(Code.WRONG_TYPE, message, _FIX_META)
        kept[key] = item
    if sum(len(key) + len(str(item)) for key, item in kept.items()) > _MAX_META_CHARACTERS:
        message = f"meta has more than {_MAX_META_CHARACTERS:,} characters."
        raise Unfit(Code.WRONG_TYPE, message, "Keep only what you need to find the document again.")
    return kept


def _filename_complaint(name: str) -> str | None:
    if not name or name in {".", ".."}:
        return "is no name"
    if len(name) > _MAX_FILENAME_CHARACTERS:
        return f"has {len(name):,} characters; {_MAX_FILENAME_CHARACTERS} are allowed"
    if "/" in name or "\\" in name:
        return "holds a slash"
    if any(unicodedata.category(character) in _SEPARATORS for character in name):
        return "holds a control character"
    return None


def _url_complaint(address: str) -> str | None:
    if len(address) > _MAX_URL_CHARACTERS:
        return f"is longer than {_MAX_URL_CHARACTERS:,} characters"
    if not address.isprintable() or " " in address:
        return "holds a space or an invisible character"
    try:
        parts = urlsplit(address)
        host = parts.hostname
        _ = parts.port  # reading it is what finds a port that is no number
    except ValueError:
        return "is not a web address"
    if parts.scheme not in {"http", "https"} or not host:
        return "is not a web address"
    if "@" in parts.netloc:
        return "holds a user name or password"
    if addresses.is_private(f"[{host}]" if ":" in host else host):
        return "leads into a private network, where no provider may go"
    return None if parts.scheme == "https" else "does not begin with https://"


_FIX_META = 'Write meta as {"customer": "C-7", "year": 2026}.'
