"""Rows out of JSON: one list, or one object per line, with the place of each; never the whole file at once.

Owns finding where a row starts and ends, its line and character, and turning it into values without
losing digits. Knows no key and no rule. The input has to be valid UTF-8 (`reading` made sure).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import IO, Any, NamedTuple

from batches.manifests.limits import Limits
from batches.manifests.problems import Code, ManifestRefused

_CHUNK_BYTES = 1 << 20
_SPACE = re.compile(rb"[ \t\r\n]*")
_STRUCTURE = re.compile(rb'["{}\[\]]')
_STRING_REST = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[{}\[\]]', re.DOTALL)
_BARE_WORD = re.compile(rb"[^\s,\]\[{}\"]*")
_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))
_VALUES = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[,{\[]', re.DOTALL)
#: Of one row. Each takes a hundred bytes once it is parsed, and two in the file.
MOST_VALUES = 500_000
_LONGEST_NUMBER = 400  # digits; Python's int() refuses beyond 4,300, and no honest value has more


class Number(str):
    """A JSON number as it was written: `7`, `7.0`, `1e3`, `9007199254740993`."""

    __slots__ = ()


JsonValue = bool | Number | str | list["JsonValue"] | dict[str, "JsonValue"] | None


class Span(NamedTuple):
    """One row's place. `raw` is None when the row is larger than `Limits.max_row_bytes`."""

    start: int
    """Byte offset in the file."""
    size: int
    line: int
    character: int
    raw: bytes | None


@dataclass(frozen=True, slots=True)
class Parsed:
    """A row's value, and keys that some object in it had twice."""

    value: JsonValue
    repeated_keys: tuple[str, ...]


class TooDeep(ValueError):
    """Brackets are nested deeper than allowed; `offset` bytes into what was scanned."""

    def __init__(self, offset: int) -> None:
        super().__init__("nested too deep")
        self.offset = offset


class TooManyValues(ValueError):
    """A row holds more values than `MOST_VALUES`."""


def marks(raw: bytes) -> int:
    """At least as many as there are values in lists and objects: the marks of strings count too."""
    return raw.count(b",") + raw.count(b"[") + raw.count(b"{")


def parse(raw: bytes) -> Parsed:
    """Turn one row into values; numbers stay text. Raises json.JSONDecodeError, TooManyValues.

    Call it only for a row whose depth is bounded (`list_rows`, or `check_depth` first).
    """
    if marks(raw) > MOST_VALUES and sum(token[0] in b",[{" for token in _VALUES.finditer(raw)) > MOST_VALUES:
        raise TooManyValues
    repeated: list[str] = []

    def as_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        row = dict(pairs)
        if len(row) < len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    repeated.append(key)
                seen.add(key)
        return row

    value = json.loads(
        raw.decode(),
        object_pairs_hook=as_object,
        parse_int=Number,
        parse_float=Number,
        parse_constant=Number,
    )
    return Parsed(value, tuple(repeated))


def plain(value: JsonValue) -> Any:
    """`value` with numbers as int or float; those that neither can hold digit for digit stay text."""
    if isinstance(value, Number):
        return _number(value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def as_written(value: JsonValue) -> Any:
    """`value` as evidence: a number that would be spelled otherwise as int or float (1e3, 1.10) stays text."""
    if isinstance(value, Number):
        number = _number(value)
        return number if str(number) == value else str(value)
    if isinstance(value, list):
        return [as_written(item) for item in value]
    if isinstance(value, dict):
        return {key: as_written(item) for key, item in value.items()}
    return value


def list_rows(file: IO[bytes], start: int, first_line: int, limits: Limits) -> Iterator[Span]:
    """The elements of the JSON list that begins at `start`, on line `first_line`.

    Raises ManifestRefused with line and character where the list itself is broken.
    """
    return _ListReader(file, start, first_line, limits).rows()


def line_rows(file: IO[bytes], start: int, first_line: int, limits: Limits) -> Iterator[Span]:
    """The lines of JSONL from `start` on, blank ones left out. Only `\\n` ends a line (U+2028 does not)."""
    offset, number, most = start, first_line - 1, limits.max_row_bytes + 1
    while True:
        file.seek(offset)
        line = file.readline(most)
        if not line:
            return
        number += 1
        too_long = len(line) == most and not line.endswith(b"\n")
        size = len(line) + (_rest_of_line(file) if too_long else 0)
        if too_long:
            yield Span(offset, size, number, 1, None)
        elif stripped := line.strip(b" \t\r\n"):
            yield Span(offset, size, number, 1, stripped)
        else:  # skip all blank lines at once: there may be millions
            offset, newlines = first_mark(file, offset)
            number += newlines - 1
            continue
        offset += size


def first_mark(file: IO[bytes], start: int) -> tuple[int, int]:
    """Where the first byte from `start` on that is no white space stands (or the end), and newlines passed."""
    newlines, size = 0, 256
    file.seek(start)
    while chunk := file.read(size):
        rest = len(chunk.lstrip(b" \t\r\n"))
        newlines += chunk[: len(chunk) - rest].count(b"\n")
        start += len(chunk) - rest
        if rest:
            break
        size = min(2 * size, _CHUNK_BYTES)
    return start, newlines


def check_depth(raw: bytes, max_depth: int) -> None:
    """Raise TooDeep if brackets outside strings nest deeper than `max_depth`."""
    if raw.count(b"{") + raw.count(b"[") <= max_depth:
        return  # as good as every row: there are not even so many
    depth = 0
    for token in _TOKEN.finditer(raw):
        mark = token[0]
        if mark in b"{[":
            depth += 1
            if depth > max_depth:
                raise TooDeep(token.start())
        elif mark in b"}]":
            depth = max(depth - 1, 0)


def is_unclosed(raw: bytes) -> bool:
    """Whether `raw` ends outside of a string with brackets still open."""
    scan = _Scan(max_depth=len(raw) + 1)
    scan.feed(raw, 0)
    return not scan.done and not scan.in_string


def _rest_of_line(file: IO[bytes]) -> int:
    size = 0
    while chunk := file.readline(_CHUNK_BYTES):
        size += len(chunk)
        if chunk.endswith(b"\n"):
            break
    return size


def _number(value: Number) -> int | float | str:
    if len(value) > _LONGEST_NUMBER:
        return str(value)
    try:
        return int(value)
    except ValueError:
        number = float(value)
    is_kept = math.isfinite(number) and Decimal(repr(number)) == Decimal(value)
    return number if is_kept else str(value)


@dataclass(slots=True)
class _Scan:
    """Finds where one JSON value ends, fed with chunks that may cut it anywhere."""

    max_depth: int
    depth: int = 0
    in_string: bool = False
    escaped: bool = False
    bare: bool = False
    done: bool = False

    def feed(self, chunk: bytes, position: int) -> int:
        """Go on from `position`; returns where the value or the chunk ended. Raises TooDeep."""
        while position < len(chunk) and not self.done:
            if self.escaped:
                self.escaped = False
                position += 1
            elif self.in_string:
                position = self._in_string(chunk, position)
            elif self.bare:
                position = self._in_bare_word(chunk, position)
            else:
                position = self._outside(chunk, position)
        return position

    def _outside(self, chunk: bytes, position: int) -> int:
        if self.depth == 0 and chunk[position : position + 1] not in (b'"', b"{", b"["):
            self.bare = True
            return position
        found = _STRUCTURE.search(chunk, position)
        if found is None:
            return len(chunk)
        mark = found[0]
        if mark == b'"':
            self.in_string = True
        elif mark in b"{[":
            self.depth += 1
            if self.depth > self.max_depth:
                raise TooDeep(found.start())
        else:
            self.depth -= 1
            self.done = self.depth == 0
        return found.end()

    def _in_string(self, chunk: bytes, position: int) -> int:
        rest = _STRING_REST.match(chunk, position)
        end = rest.end() if rest else position
        if end == len(chunk):
            return end
        if chunk[end : end + 1] == b'"':
            self.in_string = False
            self.done = self.depth == 0
        else:
            self.escaped = True  # the chunk was cut behind a backslash
        return end + 1

    def _in_bare_word(self, chunk: bytes, position: int) -> int:
        word = _BARE_WORD.match(chunk, position)
        end = word.end() if word else position
        self.done = end < len(chunk)
        return end


class _ListReader:
    """Walks a JSON list chunk by chunk and keeps count of lines and characters."""

    def __init__(self, file: IO[bytes], start: int, first_line: int, limits: Limits) -> None:
        self._file = file
        self._limits = limits
        self._next_read = start
        self._chunk = b""
        self._at = 0
        self._line = first_line
        self._character = 1

    def rows(self) -> Iterator[Span]:
        self._peek()
        self._step(1)  # the bracket that the caller saw
        mark = self._peek()
        if mark == b"]":
            self._step(1)
        while mark != b"]":
            yield self._row()
            mark = self._peek()
            if mark == b",":
                self._step(1)
                if self._peek() == b"]":
                    raise self._refusal("There is a comma before the closing bracket.", "Remove that comma.")
            elif mark == b"]":
                self._step(1)
            elif mark == b"":
                raise self._cut_short()
            else:
                raise self._refusal("Between two rows a comma is missing.", "Put a comma there.")
        if self._peek():
            fix = "Put all rows into one list, or write one object per line without brackets (JSONL)."
            raise self._refusal("There is more text after the end of the list.", fix)

    def _row(self) -> Span:
        """The value at the present place; the place afterwards is right behind it."""
        mark = self._peek()
        if mark == b"":
            raise self._cut_short()
        if mark in b",]}:":
            raise self._refusal("A row is missing here.", "Write an object, or remove the spare comma.")
        start, line, character = self._offset(), self._line, self._character
        parts: list[bytes] = []
        size = 0
        scan = _Scan(self._limits.max_depth - 1)  # the list itself is the first level
        while not scan.done and self._fill():
            try:
                end = scan.feed(self._chunk, self._at)
            except TooDeep as deep:
                self._step(deep.offset - self._at)
                raise self._too_deep() from deep
            if size <= self._limits.max_row_bytes:
                parts.append(self._chunk[self._at : end])
            size += end - self._at
            self._step(end - self._at)
        if not scan.done:
            raise self._cut_short(line)
        fits = size <= self._limits.max_row_bytes
        return Span(start, size, line, character, b"".join(parts) if fits else None)

    def _peek(self) -> bytes:
        """The next byte that is no white space, left in place; empty at the end of the file."""
        while self._fill():
            blank = _SPACE.match(self._chunk, self._at)
            self._step((blank.end() if blank else self._at) - self._at)
            if self._at < len(self._chunk):
                return self._chunk[self._at : self._at + 1]
        return b""

    def _fill(self) -> bool:
        """Have at least one byte ready; False at the end of the file."""
        if self._at == len(self._chunk):
            self._file.seek(self._next_read)
            self._chunk = self._file.read(_CHUNK_BYTES)
            self._next_read += len(self._chunk)
            self._at = 0
        return bool(self._chunk)

    def _step(self, count: int) -> None:
        passed = self._chunk[self._at : self._at + count]
        newlines = passed.count(b"\n")
        if newlines:
            self._line += newlines
            self._character = 1
            passed = passed[passed.rfind(b"\n") + 1 :]
        self._character += len(passed.translate(None, _CONTINUATION_BYTES))
        self._at += count

    def _offset(self) -> int:
        return self._next_read - len(self._chunk) + self._at

    def _refusal(self, what: str, fix: str) -> ManifestRefused:
        where = f"Line {self._line}, character {self._character}: "
        return ManifestRefused(Code.BAD_JSON, where + what, fix, line=self._line, character=self._character)

    def _cut_short(self, row_line: int | None = None) -> ManifestRefused:
        inside = f" inside the row that starts on line {row_line}" if row_line else ""
        return self._refusal(
            f"The file ends{inside} before its list is closed.",
            "It was probably cut short: export or upload it again. A missing quote can look the same.",
        )

    def _too_deep(self) -> ManifestRefused:
        refusal = self._refusal(
            f"Brackets are nested more than {self._limits.max_depth} deep.",
            'A manifest is a flat list of rows such as {"id": "A-1", "html": "a-1.html"}.',
        )
        refusal.code = Code.TOO_DEEP
        return refusal
