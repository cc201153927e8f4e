"""The ZIP of a batch: every stored PDF, checked again while it is read, with lists that account for every row.

Planned first, in one light pass over the rows: which files, under which names, in which parts. Each part stands alone,
with the lists of its own rows, and names the others. The same content makes the same bytes. Names are `filenames.py`'s,
lists `results.py`'s, bytes `zipwriter.py`'s. Streamed in little memory; changes nothing and can be repeated.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from typing import IO, Any, NamedTuple

from django.db.models import F

from batches import filenames, results, selectors, zipwriter
from batches.cells import FAILED_COLUMNS
from batches.models import FAILED_STATES, Batch, BatchItem, JobState
from batches.results import EVERYTHING, Span
from batches.storage import ArtifactStore
from batches.zipwriter import Entry

COPY_BYTES = 256 * 1024
SPOOL_BYTES = 4 * 1024**2
#: Rows of one query of the light pass.
SLICE = 2000
#: Look-ups of object sizes at the same time; a bucket answers one in some 20 ms.
SIZE_THREADS = 16
MISSING = "The stored file is missing from storage."


class NothingSaved(Exception):
    """None of the chosen documents has a stored PDF, so there is no archive to give; `deleted` had one."""

    def __init__(self, deleted: int) -> None:
        super().__init__()
        self.deleted = deleted

    def words(self, otherwise: str) -> str:
        """Why there is nothing, where retention is the reason; else what the caller says."""
        if not self.deleted:
            return otherwise
        were = "PDF of these documents was" if self.deleted == 1 else "PDFs of these documents were"
        return f"{self.deleted:,} stored {were} deleted by retention, and no other is saved."


class ArchiveBroken(Exception):
    """A stored PDF is not what was verified; the archive must not be finished."""


class ArchiveChanged(ArchiveBroken):
    """Documents got other files while it was prepared; planned again, it comes out right."""


@dataclass(frozen=True)
class Limits:
    """How large a part may become, so that every system can unpack it, and a broken download costs little."""

    documents: int = 5000
    byte_count: int = 2 * 10**9


LIMITS = Limits()
#: For whoever wants one file, however large.
ONE_PART = Limits(documents=1 << 31, byte_count=1 << 62)


class File(NamedTuple):
    """One PDF that is there: its row, its path under `documents/`, and what was verified of it."""

    position: int
    business_id: str
    path: str
    is_numbered: bool
    key: str
    sha256: str
    byte_count: int
    page_count: int
    stored_at: datetime


@dataclass(frozen=True)
class Part:
    """A run of rows, those without a file too, and the files among them."""

    number: int
    span: Span
    files: Sequence[File]

    @property
    def byte_count(self) -> int:
        return sum(file.byte_count for file in self.files)


@dataclass(frozen=True)
class Archive:
    """An archive that is ready to be read once. `length` is its exact size in bytes, the counts are its own."""

    name: str
    length: int
    document_count: int
    row_count: int
    chunks: Iterator[bytes]
    is_partial: bool


@dataclass(frozen=True)
class Plan:
    """What the files of a batch come to now. `digest` names the files and rows: another one, and it is outdated."""

    batch: Batch
    store: ArtifactStore
    now: datetime
    with_ids: bool
    counts: dict[str, int]
    parts: Sequence[Part]
    missing: frozenset[int]
    digest: str
    selection: dict[str, Any] = field(default_factory=dict)
    deleted: int = 0

    @property
    def row_count(self) -> int:
        return self.counts["total"]

    @property
    def document_count(self) -> int:
        return sum(len(part.files) for part in self.parts)

    @property
    def byte_count(self) -> int:
        return sum(part.byte_count for part in self.parts)

    @property
    def is_partial(self) -> bool:
        return self.document_count < self.row_count

    def name(self, number: int) -> str:
        of = (number, len(self.parts))
        return filenames.archive_name(self.batch.name, is_partial=self.is_partial, now=self.now, part=of)

    def archive(self, number: int = 1, *, met: Callable[[int], None] = lambda count: None) -> Archive:
        """One part, counted from 1; `met` hears before each file how many there were before it.

        Raises `ArchiveChanged`. While it is read, `chunks` raises `ArchiveBroken` for a PDF whose bytes are not the
        verified ones, and `storage.StoreError` where the store does not answer.
        """
        part = self.parts[number - 1]
        stack = ExitStack()
        try:
            lists = _Lists(stack, self, part)
            entries = [_entry(self.store, file, count, met) for count, file in enumerate(part.files)]
            entries += lists.entries()
            length = zipwriter.length(entries)
        except BaseException:
            stack.close()
            raise
        chunks = _closing(entries, stack)
        return Archive(self.name(number), length, len(part.files), lists.row_count, chunks, self.is_partial)


def build(batch: Batch, *, store: ArtifactStore, now: datetime, with_ids: bool = False) -> Archive:
    """All of a batch as one file, however large. Raises as `plan` does."""
    return plan(batch, store=store, now=now, with_ids=with_ids, limits=ONE_PART).archive()


def plan(
    batch: Batch,
    *,
    store: ArtifactStore,
    now: datetime,
    span: Span = EVERYTHING,
    selection: dict[str, Any] | None = None,
    folders_by: str = "",
    with_ids: bool = False,
    limits: Limits = LIMITS,
    tell: Callable[[], None] = lambda: None,
) -> Plan:
    """What is saved now of these rows, in manifest order; in folders by a column of the manifest where one is given.

    Looks up the size of every object: one that is missing or has another size is reported as missing instead of
    breaking the archive half way. `selection` says in the lists how the rows were chosen. `tell` is called again and
    again meanwhile: a bucket takes minutes over 100,000. Raises `NothingSaved`, and `storage.StoreError` where the
    store cannot be asked.
    """
    survey = _Survey(folders_by)
    with ThreadPoolExecutor(SIZE_THREADS) as pool:
        for rows in _slices(batch, span, with_originals=bool(folders_by)):
            tell()
            found = [file for row in rows if (file := survey.file_of(row)) is not None]
            for file, size in zip(found, _sizes(store, [file.key for file in found], pool), strict=True):
                survey.take(file, is_there=size == file.byte_count)
    if not survey.files:
        raise NothingSaved(survey.deleted)
    parts = _parts(survey.files, span, limits)
    counts, missing, digest = survey.counts, frozenset(survey.missing), survey.digest.hexdigest()
    return Plan(batch, store, now, with_ids, counts, parts, missing, digest, selection or {}, survey.deleted)


def _sizes(store: ArtifactStore, keys: Sequence[str], pool: ThreadPoolExecutor) -> Iterator[int | None]:
    """In the order of the keys. Each thread has a run of them: on a disk, to hand one over takes longer than a look."""
    run = -(-len(keys) // SIZE_THREADS) or 1
    runs = [keys[begin : begin + run] for begin in range(0, len(keys), run)]
    for sizes in pool.map(lambda some: [store.size(key) for key in some], runs):
        yield from sizes


def _slices(batch: Batch, span: Span, *, with_originals: bool) -> Iterator[list[Any]]:
    """The rows as named tuples, with no more of each than a plan needs."""
    columns = {
        "business_id": "document__business_id",
        "number": "version__number",
        "wished_name": "version__filename",
        "state": "version__job__state",
        "storage_key": "version__artifact__storage_key",
        "sha256": "version__artifact__sha256",
        "byte_count": "version__artifact__byte_count",
        "page_count": "version__artifact__page_count",
        "stored_at": "version__artifact__stored_at",
        "deleted_at": "version__artifact__local_deleted_at",
        "missing_at": "version__artifact__missing_at",
    }
    own = ("position", "cancelled_at", "dismissed_at", *(("original_row",) if with_originals else ()))
    items = BatchItem.objects.filter(batch=batch).annotate(**{name: F(path) for name, path in columns.items()})
    after = span.first - 1
    while rows := list(span.slice_of(items, after=after, most=SLICE).values_list(*own, *columns, named=True)):
        after = rows[-1].position
        yield rows


class _Survey:
    """What the light pass has met so far."""

    def __init__(self, folders_by: str) -> None:
        self._folders_by = folders_by
        self._names = filenames.Names()
        self.files: list[File] = []
        self.missing: set[int] = set()
        self.deleted = 0
        self.counts = dict.fromkeys(("total", "saved", "needs_person", "dismissed", "cancelled", "in_progress"), 0)
        self.digest = hashlib.sha256()

    def file_of(self, row: Any) -> File | None:
        """The file that the row names; every row takes a name, so that a file has the same one as more are saved."""
        self.counts["total"] += 1
        self.counts[_counted_as(row)] += 1
        folder = filenames.folder(row.original_row.get(self._folders_by)) if self._folders_by else ""
        path, is_numbered = self._names.take(
            filenames.pdf_stem(row.business_id, row.number, row.wished_name), folder=folder
        )
        is_stored = selectors.is_in_store(row.storage_key, row.deleted_at, row.missing_at)
        self.digest.update(f"{row.position} {row.number} {row.sha256 if is_stored else ''} {path}\n".encode())
        if not is_stored:
            self.deleted += row.deleted_at is not None
            return None
        facts = (row.storage_key, row.sha256, row.byte_count, row.page_count, row.stored_at)
        return File(row.position, row.business_id, path, is_numbered, *facts)

    def take(self, file: File, *, is_there: bool) -> None:
        if is_there:
            self.files.append(file)
        else:
            self.missing.add(file.position)
            self.digest.update(f"{file.position} missing\n".encode())


def _counted_as(row: Any) -> str:
    if row.cancelled_at is not None or row.state == JobState.CANCELLED:
        return "cancelled"
    if row.state in FAILED_STATES:
        return "needs_person" if row.dismissed_at is None else "dismissed"
    return "saved" if row.state == JobState.SAVED else "in_progress"


def _parts(files: Sequence[File], span: Span, limits: Limits) -> list[Part]:
    """Runs of files within the limits; the rows between two files go with the one before them."""
    runs: list[list[File]] = [[]]
    byte_count = 0
    for file in files:
        if runs[-1] and (len(runs[-1]) >= limits.documents or byte_count + file.byte_count > limits.byte_count):
            runs.append([])
            byte_count = 0
        runs[-1].append(file)
        byte_count += file.byte_count
    begins = [span.first, *(run[0].position for run in runs[1:])]
    ends = [*(begin - 1 for begin in begins[1:]), span.last]
    return [
        Part(number, Span(begin, end, span.chosen), run)
        for number, (begin, end, run) in enumerate(zip(begins, ends, runs, strict=True), start=1)
    ]


def verified(store: ArtifactStore, file: File) -> Iterator[bytes]:
    """The bytes of a file. Raises `ArchiveBroken` at their end where they are not those that were verified."""
    digest = hashlib.sha256()
    with store.open(file.key) as opened:
        while chunk := opened.read(COPY_BYTES):
            digest.update(chunk)
            yield chunk
    if digest.hexdigest() != file.sha256:
        raise ArchiveBroken(
            f"The PDF of {file.business_id} has changed since it was verified; the archive was stopped."
        )


def _entry(store: ArtifactStore, file: File, count: int, met: Callable[[int], None]) -> Entry:
    def chunks() -> Iterator[bytes]:
        met(count)
        return verified(store, file)

    return Entry(f"documents/{file.path}", file.byte_count, file.stored_at, chunks)


def _closing(entries: Sequence[Entry], stack: ExitStack) -> Iterator[bytes]:
    with stack:
        try:
            yield from zipwriter.stream(entries)
        except zipwriter.WrongSize as error:
            raise ArchiveBroken(f"{error} does not have the size that was verified; the archive was stopped.") from None


class _Lists:
    """The lists of a part, collected in one pass over its rows: manifest.csv, failed.csv, SHA256SUMS, manifest.json."""

    def __init__(self, stack: ExitStack, plan: Plan, part: Part) -> None:
        self._plan = plan
        self._part = part
        self._stack = stack
        self.row_count = 0
        self._failed_count = 0
        self._failed_columns = dict.fromkeys(results.columns_as_given(plan.batch))
        self._failed = self._spool()
        self._manifest = self._spool()
        for line in results.csv_lines(results.COLUMNS, self._rows()):
            self._manifest.write(line.encode())

    def _spool(self) -> IO[bytes]:
        return self._stack.enter_context(tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES))

    def _rows(self) -> Iterator[dict[str, Any]]:
        plan, part = self._plan, self._part
        named = {file.position: (file.path, file.is_numbered) for file in part.files}
        packed = {file.position: file.sha256 for file in part.files}
        found = results.rows_with_originals(plan.batch, with_ids=plan.with_ids, span=part.span, named=named)
        for row, original in found:
            self.row_count += 1
            # One that retention deleted since the look at the store is not missing: its line says so by itself.
            is_missing = row["row"] in plan.missing and "file_deleted" not in (row["flags"] or "")
            if is_missing:
                _take_back(row, MISSING, flag="file_missing")
            elif row["output_sha256"] != packed.get(row["row"]):
                if row["row"] in packed:
                    raise ArchiveChanged("Documents changed while the archive was prepared. Download it again.")
                # Saved since the plan was made: this archive does not hold it.
                _take_back(row, "It was saved after this archive was begun.", flag="not_in_archive")
            if is_missing or row["status"] in FAILED_STATES:
                self._note_failed(row, original)
            yield row

    def _note_failed(self, row: dict[str, Any], original: dict[str, Any]) -> None:
        """A failed row: its own columns as they were given, and ours, which a new upload ignores."""
        self._failed_count += 1
        cells = results.failed_row(row, original)
        self._failed_columns |= dict.fromkeys(name for name in cells if name not in FAILED_COLUMNS)
        self._failed.write(json.dumps(cells).encode() + b"\n")

    def entries(self) -> list[Entry]:
        failed = self._spool()
        self._failed.seek(0)
        rows = (json.loads(line) for line in self._failed)
        written = results.Written.as_given(self._plan.batch)
        lines = results.csv_lines((*self._failed_columns, *FAILED_COLUMNS), results.flat(rows), written)
        failed.writelines(written.encoded(lines))
        files = {"manifest.csv": self._manifest, "failed.csv": failed}
        facts = {path: _facts(file) for path, file in files.items()}
        sums = self._spool()
        for file in self._part.files:
            sums.write(f"{file.sha256}  documents/{file.path}\n".encode())
        for path, (sha256, _) in facts.items():
            sums.write(f"{sha256}  {path}\n".encode())
        files["SHA256SUMS"], facts["SHA256SUMS"] = sums, _facts(sums)
        top = self._top(facts)
        # The time of a list is that of the newest file: what is in the archive says when it was made, not the clock.
        at = max(file.stored_at for file in self._part.files)
        lists = [_list_entry(path, facts[path][1], at, file) for path, file in files.items()]
        return [Entry("manifest.json", len(top), at, lambda: iter([top])), *lists]

    def _top(self, facts: dict[str, tuple[str, int]]) -> bytes:
        plan, part = self._plan, self._part
        row_counts = {"manifest.csv": self.row_count, "failed.csv": self._failed_count}
        files = [
            {"path": path, "sha256": sha256} | ({"rows": row_counts[path]} if path in row_counts else {})
            for path, (sha256, _) in facts.items()
        ]
        top: dict[str, Any] = {
            "format": "pdf-batch-manifest/1",
            "batch_id": plan.batch.public_id,
            "name": plan.batch.name,
            "created_at": results.timestamp(plan.batch.created_at),
            "complete": not plan.is_partial,
            "selection": plan.selection,
            "contents_sha256": plan.digest,
            "documents": len(part.files),
            "counts": plan.counts,
            "deleted_by_retention": plan.deleted,
            "files": files,
        }
        if len(plan.parts) > 1:
            others = [{"path": plan.name(each.number), "documents": len(each.files)} for each in plan.parts]
            top |= {"part": part.number, "parts": others}
        return json.dumps(top, ensure_ascii=False, indent=2).encode()


def _list_entry(path: str, byte_count: int, at: datetime, file: IO[bytes]) -> Entry:
    return Entry(path, byte_count, at, lambda: _chunks(file))


def _take_back(row: dict[str, Any], reason: str, *, flag: str) -> None:
    row["reason"] = reason
    row["flags"] = ";".join(filter(None, (row["flags"], flag)))
    for column in ("filename", "output_sha256", "bytes", "pages"):
        row[column] = None


def _facts(file: IO[bytes]) -> tuple[str, int]:
    """SHA-256 and length of a file that was just written."""
    digest, length = hashlib.sha256(), 0
    for chunk in _chunks(file):
        digest.update(chunk)
        length += len(chunk)
    return digest.hexdigest(), length


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    while chunk := file.read(COPY_BYTES):
        yield chunk
