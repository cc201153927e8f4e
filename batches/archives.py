"""The ZIP of a batch: every stored PDF, checked again while it is read, with lists that account for every row.

Names are `filenames.py`'s, lists `results.py`'s. Streamed in constant memory; changes nothing and can be
repeated.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import IO, Any

from zipstream.ng import ZipStream

from batches import filenames, results, selectors
from batches.cells import FAILED_COLUMNS
from batches.models import FAILED_STATES, Artifact, Batch
from batches.storage import ArtifactStore

COPY_BYTES = 256 * 1024
SPOOL_BYTES = 4 * 1024**2
#: Look-ups of object sizes at the same time; a bucket answers one in some 20 ms.
SIZE_THREADS = 16


class NothingSaved(Exception):
    """The batch has no stored PDF, so there is no archive to give."""


class ArchiveBroken(Exception):
    """A stored PDF is not what was verified; the archive must not be finished."""


@dataclass(frozen=True)
class Archive:
    """An archive that is ready to be read once. `length` is its exact size in bytes."""

    name: str
    length: int
    document_count: int
    row_count: int
    chunks: Iterator[bytes]

    @property
    def is_partial(self) -> bool:
        return self.document_count < self.row_count


@dataclass(frozen=True)
class _Entry:
    path: str
    key: str
    sha256: str
    byte_count: int


def build(batch: Batch, *, store: ArtifactStore, now: datetime, with_ids: bool = False) -> Archive:
    """Prepare the archive of what is saved now.

    Reads every row and looks up the size of every object before the first byte; an object that is missing or has
    another size is reported as missing instead of breaking the archive half way. Raises `NothingSaved`, and
    `storage.StoreError` where the store cannot be asked. While it is read, `chunks` raises `ArchiveBroken` for a PDF
    whose bytes are not the verified ones.
    """
    stack = ExitStack()
    try:
        lists = _Lists(stack, batch, missing=_missing_keys(batch, store), with_ids=with_ids)
        if not lists.entries:
            raise NothingSaved
        stream = ZipStream(sized=True)
        for entry in lists.entries:
            stream.add(_verified(store, entry), entry.path, size=entry.byte_count)
        lists.add_to(stream, now=now)
    except BaseException:
        stack.close()
        raise
    is_partial = len(lists.entries) < lists.row_count
    name = filenames.archive_name(batch.name, is_partial=is_partial, now=now)
    return Archive(name, len(stream), len(lists.entries), lists.row_count, _closing(stream, stack))


def _missing_keys(batch: Batch, store: ArtifactStore) -> set[str]:
    """Keys of artifacts whose object is not there in full."""
    stored = Artifact.objects.filter(selectors.in_store(), version__items__batch=batch)
    sizes = dict(stored.values_list("storage_key", "byte_count"))
    with ThreadPoolExecutor(SIZE_THREADS) as pool:
        found = pool.map(store.size, sizes)
        return {key for key, size in zip(sizes, found, strict=True) if size != sizes[key]}


def _verified(store: ArtifactStore, entry: _Entry) -> Iterator[bytes]:
    digest = hashlib.sha256()
    with store.open(entry.key) as file:
        while chunk := file.read(COPY_BYTES):
            digest.update(chunk)
            yield chunk
    if digest.hexdigest() != entry.sha256:
        raise ArchiveBroken(f"{entry.key} has changed since it was verified; the archive was stopped.")


def _closing(stream: ZipStream, stack: ExitStack) -> Iterator[bytes]:
    with stack:
        yield from stream


class _Lists:
    """The lists of an archive, collected in one pass over the rows: manifest.csv, failed.csv, SHA256SUMS."""

    def __init__(self, stack: ExitStack, batch: Batch, *, missing: set[str], with_ids: bool) -> None:
        self._batch = batch
        self._with_ids = with_ids
        self._stack = stack
        self._counts = selectors.batch_counts(batch)
        self.entries: list[_Entry] = []
        self.row_count = 0
        self._failed_count = 0
        self._failed_columns = dict.fromkeys(results.columns_as_given(batch))
        self._failed = self._spool()
        self._manifest = self._spool()
        for line in results.csv_lines(results.COLUMNS, self._rows(missing)):
            self._manifest.write(line.encode())

    def _spool(self) -> IO[bytes]:
        return self._stack.enter_context(tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES))

    def _rows(self, missing: set[str]) -> Iterator[dict[str, Any]]:
        for row, original in results.rows_with_originals(self._batch, with_ids=self._with_ids):
            self.row_count += 1
            is_missing = row["object_key"] in missing
            if is_missing:
                _mark_missing(row)
            if row["filename"]:
                path = f"documents/{row['filename']}"
                self.entries.append(_Entry(path, row["object_key"], row["output_sha256"], row["bytes"]))
            if is_missing or row["status"] in FAILED_STATES:
                self._note_failed(row, original)
            yield row

    def _note_failed(self, row: dict[str, Any], original: dict[str, Any]) -> None:
        """A failed row: its own columns as they were given, and ours, which a new upload ignores."""
        self._failed_count += 1
        cells = results.failed_row(row, original)
        self._failed_columns |= dict.fromkeys(name for name in cells if name not in FAILED_COLUMNS)
        self._failed.write(json.dumps(cells).encode() + b"\n")

    def add_to(self, stream: ZipStream, *, now: datetime) -> None:
        failed = self._spool()
        self._failed.seek(0)
        rows = (json.loads(line) for line in self._failed)
        for line in results.csv_lines((*self._failed_columns, *FAILED_COLUMNS), results.flat(rows)):
            failed.write(line.encode())
        files = {"manifest.csv": self._manifest, "failed.csv": failed}
        facts = {path: _facts(file) for path, file in files.items()}
        sums = self._spool()
        for entry in self.entries:
            sums.write(f"{entry.sha256}  {entry.path}\n".encode())
        for path, (sha256, _) in facts.items():
            sums.write(f"{sha256}  {path}\n".encode())
        files["SHA256SUMS"], facts["SHA256SUMS"] = sums, _facts(sums)
        stream.add(self._top(facts, now=now), "manifest.json")
        for path, file in files.items():
            stream.add(_chunks(file), path, size=facts[path][1])

    def _top(self, facts: dict[str, tuple[str, int]], *, now: datetime) -> bytes:
        row_counts = {"manifest.csv": self.row_count, "failed.csv": self._failed_count}
        files = [
            {"path": path, "sha256": sha256} | ({"rows": row_counts[path]} if path in row_counts else {})
            for path, (sha256, _) in facts.items()
        ]
        top = {
            "format": "pdf-batch-manifest/1",
            "batch_id": self._batch.public_id,
            "name": self._batch.name,
            "created_at": results.timestamp(now),
            "complete": len(self.entries) == self.row_count,
            "documents": len(self.entries),
            "counts": self._counts.as_dict(),
            "files": files,
        }
        return json.dumps(top, ensure_ascii=False, indent=2).encode()


def _mark_missing(row: dict[str, Any]) -> None:
    row["reason"] = "The stored file is missing from storage."
    row["flags"] = ";".join(filter(None, (row["flags"], "file_missing")))
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
