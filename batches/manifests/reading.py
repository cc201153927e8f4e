"""Reads an upload from end to end: opened, decoded, cut into rows, each row checked.

Owns the order of things and the judgement on the upload as a whole; the rules are its neighbours'.
"""

from __future__ import annotations

import codecs
import hashlib
import json
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, Literal

from batches.manifests import jsonrows, paths, sniffing, source
from batches.manifests.jsonrows import Parsed, Span
from batches.manifests.limits import Limits
from batches.manifests.manifest import Manifest, ManifestRow
from batches.manifests.problems import Code, Findings, ManifestRefused, listed, megabytes, shown
from batches.manifests.rows import RowChecker

_CHUNK_BYTES = 1 << 20
_ACCEPTED = "Accepted are JSON ([{…}, …]) and JSONL (one {…} per line), alone or in a ZIP with their HTML files."

Format = Literal["json", "jsonl"]


@dataclass(frozen=True, slots=True)
class _Text:
    """The manifest as valid UTF-8, from `start` on (behind byte-order mark and white space)."""

    file: IO[bytes]
    start: int
    first_line: int
    sha256: str
    encoding: str


def read(upload: source.ManifestSource, limits: Limits | None = None, *, corrects: bool = False) -> Manifest:
    """Read and check an upload whole. Nothing is stored. `corrects`: its rows correct the failed ones of a batch.

    Returns a Manifest, which is fit to be stored only when `ok`; close it when its rows were read.
    Raises ManifestRefused, and nothing else whatever the bytes, when it cannot be read as a manifest.
    """
    limits = limits or Limits()
    with ExitStack() as stack:
        opened = source.opened(upload, limits, stack)
        text = _decoded(opened.stream, opened.manifest_name, limits, stack)
        form = _form(text, opened.manifest_name, limits)
        findings = Findings(limits.max_places)
        checker = RowChecker(
            opened.files, text.file, limits, findings, has_characters=form == "json", corrects=corrects
        )
        row_count, rows = _checked_rows(text, form, checker, limits)
        _judge_files(opened, checker, findings)
        same_file = opened.upload is opened.stream
        return Manifest(
            filename=upload.filename,
            container=opened.container,
            format=form,
            encoding=text.encoding,
            sha256=text.sha256,
            upload_sha256=text.sha256 if same_file else _sha256(opened.upload),
            row_count=row_count,
            invalid_count=len(findings.invalid_rows),
            rows=tuple(row for row in rows if row.position not in findings.invalid_rows),
            errors=findings.errors(),
            warnings=findings.warnings(),
            limits=limits,
            upload=opened.upload,
            _resources=stack.pop_all(),
        )


def _checked_rows(text: _Text, form: Format, checker: RowChecker, limits: Limits) -> tuple[int, list[ManifestRow]]:
    spans = jsonrows.list_rows if form == "json" else jsonrows.line_rows
    rows = []
    position = -1
    for position, span in enumerate(spans(text.file, text.start, text.first_line, limits)):
        if position >= limits.max_rows:
            raise ManifestRefused(
                Code.TOO_MANY_ROWS,
                f"The manifest has more than {limits.max_rows:,} rows.",
                "Split it into several uploads.",
                line=span.line,
            )
        parsed = _parsed(position, span, form, checker, limits)
        row = checker.check(position, span, parsed.value, parsed.repeated_keys) if parsed else None
        if row is not None:
            rows.append(row)
    if position < 0:
        raise ManifestRefused(Code.EMPTY_FILE, "The manifest has no rows.", "Put one row per document into it.")
    return position + 1, rows


def _parsed(position: int, span: Span, form: Format, checker: RowChecker, limits: Limits) -> Parsed | None:
    """The row's values, or None after noting why there are none. A broken list is refused as a whole."""
    if span.raw is None:
        message = f"The row is {megabytes(span.size)} large; {megabytes(limits.max_row_bytes)} are allowed."
        checker.refuse_size(position, span, message)
        return None
    try:
        if form == "jsonl":  # a list was measured while its rows were cut out
            jsonrows.check_depth(span.raw, limits.max_depth)
        return jsonrows.parse(span.raw)
    except jsonrows.TooDeep:
        message = f"Line {span.line}: brackets are nested more than {limits.max_depth} deep."
        checker.refuse_line(position, span, message, 'Write a flat row such as {"id": "A-1", "html": "a-1.html"}.')
        return None
    except json.JSONDecodeError as error:
        line = span.line + error.lineno - 1
        character = error.colno + (span.character - 1 if error.lineno == 1 else 0)
        reason = error.msg[:1].lower() + error.msg[1:]
        message = f"Line {line}, character {character}: this is not valid JSON ({reason})."
        fix = "Correct that place. Mostly a quote or a comma is missing, or a quote inside a text has no \\ before it."
        if form == "json":
            raise ManifestRefused(Code.BAD_JSON, message, fix, line=line, character=character) from error
        checker.refuse_line(position, span, message, fix)
        return None


def _decoded(stream: IO[bytes], name: str, limits: Limits, stack: ExitStack) -> _Text:
    """Make sure of the encoding in one pass. UTF-16 and UTF-32 with their mark are copied as UTF-8."""
    size = stream.seek(0, 2)
    if size > limits.max_manifest_bytes:
        message = f"The manifest is {megabytes(size)} large; {megabytes(limits.max_manifest_bytes)} are allowed."
        raise ManifestRefused(Code.UPLOAD_TOO_LARGE, message, "Split it into several uploads.")
    stream.seek(0)
    head = stream.read(sniffing.HEAD_BYTES)
    _refuse_other_types(head, name)
    encoding = sniffing.bom_encoding(head) or "utf-8"
    file, start = stream, 0
    digest = hashlib.sha256()
    if encoding in {"utf-16", "utf-32"}:
        file = source.spool(stack)
        for part in _texts(stream, encoding, digest):
            file.write(part.encode())
    else:
        for _ in _texts(stream, "utf-8", digest):
            pass  # only to be sure that it can be read
        start = len(codecs.BOM_UTF8) if encoding == "utf-8-sig" else 0
    start, newlines = jsonrows.first_mark(file, start)
    if start == file.seek(0, 2):
        raise ManifestRefused(Code.EMPTY_FILE, "The file is empty.", _ACCEPTED)
    return _Text(file, start, newlines + 1, digest.hexdigest(), encoding)


def _texts(stream: IO[bytes], encoding: str, digest: hashlib._Hash) -> Iterator[str]:
    """The stream's text in parts, while its bytes are hashed. Raises ManifestRefused at the first odd byte."""
    decoder = codecs.getincrementaldecoder(encoding)()
    stream.seek(0)
    passed, line = 0, 1
    while True:
        chunk = stream.read(_CHUNK_BYTES)
        digest.update(chunk)
        pending = len(decoder.getstate()[0])
        try:
            part = decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            line += error.object[: error.start].count(b"\n")
            raise _not_decodable(encoding, passed - pending + error.start, error, line) from error
        passed += len(chunk)
        line += part.count("\n")
        yield part
        if not chunk:
            return


def _not_decodable(encoding: str, offset: int, error: UnicodeDecodeError, line: int) -> ManifestRefused:
    name = encoding.upper()
    byte = f"byte 0x{error.object[error.start]:02X} at offset {offset:,} (line {line})"
    return ManifestRefused(
        Code.NOT_UTF8,
        f"The manifest is not {name}: {byte} does not fit.",
        "Save it as UTF-8. Nothing is guessed, so that no name is changed without a word.",
        line=line,
    )


def _refuse_other_types(head: bytes, name: str) -> None:
    found = sniffing.looks_like(head)
    if found is None:
        return
    if found.startswith("UTF-16"):
        raise ManifestRefused(Code.NOT_UTF8, f"{shown(name)} is {found}.", "Save it as UTF-8.")
    if found == "a ZIP":
        found = "an Excel workbook or another archive"
    raise ManifestRefused(Code.WRONG_FILE_TYPE, f"{shown(name)} is {found}, not a manifest.", _ACCEPTED)


def _form(text: _Text, name: str, limits: Limits) -> Format:
    """JSON list or JSONL, by the first character."""
    text.file.seek(text.start)
    head = text.file.read(sniffing.HEAD_BYTES)
    if head.startswith(b"["):
        return "json"
    if head.startswith(b"{"):
        _refuse_one_object(text, limits)
        return "jsonl"
    if head.startswith(b"<"):
        fix = "Put it in a ZIP together with a manifest.json that names it."
        raise ManifestRefused(Code.WRONG_FILE_TYPE, f"{shown(name)} is a web page, not a manifest.", fix)
    if sniffing.looks_like_table(head.decode(errors="ignore")):
        message = f"{shown(name)} looks like a table (CSV), which is not read yet."
        raise ManifestRefused(Code.WRONG_FILE_TYPE, message, _ACCEPTED)
    raise ManifestRefused(Code.WRONG_FILE_TYPE, f"{shown(name)} is not a manifest.", _ACCEPTED)


def _refuse_one_object(text: _Text, limits: Limits) -> None:
    """One object spread over lines, or one that wraps the list, is a common near miss: say so once."""
    lines = list(_first_two(jsonrows.line_rows(text.file, text.start, text.first_line, limits)))
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


def _first_two(spans: Iterator[Span]) -> Iterator[Span]:
    for _, span in zip(range(2), spans, strict=False):
        yield span


def _wraps_list(raw: bytes, limits: Limits) -> bool:
    try:
        jsonrows.check_depth(raw, limits.max_depth)
        row = jsonrows.parse(raw).value
    except ValueError:
        return False
    if not isinstance(row, dict) or "id" in row:
        return False
    return any(isinstance(value, list) and value and isinstance(value[0], dict) for value in row.values())


def _judge_files(opened: source.Opened, checker: RowChecker, findings: Findings) -> None:
    """What lies in the ZIP or folder beside the documents."""
    if opened.links:
        findings.upload_error(
            Code.ARCHIVE_UNSAFE,
            f"The ZIP holds links, which are never followed: {listed(list(opened.links))}.",
            "Put the files themselves in the ZIP.",
            opened.links,
        )
    if not opened.lists_files:
        return
    spare = _spare_files(list(opened.files.names()), opened.manifest_name, checker.used_files)
    if spare:
        findings.upload_warning(
            Code.UNREFERENCED_FILE,
            f"No row names {len(spare):,} of the files: {listed(spare)}.",
            "Only the HTML itself is sent: pictures and style sheets have to stand inside it (data: addresses). "
            "If a document is missing, give it a row.",
            spare,
        )


def _spare_files(names: list[str], manifest_name: str, used: Collection[str]) -> list[str]:
    """Files that somebody may have meant to give a row. A note to the reader, or a folder with a manifest of its own,
    is no such file."""
    others = {name.rpartition("/")[0] for name in names if name != manifest_name and source.is_manifest(name)}
    foreign = tuple(f"{folder}/" for folder in others if folder)
    return [
        name
        for name in names
        if name not in used
        and name != manifest_name
        and not name.startswith(foreign)
        and not paths.name_of(name).upper().startswith("README")
    ]


def _sha256(stream: IO[bytes]) -> str:
    stream.seek(0)
    digest = hashlib.sha256()
    while chunk := stream.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()
