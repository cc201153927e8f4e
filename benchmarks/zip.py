"""The ZIP of 10,000 stored PDFs through gunicorn, against a plain copy of the same files: `python -m benchmarks zip`.

The archive comes in two parts of 5,000, as a person gets it. Each is opened with all that people open them with.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks import report
from benchmarks.processes import say

FIRST_BYTE_MOST = 1.0
MB_A_SECOND_LEAST, SHARE_OF_COPY_LEAST = 60.0, 0.5
GROWTH_MOST_MB = 60.0
PIECE = 256 * 1024
CHILD = """
import sys, django
django.setup()
from benchmarks.zip_batch import main
main(int(sys.argv[1]), int(sys.argv[2]))
"""


@dataclass
class Taken:
    """One part as it came: seconds to its first byte and in all, its bytes, and by how much the worker grew."""

    path: Path
    first_byte: float
    seconds: float
    byte_count: int
    grown_mb: float


def run(*, documents: int, size: int, rounds: int) -> None:
    """Measure and write `results/zip.md`."""
    machine = report.machine()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = _made(folder, documents, size)
        copies, taken = [], []
        with _served(folder) as (port, worker):
            for number in range(rounds):
                copies.append(_copied(folder, documents * size))
                taken += _round(folder, made, port, worker)
                say(f"round {number + 1}: copy {copies[-1]:.0f} MB/s, {[_rate(each) for each in taken[-2:]]}")
            opened = [_opened(each.path, folder) for each in taken[-made["parts"] :]]
    _write(machine, documents, size, copies, taken, opened)


def _environment(folder: Path) -> dict[str, str]:
    return os.environ | {
        "DATABASE_URL": f"sqlite:///{folder}/db.sqlite3",
        "DATA_DIR": str(folder / "data"),
        "STORAGE_URL": f"file://{folder}/store",
        "DEBUG": "1",
        "DJANGO_SETTINGS_MODULE": "relaypdf_site.settings",
    }


def _made(folder: Path, documents: int, size: int) -> dict[str, Any]:
    command = [sys.executable, "-c", CHILD, str(documents), str(size)]
    (folder / "data").mkdir()
    done = subprocess.run(command, env=_environment(folder), stdout=subprocess.PIPE, text=True, check=True)
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


@contextlib.contextmanager
def _served(folder: Path) -> Iterator[tuple[int, psutil.Process]]:
    """One worker of gunicorn with the shipped settings, warm."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "gunicorn", "-c", "python:relaypdf_site.gunicorn_conf", "--workers", "1"]
    command += ["--bind", f"127.0.0.1:{port}", "relaypdf_site.wsgi"]
    with (folder / "gunicorn.log").open("wb") as log:
        server = subprocess.Popen(command, env=_environment(folder), stdout=log, stderr=log)
        try:
            _wait(port)
            (worker,) = psutil.Process(server.pid).children()
            yield port, worker
        finally:
            server.terminate()
            server.wait()


def _wait(port: int) -> None:
    for _ in range(600):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port)
            connection.request("GET", "/healthz")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise RuntimeError("gunicorn does not answer")


def _copied(folder: Path, byte_count: int) -> float:
    """MB/s of a plain copy of the store's files."""
    copy = folder / "copy"
    started = time.perf_counter()
    shutil.copytree(folder / "store" / "bench", copy)
    taken = time.perf_counter() - started
    shutil.rmtree(copy)
    return byte_count / taken / 1e6


def _round(folder: Path, made: dict[str, Any], port: int, worker: psutil.Process) -> list[Taken]:
    return [
        _part(folder / f"part{number}.zip", f"{made['address']}?part={number}", made["cookie"], port, worker)
        for number in range(1, made["parts"] + 1)
    ]


def _part(path: Path, address: str, cookie: str, port: int, worker: psutil.Process) -> Taken:
    before = worker.memory_info().rss
    peak = _Peak(worker)
    connection = http.client.HTTPConnection("127.0.0.1", port)
    started = time.perf_counter()
    connection.request("GET", address, headers={"Cookie": f"{cookie}", "Host": "localhost"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise RuntimeError(f"{address}: {answer.status} {answer.getheader('Location')}")
    piece = answer.read(1)
    first_byte = time.perf_counter() - started
    count = 0
    with path.open("wb") as out:
        while piece:
            count += out.write(piece)
            piece = answer.read(PIECE)
    seconds = time.perf_counter() - started
    if count != int(answer.getheader("Content-Length") or 0):
        raise RuntimeError("it was cut off")
    return Taken(path, first_byte, seconds, count, (peak.end() - before) / 1e6)


class _Peak(threading.Thread):
    """The largest resident memory of a process, looked at each 20 ms."""

    def __init__(self, process: psutil.Process) -> None:
        super().__init__(daemon=True)
        self._process, self._over, self._most = process, threading.Event(), 0
        self.start()

    def run(self) -> None:
        while not self._over.wait(0.02):
            self._most = max(self._most, self._process.memory_info().rss)

    def end(self) -> int:
        self._over.set()
        self.join()
        return max(self._most, self._process.memory_info().rss)


def _rate(taken: Taken) -> str:
    return f"{taken.byte_count / taken.seconds / 1e6:.0f} MB/s, first byte {taken.first_byte:.2f} s"


def _opened(path: Path, folder: Path) -> dict[str, str]:
    """What each program says of an archive: its last line, or that it is not installed."""
    said = {"Python": "failed"}
    with zipfile.ZipFile(path) as archive:
        if archive.testzip() is None:
            said["Python"] = "ok"
        unpacked = folder / "unpacked"
        archive.extractall(unpacked)
    seven = next((name for name in ("7zz", "7z", "7za") if shutil.which(name)), "7z")
    for name, command in (("Info-ZIP", ["unzip", "-tq"]), ("7-Zip", [seven, "t", "-bd"])):
        said[name] = _asked([*command, str(path)], folder)
    said["sha256sum -c"] = _asked(["sha256sum", "--quiet", "-c", "SHA256SUMS"], unpacked)
    shutil.rmtree(unpacked)
    return said


def _asked(command: list[str], where: Path) -> str:
    if shutil.which(command[0]) is None:
        return "not installed"
    return "ok" if subprocess.run(command, cwd=where, capture_output=True).returncode == 0 else "**failed**"


def _write(
    machine: str, documents: int, size: int, copies: list[float], taken: list[Taken], opened: list[dict[str, str]]
) -> None:
    rates = [each.byte_count / each.seconds / 1e6 for each in taken]
    rate, copy = sorted(rates)[len(rates) // 2], sorted(copies)[len(copies) // 2]
    first = [each.first_byte for each in taken]
    grown = max(each.grown_mb for each in taken)
    is_fast = rate >= MB_A_SECOND_LEAST or rate >= SHARE_OF_COPY_LEAST * copy
    rows = [
        ["first byte, s (≤ 1)", report.spread(first, "{:.2f}"), _verdict(max(first) <= FIRST_BYTE_MOST)],
        ["MB/s (≥ 60, or half of the copy)", report.spread(rates), _verdict(is_fast)],
        ["a plain copy of the same files, MB/s", report.spread(copies), ""],
        ["share of the copy", f"{rate / copy:.2f}", ""],
        ["growth of the worker, MB (≤ 60)", f"{grown:.0f}", _verdict(grown <= GROWTH_MOST_MB)],
    ]
    for program in opened[0]:
        answers = {each[program] for each in opened}
        rows.append([f"taken by {program}", ", ".join(sorted(answers)), _verdict(answers == {"ok"})])
    report.write(
        "zip",
        f"The ZIP of {documents:,} PDFs of {size // 1000} KB",
        machine,
        "One gunicorn worker with the shipped settings, disk store, SQLite, over loopback into a file; it comes "
        "in parts of 5,000. Median, least and most over all parts and rounds; the copy (`shutil.copytree`) of these "
        "files is made before each round. Growth is the largest resident memory during a part less that before it.",
        report.table(["", "measured", ""], rows),
    )


def _verdict(is_good: bool) -> str:
    return "reached" if is_good else "**missed**"
