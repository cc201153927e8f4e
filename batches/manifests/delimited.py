"""Rows out of delimited text (CSV, TSV, semicolons, pipes), each with the line of the file on which it starts.

Owns the dialect, which the header line alone decides, and the quotes: one that never closes, or closes in the middle of
a cell, is refused with its line, so that no row can swallow the ones below it. Cells stay text. Knows no column.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from batches.manifests.limits import Limits
from batches.manifests.problems import Code, ManifestRefused, megabytes, shown

DELIMITERS = (",", ";", "\t", "|")
_QUOTED_REST = re.compile(r'(?:[^"]++|"")*+')
_DIGITS = re.compile(r"\d+")
#: Of one physical line that is read at once. A longer one is no row that could be kept.
_LINE_BYTES = 16_000_000
#: Of one row: more than a document may have, and little enough to be held several times over.
_ROW_CHARACTERS = 8_000_000
#: Of one row; a header names far fewer. What comes behind stays one piece, and is an error.
_MOST_CELLS = 5_000
_HEADER_CHARACTERS = 1_000_000


@dataclass(slots=True)
class Record:
    """One row's cells; `cells` is None for a row that is too large, `fault` then says so."""

    line: int
    cells: list[str] | None
    is_cut: bool = False
    """Whether the file ends in it, without a line break."""
    fault: str = ""
    """What is wrong with the row as text, as a sentence."""
    has_breaks: bool = False
    """Whether it goes over several lines."""


@dataclass(frozen=True, slots=True)
class Dialect:
    delimiter: str
    skipped_lines: int = 0
    """Lines before the header: Excel's `sep=;`."""


def dialect_of(head: str, chosen: str = "") -> Dialect:
    """The dialect that the first line shows: its `sep=`, else the mark that separates most names outside of quotes."""
    text = head.lstrip("\ufeff")
    mark = _sep_line(text.partition("\n")[0])
    if mark:
        return Dialect(chosen or mark, 1)
    return Dialect(chosen or _commonest(text))


def _sep_line(line: str) -> str:
    stripped = line.rstrip("\r\n").strip(' "')
    mark = stripped[4:5]
    return mark if stripped[:4].lower() == "sep=" and len(stripped) <= 5 and mark in {*DELIMITERS} else ""


def _commonest(text: str) -> str:
    """Which delimiter stands most often in the first line that holds anything; a comma where none does, and only where
    it wins: it is the one that stands inside of names."""
    counts = {";": 0, "\t": 0, "|": 0, ",": 0}
    is_quoted, seen = False, False
    for character in text[:_HEADER_CHARACTERS]:
        if character == '"':
            is_quoted = not is_quoted
        elif not is_quoted and character in "\r\n":
            if seen:
                break
        elif not is_quoted and character in counts:
            counts[character] += 1
        seen = seen or not character.isspace()
    return max(counts, key=lambda mark: counts[mark]) if any(counts.values()) else ","


def records(file: IO[bytes], start: int, first_line: int, dialect: Dialect, limits: Limits) -> Iterator[Record]:
    """All rows from `start` on, blank ones too. The file is UTF-8, which was made sure of, and nobody else moves in it.

    Raises ManifestRefused (`bad_csv_row`) at a quote that leaves it unclear where a row ends.
    """
    reader = _Reader(dialect.delimiter, min(limits.max_row_bytes, _ROW_CHARACTERS))
    file.seek(start)
    for number, line in enumerate(_lines(file), first_line):
        if number - first_line >= dialect.skipped_lines:
            record = reader.feed(number, line)
            if record is not None:
                yield record
    reader.finish()


def _lines(file: IO[bytes]) -> Iterator[str | bytes]:
    """Physical lines with their ends; `\r` alone ends one too. Of a line that is too long only bytes without meaning
    are given, with as many quotes as it had."""
    while line := file.readline(_LINE_BYTES):
        if len(line) == _LINE_BYTES and not line.endswith(b"\n"):
            yield _overlong(line, file)
            continue
        text = line.decode()
        body = text.removesuffix("\r\n")
        if "\r" not in body:
            yield text
            continue
        *pieces, last = body.split("\r")
        yield from (f"{piece}\r" for piece in pieces)
        if last or body is not text:
            yield last + text[len(body) :]


def _overlong(line: bytes, file: IO[bytes]) -> bytes:
    quotes, size = line.count(b'"'), len(line)
    while (line := file.readline(_LINE_BYTES)) and size:
        quotes += line.count(b'"')
        size += len(line)
        if line.endswith(b"\n"):
            break
    return b'"' * (quotes % 2)


class _Reader:
    """Puts cells and rows together, line by line."""

    def __init__(self, delimiter: str, most: int) -> None:
        self._delimiter = delimiter
        self._most = most
        self._unquoted = re.compile(f"[^{re.escape(delimiter)}\r\n]*")
        self._cells: list[str] = []
        self._open = io.StringIO()  # the quoted cell that is open; of many short lines, a list would take far more
        self._size = 0
        self._line = 0
        self._opened_at = 0
        self._is_open = False
        self._is_overlong = False
        self._fault = ""

    def feed(self, number: int, line: str | bytes) -> Record | None:
        """The row that ends with this line; None while a quote is open."""
        if isinstance(line, bytes):
            return self._overlong(number, line)
        if self._is_open and '"' not in line:
            self._size += len(line)
            if self._size <= self._most:
                self._open.write(line)
            return None
        if not self._is_open:
            ended = line.rstrip("\r\n")
            if '"' not in ended and len(line) <= self._most:
                return Record(number, ended.split(self._delimiter, _MOST_CELLS), is_cut=ended == line)
            self._begin(number)
        self._size += len(line)
        at = 0
        while True:
            at = self._rest_of_quoted(line, at) if self._is_open else self._cell(number, line, at)
            if self._is_open:
                if at == len(line):
                    return None
                continue
            if line[at : at + 1] != self._delimiter:
                return self._ended(number, line)
            at += 1

    def finish(self) -> None:
        """The file is at its end. Raises ManifestRefused where a quote is still open."""
        if self._is_open:
            raise _refused(
                self._opened_at,
                "a quote opens here and never closes, so it is not clear where its row ends",
                'Close it, or write a quote that belongs to the text twice (""). If the file was cut short, export it '
                "again.",
            )

    def _begin(self, number: int) -> None:
        self._cells, self._size, self._line = [], 0, number
        self._is_overlong, self._fault = False, ""

    def _cell(self, number: int, line: str, at: int) -> int:
        """Read the cell that begins at `at`, or open its quote; returns where it ended."""
        if line[at : at + 1] == '"':
            self._is_open, self._opened_at, self._open = True, number, io.StringIO(newline="")
            return at + 1
        plain = self._unquoted.match(line, at)
        text = plain[0] if plain else ""
        if text.lstrip(" \t").startswith('"'):
            self._fault = "A blank stands before the opening quote of a cell."
        if len(self._cells) <= _MOST_CELLS:
            self._cells.append(text)
        return at + len(text)

    def _rest_of_quoted(self, line: str, at: int) -> int:
        rest = _QUOTED_REST.match(line, at)
        end = rest.end() if rest else at
        if self._size <= self._most:
            self._open.write(line[at:end].replace('""', '"'))
        if end == len(line):
            return end
        self._is_open = False
        if len(self._cells) <= _MOST_CELLS:
            self._cells.append(self._open.getvalue())
        end += 1
        while line[end : end + 1] == " ":
            end += 1
        if line[end : end + 1] not in (self._delimiter, "\r", "\n", ""):
            raise _refused(
                self._opened_at,
                f"a quote opens here, and closes before {shown(line[end : end + 12])}, in the middle of a cell",
                'Write a quote that belongs to the text twice (""), or close it where it should.',
            )
        return end

    def _ended(self, number: int, line: str) -> Record:
        if self._size > self._most or self._is_overlong:
            fault = f"The row is larger than the {megabytes(self._most)} that are allowed."
            return Record(self._line, None, fault=fault)
        is_cut = not line.endswith(("\r", "\n"))
        return Record(self._line, self._cells, is_cut, self._fault, has_breaks=number > self._line)

    def _overlong(self, number: int, quotes: bytes) -> Record | None:
        """A line that was too long to be kept: only whether it leaves a quote open is known of it."""
        if not self._is_open:
            self._begin(number)
            self._opened_at = number
        self._is_overlong = True
        self._is_open = self._is_open != bool(quotes)
        return None if self._is_open else self._ended(number, "\n")


def swallowed_line(record: Record, delimiter: str, column_count: int, id_index: int | None) -> int | None:
    """The line of a row that a quoted cell of this one seems to have swallowed: it has as many cells, and an id of the
    same shape. None where there is none, and where ids have no digits to know them by."""
    if record.cells is None or id_index is None or id_index >= len(record.cells):
        return None
    wanted = _shape(record.cells[id_index])
    if not wanted or column_count < 2:
        return None
    line = record.line
    for cell in record.cells:
        lines = cell.split("\n")
        for number, text in enumerate(lines[1:], line + 1):
            parts = text.rstrip("\r").split(delimiter)
            if len(parts) == column_count and _shape(parts[id_index]) == wanted:
                return number
        line += len(lines) - 1
    return None


def _shape(business_id: str) -> str:
    """Equal for ids of one series: `INV-9` for INV-7 and INV-12; a number of three digits or more for its length."""
    text = business_id.strip()
    if text.isdecimal():
        return "9" * len(text) if len(text) >= 3 else ""
    return _DIGITS.sub("9", text) if len(text) <= 200 and any(map(str.isdecimal, text)) else ""


def _refused(line: int, what: str, fix: str) -> ManifestRefused:
    return ManifestRefused(Code.BAD_CSV_ROW, f"Line {line}: {what}.", fix, line=line)
