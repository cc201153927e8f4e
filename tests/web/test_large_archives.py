"""Downloads of many and of large files: the rows of the case log on scale that are about archives."""

from __future__ import annotations

import hashlib
import io
import itertools
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from batches import archives, storage
from batches.engine import bulk
from batches.models import Artifact, Batch, BatchItem, Document, DocumentVersion, Job, Submission
from tests.factories import NOW, make_saved_job

pytestmark = pytest.mark.django_db

TINY = b"%PDF-1.7 tiny"
ZEROS = bytes(1 << 20)


class Zeros(io.RawIOBase):
    """So many zero bytes, none of which is kept."""

    def __init__(self, byte_count: int) -> None:
        self.left = byte_count

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = min(len(buffer), self.left, len(ZEROS))
        buffer[:count] = ZEROS[:count]
        self.left -= count
        return count


class MadeUp:
    """A store whose objects are all the same, and are made while they are read. `broken` are refused when opened."""

    def __init__(self, byte_count: int, *, content: bytes | None = None) -> None:
        self.byte_count, self.content = byte_count, content
        self.broken: set[str] = set()

    def size(self, _key: str) -> int:
        return self.byte_count

    def open(self, key: str) -> Any:
        if key in self.broken:
            raise storage.StoreUnavailable("The store did not answer.")
        return io.BytesIO(self.content) if self.content is not None else io.BufferedReader(Zeros(self.byte_count))


def digest_of_zeros(byte_count: int) -> str:
    digest = hashlib.sha256()
    for start in range(0, byte_count, len(ZEROS)):
        digest.update(ZEROS[: byte_count - start])
    return digest.hexdigest()


def fill(batch: Batch, count: int, *, byte_count: int, sha256: str) -> None:
    """So many saved documents of that size; one is made by the factories, and the others after it."""
    first = make_saved_job(batch=batch, business_id="D-00000")
    version, artifact = first.version, first.version.artifact
    Artifact.objects.filter(pk=artifact.pk).update(byte_count=byte_count, sha256=sha256)
    numbers = range(1, count)
    documents = _copied(Document, version.document_id, [_named(number) for number in numbers])
    versions = _copied(DocumentVersion, version.pk, [{"document": pk} for pk in documents])
    jobs = _copied(Job, first.pk, [{"version": pk} for pk in versions])
    own = [{"idempotency_key": f"key-{n}", "provider_job_id": f"pdf_made_{n}"} for n in numbers]
    tries = _copied(Submission, first.submissions.get().pk, [{"job": j} | o for j, o in zip(jobs, own, strict=True)])
    places = [
        {"version": v, "submission": s, "storage_key": f"artifacts/made/{n}"}
        for n, v, s in zip(numbers, versions, tries, strict=True)
    ]
    _copied(Artifact, artifact.pk, places)
    rows = zip(numbers, documents, versions, strict=True)
    items = [{"position": n, "document": document, "version": v} for n, document, v in rows]
    _copied(BatchItem, batch.items.get().pk, items)


def _named(number: int) -> dict[str, Any]:
    return {"public_id": f"doc_made_{number}", "business_id": f"D-{number:05}"}


def _copied(model: Any, pk: int, changes: list[dict[str, Any]]) -> list[int]:
    """Copies of one row, each with its changes; their ids in that order."""
    columns = [field for field in model._meta.concrete_fields if not field.primary_key]
    row = model.objects.get(pk=pk)
    like = {field.name: getattr(row, field.attname) for field in columns}
    bulk.insert(model, [like | change for change in changes])
    return list(model.objects.filter(pk__gt=pk).order_by("pk").values_list("pk", flat=True))


def read_into(archive: archives.Archive, path: Path) -> zipfile.ZipFile:
    """Written as a download is, but with holes for zeros."""
    with path.open("wb") as file:
        for chunk in archive.chunks:
            if chunk.strip(b"\0"):
                file.write(chunk)
            else:
                file.seek(len(chunk), io.SEEK_CUR)
        file.truncate()
    assert path.stat().st_size == archive.length, "said before the first byte"
    return zipfile.ZipFile(path)


def test_113_an_archive_of_70_000_documents_opens(batch: Batch, tmp_path: Path) -> None:
    """More than 65,535 entries: an exception at the end of the stream, or an archive that nothing opens."""
    fill(batch, 70_000, byte_count=len(TINY), sha256=hashlib.sha256(TINY).hexdigest())
    made_up: Any = MadeUp(len(TINY), content=TINY)
    with read_into(archives.build(batch, store=made_up, now=NOW), tmp_path / "many.zip") as opened:
        names = opened.namelist()
        assert len(names) == len(set(names)) == 70_000 + 4
        assert opened.read("documents/D-69999_v1.pdf") == opened.read("documents/D-00000_v1.pdf") == TINY
        assert opened.read("manifest.csv").count(b"\r\n") == 70_001


def test_113_an_archive_of_more_than_4_gb_opens(batch: Batch, tmp_path: Path) -> None:
    each = 1_500_000_000
    fill(batch, 3, byte_count=each, sha256=digest_of_zeros(each))
    made_up: Any = MadeUp(each)
    archive = archives.build(batch, store=made_up, now=NOW)
    assert archive.length > 1 << 32
    with read_into(archive, tmp_path / "large.zip") as opened:
        assert [info.file_size for info in opened.infolist()[:3]] == [each] * 3
        assert opened.infolist()[-1].header_offset > 3 * each
        with opened.open("documents/D-00002_v1.pdf") as last:  # the reader compares the checksum at its end
            assert sum(len(chunk) for chunk in iter(lambda: last.read(1 << 20), b"")) == each


def _memory(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def test_112_five_archives_at_once_are_read_in_little_memory_however_slowly(batch: Batch) -> None:
    """400 files of 1 MB each; whoever reads slowly holds a chunk, and no more."""
    fill(batch, 400, byte_count=len(ZEROS), sha256=hashlib.sha256(ZEROS).hexdigest())
    made_up: Any = MadeUp(len(ZEROS))
    built = [archives.build(batch, store=made_up, now=NOW) for _ in range(5)]
    before = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    turns = itertools.zip_longest(*(_counted(archive.chunks) for archive in built))
    lengths = [sum(counts) for counts in zip(*((count or 0 for count in turn) for turn in turns), strict=True)]
    assert lengths == [archive.length for archive in built]
    assert _memory("VmHWM") - before < 100_000_000


def _counted(chunks: Iterator[bytes]) -> Iterator[int]:
    return (len(chunk) for chunk in chunks)


@pytest.mark.parametrize("count", [10, 50, 500])
def test_115_an_archive_of_any_size_comes_at_the_press_and_one_that_broke_off_can_be_had_again(
    count: int, batch: Batch, operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for a mail or for a screen: it begins at once, and its length says whether it came whole."""
    fill(batch, count, byte_count=len(TINY), sha256=hashlib.sha256(TINY).hexdigest())
    made_up = MadeUp(len(TINY), content=TINY)
    monkeypatch.setattr(storage, "open_store", lambda _url: made_up)
    address = f"/batches/{batch.public_id}/archive/"

    made_up.broken = {f"artifacts/made/{count // 2}"}
    answer: Any = operator.get(address)
    came = io.BytesIO()
    with pytest.raises(storage.StoreUnavailable):
        came.writelines(answer.streaming_content)
    assert len(came.getvalue()) < int(answer["Content-Length"])
    with pytest.raises(zipfile.BadZipFile):
        zipfile.ZipFile(came)

    made_up.broken = set()
    answer = operator.get(address)
    content = b"".join(answer.streaming_content)
    assert len(content) == int(answer["Content-Length"])
    with zipfile.ZipFile(io.BytesIO(content)) as opened:
        assert len(opened.namelist()) == count + 4
        assert opened.testzip() is None
