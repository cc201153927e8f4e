"""Syncs of one folder that threads share: nobody returns before a sync has ended that began after they asked."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from pathlib import Path

import pytest

from batches.storage import StoreUnavailable, artifact_key, foldersync
from batches.storage.disk import DiskStore
from batches.storage.foldersync import FolderSyncs

LONG = 30.0


class Disk:
    """Stands in for one sync of a folder: each waits to be let through, and its beginning and end get a number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now = 0
        self._lock = threading.Lock()
        self.began: list[int] = []
        self.ended: list[int] = []
        self.begins = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.fails = False
        monkeypatch.setattr(foldersync, "sync_folder", self._sync)

    def tick(self) -> int:
        with self._lock:
            self._now += 1
            return self._now

    def _sync(self, _folder: Path) -> None:
        self.began.append(self.tick())
        self.begins.release()
        assert self.go.acquire(timeout=LONG)
        if self.fails:
            raise OSError(5, "the disk is sick")
        self.ended.append(self.tick())


class Asking(threading.Thread):
    def __init__(self, syncs: FolderSyncs, disk: Disk) -> None:
        super().__init__(daemon=True)
        self._syncs, self._disk = syncs, disk
        self.asked_at = self.answered_at = 0
        self.error: OSError | None = None
        self.asks = threading.Event()

    def run(self) -> None:
        self.asked_at = self._disk.tick()
        self.asks.set()
        try:
            self._syncs.sync(Path("folder"))
        except OSError as error:
            self.error = error
        self.answered_at = self._disk.tick()


def asking(syncs: FolderSyncs, disk: Disk, count: int) -> list[Asking]:
    """So many threads that have asked by now, counted by the syncs themselves."""
    known = syncs._folders.get((os.getpid(), Path("folder")))
    before = known.asked if known else 0
    threads = [Asking(syncs, disk) for _ in range(count)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + LONG
    while time.monotonic() < until:
        known = syncs._folders.get((os.getpid(), Path("folder")))
        if known and known.asked == before + count:
            return threads
        time.sleep(0.001)
    raise AssertionError("they did not ask")


def test_all_who_ask_while_one_sync_runs_share_the_next_and_none_takes_the_one_that_had_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, syncs = Disk(monkeypatch), FolderSyncs()
    first = asking(syncs, disk, 1)
    assert disk.begins.acquire(timeout=LONG)
    others = asking(syncs, disk, 5)
    disk.go.release(2)
    for thread in first + others:
        thread.join(LONG)
    assert len(disk.began) == len(disk.ended) == 2
    for thread in first + others:
        pairs = zip(disk.began, disk.ended, strict=True)
        assert any(thread.asked_at < began and ended < thread.answered_at for began, ended in pairs)
        assert thread.error is None


def test_a_sync_that_fails_counts_for_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, syncs = Disk(monkeypatch), FolderSyncs()
    disk.fails = True
    first = asking(syncs, disk, 1)
    assert disk.begins.acquire(timeout=LONG)
    others = asking(syncs, disk, 2)
    disk.go.release(3)
    for thread in first + others:
        thread.join(LONG)
    assert [str(thread.error) for thread in first + others] == ["[Errno 5] the disk is sick"] * 3
    assert len(disk.began) == 3, "each of them tried"


def test_one_after_the_other_gets_a_sync_each(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, syncs = Disk(monkeypatch), FolderSyncs()
    disk.go.release(3)
    for _ in range(3):
        syncs.sync(Path("folder"))
    assert len(disk.ended) == 3


def test_a_child_that_was_forked_during_a_sync_waits_for_nobody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    disk, syncs = Disk(monkeypatch), FolderSyncs()
    [thread] = asking(syncs, disk, 1)
    assert disk.begins.acquire(timeout=LONG)

    def in_child() -> None:
        disk.go.release()
        syncs.sync(Path("folder"))

    process = multiprocessing.get_context("fork").Process(target=in_child)
    process.start()
    process.join(LONG)
    assert process.exitcode == 0
    disk.go.release()
    thread.join(LONG)
    assert not thread.is_alive()


def test_the_folder_above_a_new_one_is_synced_after_it_was_made_and_before_the_put_returns(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Many threads at once: for each put there is a sync of the workspace's folder that began after its folder was
    made and ended before it returned, though there are fewer syncs than puts."""
    store = DiskStore(tmp_path)
    store.ensure()
    source = tmp_path.parent / "whole.pdf"
    source.write_bytes(b"%PDF-1.4\n%%EOF\n")
    made: dict[str, float] = {}
    syncs: list[tuple[float, float]] = []
    returned: dict[str, float] = {}
    mkdir, sync_folder = os.mkdir, foldersync.sync_folder

    def noted_mkdir(path: Path, mode: int = 0o777) -> None:
        mkdir(path, mode)
        made[Path(path).name] = time.monotonic()

    def noted_sync(folder: Path) -> None:
        began = time.monotonic()
        sync_folder(folder)
        time.sleep(0.01)  # long enough that others ask meanwhile
        if folder.name == "main":
            syncs.append((began, time.monotonic()))

    monkeypatch.setattr(os, "mkdir", noted_mkdir)
    monkeypatch.setattr(foldersync, "sync_folder", noted_sync)

    def put(number: int) -> None:
        key = artifact_key("main", f"INV-{number}", 1)
        assert store.put_if_absent(key, source) is not None
        returned[key.split("/")[1]] = time.monotonic()

    threads = [threading.Thread(target=put, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert len(returned) == 24
    for folder, at in returned.items():
        assert any(made[folder] <= began and ended <= at for began, ended in syncs)
    assert len(syncs) < 24


def test_a_new_workspace_folder_is_synced_by_every_process_that_stores_into_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whoever made it may not have brought it down yet."""
    DiskStore(tmp_path).ensure()
    (tmp_path / "main").mkdir()
    synced: list[Path] = []
    sync_folder = foldersync.sync_folder

    def noted(folder: Path) -> None:
        synced.append(folder)
        sync_folder(folder)

    monkeypatch.setattr(foldersync, "sync_folder", noted)
    source = tmp_path.parent / "whole.pdf"
    source.write_bytes(b"%PDF")
    DiskStore(tmp_path).put(artifact_key("main", "INV-1", 1), source)
    assert tmp_path in synced


def test_a_sick_folder_is_the_stores_trouble(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    store.ensure()
    source = tmp_path.parent / "whole.pdf"
    source.write_bytes(b"%PDF")

    def sick(_folder: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(foldersync, "sync_folder", sick)
    with pytest.raises(StoreUnavailable):
        store.put_if_absent(artifact_key("main", "INV-1", 1), source)
