"""A manifest that was read and checked: its rows, its problems, and the validation answer.

Owns the values that intake stores. Never opens a file by itself: each row carries the way to its content.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Literal, Self

from batches.manifests.limits import Limits
from batches.manifests.problems import LeftOut, Problem

if TYPE_CHECKING:
    from batches.manifests.planning import Plan
    from batches.manifests.recognising import Format
    from batches.manifests.rereading import RowReader
    from batches.manifests.source import Container

SourceKind = Literal["html", "markdown", "url", "template"]


@dataclass(frozen=True, slots=True)
class ManifestRow:
    """One valid row. Values are clean: NFC id, no NUL, no lone surrogate anywhere."""

    position: int
    """0-based."""
    line: int
    """1-based line of the manifest file on which the row starts."""
    character: int | None
    """1-based character in that line; None for JSONL."""
    business_id: str
    kind: SourceKind
    filename: str
    """Name wished for the PDF, "" for none; no part of the document's identity."""
    options: Mapping[str, Any]
    """Checked RelayPDF options, spelled as the provider takes them; JSON values only."""
    meta: Mapping[str, str | int | float | bool | None]
    """Kept for the caller; never sent, no part of the document's identity."""
    path: str | None
    """Where the content stands in the ZIP or folder; None when it stands in the row itself, or a template makes it."""
    template_key: int | None
    """`RowTemplate.key` of the version that the text was made from; None where no template of ours was filled."""
    charset: str
    """Encoding of `read()`, e.g. `utf-8` or `windows-1252`."""
    content_sha256: str
    """Of `read()`."""
    content_bytes: int
    """Length of `read()`."""
    text_bytes: int
    """Length of `text()` as UTF-8."""
    input_sha256: str
    """The document's identity; see `fingerprint()`."""
    start: int
    """Byte at which the row starts in what its reader reads."""
    size: int
    _reader: RowReader = field(repr=False, compare=False)
    keeps_input: bool = False
    """Only of a correction: its document is the one of the version that failed. `kind`, sizes and digests say nothing
    then, and it cannot be read from here."""
    keeps_options: bool = False
    """Only of a correction: so are its options."""

    def read(self) -> bytes:
        """The content exactly as given: the file's bytes, or the row's text as UTF-8.

        Raises ManifestRefused (`changed_while_reading`) when the file is not what was checked.
        """
        return self._reader.content(self)[0]

    def text(self) -> str:
        """The content as text, ready to be sent (a template filled again, and compared); raises as `read()`."""
        return self._reader.content(self)[1]

    @property
    def original(self) -> Mapping[str, Any]:
        """The row as given (evidence), JSON values only; the document's text is replaced by its length. Raises as
        `read()`."""
        return self._reader.original(self)

    @property
    def template_data(self) -> Mapping[str, Any] | None:
        """What the template was filled from, JSON values only; None where there is no `template_key`. Raises as
        `read()`."""
        return None if self.template_key is None else self._reader.data(self)


def fingerprint(kind: SourceKind, text: str, options: Mapping[str, Any]) -> str:
    """What makes two inputs the same document, as a hex digest.

    Over the kind, the text's UTF-8 bytes and the options with sorted keys. Key order, spacing and
    escapes of the manifest never matter; each character of the text does (CRLF or LF, composed or
    decomposed letters are different documents).
    """
    return fingerprint_of_digest(kind, hashlib.sha256(text.encode()).hexdigest(), options)


def fingerprint_of_digest(kind: SourceKind, text_sha256: str, options: Mapping[str, Any]) -> str:
    """As `fingerprint`, when the digest of the text's UTF-8 bytes is known already."""
    canonical = json.dumps([kind, text_sha256, options], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest that could be read. It may be stored only when `ok`.

    Use it as a context manager, or call `close()`: rows read their content from the upload, which has
    to stay open until then. Not safe to read from two threads at once.
    """

    filename: str
    """Last part of the upload's name, for people."""
    container: Container
    format: Format
    """`csv` is delimited text of any kind; `files`: there was no manifest, each HTML file is a row."""
    encoding: str
    """Codec of the manifest's text (`utf-8`, `utf-8-sig`, `utf-16`, `windows-1252`); "" for a workbook."""
    delimiter: str
    """Of delimited text, else ""."""
    sheet: str
    """Name of the workbook's sheet that was read, else ""."""
    columns: tuple[str, ...]
    """Of a table, as its header names them, in order. Of JSON, the keys of its rows, `damage.MOST_COLUMNS` at most."""
    mapping: Mapping[str, str]
    """What each column became (`batches.manifests.columns`), "" for nothing."""
    sha256: str
    """Of the manifest's bytes."""
    upload_sha256: str
    """Of the upload's bytes: the whole ZIP, else the same as `sha256`."""
    row_count: int
    """Rows that the manifest holds, valid or not."""
    invalid_count: int
    rows: tuple[ManifestRow, ...]
    """The valid rows, in manifest order."""
    errors: tuple[Problem, ...]
    warnings: tuple[Problem, ...]
    invalid_rows: tuple[LeftOut, ...]
    """The rows that are not among `rows`, in manifest order, each with the first thing that is wrong with it."""
    limits: Limits
    upload: IO[bytes] = field(repr=False, compare=False)
    """What was handed over, byte for byte and seekable: the ZIP, else the manifest itself."""
    _resources: ExitStack = field(repr=False, compare=False)
    _reader: RowReader = field(repr=False, compare=False)

    @property
    def ok(self) -> bool:
        return not self.errors

    def report(self, plan: Plan | None = None) -> dict[str, Any]:
        """The validation answer (README, "The answer"), as JSON values.

        Without a plan all valid rows count as new. With one, its conflicts join the errors, and
        `notices` and `renders` tell what would happen.
        """
        summary = {"new": len(self.rows), "unchanged": 0, "changed": 0}
        errors = self.errors
        if plan is not None:
            summary = plan.summary()
            errors += plan.errors
        answer: dict[str, Any] = {
            "manifest_sha256": self.sha256,
            "upload_sha256": self.upload_sha256,
            "rows": self.row_count,
            "encoding": self.encoding,
            "format": self.format,
            "container": self.container,
            "delimiter": self.delimiter,
            "sheet": self.sheet,
            "columns": list(self.columns),
            "summary": summary | {"invalid": self.invalid_count},
            "errors": [problem.as_dict() for problem in errors],
            "warnings": [problem.as_dict() for problem in self.warnings],
        }
        if plan is not None:
            answer |= {"renders": plan.render_count, "notices": plan.notices()}
        return answer

    def left_out(self, plan: Plan | None = None) -> tuple[LeftOut, ...]:
        """The rows that are not taken where the good ones are: invalid ones, and those that `plan` refuses."""
        refused = plan.left_out if plan is not None else ()
        return tuple(sorted((*self.invalid_rows, *refused), key=lambda each: each.position))

    def original_of(self, left_out: LeftOut) -> Mapping[str, Any]:
        """A row that was left out as it was given (evidence), read again; empty where there is nothing to be read."""
        return {} if left_out.start is None else self._reader.original_at(left_out.start, left_out.size)

    def close(self) -> None:
        """Release what was opened for reading; a file object handed to `from_upload` stays open."""
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
