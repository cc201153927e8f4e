"""The store on a disk: what survives a power cut or kill -9, and what a sick disk is not taken for."""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from batches.storage import StoreDenied, StoreFull, StoreUnavailable, artifact_key
from batches.storage.disk import DiskStore
from tests.storage.listing import keys_in

KEY = artifact_key("main", "INV-1", 1)
PDF = b"%PDF-1.4\n%%EOF\n"


@pytest.fixture
def store(tmp_path: Path) -> DiskStore:
    store = DiskStore(tmp_path / "deep" / "store")
    store.ensure()
    return store


def in_child(work: Callable[[], None]) -> None:
    """Run `work` in a forked process and require that it ends well."""
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join(60)
    assert process.exitcode == 0


def test_files_and_folders_are_private_whatever_the_umask_is(store: DiskStore) -> None:
    before = os.umask(0)
    try:
        store.put(KEY, io.BytesIO(PDF))
    finally:
        os.umask(before)
    path = store.root / KEY
    assert path.stat().st_mode & 0o777 == 0o600
    for folder in [path.parent, path.parent.parent, store.root, store.root / ".temporary"]:
        assert folder.stat().st_mode & 0o777 == 0o700


def test_bytes_are_on_the_disk_before_the_name_and_the_name_before_the_return(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = DiskStore(tmp_path / "deep" / "store")
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def noted_fsync(handle: int) -> None:
        steps.append(f"sync {Path(f'/proc/self/fd/{handle}').readlink().relative_to(tmp_path)}")
        fsync(handle)

    def noted_replace(path: Path, target: Path) -> Path:
        steps.append(f"name {target.relative_to(store.root)}")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    store.ensure()
    store.put(KEY, io.BytesIO(PDF))
    workspace, document, _ = KEY.split("/")
    named = steps.index(f"name {KEY}")
    assert any(step.startswith("sync deep/store/.temporary/") for step in steps[:named])
    for folder in (".", "deep", "deep/store", f"deep/store/{workspace}"):  # each holds the name of a new folder
        assert f"sync {folder}" in steps[:named]
    assert steps[named + 1 :] == [f"sync deep/store/{workspace}/{document}"]


def test_kill_9_in_the_middle_of_a_write_leaves_no_object_and_what_it_leaves_is_swept(store: DiskStore) -> None:
    class Endless(io.BytesIO):
        """Gives some bytes, then stays silent until the writer is killed."""

        def read(self, size: int | None = -1) -> bytes:
            if self.tell():
                halfway.set()
                threading.Event().wait(60)
            return super().read(4)

    context = multiprocessing.get_context("fork")
    for _ in range(3):
        halfway = context.Event()
        process = context.Process(target=store.put, args=(KEY, Endless(PDF)))
        process.start()
        assert halfway.wait(30)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join(30)
    left = list((store.root / ".temporary").iterdir())
    assert len(left) == 3
    assert keys_in(store) == []
    now = datetime.now(UTC)
    assert store.sweep_temporaries(timedelta(hours=1), now) == 0
    assert store.sweep_temporaries(timedelta(hours=1), now + timedelta(hours=2)) == 3
    assert list((store.root / ".temporary").iterdir()) == []
    assert store.size(KEY) is None
    store.put(KEY, io.BytesIO(PDF))
    assert store.size(KEY) == len(PDF)


def test_a_sweep_before_anything_was_stored_finds_nothing(store: DiskStore) -> None:
    assert store.sweep_temporaries(timedelta(0), datetime.now(UTC)) == 0


def test_a_full_disk_is_said_to_be_full_and_leaves_nothing(store: DiskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(KEY, io.BytesIO(PDF))

    def onto_a_full_device() -> Path:
        link = store.root / ".temporary" / "full"
        link.symlink_to("/dev/full")
        return link

    monkeypatch.setattr(store, "_temporary_file", onto_a_full_device)
    with pytest.raises(StoreFull) as caught:
        store.put(artifact_key("main", "INV-2", 1), io.BytesIO(PDF))
    assert "No space" in caught.value.words
    assert keys_in(store) == [KEY]
    assert list((store.root / ".temporary").iterdir()) == []


def test_a_disk_that_fills_up_while_a_download_is_staged_is_said_to_be_full(store: DiskStore) -> None:
    with pytest.raises(StoreFull), store.staging(), open("/dev/full", "wb", buffering=0) as full:  # noqa: PTH123  # a device
        full.write(b"x")


def test_other_errors_of_the_one_who_stages_are_left_alone(store: DiskStore) -> None:
    with pytest.raises(ConnectionResetError), store.staging():
        raise ConnectionResetError


def test_a_folder_that_refuses_us_is_not_a_missing_object(store: DiskStore) -> None:
    store.put(KEY, io.BytesIO(PDF))

    def as_nobody() -> None:
        if os.geteuid() == 0:
            os.setegid(65534)
            os.seteuid(65534)
        else:
            store.root.chmod(0)
        uses: list[Callable[[], Any]] = [
            lambda: store.size(KEY),
            lambda: store.open(KEY),
            lambda: store.put(KEY, io.BytesIO(PDF)),
            lambda: keys_in(store),
            lambda: store.ready(),
        ]
        for use in uses:
            with pytest.raises(StoreDenied):
                use()

    try:
        in_child(as_nobody)
    finally:
        store.root.chmod(0o700)


def test_an_unmounted_volume_is_not_a_store_without_files(store: DiskStore) -> None:
    store.put(KEY, io.BytesIO(PDF))
    store.root.rename(store.root.with_name("elsewhere"))
    store.root.mkdir()  # the empty mount point
    for same in (store, DiskStore(store.root)):
        for use in (same.size, same.open):
            with pytest.raises(StoreUnavailable, match="mounted"):
                use(KEY)
        with pytest.raises(StoreUnavailable):
            keys_in(same)
    with pytest.raises(StoreUnavailable):
        store.put(KEY, io.BytesIO(PDF))
    with pytest.raises(StoreUnavailable):
        store.ready()
    assert list(store.root.iterdir()) == []
    store.root.rmdir()
    store.root.with_name("elsewhere").rename(store.root)
    store.ready()
    assert store.size(KEY) == len(PDF)


def stage(store: DiskStore) -> None:
    with store.staging():
        raise AssertionError("nothing may be staged where no store is")


USES: dict[str, Callable[[DiskStore], Any]] = {
    "put": lambda store: store.put(KEY, io.BytesIO(PDF)),
    "staging": stage,
    "ready": DiskStore.ready,
    "open": lambda store: store.open(KEY),
    "size": lambda store: store.size(KEY),
    "iter_facts": lambda store: list(store.iter_facts()),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("folder", ["an empty folder", "no folder", "a folder with files of others"])
def test_no_use_of_a_folder_makes_it_a_store(tmp_path: Path, folder: str, use: str) -> None:
    root = tmp_path / "mount" / "store"
    if folder != "no folder":
        root.mkdir(parents=True)
    if folder == "a folder with files of others":
        (root / "lost+found").mkdir()
    before = sorted(tmp_path.rglob("*"))

    def try_it() -> None:
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="mounted") as caught:
                USES[use](DiskStore(root))
            assert "bootstrap" in caught.value.words

    try_it()
    in_child(try_it)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_store_is_made_by_ensure_alone_and_twice_changes_nothing(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "store"
    DiskStore(root).ensure()
    store = DiskStore(root)
    store.ready()
    store.put(KEY, io.BytesIO(PDF))
    marker = (root / ".artifact-store").stat()
    DiskStore(root).ensure()
    again = (root / ".artifact-store").stat()
    assert (again.st_ino, again.st_mtime_ns) == (marker.st_ino, marker.st_mtime_ns)
    assert store.size(KEY) == len(PDF)


def test_a_store_where_no_folder_can_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreUnavailable):
        DiskStore(tmp_path / "file" / "store").ensure()


def test_a_store_that_goes_away_and_comes_back_keeps_its_objects(store: DiskStore) -> None:
    """Also in a process that has used it: nothing is remembered about it."""
    store.put(KEY, io.BytesIO(PDF))
    elsewhere = store.root.with_name("elsewhere")
    store.root.rename(elsewhere)
    for use in USES.values():
        with pytest.raises(StoreUnavailable, match="mounted"):
            use(store)
    assert not store.root.exists()
    elsewhere.rename(store.root)
    store.ready()
    assert store.size(KEY) == len(PDF)


def test_a_folder_that_another_process_removed_is_made_again(store: DiskStore) -> None:
    store.put(KEY, io.BytesIO(PDF))
    in_child(lambda: DiskStore(store.root).delete(KEY))
    assert not (store.root / KEY).parent.exists()
    store.put(KEY, io.BytesIO(PDF))
    assert store.size(KEY) == len(PDF)


def test_a_file_in_the_way_is_reported_and_not_replaced(store: DiskStore) -> None:
    store.put("main", io.BytesIO(b"in the way"))
    with pytest.raises(StoreUnavailable):
        store.put(KEY, io.BytesIO(PDF))
    assert store.size("main") == 10


def test_a_source_that_does_not_exist_is_the_callers_error(store: DiskStore, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        store.put(KEY, tmp_path / "nothing")


def test_a_write_that_is_shorter_on_the_disk_is_reported(store: DiskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = Path.replace

    def cut(path: Path, target: Path) -> Path:
        os.truncate(path, 3)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", cut)
    with pytest.raises(StoreUnavailable, match="holds 3"):
        store.put(KEY, io.BytesIO(PDF))


def test_kill_9_while_pdfs_are_kept_leaves_whole_objects_or_none(store: DiskStore, tmp_path: Path) -> None:
    """Fifty times, at any instant: what has its name is whole, and what has none is swept."""
    source = tmp_path / "whole.pdf"
    content = PDF * 20_000
    source.write_bytes(content)
    keys = [artifact_key("main", f"INV-{number}", 1) for number in range(10_000)]

    def put_on_and_on(start: int) -> None:
        for key in keys[start:]:
            store.put_if_absent(key, source)

    context = multiprocessing.get_context("fork")
    for turn in range(50):
        process = context.Process(target=put_on_and_on, args=(turn * 100,))
        process.start()
        process.join(0.003 * (turn % 10) + 0.005)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join(30)
        assert process.exitcode == -signal.SIGKILL
    found = list(store.iter_facts())
    assert found, "some were stored between the kills"
    assert {facts.byte_count for facts in found} == {len(content)}
    for facts in found[:20]:
        assert (store.root / facts.key).read_bytes() == content
    store.sweep_temporaries(timedelta(hours=1), datetime.now(UTC) + timedelta(hours=2))
    assert list((store.root / ".temporary").iterdir()) == []
    assert len(list(store.iter_facts())) == len(found), "the sweep takes no object"


# --- names and folders of somebody else ---


def test_what_cannot_be_looked_at_is_listed_with_its_trouble_and_the_rest_follows(
    store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("a/one", "b/two", "c/three"):
        store.put(key, io.BytesIO(PDF))
    (store.root / "a" / "link").symlink_to("nowhere")
    (store.root / "a" / "loop").symlink_to("loop")
    scan = os.scandir

    def scandir(path: Any) -> Any:
        if Path(path).name == "b":
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)
    found = [(facts.key, facts.trouble) for facts in store.iter_facts()]
    assert found == [("a/link", ""), ("a/loop", ""), ("a/one", ""), ("b/", "Permission denied"), ("c/three", "")]
    assert [facts.key for facts in store.iter_facts("b/")] == ["c/three"], "told once, however the slices fall"


def test_a_store_whose_own_folder_cannot_be_listed_is_not_an_empty_one(
    store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scandir(path: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(StoreDenied):
        list(store.iter_facts())


def test_folders_of_any_depth_do_not_end_the_listing(store: DiskStore) -> None:
    folder = store.root
    for _ in range(900):
        folder = folder / "d"
    folder.mkdir(parents=True)
    store.put("e/one", io.BytesIO(PDF))
    deep, one = store.iter_facts()
    assert "longer than any key" in deep.trouble
    assert one.key == "e/one"


def test_the_words_of_an_error_name_the_file_that_it_is_about(store: DiskStore) -> None:
    store.put(KEY, io.BytesIO(PDF))
    path = store.root / KEY
    path.unlink()
    path.symlink_to(path.name)
    with pytest.raises(StoreUnavailable) as caught:
        store.size(KEY)
    assert caught.value.words.startswith(f"{KEY} in the store's folder {store.root} cannot be used: Too many levels")
