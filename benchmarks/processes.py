"""Starting and asking the benchmark's own processes, and what they cost: CPU of a tree, PSS of a tree, load."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from batches.processes import die_with_parent

REPOSITORY = Path(__file__).resolve().parent.parent


class PeerProcess:
    """The peer as a process of its own; `url` is its address.

    `urgent` lets it go before others (as root only), so that an arrival's time is not that of the peer's own turn.
    """

    def __init__(self, *, urgent: bool = False) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.peer", *(["--urgent"] if urgent else [])],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if " ready at " not in line:
            raise RuntimeError("the peer did not start")
        self.url = line.split(" ready at ")[1].strip()

    def configure(self, *, delay: float | tuple[float, float] = 0.0, webhook: dict[str, str] | None = None) -> None:
        """Forget everything, and let jobs take this long from now on."""
        body = {"delay": list(delay) if isinstance(delay, tuple) else delay, "webhook": webhook}
        self._ask("POST", "configure", body)

    def stats(self) -> dict[str, Any]:
        answer: dict[str, Any] = self._ask("GET", "stats")
        return answer

    def jobs(self) -> dict[str, list[float]]:
        """Per job id: arrived, finished and fetched at (CLOCK_MONOTONIC), and status reads."""
        answer: dict[str, list[float]] = self._ask("GET", "jobs")
        return answer

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(10)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _ask(self, method: str, name: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/_peer/{name}", data=data, method=method)
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.loads(response.read())


@contextlib.contextmanager
def running_peer(*, urgent: bool = False) -> Iterator[PeerProcess]:
    peer = PeerProcess(urgent=urgent)
    try:
        yield peer
    finally:
        peer.stop()


def run_module(module: str, *arguments: str, env: dict[str, str] | None = None, python: str = "") -> dict[str, Any]:
    """Run a module of the benchmarks to its end; the JSON object on the last line that it prints."""
    done = subprocess.run(
        [python or sys.executable, "-m", module, *arguments],
        cwd=REPOSITORY,
        env=env,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{module} ended with {done.returncode}:\n{done.stdout}")
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def cpu_seconds(processes: list[psutil.Process]) -> float:
    """User and system time of these processes and of the children that they have buried."""
    total = 0.0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def tree(pid: int) -> list[psutil.Process]:
    """The process and everything below it."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def pss_megabytes(processes: list[psutil.Process]) -> float:
    """Proportional set size of these processes together: shared pages are counted once over all that share them."""
    total = 0
    for process in processes:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text("ascii").splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
    return total / 1024


class PeakPss:
    """Looks at a tree every half second while the block runs; `peak` is the most that it saw, in megabytes."""

    def __init__(self, pid: int, *, every: float = 0.5) -> None:
        self._pid, self._every = pid, every
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.peak = 0.0
        self.processes = 0

    def _watch(self) -> None:
        while not self._over.wait(self._every):
            found = tree(self._pid)
            now = pss_megabytes(found)
            if now > self.peak:
                self.peak, self.processes = now, len(found)

    def __enter__(self) -> PeakPss:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


def say(words: str) -> None:
    """Progress, on standard error and with the time."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {words}\n")
    sys.stderr.flush()
