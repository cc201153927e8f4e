"""What an opened upload holds, by its content and never by its name: JSON, JSONL, a table, or nothing that is read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import IO, Literal

from batches.manifests import columns, decoding, jsonrows, sniffing, source, tables
from batches.manifests.archive import Archive
from batches.manifests.choices import Choices
from batches.manifests.decoding import Text
from batches.manifests.jsonrows import Span
from batches.manifests.limits import Limits
from batches.manifests.problems import Code, ManifestRefused, Unfit, shown
from batches.manifests.tables import Table
from batches.manifests.templates import RowTemplate, Templates

Format = Literal["json", "jsonl", "csv", "xlsx", "files"]
ACCEPTED = (
    "Accepted are JSON, JSONL, tables (CSV, TSV, Excel's .xlsx) whose first row names the columns, and a ZIP of one of "
    "them with its HTML files."
)
_CHUNK_BYTES = 1 << 20
_PROTECTED = "EncryptedPackage".encode("utf-16-le")
_OLD_OFFICE = "an old Word or Excel document"
_OLD_OFFICE_BYTES = 4_000_000


@dataclass(frozen=True, slots=True)
class Content:
    """The rows of an upload, not yet read: `text` for JSON, `table` for a table (with `text` where it is delimited)."""

    format: Format
    sha256: str
    """Of the manifest's bytes."""
    encoding: str
    text: Text | None = None
    table: Table | None = None

    def spans(self, limits: Limits) -> Iterator[Span]:
        """The rows of JSON. Raises ManifestRefused where a list is broken."""
        assert self.text is not None, "a workbook has a table"
        spans = jsonrows.list_rows if self.format == "json" else jsonrows.line_rows
        return spans(self.text.file, self.text.start, self.text.first_line, limits)


def recognised(opened: source.Opened, choices: Choices, limits: Limits, stack: ExitStack) -> Content:
    """Look into the manifest and say what it is. Raises ManifestRefused."""
    opened.stream.seek(0)
    head = opened.stream.read(sniffing.HEAD_BYTES)
    if sniffing.looks_like(head) == "a ZIP":
        return _workbook(opened, choices, limits, stack)
    _refuse_other_types(opened.stream, head, opened.manifest_name)
    text = decoding.decoded(opened.stream, choices, limits, ACCEPTED, stack)
    if opened.proposed_rows:
        return Content("files", text.sha256, text.encoding, text)
    start = text.head()
    if start.startswith("["):
        return Content("json", text.sha256, text.encoding, text)
    if start.startswith("{"):
        _refuse_one_object(text, limits)
        return Content("jsonl", text.sha256, text.encoding, text)
    if start.startswith("<"):
        message = f"{shown(opened.manifest_name)} is a web page, not a manifest."
        fix = "Put it in a ZIP, alone or together with a manifest that names it."
        raise ManifestRefused(Code.WRONG_FILE_TYPE, message, fix)
    if "\0" in start.partition("\n")[0]:
        raise ManifestRefused(Code.WRONG_FILE_TYPE, f"{shown(opened.manifest_name)} is not a manifest.", ACCEPTED)
    table = tables.of_text(text, choices, limits)
    if len(table.names) == 1 and not columns.proposed(table.names).get(table.names[0]) and not choices.mapping:
        message = f"{shown(opened.manifest_name)} is not a manifest: one column found, {shown(table.names[0], 40)}."
        raise ManifestRefused(Code.WRONG_FILE_TYPE, message, ACCEPTED)
    return Content("csv", text.sha256, text.encoding, text, table)


def template_fields(choices: Choices, templates: Templates) -> Mapping[str, tuple[int, ...]]:
    """The fields of the template that was chosen, with its lines; none where it is the provider's, or none was chosen.

    Raises ManifestRefused where there is no such template.
    """
    template = _template(choices, templates)
    return template.fields if template else {}


def needed_fields(choices: Choices, templates: Templates) -> Mapping[str, tuple[int, ...]]:
    """Those of `template_fields` that a row may not lack. Raises as it does."""
    template = _template(choices, templates)
    if template is None:
        return {}
    return {path: lines for path, lines in template.fields.items() if path not in template.optional}


def _template(choices: Choices, templates: Templates) -> RowTemplate | None:
    if not choices.template or choices.are_provider_templates:
        return None
    try:
        return templates.find(choices.template, choices.template_version)
    except Unfit as reason:
        raise ManifestRefused(reason.code, reason.message, reason.fix) from reason


def _workbook(opened: source.Opened, choices: Choices, limits: Limits, stack: ExitStack) -> Content:
    archive = Archive(opened.stream, limits)
    if not archive.is_workbook:
        message = f"{shown(opened.manifest_name)} is another archive, not a manifest."
        raise ManifestRefused(Code.WRONG_FILE_TYPE, message, ACCEPTED)
    table = tables.of_workbook(archive, choices, limits, stack)
    return Content("xlsx", sha256_of(opened.stream), "", table=table)


def _refuse_other_types(stream: IO[bytes], head: bytes, name: str) -> None:
    found = sniffing.looks_like(head)
    if found is None or sniffing.unmarked_utf16(head):
        return
    if found == _OLD_OFFICE:
        stream.seek(0)
        if _PROTECTED in stream.read(_OLD_OFFICE_BYTES):
            message = f"{shown(name)} is an Office document that is protected by a password."
            raise ManifestRefused(Code.ARCHIVE_ENCRYPTED, message, "Save it without the password.")
        fix = "Open it, and save it as .xlsx or as CSV."
        raise ManifestRefused(Code.WRONG_FILE_TYPE, f"{shown(name)} is {found}, not a manifest.", fix)
    raise ManifestRefused(Code.WRONG_FILE_TYPE, f"{shown(name)} is {found}, not a manifest.", ACCEPTED)


def _refuse_one_object(text: Text, limits: Limits) -> None:
    """One object spread over lines, or one that wraps the list, is a common near miss: say so once."""
    lines = list(islice(jsonrows.line_rows(text.file, text.start, text.first_line, limits), 2))
    raw = lines[0].raw if lines else None
    if raw is None:
        return
    if len(lines) > 1 and jsonrows.is_unclosed(raw):
        message = "The file is one object over several lines, not a list of rows."
    elif len(lines) == 1 and _wraps_list(raw, limits):
        message = "The file is one object with the rows inside it, not a list of rows."
    else:
        return
    fix = "Write a list, [{…}, {…}], or one object per line (JSONL)."
    raise ManifestRefused(Code.WRONG_FILE_TYPE, message, fix, line=text.first_line)


def _wraps_list(raw: bytes, limits: Limits) -> bool:
    try:
        jsonrows.check_depth(raw, limits.max_depth)
        row = jsonrows.parse(raw).value
    except ValueError:
        return False
    if not isinstance(row, dict) or "id" in row:
        return False
    return any(isinstance(value, list) and value and isinstance(value[0], dict) for value in row.values())


def sha256_of(stream: IO[bytes]) -> str:
    """Of all its bytes, in hex."""
    stream.seek(0)
    digest = hashlib.sha256()
    while chunk := stream.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()
