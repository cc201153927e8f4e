"""What a row that was checked says, read again from the upload: its document, its evidence, its template's data.

Rows keep where they stand and nothing of what they say, so that a hundred thousand of them fit into memory. Whatever is
read again is compared with what was checked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

from batches.manifests import charsets, contents, evidence, keys, rowtemplates, values
from batches.manifests.choices import NO_CHOICES, Choices
from batches.manifests.jsonrows import JsonValue, marks, parse
from batches.manifests.limits import Limits
from batches.manifests.problems import Code, ManifestRefused, Unfit, shown
from batches.manifests.source import Files
from batches.manifests.templates import RowTemplate

if TYPE_CHECKING:
    from batches.manifests.manifest import ManifestRow

#: Bytes of rows that are kept parsed: a row's text, data and evidence are asked for one after the other.
_KEPT_BYTES = 20_000_000
#: What a row, and each value in it, takes beside its bytes once it is parsed.
_ROW_BYTES = 1_000
_VALUE_BYTES = 60

Nest = Callable[[dict[str, JsonValue]], dict[str, JsonValue]]
"""Makes a row of what stands under the columns of a table. The same columns always make the same row."""


def as_given(columns: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """For rows that are objects already."""
    return columns


@dataclass(slots=True)
class RowReader:
    """The way of all rows of one upload back to it. Not safe to use from two threads at once."""

    files: Files
    manifest: IO[bytes]
    limits: Limits
    nest: Nest = as_given
    choices: Choices = NO_CHOICES
    templates: dict[int, RowTemplate] = field(default_factory=dict)
    """Those that its rows name, by key."""
    restore: Nest = as_given
    """Frees the cells of a list of failed rows of their guards, where that was not done before."""
    _kept: dict[int, tuple[int, int, dict[str, JsonValue]]] = field(default_factory=dict)
    """Size, bytes in memory and columns of the rows that were read last, by where they start."""
    _kept_bytes: int = 0

    def content(self, row: ManifestRow) -> tuple[bytes, str]:
        """The document as it was given and as it is sent. Raises ManifestRefused (`changed_while_reading`)."""
        if row.keeps_input:
            raise ValueError("the document is the one of the version that failed, and is not in the manifest")
        if row.path is not None:
            return self._file(row.path, row.content_sha256)
        try:
            text = self._text(row)
            raw = text.encode()
        except (Unfit, UnicodeEncodeError) as error:
            raise _changed("The manifest") from error
        if hashlib.sha256(raw).hexdigest() != row.content_sha256:
            raise _changed("The manifest")
        return raw, text

    def original(self, row: ManifestRow) -> dict[str, Any]:
        """The row's evidence. Raises ManifestRefused (`changed_while_reading`)."""
        return evidence.of_row(self._columns(row.start, row.size))

    def original_at(self, start: int, size: int) -> dict[str, Any]:
        """The evidence of a row that was refused; empty where it cannot be read as a row."""
        if size > self.limits.max_row_bytes:
            return {}
        try:
            return evidence.of_row(self._columns(start, size))
        except ManifestRefused:
            return {}

    def data(self, row: ManifestRow) -> dict[str, Any]:
        """What the row's template is filled from. Raises ManifestRefused (`changed_while_reading`)."""
        try:
            return rowtemplates.data_of(self._row(row), row.business_id)
        except Unfit as error:
            raise _changed("The manifest") from error

    def _text(self, row: ManifestRow) -> str:
        given = self._row(row)
        if row.template_key is not None:
            template = self.templates[row.template_key]
            return contents.without_mark(template.fill(rowtemplates.data_of(given, row.business_id)))
        if row.kind == "template":
            return rowtemplates.for_provider(given, row.business_id, self.choices)
        value = next((given[key] for key in keys.SOURCES if given.get(key) is not None), None)
        text = value if isinstance(value, str) else ""
        return values.url(text) if row.kind == "url" else contents.without_mark(text)

    def _row(self, row: ManifestRow) -> dict[str, JsonValue]:
        return self.nest(self._columns(row.start, row.size))

    def _columns(self, start: int, size: int) -> dict[str, JsonValue]:
        kept = self._kept.get(start)
        if kept is not None and kept[0] == size:
            return kept[2]
        self.manifest.seek(start)
        raw = self.manifest.read(size).strip(b" \t\r\n")
        try:
            columns = parse(raw).value
        except (ValueError, RecursionError) as error:
            raise _changed("The manifest") from error
        if not isinstance(columns, dict):
            raise _changed("The manifest")
        columns = self.restore(columns)
        self._keep(start, size, size + _ROW_BYTES + _VALUE_BYTES * marks(raw), columns)
        return columns

    def _keep(self, start: int, size: int, weight: int, columns: dict[str, JsonValue]) -> None:
        if before := self._kept.pop(start, None):
            self._kept_bytes -= before[1]
        self._kept[start] = (size, weight, columns)
        self._kept_bytes += weight
        while self._kept_bytes > _KEPT_BYTES and len(self._kept) > 1:
            self._kept_bytes -= self._kept.pop(next(iter(self._kept)))[1]

    def _file(self, name: str, raw_sha256: str) -> tuple[bytes, str]:
        try:
            raw = self.files.read(name)
            if hashlib.sha256(raw).hexdigest() == raw_sha256:
                return raw, charsets.decoded(raw).text
        except Unfit as error:
            raise _changed(f"The file {shown(name)}") from error
        raise _changed(f"The file {shown(name)}")


def _changed(what: str) -> ManifestRefused:
    message = f"{what} changed while it was being read."
    return ManifestRefused(Code.CHANGED_WHILE_READING, message, "Wait until it is written to its end, and try again.")
