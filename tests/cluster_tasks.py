"""Tasks that prove that a cluster works, for `tests/test_cluster.py`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from batches import cluster


def leave_mark(path: str) -> None:
    """Write the worker's process id to `path`."""
    Path(path).write_text(str(os.getpid()))


def hold(path: str, seconds: float) -> None:
    """Leave a mark, then work on as a pump does: until its time is over or the cluster drains."""
    leave_mark(path)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if cluster.draining():
            Path(path + ".drained").write_text(str(os.getpid()))
            return
        time.sleep(0.02)


def hang(path: str) -> None:
    """Leave a mark, then ignore everything."""
    leave_mark(path)
    while True:
        time.sleep(1)


def start_program(path: str) -> None:
    """Start a program that ends by nobody's wish but ours; its process id goes to `path`."""
    program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(path).write_text(str(program.pid))
    time.sleep(600)
