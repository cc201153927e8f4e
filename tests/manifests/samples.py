"""Uploads for these tests: made in memory, or copied from `tests/cases`."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from openpyxl import Workbook

from batches.manifests import (
    NO_CHOICES,
    Choices,
    Limits,
    Manifest,
    ManifestRefused,
    Problem,
    from_upload,
    look,
    read,
)

CASES = Path(__file__).parent.parent / "cases"
PAGE = '<!doctype html><meta charset="utf-8"><title>Invoice</title><h1>Invoice</h1>'


def case(name: str, **asked: Any) -> Manifest:
    """The case's input, read as an upload. Raises ManifestRefused."""
    return uploaded((CASES / name).read_bytes(), name, **asked)


def uploaded(content: bytes | str, filename: str = "upload", limits: Limits | None = None, **asked: Any) -> Manifest:
    """`asked` is what `read` takes beside the limits: choices, templates, progress."""
    raw = content.encode() if isinstance(content, str) else content
    return read(from_upload(io.BytesIO(raw), filename), limits, **asked)


def listed(rows: Iterable[Any], limits: Limits | None = None, **asked: Any) -> Manifest:
    """Rows uploaded as a JSON list."""
    return uploaded(json.dumps(list(rows)), "manifest.json", limits, **asked)


def row(**changes: Any) -> dict[str, Any]:
    return {"id": "INV-1", "html": PAGE} | changes


def zipped(files: Mapping[str, bytes | str], *, rows: Iterable[Any] | None = None) -> bytes:
    """A ZIP of `files`, with `rows` as its manifest.json."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        if rows is not None:
            archive.writestr("manifest.json", json.dumps(list(rows)))
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def workbook(rows: Iterable[Iterable[Any]], **sheets: Iterable[Iterable[Any]]) -> bytes:
    """An Excel workbook with these rows on its first sheet, and further sheets by name."""
    book = Workbook()
    for number, (name, cells) in enumerate({"Sheet": rows, **sheets}.items()):
        sheet = book.active if not number else book.create_sheet(name)
        for row_cells in cells:
            sheet.append(list(row_cells))
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


def refusal(
    content: bytes | str, filename: str = "upload", limits: Limits | None = None, **asked: Any
) -> ManifestRefused:
    """How the upload is refused; fails when it is not."""
    try:
        uploaded(content, filename, limits, **asked).close()
    except ManifestRefused as refused:
        return refused
    raise AssertionError("the upload was read")


def check_look(content: bytes, choices: Choices = NO_CHOICES) -> None:
    """Look at the upload, and hold the look to its promise: JSON values that a database keeps, or a refusal."""
    try:
        seen = look(from_upload(io.BytesIO(content), "upload"), choices=choices)
    except ManifestRefused as refused:
        stored = json.dumps(refused.report(), ensure_ascii=False, allow_nan=False)
    else:
        stored = json.dumps(seen.as_dict(), ensure_ascii=False, allow_nan=False)
    assert "\\u0000" not in stored.replace("\\\\u0000", "")
    stored.encode()


def codes(problems: Iterable[Problem]) -> list[tuple[str, str | None, tuple[int, ...]]]:
    """Problems as (code, column, rows)."""
    return [(problem.code.value, problem.column, problem.rows) for problem in problems]


def error_codes(manifest: Manifest) -> list[tuple[str, str | None, tuple[int, ...]]]:
    with manifest:
        return codes(manifest.errors)


def warning_codes(manifest: Manifest) -> list[tuple[str, str | None, tuple[int, ...]]]:
    with manifest:
        assert manifest.ok, manifest.errors
        return codes(manifest.warnings)
