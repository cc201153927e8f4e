"""The keys a row may have, and what a wrong one was probably meant to be. Pure."""

from __future__ import annotations

import difflib
from functools import lru_cache
from typing import Protocol

from batches.manifests.jsonrows import JsonValue
from batches.manifests.problems import Code, shown

SOURCES = ("html", "html_content", "markdown", "url")
"""Exactly one of them, or `TEMPLATE`, says what is to become a PDF."""
TEMPLATE = "template"
"""Names the template that is filled from the row."""
GROUP = "group"
"""Downloads put documents into folders, or into one file each, by it; the document itself stays as it is."""
MOST_KEYS = 200
"""A row with more keys is not looked at key by key."""
INLINE_SOURCES = frozenset({"html", "html_content", "markdown"})
KNOWN = frozenset({"id", "filename", "options", "meta", *SOURCES})
NO_DATA = KNOWN | {TEMPLATE, "template_version", "data"}
"""Keys that a template is not filled from as they stand; every other one of its row is."""
MAY_BE_EMPTY = frozenset({"filename", "options", "meta", TEMPLATE, "template_version", "language", GROUP})
"""A column of these that holds nothing in any row is no sign that something was lost."""
REMARK = "_"
"""Begins the columns that a list of failed rows adds (`_error`): they come back with the row and mean nothing."""
_UNUSED = frozenset({"version", "data", "template_version", "language"})
"""Allowed by the manifest format, without effect on a document that is finished already."""

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
ID_SYNONYMS = ("customid", "externalid", "referenceid", "identifier", "documentid", "invoicenumber", "number")
"""What people call the id, the likeliest first."""
_ID_SPELLINGS = frozenset({"id", *ID_SYNONYMS})
_TEMPLATE_SPELLINGS = {
    "template": "template",
    "templateid": "template",
    "templatename": "template",
    "templatedata": "data",
    "templateversion": "template_version",
}


class Note(Protocol):
    """Takes a problem of the row at hand."""

    def __call__(self, code: Code, column: str | None, message: str, fix: str) -> None: ...


def checked_names(
    row: dict[str, JsonValue],
    error: Note,
    warning: Note,
    *,
    has_default_template: bool = False,
    needs_source: bool = True,
) -> list[str]:
    """The sources the row gives (not null), after noting unknown keys and, if it needs one, a missing source.

    A key that looks like a misspelled source is an error; any other unknown one is a warning. In the row of a template
    no key is unknown: it is filled from them.
    """
    given = [key for key in (*SOURCES, TEMPLATE) if row.get(key) is not None]
    if not given and has_default_template:
        given = [TEMPLATE]
    if TEMPLATE in given:
        return given
    blamed = False
    for key in row:
        if key in KNOWN or key in (TEMPLATE, GROUP) or key.startswith(REMARK):
            continue
        meant = _meant_source(key, has_source=bool(given))
        if meant:
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
    return next((key for key in row if key != "id" and _plain_spelling(key) in _ID_SPELLINGS), None)


def column(key: str) -> str:
    """A key as it is shown in the `column` of a problem: bounded and printable."""
    return shown(key, 60)[1:-1]


def _meant_source(key: str, *, has_source: bool) -> str | None:
    spelling = _plain_spelling(key)
    if not has_source and key not in _UNUSED and spelling in _TEMPLATE_SPELLINGS:
        return _TEMPLATE_SPELLINGS[spelling]
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


_FIX_SOURCE = 'Give "html" (a path, or the document itself), "html_content", "markdown", "url" or "template".'
