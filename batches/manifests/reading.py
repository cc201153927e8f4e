"""Reads an upload from end to end: opened, decoded, cut into rows, each row checked.

Owns the order of things and the judgement on the upload as a whole; the rules are its neighbours'.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO

from batches.manifests import columns, jsonrows, paths, recognising, source, tables
from batches.manifests.choices import NO_CHOICES, Choices
from batches.manifests.columns import Columns
from batches.manifests.jsonrows import Parsed, Span
from batches.manifests.limits import Limits
from batches.manifests.manifest import Manifest, ManifestRow
from batches.manifests.problems import Code, Findings, ManifestRefused, listed, megabytes, shown, too_many_rows
from batches.manifests.recognising import Content
from batches.manifests.rereading import as_given
from batches.manifests.rows import AsBefore, RowChecker
from batches.manifests.tables import Table
from batches.manifests.templates import NoTemplates, Templates


def _unheard(row_count: int) -> None:
    """Nobody asked how far it is."""


def read(
    upload: source.ManifestSource,
    limits: Limits | None = None,
    *,
    choices: Choices = NO_CHOICES,
    templates: Templates | None = None,
    corrects: bool = False,
    is_as_before: AsBefore | None = None,
    only: int | None = None,
    progress: Callable[[int], None] = _unheard,
) -> Manifest:
    """Read and check an upload whole. Nothing is stored.

    Returns a Manifest, which is fit to be stored only when `ok`; close it when its rows were read.
    Raises ManifestRefused, and nothing else whatever the bytes, when it cannot be read as a manifest. `progress` is
    told with each row how many were checked before it, since one may take a second; what it raises ends the reading
    and is passed on. `only` is the position of the one row that is checked, without the rules between rows: a look at
    it costs no check of all that stand before.

    `corrects`: its rows correct the failed ones of a batch, and may leave out what those have (`row.keeps_input`).
    Of such, `is_as_before` is asked, with a row's columns, about those that name a file that is not in the upload or
    miss data of their template: where it says yes the row is counted and left alone.
    """
    limits = limits or Limits()
    with ExitStack() as stack:
        reading = _begun(upload, limits, choices, templates or NoTemplates(), stack)
        checker = reading.checker(is_as_before, corrects=corrects)
        row_count, valid = _counted(reading.rows(checker, only), progress)
        row_columns = checker.finish(valid, row_count)
        if only is None:
            _judge_files(reading.opened, checker, reading.findings)
        return reading.manifest(checker, valid, row_count, row_columns, stack)


@dataclass(frozen=True, slots=True)
class _Reading:
    """An upload that is open, with what it is known to be; no row of it is read yet."""

    filename: str
    limits: Limits
    choices: Choices
    templates: Templates
    opened: source.Opened
    content: Content
    columns: Columns | None
    """Of a table."""
    rows_file: IO[bytes]
    """Where rows are read again: the text of JSON, else a spool."""
    findings: Findings

    def checker(self, is_as_before: AsBefore | None, *, corrects: bool) -> RowChecker:
        return RowChecker(
            self.opened.files,
            self.rows_file,
            self.limits,
            self.findings,
            has_characters=self.content.format == "json",
            templates=self.templates,
            choices=self.choices,
            nest=self.columns.row if self.columns else as_given,
            corrects=corrects,
            is_as_before=is_as_before,
        )

    def rows(self, checker: RowChecker, only: int | None) -> Iterator[ManifestRow | None]:
        """All rows checked one after the other, None for one that does not hold; or the one at the position `only`."""
        if self.content.table is None or self.columns is None:
            yield from _rows_of_json(self.content, checker, self.limits, only)
            return
        spooled = tables.spooled(
            self.content.table, self.columns, self.findings, self.limits, self.rows_file, corrects=checker.corrects
        )
        for position, span, cells in spooled:
            if only is None or position == only:
                yield checker.check(position, span, dict(cells), ()) if span else None
            if position == only:
                return

    def manifest(
        self,
        checker: RowChecker,
        valid: list[ManifestRow],
        row_count: int,
        row_columns: tuple[str, ...],
        stack: ExitStack,
    ) -> Manifest:
        """What was read, once all rows were checked. It takes over what `stack` holds open."""
        content, findings, opened, table = self.content, self.findings, self.opened, self.content.table
        same_file = opened.upload is opened.stream
        return Manifest(
            filename=self.filename,
            container=opened.container,
            format=content.format,
            encoding=content.encoding,
            delimiter=table.delimiter if table else "",
            sheet=table.sheet if table else "",
            columns=tuple(filter(None, table.names)) if table else row_columns,
            mapping=self.columns.mapping if self.columns else {},
            sha256=content.sha256,
            upload_sha256=content.sha256 if same_file else recognising.sha256_of(opened.upload),
            row_count=row_count,
            invalid_count=len(findings.invalid_rows),
            rows=tuple(row for row in valid if row.position not in findings.invalid_rows),
            invalid_rows=findings.left_out(),
            errors=findings.errors(),
            warnings=findings.warnings(),
            limits=self.limits,
            upload=opened.upload,
            _resources=stack.pop_all(),
            _reader=checker.reader,
        )


def _begun(
    upload: source.ManifestSource, limits: Limits, choices: Choices, templates: Templates, stack: ExitStack
) -> _Reading:
    opened = source.opened(upload, limits, stack, propose_rows=choices.propose_rows)
    content = recognising.recognised(opened, choices, limits, stack)
    findings = Findings(limits.max_places)
    known = None
    if content.table is not None:
        known = _known_columns(content.table, choices, templates, findings)
    rows_file = content.text.file if content.text and not known else source.spool(stack)
    return _Reading(upload.filename, limits, choices, templates, opened, content, known, rows_file, findings)


def _counted(rows: Iterator[ManifestRow | None], progress: Callable[[int], None]) -> tuple[int, list[ManifestRow]]:
    """How many rows there are, and those that hold."""
    valid = []
    count = 0
    for row in rows:
        if row is not None:
            valid.append(row)
        progress(count)
        count += 1
    if not count:
        raise ManifestRefused(Code.EMPTY_FILE, "The manifest has no rows.", "Put one row per document into it.")
    return count, valid


def _rows_of_json(
    content: Content, checker: RowChecker, limits: Limits, only: int | None
) -> Iterator[ManifestRow | None]:
    for position, span in enumerate(content.spans(limits)):
        if position >= limits.max_rows:
            raise too_many_rows(limits.max_rows, span.line)
        if only is not None and position != only:
            continue
        parsed = _parsed(position, span, content.format, checker, limits)
        yield checker.check(position, span, parsed.value, parsed.repeated_keys) if parsed else None
        if only is not None:
            return


def _known_columns(table: Table, choices: Choices, templates: Templates, findings: Findings) -> Columns:
    """What the columns become: as was chosen, else what their names say. Raises ManifestRefused."""
    if choices.mapping is not None:
        return columns.checked(table.names, choices.mapping, table.header_line)
    fields = recognising.template_fields(choices, templates)
    mapping = columns.proposed(table.names, fields=fields, has_template=bool(choices.template))
    for name, target in columns.synonyms(mapping).items():
        message = f"The column {shown(name, 60)} is taken as {target}."
        fix = f"Name it {target}, or choose what it becomes if that is not meant."
        findings.upload_warning(Code.MISSING_COLUMN, message, fix, [name], column=target)
    return columns.checked(table.names, mapping, table.header_line)


def _parsed(position: int, span: Span, form: recognising.Format, checker: RowChecker, limits: Limits) -> Parsed | None:
    """The row's values, or None after noting why there are none. A broken list is refused as a whole."""
    if span.raw is None:
        message = f"The row is {megabytes(span.size)} large; {megabytes(limits.max_row_bytes)} are allowed."
        checker.refuse_size(position, span, message, "Put the document into a file of its own, in a ZIP.")
        return None
    try:
        if form != "json":  # a list was measured while its rows were cut out
            jsonrows.check_depth(span.raw, limits.max_depth)
        return jsonrows.parse(span.raw)
    except jsonrows.TooDeep:
        message = f"Line {span.line}: brackets are nested more than {limits.max_depth} deep."
        checker.refuse_line(position, span, message, 'Write a flat row such as {"id": "A-1", "html": "a-1.html"}.')
        return None
    except jsonrows.TooManyValues:
        message = f"The row holds more than {jsonrows.MOST_VALUES:,} values."
        checker.refuse_size(position, span, message, "Make several documents of it.")
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
