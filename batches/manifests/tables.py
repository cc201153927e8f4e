"""A table out of a text or a workbook: its header, and its rows with their lines and what is wrong with them.

Owns what both have in common: blank rows, rows of another length than the header, a header that stands there again, and
cells that a spreadsheet program has spoilt. Rows go to a spool as JSON objects of the cells as they were given, so that
what follows is the same as for JSONL.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import IO, Literal

from batches.cells import ROW, is_failed_list, unguarded
from batches.manifests import cellvalues, columns, corrections, delimited, evidence, keys
from batches.manifests.archive import Archive
from batches.manifests.choices import Choices
from batches.manifests.columns import Columns
from batches.manifests.decoding import Text
from batches.manifests.jsonrows import Span
from batches.manifests.limits import Limits
from batches.manifests.problems import Code, Findings, ManifestRefused, Place, Unfit, listed, shown, too_many_rows
from batches.manifests.workbook import Workbook

TableFormat = Literal["csv", "xlsx"]
_MOST_BLANK_ROWS = 1_000_000
_ABOUT_DATES = re.compile(r"date|datum|fecha|fällig|geboren|birth", re.IGNORECASE)
#: 1954 to 2064 as Excel counts days: more than in `damage.py`, which looks at ids too, without the name of a column.
_SERIALS = range(20_000, 60_000)


@dataclass(slots=True)
class TableRow:
    """One row that is not blank. `problem` and `fix` say why its cells cannot be told apart."""

    line: int
    cells: list[str] = field(default_factory=list)
    faults: dict[int, Unfit] = field(default_factory=dict)
    """By place of the cell, from 0."""
    problem: str = ""
    fix: str = ""
    code: Code = Code.BAD_CSV_ROW


@dataclass
class Table:
    """An opened table, read once from its top: the header is known, the rows follow."""

    format: TableFormat
    names: tuple[str, ...]
    """Cleaned; "" for a column without a name."""
    header_line: int
    rows: Iterator[TableRow]
    delimiter: str = ""
    sheet: str = ""
    sheets: tuple[str, ...] = ()
    judge: Callable[[Columns], None] = lambda columns: None
    """Is told which columns become what before the rows are read."""

    def samples(self) -> Iterator[dict[str, str]]:
        """The cells of the rows that can be told apart, by column. Raises ManifestRefused."""
        return (named(self.names, row.cells) for row in self.rows if not row.problem)


def named(names: tuple[str, ...], cells: list[str]) -> dict[str, str]:
    """A row's cells by column, as they are kept: of those that a list of failed rows added only the row's place."""
    pairs = zip(names, cells, strict=False)
    return {name: cell for name, cell in pairs if name and (name == ROW or not name.startswith(keys.REMARK))}


def _freed(table: Table) -> Table:
    """A list of failed rows with its cells as they were before we guarded them."""
    if not is_failed_list(table.names):
        return table
    names = columns.cleaned(unguarded(name) for name in table.names)
    return replace(table, names=names, rows=_freed_rows(table.rows, names))


def _freed_rows(rows: Iterator[TableRow], names: tuple[str, ...]) -> Iterator[TableRow]:
    for row in rows:
        freed = [corrections.restored_cell(name, cell) for name, cell in zip(names, row.cells, strict=False)]
        row.cells = freed + row.cells[len(names) :]
        yield row


def of_text(text: Text, choices: Choices, limits: Limits) -> Table:
    """The table that delimited text holds. Raises ManifestRefused, also while rows are read."""
    dialect = delimited.dialect_of(text.head(), choices.delimiter)
    records = delimited.records(text.file, text.start, text.first_line, dialect, limits)
    header = next((record for record in records if not _is_blank(record.cells or [record.fault])), None)
    if header is None or header.cells is None:
        raise _no_header(header.line if header else text.first_line)
    names = _names(header.cells, header.line)
    rows = _TextRows(names, dialect.delimiter)
    return _freed(Table("csv", names, header.line, rows.of(records), dialect.delimiter, judge=rows.know))


def of_workbook(archive: Archive, choices: Choices, limits: Limits, stack: ExitStack) -> Table:
    """The table on a sheet of a workbook. Raises ManifestRefused, also while rows are read."""
    workbook = Workbook(archive, limits, stack)
    sheet = workbook.sheet(choices.sheet)
    found = workbook.rows(sheet)
    header = next((row for row in found if not _is_blank(row.cells)), None)
    if header is None:
        message = f"The sheet {shown(sheet, 40)} is empty."
        raise ManifestRefused(Code.EMPTY_FILE, message, "Put one row per document on it, or choose another sheet.")
    names = _names(header.cells, header.line)
    rows = (TableRow(row.line, row.cells, row.faults) for row in found if not _is_blank(row.cells) or row.faults)
    return _freed(Table("xlsx", names, header.line, _without_header(rows, names), sheet=sheet, sheets=workbook.sheets))


def spooled(
    table: Table,
    known: Columns,
    findings: Findings,
    limits: Limits,
    spool: IO[bytes],
    *,
    corrects: bool = False,
) -> Iterator[tuple[int, Span | None, dict[str, str]]]:
    """Each row with its position, its span in `spool` and its cells by column, after noting what is wrong with it.

    Of corrections, cells that only tell of a longer text are judged where the row before is known (`rows.py`).

    The span is None where the row cannot be used at all. Raises ManifestRefused where there are too many.
    """
    table.judge(known)
    watch = _Watch(known, findings, corrects=corrects)
    position, end = -1, 0
    for position, row in enumerate(table.rows):
        if position >= limits.max_rows:
            raise too_many_rows(limits.max_rows, row.line)
        if row.problem:
            findings.row_error(row.code, None, Place(position, row.line, None, None, row.problem, row.fix))
            yield position, None, {}
            continue
        cells = named(known.names, row.cells)
        if not watch.look(position, row):
            yield position, None, cells
            continue
        raw = json.dumps(cells, ensure_ascii=False, separators=(",", ":")).encode()
        if b"\\u0000" in raw:
            watch.note_nul(position, row.line, cells)
        spool.seek(end)
        spool.write(raw)
        yield position, Span(end, len(raw), row.line, 1, raw), cells
        end += len(raw)
    watch.finish(position + 1)


class _TextRows:
    """Rows of delimited text, held against its header."""

    def __init__(self, names: tuple[str, ...], delimiter: str) -> None:
        self._names = names
        self._delimiter = delimiter
        self._id_index: int | None = None

    def know(self, known: Columns) -> None:
        self._id_index = known.id_index

    def of(self, records: Iterator[delimited.Record]) -> Iterator[TableRow]:
        blank = 0
        for record in records:
            if record.cells is None:
                fix = "Put the document into a file of its own, in a ZIP."
                yield TableRow(record.line, problem=record.fault, fix=fix, code=Code.FILE_TOO_LARGE)
            elif _is_blank(record.cells):
                blank += 1
                if blank > _MOST_BLANK_ROWS:
                    message = f"There are more than {_MOST_BLANK_ROWS:,} blank rows."
                    raise ManifestRefused(Code.BAD_CSV_ROW, message, "Remove them.", line=record.line)
            else:
                yield self._row(record)

    def _row(self, record: delimited.Record) -> TableRow:
        cells = record.cells or []
        swallowed = None
        if record.has_breaks:
            swallowed = delimited.swallowed_line(record, self._delimiter, len(self._names), self._id_index)
        if swallowed is not None:
            message = (
                f"Line {record.line}: a quote opens in this row, and line {swallowed} inside of it looks like a row of "
                "its own."
            )
            fix = 'Close the quote where it should end; write a quote that belongs to the text twice ("").'
            raise ManifestRefused(Code.BAD_CSV_ROW, message, fix, line=record.line)
        problem, fix = self._problem(record, cells)
        return TableRow(record.line, cells, problem=problem, fix=fix)

    def _problem(self, record: delimited.Record, cells: list[str]) -> tuple[str, str]:
        if record.fault:
            return f"Line {record.line}: {record.fault[:1].lower()}{record.fault[1:]}", "Remove that blank."
        if len(cells) < len(self._names):
            message = f"Line {record.line} has {_counted(len(cells))}; the header names {_columns(len(self._names))}."
            if record.is_cut:
                return f"{message} The file ends in it.", "It was probably cut short: export or upload it again."
            return message, "Give it one cell for each column; empty ones too."
        if any(not _is_blank([cell]) for cell in cells[len(self._names) :]):
            message = f"Line {record.line} has {_counted(len(cells))}; the header names {_columns(len(self._names))}."
            return message, f"Put a cell that holds {shown(self._delimiter)} into quotes, or name the column."
        nameless = [cell for name, cell in zip(self._names, cells, strict=False) if not name and not _is_blank([cell])]
        if nameless:
            message = f"Line {record.line}: the cell {shown(nameless[0], 40)} stands in a column without a name."
            return message, "Name the column in the header, or remove the cell."
        if self._names[0] in cells[0] and columns.cleaned(cells[: len(self._names)]) == self._names:
            return f"Line {record.line} repeats the header.", _FIX_HEADER
        return "", ""


def _without_header(rows: Iterator[TableRow], names: tuple[str, ...]) -> Iterator[TableRow]:
    for row in rows:
        row.cells.extend([""] * (len(names) - len(row.cells)))
        if columns.cleaned(row.cells[: len(names)]) == names:
            row.problem, row.fix = f"Line {row.line} repeats the header.", _FIX_HEADER
        yield row


class _Watch:
    """What a spreadsheet program has done to the cells of mapped columns."""

    def __init__(self, known: Columns, findings: Findings, *, corrects: bool) -> None:
        self._corrects = corrects
        self._findings = findings
        self._mapped = [(index, name) for index, name in enumerate(known.names) if known.mapping.get(name)]
        self._ids = known.id_index
        self._dates = {index for index, name in self._mapped if _ABOUT_DATES.search(name)}
        self._empty = dict(self._mapped)
        self._known = known

    def look(self, position: int, row: TableRow) -> bool:
        """Note what is wrong with the row's cells; False where its id is spoilt."""
        for index, name in self._mapped:
            cell = row.cells[index] if index < len(row.cells) else ""
            if not cell:
                continue
            self._empty.pop(index, None)
            fault = row.faults.get(index) or (_error_word(cell) if cell[0] == "#" else None)
            if fault is None and not self._corrects and self._tells_of_more(name, cell):
                fault = _NOT_KEPT
            if fault is not None:
                place = Place(position, row.line, None, None, f"Column {shown(name, 40)}: {fault.message}", fault.fix)
                self._findings.row_error(fault.code, keys.column(name), place)
                if index == self._ids:
                    return False
            elif index in self._dates and cell.isdecimal() and len(cell) == 5 and int(cell) in _SERIALS:
                message = f"Column {shown(name, 40)}: {cell} looks like a date that was turned into a number."
                fix = "Format the column as a date in the spreadsheet program, and save the file again."
                place = Place(position, row.line, None, None, message, fix)
                self._findings.row_warning(Code.SPREADSHEET_DAMAGE, keys.column(name), place)
        return True

    def _tells_of_more(self, name: str, cell: str) -> bool:
        """Whether a longer value stood there. Of documents that is told where they are read."""
        return self._known.mapping[name] not in keys.SOURCES and evidence.is_placeholder(cell)

    def note_nul(self, position: int, line: int, cells: dict[str, str]) -> None:
        """A column that becomes nothing is kept as well, and no database keeps a NUL."""
        for name, cell in cells.items():
            if "\0" in cell and not self._known.mapping.get(name):
                message = f"Column {shown(name, 40)}: the cell holds a NUL character."
                place = Place(position, line, None, None, message, "Remove that character.")
                self._findings.row_error(Code.BAD_TEXT, keys.column(name), place)

    def finish(self, row_count: int) -> None:
        """Note columns that say nothing, and those that are not used."""
        if self._empty and row_count:
            names = list(self._empty.values())
            are = "column is" if len(names) == 1 else "columns are"
            message = f"The {are} empty in all rows: {listed(names)}."
            fix = "Fill it, or remove it if that is meant." if len(names) == 1 else "Fill them, or remove them."
            self._findings.upload_warning(Code.SPREADSHEET_DAMAGE, message, fix, names)
        unused = [name for name, target in self._known.mapping.items() if not target]
        if unused:
            message = f"Nothing is made of {listed(unused)}."
            fix = "Map a column to a field of the template, or leave it: it is kept with the rows and changes nothing."
            self._findings.upload_warning(Code.UNKNOWN_COLUMN, message, fix, unused)


_NOT_KEPT = Unfit(
    Code.BAD_TEXT,
    "the list of failed rows was too short for this text, and only tells its length.",
    "Put the text itself there, or upload the rows of the first file again.",
)


def _error_word(cell: str) -> Unfit | None:
    text = cell[:40].strip()
    if text in cellvalues.ERRORS or (len(text) > 3 and not text.strip("#")):
        message = f"the cell shows {shown(text, 20)}, which a spreadsheet program puts in place of a value."
        return Unfit(Code.SPREADSHEET_DAMAGE, message, "Correct the formula or widen the column, and export it again.")
    return None


def _names(cells: list[str], line: int) -> tuple[str, ...]:
    names = columns.cleaned(cells)
    while names and not names[-1]:
        names = names[:-1]
    if not any(names):
        raise _no_header(line)
    columns.check_names(names, line)
    return names


def _no_header(line: int) -> ManifestRefused:
    message = "The table has no header."
    return ManifestRefused(
        Code.MISSING_COLUMN, message, "Name its columns in the first row, as in: id, html.", line=line
    )


def _is_blank(cells: list[str]) -> bool:
    return not "".join(cells).strip()


def _counted(count: int) -> str:
    return "1 cell" if count == 1 else f"{count:,} cells"


def _columns(count: int) -> str:
    return "1 column" if count == 1 else f"{count:,} columns"


_FIX_HEADER = "Remove that row; two files were probably put together."
