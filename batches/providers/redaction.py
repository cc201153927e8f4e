"""What of an exchange may be kept: words without keys, documents, ids or links. Pure text work.

A RelayPDF id or file URL opens the document without a key (A5: CONFIRMED P, M), so both count as secrets here; ids are
kept in a masked form that still tells two of them apart.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping

#: Longest words of a vendor that are kept, in characters.
MAX_WORDS = 500
#: A run of this many characters that stands in the request too is a quotation of the document.
ECHO_LENGTH = 24

#: Answer headers that are worth keeping and hold no secret.
KEPT_HEADERS = (
    "content-type",
    "content-length",
    "content-encoding",
    "date",
    "retry-after",
    "server",
    "x-relaypdf-size",
    "x-pdfforge-size",
    "x-request-id",
)

_SECRET_SHAPES = (
    (re.compile(r"https?://[^\s\"'<>\\]+", re.IGNORECASE), "[link]"),
    (re.compile(r"(?i)\bbearer\s+[^\s\"',;]+"), "Bearer [key]"),
    (re.compile(r"\b(?:pdf_live|pdf_test|sk_live|sk_test|whsec)_[A-Za-z0-9_\-]+"), "[key]"),
    (re.compile(r"(/v1/(?:files|jobs)/)[^\s\"'<>?#]+"), r"\1[id]"),
)
_PREFIX = re.compile(r"[a-z]{1,10}_")


def masked(secret_id: str) -> str:
    """An id that can be told apart but not used: its type prefix and 8 hex digits of its SHA-256."""
    if not secret_id:
        return ""
    prefix = _PREFIX.match(secret_id)
    digest = hashlib.sha256(secret_id.encode("utf-8", "backslashreplace")).hexdigest()[:8]
    return f"{prefix.group() if prefix else ''}…{digest}"


def cleaned(text: str, *, limit: int = MAX_WORDS) -> str:
    """Text that any database and any page can take: no NUL or other control characters, no half surrogate pairs.

    White space is folded to single spaces; more than `limit` characters are cut with an ellipsis.
    """
    # Enough raw text to fill the limit; a message of megabytes is not walked through whole.
    raw = text[: limit * 8]
    visible = raw
    if not (raw.isascii() and raw.isprintable()):
        marked = raw.encode("utf-8", "replace").decode("utf-8")
        visible = "".join(c if c.isprintable() or c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in marked)
    folded = " ".join(visible.split())
    if len(folded) > limit or len(text) > len(raw):
        return folded[: limit - 1].rstrip() + "…"
    return folded


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """`text` with each of `secrets` (keys, ids) masked, and everything of a secret's shape with it."""
    # Looked for before a pattern is made: compiling one for each new id is what this would spend its time on.
    for secret in sorted({s for s in secrets if s and s in text}, key=len, reverse=True):
        # A very short id ("7") may stand in any number; only whole words of it are ids.
        pattern = re.escape(secret) if len(secret) > 5 else rf"(?<!\w){re.escape(secret)}(?!\w)"
        text = re.sub(pattern, lambda _match, secret=secret: masked(secret), text)  # type: ignore[misc]  # bound default
    for shape, stand_in in _SECRET_SHAPES:
        text = shape.sub(stand_in, text)
    return text


def _without_begun_secret(word: str, secrets: Iterable[str]) -> str:
    """`word` without an end that is the first part of one of `secrets`."""
    begun = max(
        (length for secret in secrets for length in range(1, len(secret)) if word.endswith(secret[:length])), default=0
    )
    return word[: len(word) - begun]


def without_echo(text: str, sent: bytes) -> str:
    """`text` without quotations of the request body `sent` (JSON in ASCII, or plain) longer than `ECHO_LENGTH`."""
    if not sent or len(text) < ECHO_LENGTH:
        return text
    keep = bytearray(b"\x01" * len(text))
    for start in range(len(text) - ECHO_LENGTH + 1):
        run = text[start : start + ECHO_LENGTH]
        if json.dumps(run)[1:-1].encode() in sent or run.encode("utf-8", "replace") in sent:
            keep[start : start + ECHO_LENGTH] = bytes(ECHO_LENGTH)
    parts: list[str] = []
    for index, character in enumerate(text):
        if keep[index]:
            parts.append(character)
        elif index == 0 or keep[index - 1]:
            parts.append("[document]")
    return "".join(parts)


def kept_headers(headers: Mapping[str, str], secrets: Iterable[str]) -> dict[str, str]:
    """The headers of an answer that are kept as evidence, cleaned and without secrets."""
    secrets = tuple(secrets)
    kept: dict[str, str] = {}
    for name, value in headers.items():
        if name.lower() in KEPT_HEADERS:
            kept[name.lower()] = without_secrets(cleaned(value, limit=200), secrets)
    return kept


def vendor_words(text: str, *, secrets: Iterable[str] = (), sent: bytes = b"") -> str:
    """A vendor's message as it may be stored and shown: cleaned, shortened, without secrets or document."""
    secrets = tuple(secrets)
    words = cleaned(text, limit=MAX_WORDS * 4)
    if words.endswith("…"):
        # The cut may have split a secret, whose first half would no longer be recognised.
        whole, space, word = words[:-1].rpartition(" ")
        words = (whole if space else _without_begun_secret(word, secrets)) + "…"
    return without_echo(cleaned(without_secrets(words, secrets)), sent)
