"""A first look at an upload: what it is, what its columns would become, and what a person has to be asked.

Reads the first bytes only, however large the upload, and judges no row. Nothing that it guesses is ever taken by
`read`: a guess is a question.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from typing import IO, Any

from batches.manifests import columns, decoding, evidence, jsonrows, recognising, sniffing, source
from batches.manifests.choices import NO_CHOICES, Choices
from batches.manifests.decoding import Candidate
from batches.manifests.jsonrows import JsonValue
from batches.manifests.limits import Limits
from batches.manifests.problems import ManifestRefused
from batches.manifests.recognising import Content, Format
from batches.manifests.source import Container, ManifestSource, Opened
from batches.manifests.tables import Table
from batches.manifests.templates import NoTemplates, Templates

SAMPLE_ROWS = 5
_HEAD_BYTES = 512_000
_VALUE_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class Look:
    """What the head of an upload shows."""

    container: Container
    format: Format
    encoding: str
    """Codec of the text; "" for a workbook."""
    is_encoding_guessed: bool = False
    other_encodings: tuple[Candidate, ...] = ()
    """What text that is no Unicode may be encoded in, the guess first; empty where there is no doubt."""
    delimiter: str = ""
    sheet: str = ""
    sheets: tuple[str, ...] = ()
    """Of a workbook, those that a person sees."""
    columns: tuple[str, ...] = ()
    """Of a table, as its header names them; of JSON, the keys of the first rows."""
    sample_rows: tuple[Mapping[str, Any], ...] = ()
    """The first rows by column, long values cut."""
    mapping: Mapping[str, str] = field(default_factory=dict)
    """What each column of a table becomes: as chosen, else as its name says."""
    synonyms: Mapping[str, str] = field(default_factory=dict)
    """Those of a proposed `mapping` that are taken for a reserved name although they have another."""
    mapping_problem: str = ""
    """Why rows cannot be read by `mapping`, in whole sentences; "" where they can."""
    header_sha256: str = ""
    """Names the header of a table; "" for JSON."""
    unmapped_fields: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Fields of the chosen template that no column gives, with its lines that name them."""
    proposed_rows: int = 0
    """HTML files that came without a manifest, each of which would become a row."""
    questions: tuple[str, ...] = ()
    """What has to be answered before checking: `encoding`, `mapping`, `propose_rows`."""

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        lists = {name: list(values[name]) for name in ("sheets", "columns", "questions")}
        objects = {name: dict(values[name]) for name in ("mapping", "synonyms")}
        return {
            **values,
            **lists,
            **objects,
            "other_encodings": [candidate.as_dict() for candidate in self.other_encodings],
            "sample_rows": [dict(row) for row in self.sample_rows],
            "unmapped_fields": [{"path": path, "lines": list(lines)} for path, lines in self.unmapped_fields.items()],
        }


def look(
    upload: ManifestSource,
    limits: Limits | None = None,
    *,
    choices: Choices = NO_CHOICES,
    templates: Templates | None = None,
) -> Look:
    """Look at the head of an upload. Raises ManifestRefused for what cannot be read, whatever else were chosen."""
    limits = limits or Limits()
    with ExitStack() as stack:
        opened = source.opened(upload, limits, stack, propose_rows=True, most=_HEAD_BYTES)
        opened.stream.seek(0)
        if sniffing.looks_like(opened.stream.read(sniffing.HEAD_BYTES)) == "a ZIP":
            content = recognising.recognised(opened, choices, limits, stack)
            seen, is_cut = Look(opened.container, content.format, ""), False
        else:
            candidates = decoding.candidates(opened.stream)
            head, is_guessed = _head(opened.stream, candidates, choices)
            cut = replace(opened, stream=io.BytesIO(head.text.encode()))
            content = recognising.recognised(cut, replace(choices, encoding=""), limits, stack)
            seen = Look(opened.container, content.format, head.encoding, is_guessed, candidates)
            seen, is_cut = _asking(seen, "encoding") if is_guessed else seen, head.is_cut
        if content.table is not None:
            return _of_table(seen, content.table, choices, templates or NoTemplates(), is_cut=is_cut)
        return _of_rows(seen, content, opened, choices, limits, is_cut=is_cut)


def _head(stream: IO[bytes], candidates: tuple[Candidate, ...], choices: Choices) -> tuple[decoding.Head, bool]:
    """The head as it is encoded by choice or by itself; else by the first guess that fits all of it, and that it is
    one."""
    guesses = () if choices.encoding else candidates
    for guess in guesses:
        try:
            return decoding.head(stream, replace(choices, encoding=guess.encoding), _HEAD_BYTES), True
        except ManifestRefused:
            continue
    return decoding.head(stream, choices, _HEAD_BYTES), False


def _of_table(seen: Look, table: Table, choices: Choices, templates: Templates, *, is_cut: bool) -> Look:
    names = tuple(name for name in table.names if name)
    template_fields = recognising.template_fields(choices, templates)
    mapping = columns.proposed(names, fields=template_fields, has_template=bool(choices.template))
    synonyms = columns.synonyms(mapping)
    if choices.mapping is not None:
        mapping, synonyms = {name: choices.mapping.get(name, "") for name in mapping}, {}
    problem = ""
    try:
        columns.checked(table.names, mapping, table.header_line)
    except ManifestRefused as refused:
        problem = f"{refused.message} {refused.fix}"
    needed = recognising.needed_fields(choices, templates)
    unmapped = columns.unmapped(needed, mapping)
    seen = replace(
        seen,
        delimiter=table.delimiter,
        sheet=table.sheet,
        sheets=table.sheets,
        columns=names,
        sample_rows=tuple(_shown(row) for row in islice(_until_the_cut(table.samples(), is_cut=is_cut), SAMPLE_ROWS)),
        mapping=mapping,
        synonyms=synonyms,
        mapping_problem=problem,
        header_sha256=columns.header_sha256(names),
        unmapped_fields=unmapped,
    )
    is_open = problem or (choices.mapping is None and (synonyms or unmapped))
    return _asking(seen, "mapping") if is_open else seen


def _of_rows(seen: Look, content: Content, opened: Opened, choices: Choices, limits: Limits, *, is_cut: bool) -> Look:
    rows = [
        evidence.of_row(row) for row in islice(_until_the_cut(_objects(content, limits), is_cut=is_cut), SAMPLE_ROWS)
    ]
    names = dict.fromkeys(name for row in rows for name in row)
    seen = replace(seen, columns=tuple(map(_storable, names)), sample_rows=tuple(map(_shown, rows)))
    if not opened.proposed_rows:
        return seen
    seen = replace(seen, proposed_rows=opened.proposed_rows)
    return seen if choices.propose_rows else _asking(seen, "propose_rows")


def _objects(content: Content, limits: Limits) -> Iterator[dict[str, JsonValue]]:
    """The rows that can be parsed; what is wrong with the others is told when all are checked."""
    for span in content.spans(limits):
        try:
            jsonrows.check_depth(span.raw or b"", limits.max_depth)
            row = jsonrows.parse(span.raw or b"").value
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield row


def _until_the_cut(rows: Iterator[Any], *, is_cut: bool) -> Iterator[Any]:
    """The rows, as far as the head goes: that its last one ends early is no fault of the upload."""
    try:
        yield from rows
    except ManifestRefused:
        if not is_cut:
            raise


def _asking(seen: Look, question: str) -> Look:
    return replace(seen, questions=(*seen.questions, question))


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row to be looked at: bounded, and of characters that a database keeps."""
    return {_storable(name): _bounded(value) for name, value in row.items()}


def _bounded(value: Any) -> Any:
    if isinstance(value, str):
        return _storable(value if len(value) <= _VALUE_CHARACTERS else f"{value[: _VALUE_CHARACTERS - 1]}…")
    if isinstance(value, list):
        return [_bounded(item) for item in value]
    return _shown(value) if isinstance(value, dict) else value


def _storable(text: str) -> str:
    """NUL and half characters spelled out."""
    return text.replace("\0", "\\u0000").encode("utf-8", "backslashreplace").decode()
