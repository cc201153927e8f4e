"""What can be wrong with an upload, and how it is told: codes, groups of findings, and the refusal.

Owns the words and the shape of the validation answer. Never reads a file and never decides a rule.
"""

from __future__ import annotations

import unicodedata
from array import array
from collections.abc import Iterable, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any


class Code(StrEnum):
    """Names of problems; stable, shown in the API. `problems.Code.MISSING_ID == "missing_id"`."""

    # rows and their keys
    BAD_JSON_LINE = "bad_json_line"
    WRONG_TYPE = "wrong_type"
    DUPLICATE_KEY = "duplicate_key"
    UNKNOWN_COLUMN = "unknown_column"
    MISSING_ID = "missing_id"
    BAD_ID = "bad_id"
    DUPLICATE_ID = "duplicate_id"
    DUPLICATE_ID_CASEFOLD = "duplicate_id_casefold"
    MISSING_FIELD = "missing_field"
    BAD_FIELD = "bad_field"
    UNKNOWN_TEMPLATE = "unknown_template"
    TEMPLATE_NOT_PUBLISHED = "template_not_published"
    SOURCE_NOT_TAKEN = "source_not_taken"
    REMOTE_ASSET = "remote_asset"
    LOCAL_ASSET = "local_asset"
    MISSING_COLUMN = "missing_column"
    COLUMN_CONFLICT = "column_conflict"
    BAD_CSV_ROW = "bad_csv_row"
    ID_LOST_ZEROS_SUSPECTED = "id_lost_zeros_suspected"
    SPREADSHEET_DAMAGE = "spreadsheet_damage"
    SEVERAL_SOURCES = "several_sources"
    BAD_OPTION = "bad_option"
    BAD_FILENAME = "bad_filename"
    FILENAME_COLLISION = "filename_collision"
    BAD_URL = "bad_url"
    BAD_TEXT = "bad_text"
    # a row's document
    MISSING_FILE = "missing_file"
    UNREFERENCED_FILE = "unreferenced_file"
    FILE_TOO_LARGE = "file_too_large"
    EMPTY_HTML = "empty_html"
    NOT_HTML = "not_html"
    NOT_DECODABLE = "not_decodable"
    UNRESOLVED_PLACEHOLDER = "unresolved_placeholder"
    ID_CONTENT_CONFLICT = "id_content_conflict"
    DOCUMENT_FINAL = "document_final"
    # the upload as a whole
    EMPTY_FILE = "empty_file"
    WRONG_FILE_TYPE = "wrong_file_type"
    NOT_UTF8 = "not_utf8"
    BAD_JSON = "bad_json"
    TOO_DEEP = "too_deep"
    TOO_MANY_ROWS = "too_many_rows"
    NO_MANIFEST = "no_manifest"
    SEVERAL_MANIFESTS = "several_manifests"
    ARCHIVE_UNSAFE = "archive_unsafe"
    ARCHIVE_DAMAGED = "archive_damaged"
    ARCHIVE_ENCRYPTED = "archive_encrypted"
    UPLOAD_TOO_LARGE = "upload_too_large"
    NOT_READABLE = "not_readable"
    CHANGED_WHILE_READING = "changed_while_reading"


@dataclass(frozen=True, slots=True)
class Place:
    """One row that has a problem."""

    position: int
    """0-based place of the row in the manifest."""
    line: int | None
    """1-based line of the manifest file on which the row starts (or the fault stands)."""
    character: int | None
    """1-based character in that line; None for JSONL, where the line says enough."""
    business_id: str | None
    message: str
    fix: str

    def as_dict(self) -> dict[str, Any]:
        return {
            "row": self.position,
            "line": self.line,
            "character": self.character,
            "id": self.business_id,
            "message": self.message,
            "fix": self.fix,
        }


@dataclass(frozen=True, slots=True)
class Problem:
    """One kind of problem (code and column), with every row that has it."""

    code: Code
    column: str | None
    """The key of the row that is meant (`html`, `options.scale`), None for the row or the upload."""
    message: str
    fix: str
    count: int
    rows: tuple[int, ...]
    """0-based positions of all rows concerned, ascending; empty for a problem of the upload. Bounded: where an upload
    has millions of problems, the later ones are counted only."""
    places: tuple[Place, ...]
    """The first `Limits.max_places` of them with line and own sentences; `message` and `fix` are the first's."""
    files: tuple[str, ...] = ()
    """Names of files concerned, the first `Limits.max_places`."""

    def as_dict(self) -> dict[str, Any]:
        """One entry of `errors` or `warnings` of the validation answer (README, "The answer")."""
        answer: dict[str, Any] = {
            "code": self.code.value,
            "column": self.column,
            "rows": list(self.rows),
            "count": self.count,
            "message": self.message,
            "fix": self.fix,
            "places": [place.as_dict() for place in self.places],
        }
        if self.files:
            answer["files"] = list(self.files)
        return answer


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A row that is not taken, and the first thing that is wrong with it."""

    position: int
    line: int | None
    business_id: str | None
    code: Code
    column: str | None
    message: str
    fix: str
    others: int = 0
    """How many more errors the row has."""
    start: int | None = None
    """Byte at which the row starts in what its reader reads, where that is known."""
    size: int = 0

    def as_dict(self) -> dict[str, Any]:
        """One entry of a batch's list of rows that were left out, JSON values."""
        return {
            "row": self.position,
            "line": self.line,
            "id": self.business_id,
            "code": self.code.value,
            "column": self.column,
            "message": self.message,
            "fix": self.fix,
            "others": self.others,
        }


class Unfit(Exception):
    """One value of a row, or one file, cannot be used. `message` and `fix` are for the uploader."""

    def __init__(self, code: Code, message: str, fix: str) -> None:
        super().__init__(f"{message} {fix}")
        self.code = code
        self.message = message
        self.fix = fix


class ManifestRefused(Exception):
    """The upload as a whole cannot be read; nothing of it is used.

    `message` says what is wrong and `fix` what to do, both in whole sentences for the person who
    uploaded it; `line` and `character` (1-based) where a place in the manifest is known.
    """

    def __init__(
        self,
        code: Code,
        message: str,
        fix: str,
        *,
        line: int | None = None,
        character: int | None = None,
        files: Iterable[str] = (),
    ) -> None:
        super().__init__(f"{message} {fix}")
        self.code = code
        self.message = message
        self.fix = fix
        self.line = line
        self.character = character
        self.files = tuple(files)

    def report(self) -> dict[str, Any]:
        """The validation answer (same shape as `Manifest.report()`), with this as its only error."""
        problem = Problem(self.code, None, self.message, self.fix, 1, (), (), self.files).as_dict()
        problem |= {"line": self.line, "character": self.character}
        return {
            "manifest_sha256": None,
            "upload_sha256": None,
            "rows": 0,
            "encoding": None,
            "format": None,
            "container": None,
            "delimiter": None,
            "sheet": None,
            "columns": [],
            "summary": {"new": 0, "unchanged": 0, "changed": 0, "invalid": 0},
            "errors": [problem],
            "warnings": [],
        }


def too_many_rows(most: int, line: int) -> ManifestRefused:
    """The refusal of a manifest whose row on `line` is one more than may be."""
    message = f"The manifest has more than {most:,} rows."
    return ManifestRefused(Code.TOO_MANY_ROWS, message, "Split it into several uploads.", line=line)


_MOST_GROUPS = 200
#: Positions that the groups list together; beyond, rows are only counted. A hundred thousand rows may each have
#: a hundred odd keys.
_MOST_LISTED = 3_000_000


@dataclass(slots=True)
class _Group:
    code: Code
    column: str | None
    fix: str
    message: str = ""
    count: int = 0
    rows: array[int] = field(default_factory=lambda: array("I"))
    """Mostly ascending; a row may stand there twice."""
    places: list[Place] = field(default_factory=list)
    files: tuple[str, ...] = ()

    def problem(self) -> Problem:
        message = self.message if self.count == 1 else f"{self.message} (And {self.count - 1:,} more.)"
        return Problem(
            self.code,
            self.column,
            message,
            self.fix,
            self.count,
            tuple(sorted(set(self.rows))),
            tuple(self.places),
            self.files,
        )


class Findings:
    """Collects problems while a manifest is read, grouped by code and column, bounded in memory."""

    def __init__(self, max_places: int) -> None:
        self._max_places = max_places
        self._errors: dict[tuple[Code, str | None], _Group] = {}
        self._warnings: dict[tuple[Code, str | None], _Group] = {}
        self._listed = 0
        self._left_out: dict[int, LeftOut] = {}

    @property
    def invalid_rows(self) -> Set[int]:
        """Positions of the rows that have at least one error."""
        return self._left_out.keys()

    def left_out(self) -> tuple[LeftOut, ...]:
        """The rows that have at least one error, each with the first of it."""
        return tuple(self._left_out[position] for position in sorted(self._left_out))

    def row_error(
        self,
        code: Code,
        column: str | None,
        place: Place,
        *,
        related: Iterable[int] = (),
        start: int | None = None,
        size: int = 0,
    ) -> None:
        """Record an error of one row; `related` are positions of other rows that share the blame. `start` and `size`
        say where its reader finds the row again."""
        known = self._left_out.get(place.position)
        if known is None:
            blamed = LeftOut(
                place.position, place.line, place.business_id, code, column, place.message, place.fix, 0, start, size
            )
        else:
            blamed = replace(known, others=known.others + 1)
        self._left_out[place.position] = blamed
        for position in related:
            if position not in self._left_out:
                self._left_out[position] = LeftOut(position, None, None, code, column, place.message, place.fix)
        self._add(self._errors, code, column, place, related)

    def locate(self, position: int, line: int, business_id: str, start: int, size: int) -> None:
        """Say where a row stands that was found good before another row blamed it."""
        known = self._left_out.get(position)
        if known is not None and known.line is None:
            self._left_out[position] = replace(known, line=line, business_id=business_id, start=start, size=size)

    def row_warning(self, code: Code, column: str | None, place: Place, *, related: Iterable[int] = ()) -> None:
        self._add(self._warnings, code, column, place, related)

    def upload_error(self, code: Code, message: str, fix: str, files: Iterable[str] = ()) -> None:
        """Record an error that belongs to no row."""
        self._errors[(code, None)] = self._upload_group(code, message, fix, files)

    def upload_warning(
        self, code: Code, message: str, fix: str, files: Iterable[str] = (), *, column: str | None = None
    ) -> None:
        """Record a warning of the upload, or of a column in all its rows."""
        self._warnings[(code, column)] = self._upload_group(code, message, fix, files, column)

    def errors(self) -> tuple[Problem, ...]:
        return self._problems(self._errors)

    def warnings(self) -> tuple[Problem, ...]:
        return self._problems(self._warnings)

    def _add(
        self,
        groups: dict[tuple[Code, str | None], _Group],
        code: Code,
        column: str | None,
        place: Place,
        related: Iterable[int],
    ) -> None:
        if len(groups) >= _MOST_GROUPS and (code, column) not in groups:
            column = None  # every row has a key of its own making: one group for them all
        group = groups.setdefault((code, column), _Group(code, column, place.fix, place.message))
        group.count += 1
        if self._listed < _MOST_LISTED:
            before = len(group.rows)
            group.rows.extend((*related, place.position))
            self._listed += len(group.rows) - before
        if len(group.places) < self._max_places:
            group.places.append(place)

    def _upload_group(
        self, code: Code, message: str, fix: str, files: Iterable[str], column: str | None = None
    ) -> _Group:
        return _Group(code, column, fix, message, count=1, files=tuple(files)[: self._max_places])

    @staticmethod
    def _problems(groups: dict[tuple[Code, str | None], _Group]) -> tuple[Problem, ...]:
        ordered = sorted(groups.values(), key=lambda group: min(group.rows, default=-1))
        return tuple(group.problem() for group in ordered)


def shown(value: str, limit: int = 80) -> str:
    """`value` in quotes, safe to print: cut to `limit` characters, invisible ones spelled out.

    Control, format (bidi, zero-width) and surrogate characters become `\\u200b`; markup is left to
    whoever renders the text.
    """
    cut = value if len(value) <= limit else value[: limit - 1] + "…"
    return '"' + "".join(map(_visible, cut)) + '"'


def listed(names: list[str], limit: int = 5) -> str:
    """`"a", "b" and 7 more`: the first names of a list, for a sentence."""
    first = [shown(name) for name in names[:limit]]
    if len(names) > limit:
        return f"{', '.join(first)} and {len(names) - limit:,} more"
    if len(first) > 1:
        return f"{', '.join(first[:-1])} and {first[-1]}"
    return first[0] if first else "nothing"


def megabytes(size: int) -> str:
    """A size for a person: `840 bytes`, `12.5 kB`, `30.0 MB`."""
    if size < 1_000:
        return f"{size} bytes"
    if size < 1_000_000:
        return f"{size / 1_000:.1f} kB"
    return f"{size / 1_000_000:,.1f} MB"


def _visible(character: str) -> str:
    if unicodedata.category(character) in {"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"}:
        point = ord(character)
        return f"\\u{point:04x}" if point <= 0xFFFF else f"\\U{point:08x}"
    return character
