"""What every store must do; the same tests on a disk and in an S3 bucket."""

from __future__ import annotations

import hashlib
import io
import json
import multiprocessing
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from batches.engine import keeping
from batches.storage import ArtifactStore, ObjectMissing, artifact_key, open_store
from tests.storage.either_store import either_store, s3_address  # noqa: F401 - fixtures
from tests.storage.listing import keys_in

CASES = Path(__file__).resolve().parents[1] / "cases"
KEY = artifact_key("main", "INV-1", 1)
PDF = (CASES / "079-whole.pdf").read_bytes()


def read(store: ArtifactStore, key: str) -> bytes:
    with store.open(key) as stream:
        return stream.read()


@pytest.mark.parametrize("size", [0, 1, 10_000, 12_000_000])
def test_an_object_is_stored_whole_from_its_first_byte_and_its_source_left_open(
    store: ArtifactStore, size: int
) -> None:
    source = io.BytesIO(bytes(range(256)) * (size // 256 + 1))
    source.truncate(size)
    source.seek(0, io.SEEK_END)
    stored = store.put(KEY, source)
    assert (stored.key, stored.byte_count) == (KEY, size)
    assert not source.closed
    assert read(store, KEY) == source.getvalue()
    assert store.size(KEY) == size


def test_a_file_is_stored_by_its_path_and_stays(store: ArtifactStore, tmp_path: Path) -> None:
    path = tmp_path / "whole.pdf"
    path.write_bytes(PDF)
    assert store.put(KEY, path).byte_count == len(PDF)
    assert path.read_bytes() == PDF == read(store, KEY)


def test_a_source_that_can_only_be_read_forward_is_stored(store: ArtifactStore) -> None:
    class Forward(io.RawIOBase):
        def __init__(self) -> None:
            self.left = [b"first ", b"second"]

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            chunk = self.left.pop(0) if self.left else b""
            buffer[: len(chunk)] = chunk
            return len(chunk)

    store.put(KEY, Forward())  # type: ignore[arg-type]  # raw streams read like any
    assert read(store, KEY) == b"first second"


def test_a_closed_source_is_an_error_and_stores_nothing(store: ArtifactStore) -> None:
    source = io.BytesIO(PDF)
    source.close()
    with pytest.raises(ValueError, match="closed"):
        store.put(KEY, source)
    assert keys_in(store) == []


@pytest.mark.parametrize(("start", "length"), [(0, 5), (7, 1_000_000), (999_999, 1), (3, 0)])
def test_a_range_of_an_object_is_read_without_the_rest(store: ArtifactStore, start: int, length: int) -> None:
    content = bytes(range(250)) * 4000
    store.put(KEY, io.BytesIO(content))
    assert b"".join(store.open_range(KEY, start=start, length=length)) == content[start : start + length]


def test_a_range_of_a_missing_object_is_refused_before_its_first_byte(store: ArtifactStore) -> None:
    with pytest.raises(ObjectMissing):
        store.open_range(KEY, start=0, length=1)


def test_an_opened_object_can_be_searched_like_a_file(store: ArtifactStore) -> None:
    store.put(KEY, io.BytesIO(PDF))
    with store.open(KEY) as stream:
        stream.seek(-6, io.SEEK_END)
        assert stream.read() == PDF[-6:]
        stream.seek(0)
        assert stream.read(5) == b"%PDF-"


def test_the_same_put_again_leaves_one_object(store: ArtifactStore) -> None:
    for _ in range(3):
        store.put(KEY, io.BytesIO(PDF))
    assert keys_in(store) == [KEY]
    assert store.sweep_temporaries(timedelta(0), datetime.now(UTC) + timedelta(days=1)) == 0


def test_a_put_replaces_what_the_key_held(store: ArtifactStore) -> None:
    store.put(KEY, io.BytesIO(b"a longer first object"))
    store.put(KEY, io.BytesIO(b"second"))
    assert read(store, KEY) == b"second"


def test_a_source_that_breaks_off_changes_nothing(store: ArtifactStore) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell() > 0:
                raise RuntimeError("the source broke off")
            return super().read(10)

    store.put(KEY, io.BytesIO(PDF))
    for key in (KEY, artifact_key("main", "INV-2", 1)):
        with pytest.raises(RuntimeError):
            store.put(key, Broken(b"x" * 1000))
    assert read(store, KEY) == PDF
    assert keys_in(store) == [KEY]
    assert store.sweep_temporaries(timedelta(0), datetime.now(UTC) + timedelta(days=1)) == 0


def test_what_is_not_there_is_missing(store: ArtifactStore) -> None:
    store.put(KEY, io.BytesIO(PDF))
    for other in (artifact_key("main", "INV-1", 2), artifact_key("other", "INV-1", 1), f"{KEY}/below"):
        assert store.size(other) is None
        with pytest.raises(ObjectMissing) as caught:
            store.open(other)
        assert caught.value.key == other


def test_a_deletion_removes_only_its_own_object_and_can_be_repeated(store: ArtifactStore) -> None:
    second = artifact_key("main", "INV-1", 2)
    store.put(KEY, io.BytesIO(PDF))
    store.put(second, io.BytesIO(PDF + b"2"))
    store.delete(KEY)
    store.delete(KEY)
    assert store.size(KEY) is None
    assert read(store, second) == PDF + b"2"
    store.delete(second)
    assert keys_in(store) == []
    store.put(KEY, io.BytesIO(PDF))
    assert read(store, KEY) == PDF


def test_hostile_ids_keep_their_own_bytes(store: ArtifactStore) -> None:
    ids = [row["id"] for row in json.loads((CASES / "089-url-hostile-ids.json").read_text(encoding="utf-8"))]
    assert len(ids) == 14
    for business_id in ids:
        store.put(artifact_key("main", business_id, 1), io.BytesIO(business_id.encode()))
    for business_id in ids:
        assert read(store, artifact_key("main", business_id, 1)) == business_id.encode()
    assert len(keys_in(store)) == 14


def test_a_key_that_could_leave_the_store_is_refused(store: ArtifactStore) -> None:
    for key in ("../x", "/etc/passwd", "a/../../x", ".artifact-store"):
        for use in (store.open, store.size, store.delete, lambda key: store.put(key, io.BytesIO(b""))):
            with pytest.raises(ValueError):
                use(key)


def test_a_staging_file_is_private_and_gone_afterwards(store: ArtifactStore) -> None:
    with store.staging() as path:
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.read_bytes() == b""
        path.write_bytes(PDF)
        store.put(KEY, path)
    assert not path.exists()
    with pytest.raises(RuntimeError), store.staging() as path:
        raise RuntimeError
    assert not path.exists()
    assert keys_in(store) == [KEY]


def test_many_threads_store_and_read_at_once(store: ArtifactStore) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            own, shared = artifact_key("main", f"INV-{number}", 1), artifact_key("main", "shared", 1)
            store.put(own, io.BytesIO(b"%d" % number * 1000))
            store.put(shared, io.BytesIO(PDF))
            assert read(store, own) == b"%d" % number * 1000
            assert read(store, shared) == PDF
        except BaseException as error:  # noqa: BLE001  # reported by the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(keys_in(store)) == 9


def test_a_forked_process_uses_the_store_too(store: ArtifactStore) -> None:
    store.put(KEY, io.BytesIO(PDF))
    second = artifact_key("main", "INV-2", 1)
    process = multiprocessing.get_context("fork").Process(target=lambda: store.put(second, io.BytesIO(PDF)))
    process.start()
    process.join(60)
    assert process.exitcode == 0
    assert read(store, second) == PDF


def test_ensuring_a_store_that_is_there_changes_nothing(store: ArtifactStore) -> None:
    store.put(KEY, io.BytesIO(PDF))
    store.ensure()
    assert read(store, KEY) == PDF


def test_a_store_that_works_is_ready(store: ArtifactStore) -> None:
    store.ready()
    store.put(KEY, io.BytesIO(PDF))
    store.ready()


def test_one_store_is_shared_by_all_who_open_its_address(tmp_path: Path) -> None:
    assert open_store(f"file://{tmp_path}") is open_store(f"file://{tmp_path}")


def test_an_address_with_escapes_names_the_folder_that_it_means(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/with%20space")
    store.ensure()
    store.put(KEY, io.BytesIO(PDF))
    assert (tmp_path / "with space" / KEY).read_bytes() == PDF


@pytest.mark.parametrize("url", ["", "artifacts", "file://relative/folder", "ftp://host/x", "https://bucket/x"])
def test_an_address_that_names_no_store_is_refused(url: str) -> None:
    with pytest.raises(ValueError):
        open_store(url)


# --- never over another object ---


@pytest.mark.parametrize("size", [10_000, 12_000_000])
def test_a_put_if_absent_stores_where_nothing_is_and_never_replaces(
    store: ArtifactStore, tmp_path: Path, size: int
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"%PDF-" + bytes(size))
    second.write_bytes(b"another")
    stored = store.put_if_absent(KEY, first)
    assert stored is not None
    assert (stored.key, stored.byte_count) == (KEY, size + 5)
    assert store.put_if_absent(KEY, second) is None
    assert store.put_if_absent(KEY, first) is None
    assert read(store, KEY) == first.read_bytes()
    assert keys_in(store) == [KEY]
    assert store.sweep_temporaries(timedelta(0), datetime.now(UTC) + timedelta(days=1)) == 0


def test_of_many_who_put_at_once_one_wins_and_the_object_is_whole(store: ArtifactStore, tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}" for number in range(8)]
    for number, path in enumerate(paths):
        path.write_bytes(b"%d" % number * 50_000)
    barrier = threading.Barrier(len(paths))
    won: list[Path] = []

    def work(path: Path) -> None:
        barrier.wait(30)
        if store.put_if_absent(KEY, path) is not None:
            won.append(path)

    threads = [threading.Thread(target=work, args=(path,)) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert read(store, KEY) == won[0].read_bytes()


def test_a_late_writer_finds_the_place_taken_and_every_digest_stays_that_of_its_object(
    store: ArtifactStore, tmp_path: Path
) -> None:
    first, late = tmp_path / "first", tmp_path / "late"
    first.write_bytes(PDF)
    late.write_bytes(PDF + b"late")
    digests = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in (first, late)}
    kept = keeping.keep(store, KEY, first, sha256=digests[first])
    assert kept.key == KEY
    for _ in range(2):
        beside = keeping.keep(store, KEY, late, sha256=digests[late])
        again = keeping.keep(store, KEY, first, sha256=digests[first])
        assert (again, beside.byte_count) == (kept, len(PDF) + 4)
        assert keeping.digest_of(store, beside.key) == digests[late]
        assert keeping.digest_of(store, KEY) == digests[first]
    assert len(keys_in(store)) == 2


# --- listing ---


def test_objects_are_listed_with_their_facts_behind_a_key(store: ArtifactStore) -> None:
    assert list(store.iter_facts()) == []
    keys = ["a/b/c", "a/b-1", "a/b.2", "a/bc/d", "a/b/c-2", "ab", "b/x/y"]
    for key in keys:
        store.put(key, io.BytesIO(key.encode()))
    found = list(store.iter_facts())
    assert [facts.key for facts in found] == sorted(keys)
    assert [facts.byte_count for facts in found] == [len(key) for key in sorted(keys)]
    assert all(abs((facts.changed_at - datetime.now(UTC)).total_seconds()) < 600 for facts in found)
    for after in [*keys, "a/b", "a/b/", "a/zz", "b", "zz", "a/notes of mine.txt", "a/b/../é", "a//", "/"]:
        assert [facts.key for facts in store.iter_facts(after)] == sorted(key for key in keys if key > after)
