"""Whether one document is fit to be sent: size, encoding, and what it really is. Pure."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from batches.manifests import charsets, evidence, references, sniffing
from batches.manifests.limits import Limits
from batches.manifests.problems import Code, Unfit, megabytes, shown
from batches.manifests.references import References

_PLACEHOLDER = re.compile(r"\{\{\{?\s{0,9}[#/&>^]?\s{0,9}[A-Za-z_@][\w.@\-\[\]\s|:\"'()=]{0,200}?\}\}")
_NO_REFERENCES = References()
_BLANK = re.compile(r"[\s\u200b\u200c\u200d\u2060\ufeff]*")


@dataclass(frozen=True, slots=True)
class Content:
    """A document that may be sent. The text itself is not kept: it is read again when it is needed."""

    text_bytes: int
    raw_bytes: int
    raw_sha256: str
    text_sha256: str
    charset: str
    placeholder: str | None
    """The first `{{ name }}` left in the text."""
    references: References = _NO_REFERENCES
    """What it would load from elsewhere and cannot."""


def checked_file(raw: bytes, limits: Limits) -> tuple[Content, str]:
    """Check an HTML file's bytes; returns the facts and the text.

    Raises Unfit, its message continuing the document's name ("The file x …").
    """
    check_size(len(raw), limits)
    found = sniffing.looks_like(raw[: sniffing.HEAD_BYTES])
    if found is not None:
        fix = "Save it as UTF-8." if found.startswith("UTF-16") else "Name an HTML file here."
        raise Unfit(Code.NOT_HTML, f"looks like {found}, not HTML.", fix)
    decoded = charsets.decoded(raw)
    return _checked(decoded.text, raw, decoded.charset, limits, "html"), decoded.text


def checked_text(given: str, limits: Limits, kind: str) -> Content:
    """Check a document that stands in the row itself, of this `SourceKind`; returns the facts. Raises Unfit.

    A byte-order mark at its start is dropped, as it is from a file.
    """
    text = without_mark(given)
    try:
        raw = text.encode()
    except UnicodeEncodeError as error:
        message = f"holds half of a character (a lone surrogate) at character {error.start:,}."
        fix = "Write the text out again; an emoji was probably cut in two."
        raise Unfit(Code.BAD_TEXT, message, fix) from error
    found = sniffing.looks_like(raw[: sniffing.HEAD_BYTES])
    if found is not None:
        raise Unfit(Code.NOT_HTML, f"looks like {found}.", "Put the document's text here.")
    return _checked(text, raw, "utf-8", limits, kind)


def without_mark(given: str) -> str:
    """A document as it is sent: without the byte-order mark at its start."""
    return given.removeprefix("\ufeff")


def checked_data(text: str, limits: Limits) -> Content:
    """The facts of what is sent to a template that the provider keeps: JSON of our own making. Raises Unfit."""
    raw = text.encode()
    check_size(len(raw), limits)
    digest = hashlib.sha256(raw).hexdigest()
    return Content(len(raw), len(raw), digest, digest, "utf-8", None)


def check_is_no_placeholder(text: str) -> None:
    """Raise Unfit for what a list of failed rows shows in place of a document: it would be printed and billed."""
    if evidence.is_placeholder(text):
        message = f"is {shown(text.strip())}, which a list of failed rows shows in place of what it does not hold."
        fix = "Put the document itself there. Only a correction of the failed rows of its own batch may leave it out."
        raise Unfit(Code.MISSING_FIELD, message, fix)


def check_size(size: int, limits: Limits) -> None:
    """Raise Unfit when `size` bytes are more than one document may have."""
    if size > limits.max_document_bytes:
        message = f"is {megabytes(size)} large; {megabytes(limits.max_document_bytes)} are allowed."
        raise Unfit(Code.FILE_TOO_LARGE, message, "Make the document smaller; pictures are mostly what is large.")


def _checked(text: str, raw: bytes, charset: str, limits: Limits, kind: str) -> Content:
    if _BLANK.fullmatch(text):
        raise Unfit(Code.EMPTY_HTML, "is empty.", "Put the document in, or remove the row.")
    if "\0" in text:
        message = f"holds a NUL character at character {text.index(chr(0)):,}."
        raise Unfit(Code.BAD_TEXT, message, "Remove it; it can be neither stored nor printed.")
    check_is_no_placeholder(text)
    sent = text.encode()
    check_size(len(sent), limits)
    placeholder = _PLACEHOLDER.search(text)
    return Content(
        text_bytes=len(sent),
        raw_bytes=len(raw),
        raw_sha256=hashlib.sha256(raw).hexdigest(),
        text_sha256=hashlib.sha256(sent).hexdigest(),
        charset=charset,
        placeholder=shown(placeholder[0], 60) if placeholder else None,
        references=_NO_REFERENCES if kind == "url" else references.of_document(sent, is_markdown=kind == "markdown"),
    )
