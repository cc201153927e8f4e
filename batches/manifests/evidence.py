"""A row as it was given, in a form that a database can keep: bounded, and without the document itself."""

from __future__ import annotations

import json
import re
from typing import Any

from batches.manifests.jsonrows import JsonValue, Number, plain
from batches.manifests.keys import INLINE_SOURCES, KNOWN, MOST_KEYS

_MOST_CHARACTERS = 20_000
_LONGEST_TEXT = 10_000
_LONGEST_PATH = 1_000
_STAND_IN = re.compile(r"\((?:document|text), [\d,]+ characters\)|\((?:list|object), too long to keep here\)")


def of_row(row: dict[str, JsonValue]) -> dict[str, Any]:
    """The row's keys and values; texts of documents and very long values are replaced by their length."""
    first = sorted(row, key=lambda key: key not in KNOWN)[:MOST_KEYS]
    kept = {key: _kept(key, row[key]) for key in row if key in set(first)}
    left_out = len(row) - len(kept)
    if left_out:
        kept["…"] = f"({left_out:,} more keys)"
    return kept


def is_stand_in(value: JsonValue) -> bool:
    """Whether a value says only that another one stood there: such a cell of a list of failed rows is no content."""
    return isinstance(value, str) and _STAND_IN.fullmatch(value) is not None


def has_unstorable_text(value: JsonValue) -> bool:
    """Whether a NUL or a lone surrogate stands in `value`, at any depth, in keys too."""
    if isinstance(value, str):
        return not isinstance(value, Number) and ("\0" in value or not _is_encodable(value))
    if isinstance(value, list):
        return any(map(has_unstorable_text, value))
    if isinstance(value, dict):
        return any(has_unstorable_text(key) or has_unstorable_text(item) for key, item in value.items())
    return False


def _kept(key: str, value: JsonValue) -> Any:
    if isinstance(value, str) and not isinstance(value, Number):
        is_document = key in INLINE_SOURCES and (key != "html" or "<" in value[:_LONGEST_PATH])
        if is_document or len(value) > _LONGEST_TEXT:
            return f"({'document' if is_document else 'text'}, {len(value):,} characters)"
    kept = plain(value)
    if isinstance(kept, list | dict) and len(json.dumps(kept)) > _MOST_CHARACTERS:
        return f"({'list' if isinstance(kept, list) else 'object'}, too long to keep here)"
    return kept


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
