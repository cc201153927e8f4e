"""The keys a row may have, and what a wrong one was probably meant to be. Pure."""

from __future__ import annotations

import difflib
from functools import lru_cache
from typing import Protocol

from batches.manifests.jsonrows import JsonValue
from batches.manifests.problems import Code, shown

SOURCES = ("html", "html_content", "markdown", "url")
"""Exactly one of them says what is to become a PDF."""
MOST_KEYS = 200
"""A row with more keys is not looked at key by key."""
INLINE_SOURCES = frozenset({"html", "html_content", "markdown"})
KNOWN = frozenset({"id", "filename", "options", "meta", *SOURCES})
REMARK = "_"
"""Begins the columns that a list of failed rows adds (`_error`): they come back with the row and mean nothing."""
_UNUSED = frozenset({"version", "data"})
"""Allowed by the manifest format, without effect on a finished document."""

#: Spellings without case, `_`, `-` and blanks. Close ones of the sources are found by likeness too.
_SOURCE_SPELLINGS = {
    "html": "html",
    "htmlcontent": "html_content",
    "htmltext": "html_content",
    "markdown": "markdown",
    "md": "markdown",
    "url": "url",
    "uri": "url",
}
_SOURCE_SYNONYMS = {
    "htmlfile": "html",
    "htmlpath": "html",
    "file": "html",
    "filepath": "html",
    "path": "html",
    "content": "html_content",
    "body": "html_content",
    "link": "url",
    "href": "url",
}
_ID_SYNONYMS = frozenset(
    {"id", "customid", "externalid", "referenceid", "identifier", "documentid", "invoicenumber", "number"}
)
_TEMPLATE_KEYS = frozenset({"template", "templateid", "templatedata", "templateversion"})


class Note(Protocol):
    """Takes a problem of the row at hand."""

    def __call__(self, code: Code, column: str | None, message: str, fix: str) -> None: ...


def checked_names(row: dict[str, JsonValue], error: Note, warning: Note, *, needs_source: bool = True) -> list[str]:
    """The sources the row gives (not null), after noting unknown keys and, if it needs one, a missing source.

    A key that looks like a misspelled source is an error; any other unknown one is a warning.
    """
    given = [key for key in SOURCES if row.get(key) is not None]
    blamed = False
    for key in row:
        if key in KNOWN or key.startswith(REMARK):
            continue
        meant = _meant_source(key, has_source=bool(given))
        if _plain_spelling(key) in _TEMPLATE_KEYS and not given:
            blamed = True
            message = f"The key {shown(key, 40)} is not read: a manifest has no templates yet."
            error(Code.UNKNOWN_COLUMN, column(key), message, _FIX_SOURCE)
        elif meant:
            blamed = True
            fix = f'Write it as "{meant}" if that is meant.'
            error(Code.UNKNOWN_COLUMN, column(key), f"The key {shown(key, 40)} is unknown.", fix)
        elif key in _UNUSED:
            fix = "Remove it, or leave it: it is kept with the row and changes nothing."
            warning(Code.UNKNOWN_COLUMN, column(key), f"The key {shown(key, 40)} has no effect.", fix)
        else:
            fix = "Check its spelling, or leave it: it is kept with the row and changes nothing. Notes belong in meta."
            warning(Code.UNKNOWN_COLUMN, column(key), f"The key {shown(key, 40)} is unknown.", fix)
    if needs_source and not given and not blamed:
        error(Code.MISSING_FIELD, "html", "The row names no document.", _FIX_SOURCE)
    return given


def probable_id(row: dict[str, JsonValue]) -> str | None:
    """The key that was probably meant as "id"."""
    return next((key for key in row if key != "id" and _plain_spelling(key) in _ID_SYNONYMS), None)


def column(key: str) -> str:
    """A key as it is shown in the `column` of a problem: bounded and printable."""
    return shown(key, 60)[1:-1]


def _meant_source(key: str, *, has_source: bool) -> str | None:
    spelling = _plain_spelling(key)
    if spelling in _SOURCE_SPELLINGS:
        return _SOURCE_SPELLINGS[spelling]
    if not has_source and spelling in _SOURCE_SYNONYMS:
        return _SOURCE_SYNONYMS[spelling]
    return _likely_source(spelling)


@lru_cache(maxsize=1_000)
def _likely_source(spelling: str) -> str | None:
    """The source this is a misspelling of; remembered, as every row has the same keys."""
    close = difflib.get_close_matches(spelling[:40], ("html", "htmlcontent", "markdown"), n=1, cutoff=0.8)
    return _SOURCE_SPELLINGS[close[0]] if close else None


def _plain_spelling(key: str) -> str:
    return "".join(character for character in key[:60].lower() if character not in "_- ")


_FIX_SOURCE = 'Give "html" (a path, or the document itself), "html_content", "markdown" or "url".'
