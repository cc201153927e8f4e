"""The proof of a cluster's death: only when the very last process that shared its life is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from batches import lives
from tests.stack_process import REPOSITORY, eventually

#: Begins a life, forks a child that only waits, and says both process ids.
FAMILY = """
import os, pathlib, sys, time
from batches import lives
lives.begin(pathlib.Path(sys.argv[1]))
child = os.fork()
if child:
    print(child, lives.current(), flush=True)
time.sleep(600)
"""


class Family:
    """A process that began a life, and its child."""

    def __init__(self, folder: Path) -> None:
        self.parent = subprocess.Popen(
            [sys.executable, "-c", FAMILY, str(folder)], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
        )
        assert self.parent.stdout is not None
        child, self.life = self.parent.stdout.readline().split()
        self.child = int(child)

    def kill_parent(self) -> None:
        self.parent.kill()
        self.parent.wait()
        if self.parent.stdout is not None:
            self.parent.stdout.close()

    def kill_child(self) -> None:
        try:
            os.kill(self.child, signal.SIGKILL)
        except ProcessLookupError:
            return


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "clusters"
    folder.mkdir()
    return folder


@pytest.fixture
def family(folder: Path) -> Iterator[Family]:
    family = Family(folder)
    yield family
    family.kill_child()
    family.kill_parent()


def buried(folder: Path) -> list[str]:
    names: list[str] = []
    lives.bury(folder, names.append)
    return names


@pytest.mark.processes
def test_a_life_is_over_when_its_last_process_is_gone_and_is_buried_once(family: Family, folder: Path) -> None:
    assert buried(folder) == []
    family.kill_parent()
    assert buried(folder) == [], "its child lives"
    os.kill(family.child, signal.SIGSTOP)
    assert buried(folder) == [], "its child may wake up again"
    family.kill_child()
    assert eventually(lambda: buried(folder), "the end of the child") == [family.life]
    assert buried(folder) == []
    assert list(folder.iterdir()) == []


@pytest.mark.processes
def test_a_life_that_could_not_be_taken_over_is_found_again(family: Family, folder: Path) -> None:
    family.kill_child()
    family.kill_parent()

    def refuse(life: str) -> None:
        raise ConnectionError(life)

    def tried() -> bool:
        try:
            return lives.bury(folder, refuse) > 0
        except ConnectionError:
            return True

    eventually(tried, "the end of both")
    assert buried(folder) == [family.life]


def test_lives_of_other_machines_are_not_judged_and_forgotten_only_after_days(folder: Path) -> None:
    for name in ("0" * 32 + ".aa.life", "half.bb.new"):
        (folder / name).touch()
    assert buried(folder) == []
    assert len(list(folder.iterdir())) == 2
    for path in folder.iterdir():
        long_ago = path.stat().st_mtime - lives.FORGOTTEN_SECONDS - 60
        os.utime(path, (long_ago, long_ago))
    assert buried(folder) == []
    assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_used_means_no_life_and_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    in_the_way = tmp_path / "clusters"
    in_the_way.write_text("a file where the folder should be")
    lives.begin(in_the_way)
    assert lives.current() == ""
    assert "waits for its leases" in caplog.text
    assert buried(in_the_way) == []
