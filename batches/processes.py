"""What keeps a tree of processes whole: children that die with their parent, and signals that are only noted.

Linux gives the strong promise (no orphan survives a kill -9 of its parent). Elsewhere `die_with_parent` does nothing
and the trees still stop cleanly when they are asked to.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
from pathlib import Path
from types import FrameType

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_M_ARENA_MAX = -8
HEAPS_MOST = 2
# Loaded before any fork: a child between fork and exec must not load libraries.
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_parent_of_fork = 0
_forks_die_with_parent = False


def die_with_parent(signal_number: int = signal.SIGKILL, *, parent: int | None = None) -> None:
    """Ask the kernel to send this process `signal_number` as soon as the thread that made it ends (Linux only).

    `parent` is the process that is to be outlived by nobody: when it has died already, this process ends at once.
    """
    if _libc is None:
        return
    _libc.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Make this process the parent of every orphan below it, so that it can wait until they are gone (Linux only)."""
    if _libc is not None:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children() -> list[int]:
    """The process ids of this process's children, adopted ones too (Linux; empty elsewhere)."""
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text("ascii").split()]
    except OSError:
        return []


def name_process(name: str) -> None:
    """Show this process as `name` (15 characters at most) in ps and top (Linux only)."""
    if _libc is not None:
        _libc.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def share_heaps_between_threads() -> None:
    """Let the threads of this process and of its forks share few heaps (glibc only).

    Else each of dozens of threads gets one that keeps what it once needed: megabytes in each worker that nobody uses.
    """
    if _libc is not None and hasattr(_libc, "mallopt"):
        _libc.mallopt(_M_ARENA_MAX, HEAPS_MOST)


def make_forks_die_with_parent() -> None:
    """From now on every `os.fork` in this process and below it makes a child that is killed when its parent ends.

    There is no way back, so only commands that own their whole process tree call this.
    """
    global _forks_die_with_parent
    if _forks_die_with_parent:
        return
    _forks_die_with_parent = True
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)


def _before_fork() -> None:
    global _parent_of_fork
    _parent_of_fork = os.getpid()


def _after_fork_in_child() -> None:
    die_with_parent(parent=_parent_of_fork)


class SignalPipe:
    """Signals as bytes in a pipe: the handler only notes them, and the loop that reads `fileno()` decides.

    Locks that are taken in a handler can be held by the very code that it interrupted.
    """

    def __init__(self, *numbers: int) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._received: set[int] = set()
        for number in numbers:
            signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._received.add(number)
        with contextlib.suppress(BlockingIOError):  # then the pipe is full of wake-ups already
            os.write(self._writer, b"\0")

    def fileno(self) -> int:
        return self._reader

    def wait(self, seconds: float | None) -> None:
        """Return as soon as a signal has arrived, or after `seconds`."""
        select.select([self._reader], [], [], seconds)

    def take(self) -> set[int]:
        """The signals that arrived since the last call."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._reader, 4096)
        received, self._received = self._received, set()
        return received

    def close(self) -> None:
        os.close(self._reader)
        os.close(self._writer)
