"""A row as it was given, in a form that a database can keep: bounded, and without the document itself."""

from __future__ import annotations

import json
import re
from typing import Any

from batches.manifests.jsonrows import JsonValue, Number, as_written
from batches.manifests.keys import INLINE_SOURCES, KNOWN, MOST_KEYS

_MOST_CHARACTERS = 20_000
_LONGEST_TEXT = 10_000
_LONGEST_PATH = 1_000
#: What `of_row` puts in place of a value, however a spreadsheet program or a person may have set it.
_PLACEHOLDER = re.compile(
    r"\s*\(\s*(?:(?:document|text)\s*,\s*\d[\d.,'’\s]*characters?|(?:list|object)\s*,\s*too long to keep here)\s*\)\s*",
    re.IGNORECASE,
)
_LONGEST_PLACEHOLDER = 100


def of_row(row: dict[str, JsonValue]) -> dict[str, Any]:
    """The row's keys and values; texts of documents and very long values are replaced by their length."""
    first = set(sorted(row, key=lambda key: key not in KNOWN)[:MOST_KEYS])
    kept = {key: _kept(key, row[key]) for key in row if key in first}
    left_out = len(row) - len(kept)
    if left_out:
        kept["…"] = f"({left_out:,} more keys)"
    return kept


def is_placeholder(value: JsonValue) -> bool:
    """Whether `value` is what stands in a row's evidence in place of a document or of a very long value."""
    return isinstance(value, str) and len(value) <= _LONGEST_PLACEHOLDER and _PLACEHOLDER.fullmatch(value) is not None


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
    if is_placeholder(value):
        return value  # of a row that came back
    if isinstance(value, str) and not isinstance(value, Number):
        is_document = key in INLINE_SOURCES and (key != "html" or "<" in value[:_LONGEST_PATH])
        if is_document or len(value) > _LONGEST_TEXT:
            return f"({'document' if is_document else 'text'}, {len(value):,} characters)"
    kept = as_written(value)
    if isinstance(kept, list | dict) and len(json.dumps(kept)) > _MOST_CHARACTERS:
        return f"({'list' if isinstance(kept, list) else 'object'}, too long to keep here)"
    return kept


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
