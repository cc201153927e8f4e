"""The columns of a table: their names, what each becomes in a row, and making such a row. Pure.

Owns the header's rules, the reserved names and their synonyms, and the grammar of targets. Reads no file and knows no
rule about a row's values, which stay the text that the cells hold.

A target is what a column becomes: `id`, `html`, `html_content`, `markdown`, `url`, `filename`, `template`,
`template_version`, `language`, `group`; `options`, `meta` or `data` (a JSON object in a cell); `option.format`,
`option.margin.top`, `meta.note`, `data.customer.name`, `data.lines[0].sku`; "" for nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from batches.manifests import jsonrows, keys, options
from batches.manifests.jsonrows import JsonValue, Number
from batches.manifests.problems import Code, ManifestRefused, Unfit, listed, shown

MOST_COLUMNS = keys.MOST_KEYS
PLAIN_TARGETS = (
    "id",
    "html",
    "html_content",
    "markdown",
    "url",
    "filename",
    "template",
    "template_version",
    "language",
    "group",
)
OBJECT_TARGETS = ("options", "meta", "data")
_SPELLINGS = {name.replace("_", ""): name for name in (*PLAIN_TARGETS, *OBJECT_TARGETS)}
#: Taken for a reserved name where no column has that name itself; the first of these wins. Shown, never silent. Of the
#: document fewer than `keys.py` would suggest to a person.
_SYNONYMS = {"id": keys.ID_SYNONYMS, "html": ("path", "file", "htmlfile")}
_PREFIXES = {"data": "data", "meta": "meta", "option": "option", "options": "option"}
_LONGEST_NAME = 200
_DEEPEST = 12
_MOST_ENTRIES = 1_000
_STEP = re.compile(r"([^.\[\]]+)((?:\[\d{1,4}\])*)(?:\.|\Z)")
_INDEX = re.compile(r"\[(\d+)\]")
_WHOLE = re.compile(r"[1-9]\d{0,8}|0", re.ASCII)
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,17})(?:\.\d{1,18})?", re.ASCII)
_JSON_DEPTH = 32
_INVISIBLE = "\ufeff\u200b\u200c\u200d\u200e\u200f\u2060\u00ad"

Path = tuple[str | int, ...]


def cleaned(names: Iterable[str]) -> tuple[str, ...]:
    """The names of a header: in NFC, without white space and invisible characters around, line breaks as blanks."""
    return tuple(unicodedata.normalize("NFC", " ".join(_stripped(name).split())) for name in names)


def check_names(names: Sequence[str], line: int) -> None:
    """Raise ManifestRefused where the header on `line` has too many names, one that is too long, or one twice."""
    if len(names) > MOST_COLUMNS:
        message = f"The header has {len(names):,} columns; {MOST_COLUMNS} are allowed."
        raise ManifestRefused(Code.BAD_CSV_ROW, message, "Leave out the columns that no document needs.", line=line)
    long = next((name for name in names if len(name) > _LONGEST_NAME), None)
    if long is not None:
        message = f"The name of a column has {len(long):,} characters: {shown(long, 40)}."
        fix = f"Shorten it to {_LONGEST_NAME}. The first row of a table has to name its columns."
        raise ManifestRefused(Code.BAD_CSV_ROW, message, fix, line=line)
    seen: dict[str, int] = {}
    for number, name in enumerate(names, 1):
        if any(unicodedata.category(character) in {"Cc", "Cs"} for character in name):
            message = f"The name of column {number} holds a control character: {shown(name, 40)}."
            raise ManifestRefused(Code.BAD_TEXT, message, "Remove that character.", line=line)
        if name and not name.startswith(keys.REMARK) and seen.setdefault(name, number) != number:
            message = f"The header names {shown(name, 60)} twice (columns {seen[name]} and {number})."
            raise ManifestRefused(Code.DUPLICATE_KEY, message, "Rename or remove one of them.", line=line)


def header_sha256(names: Sequence[str]) -> str:
    """Names a header, so that what was chosen for it once can be offered again."""
    return hashlib.sha256(json.dumps(list(names)).encode()).hexdigest()


def proposed(names: Sequence[str], *, fields: Iterable[str] = (), has_template: bool = False) -> dict[str, str]:
    """What each column would become by its name alone. `fields` are paths that the chosen template reads.

    A column that is no reserved name is data where there is a template (one was chosen, or a column names it), else
    nothing. No two columns get the same target.
    """
    mapping = dict.fromkeys((name for name in names if name and not name.startswith(keys.REMARK)), "")
    taken = _Taken()
    for is_exact in (True, False):
        for name in mapping:
            target = _reserved(name, is_exact=is_exact)
            if target and not mapping[name] and taken.take(target):
                mapping[name] = target
    for target, spellings in _SYNONYMS.items():
        if target == "html" and any(each in taken for each in (*keys.SOURCES, "template")):
            continue
        found = {_spelling(name): name for name in reversed(mapping) if not mapping[name]}
        meant = next((found[each] for each in spellings if each in found), None)
        if meant is not None and taken.take(target):
            mapping[meant] = target
    if has_template or "template" in taken:
        by_name = {path: path for path in fields}
        by_spelling = {_spelling(path): path for path in by_name}
        for name in mapping:
            if not mapping[name] and name in by_name and taken.take(f"data.{name}"):
                mapping[name] = f"data.{name}"
        for name in mapping:
            for path in (by_spelling.get(_spelling(name), name), name):
                if not mapping[name] and taken.take(f"data.{path}"):
                    mapping[name] = f"data.{path}"
    return mapping


class _Taken:
    """Targets that go together: none is another one, or holds it."""

    def __init__(self) -> None:
        self._paths: set[Path] = set()
        self._heads: set[Path] = set()

    def __contains__(self, target: str) -> bool:
        return (target,) in self._paths

    def take(self, target: str) -> bool:
        """Whether the target is one, and was still free together with the others."""
        try:
            path = _path(target)
        except Unfit:
            return False
        heads = {path[:end] for end in range(1, len(path))}
        if path in self._paths or path in self._heads or heads & self._paths:
            return False
        self._paths.add(path)
        self._heads |= heads
        return True


def _reserved(name: str, *, is_exact: bool) -> str:
    """The target that a name spells out, with its prefix or as a reserved name; "" for none."""
    prefix, dot, rest = name.partition(".")
    head = _PREFIXES.get(prefix if is_exact else prefix.strip().lower(), "")
    if dot and head and _is_target(f"{head}.{rest}"):
        return f"{head}.{rest}"
    if is_exact:
        return name if name in PLAIN_TARGETS or name in OBJECT_TARGETS else ""
    return _SPELLINGS.get(_spelling(name), "")


def synonyms(mapping: Mapping[str, str]) -> dict[str, str]:
    """Those columns of a proposal that are taken for a reserved name although they have another."""
    plain = {*PLAIN_TARGETS, *OBJECT_TARGETS}
    return {name: target for name, target in mapping.items() if target in plain and name != target}


def unmapped(fields: Mapping[str, tuple[int, ...]], mapping: Mapping[str, str]) -> dict[str, tuple[int, ...]]:
    """The template's fields, with its lines, that no column gives."""
    given = {_plain_path(target[5:]) for target in mapping.values() if target.startswith("data.")}
    given |= {name for name in mapping.values() if name in {"id", "language", "group"}} | {"id"}
    if "data" in mapping.values():
        return {}
    return {path: lines for path, lines in fields.items() if not _is_given(_plain_path(path), given)}


def _is_given(path: str, given: set[str]) -> bool:
    parts = path.split(".")
    heads = {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
    return bool(heads & given) or any(each.startswith(f"{path}.") for each in given)


def _plain_path(path: str) -> str:
    return re.sub(r"\[[^\]]*\]", "", path)


@dataclass(frozen=True)
class Columns:
    """Which column of a table becomes what; the mapping holds, which `checked` made sure of."""

    names: tuple[str, ...]
    """As in the header, in order, cleaned; "" for a column without a name."""
    mapping: Mapping[str, str]
    """Of every column with a name that is read at all."""

    @cached_property
    def id_index(self) -> int | None:
        return next((index for index, name in enumerate(self.names) if self.mapping.get(name) == "id"), None)

    @cached_property
    def _paths(self) -> tuple[tuple[str, Path], ...]:
        return tuple((name, _path(target)) for name, target in self.mapping.items() if target)

    def row(self, cells: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """The row that the cells make. An empty cell gives nothing, so that a template misses what it needs."""
        row: dict[str, Any] = {}
        for name, path in self._paths:
            cell = cells.get(name)
            if isinstance(cell, str) and cell:
                _put(row, path, _value(path, cell))
        return {key: _without_gaps(value) for key, value in row.items()}


def checked(names: Sequence[str], mapping: Mapping[str, str], line: int) -> Columns:
    """`mapping` for these columns, where it holds. Raises ManifestRefused: an unknown target, two columns for one
    target, a column that would be a value and hold others, or none for the id."""
    used = {name: mapping.get(name, "") for name in names if name and not name.startswith(keys.REMARK)}
    by_path: dict[Path, str] = {}
    for name, target in used.items():
        if not target:
            continue
        try:
            path = _path(target)
        except Unfit as reason:
            message = f"The column {shown(name, 60)} cannot become {shown(target, 60)}: {reason.message}"
            raise ManifestRefused(Code.COLUMN_CONFLICT, message, reason.fix, line=line) from reason
        other = by_path.setdefault(path, name)
        if other != name:
            message = f"The columns {shown(other, 60)} and {shown(name, 60)} would both become {shown(target, 60)}."
            raise ManifestRefused(Code.COLUMN_CONFLICT, message, "Map one of them to something else.", line=line)
    for path, name in by_path.items():
        above = next((by_path[path[:end]] for end in range(1, len(path)) if path[:end] in by_path), None)
        if above is not None:
            message = f"The column {shown(above, 60)} would be a value, and hold the column {shown(name, 60)} too."
            raise ManifestRefused(Code.COLUMN_CONFLICT, message, "Map one of them to something else.", line=line)
    kinds = {(path[:at], isinstance(path[at], int)) for path in by_path for at in range(1, len(path))}
    if any((head, True) in kinds and (head, False) in kinds for head, _ in kinds):
        message = "Some columns make a list of what other columns make an object of."
        raise ManifestRefused(Code.COLUMN_CONFLICT, message, "Number all of them, or none.", line=line)
    if ("id",) not in by_path:
        raise _no_id(names, line)
    return Columns(tuple(names), used)


def _no_id(names: Sequence[str], line: int) -> ManifestRefused:
    named = [name for name in names if name]
    count = f"{len(named)} column{'' if len(named) == 1 else 's'} found: {listed(named)}"
    message = f"No column becomes the id of the documents. {count}."
    fix = "Name one of them id, or choose which one it is. The first row of a table has to name its columns."
    return ManifestRefused(Code.MISSING_COLUMN, message, fix, line=line)


def _is_target(target: str) -> bool:
    try:
        _path(target)
    except Unfit:
        return False
    return True


def _path(target: str) -> Path:
    """Where in a row a target stands. Raises Unfit for what is none."""
    if target in PLAIN_TARGETS or target in OBJECT_TARGETS:
        return (target,)
    prefix, dot, rest = target.partition(".")
    if not dot or not rest.strip() or prefix not in {"data", "meta", "option"}:
        raise Unfit(Code.COLUMN_CONFLICT, "there is no such target.", _FIX_TARGET)
    if prefix == "meta":
        return ("meta", rest)
    steps = _steps(rest)
    return ("options" if prefix == "option" else "data", *steps)


def _steps(path: str) -> Path:
    steps: list[str | int] = []
    at = 0
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None or not step[1].strip():
            raise Unfit(Code.COLUMN_CONFLICT, "its path has a gap or a bracket too many.", _FIX_TARGET)
        steps.append(step[1].strip())
        steps.extend(int(index) for index in _INDEX.findall(step[2]))
        at = step.end()
    is_long = len(steps) > _DEEPEST or any(isinstance(each, int) and each >= _MOST_ENTRIES for each in steps)
    if path.endswith(".") or is_long:
        raise Unfit(Code.COLUMN_CONFLICT, "its path ends early, or is too deep or too long.", _FIX_TARGET)
    return tuple(steps)


def _put(row: dict[str, Any], path: Path, value: JsonValue) -> None:
    """Put a value at its place; entries of a list are kept by number until the row is whole."""
    place: dict[Any, Any] = row
    for at, step in enumerate(path[:-1]):
        place = place.setdefault(step, _Entries() if isinstance(path[at + 1], int) else {})
    place[path[-1]] = value


class _Entries(dict[int, Any]):
    """A list in the making."""


def _without_gaps(value: Any) -> Any:
    if isinstance(value, _Entries):
        return [_without_gaps(value[number]) for number in sorted(value)]
    if isinstance(value, dict):
        return {key: _without_gaps(item) for key, item in value.items()}
    return value


def _value(path: Path, cell: str) -> JsonValue:
    """The cell's text; a JSON object or list where one is meant, and what an option has to be."""
    head, name = path[0], path[1] if len(path) > 1 else None
    if head == "template_version":
        text = cell.strip()
        return Number(text) if _WHOLE.fullmatch(text) else cell
    if head == "options" and name is not None:
        return _option(name, cell.strip())
    if name is None and head in OBJECT_TARGETS:
        found = _json(cell)
        return found if isinstance(found, dict) else cell
    if head == "data":
        found = _json(cell)
        return cell if found is None else found
    return cell


def _option(name: str | int, text: str) -> JsonValue:
    if name in options.SWITCHES and text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if name in options.NUMBERS and _NUMBER.fullmatch(text):
        return Number(text)
    found = _json(text) if name == "margin" else None
    return text if found is None else found


def _json(cell: str) -> JsonValue:
    """The object or list that a whole cell spells out, None for text. A list that holds bare numbers, true, false or
    null is text: `[2026]` in a cell is somebody's bracket."""
    text = cell.strip()
    if text[:1] + text[-1:] not in {"{}", "[]"}:
        return None
    try:
        raw = text.encode()
        jsonrows.check_depth(raw, _JSON_DEPTH)
        parsed = jsonrows.parse(raw)
    except (ValueError, RecursionError):
        return None
    value = parsed.value
    if parsed.repeated_keys or (isinstance(value, list) and not all(_is_entry(item) for item in value)):
        return None
    return value


def _is_entry(item: JsonValue) -> bool:
    return isinstance(item, dict | list) or (isinstance(item, str) and not isinstance(item, Number))


def _spelling(name: str) -> str:
    return "".join(character for character in name[:_LONGEST_NAME].casefold() if character.isalnum())


def _stripped(name: str) -> str:
    text, before = name, ""
    while text != before:
        before, text = text, text.strip().strip(_INVISIBLE)
    return text


_FIX_TARGET = "Choose id, html, filename, template, data.…, meta.… or option.…, or nothing."
