"""Walls around the renderer that do not depend on the engine's good manners.

The engine is told to fetch nothing (`plutoprint_engine`). These are the second walls: no network to reach, no
file to read but the fonts, none to write, bounded memory, processor time and clock time. The first two need a
Linux that offers them; `Fences` tells which of them hold, so that it is never guessed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from batches.sandbox.rendering.work import RenderLimits

_LINUX = sys.platform.startswith("linux")

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38

# Landlock (Linux 5.13): numbers are the same on every architecture.
_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_LANDLOCK_VERSION_FLAG = 1
_LANDLOCK_RULE_PATH_BENEATH = 1
_LANDLOCK_READ_FILE, _LANDLOCK_READ_DIR = 1 << 2, 1 << 3
# What each version of the interface can forbid: 13 rights, then renaming across folders, then truncation.
_LANDLOCK_RIGHTS = {1: 13, 2: 14, 3: 15}


@dataclass(frozen=True)
class Fences:
    """Which of the walls that need a cooperating system hold."""

    network: bool
    files: bool

    def as_byte(self) -> bytes:
        return bytes([self.network | self.files << 1])

    @classmethod
    def from_byte(cls, value: int) -> Fences:
        return cls(network=bool(value & 1), files=bool(value & 2))


def die_with_parent(parent_pid: int) -> None:
    """Ask the kernel to kill this process when its parent ends (Linux); leave at once if it already has."""
    if _LINUX:
        _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(0)


def leave_network() -> bool:
    """Move this process, and all that it will fork, into a network namespace without interfaces."""
    return _LINUX and _libc().unshare(_CLONE_NEWUSER | _CLONE_NEWNET) == 0


def leave_files(readable: Sequence[Path]) -> bool:
    """From here on this process and its children can open only what lies beneath `readable`, for reading."""
    if not _LINUX:
        return False
    libc = _libc()
    version = libc.syscall(_LANDLOCK_CREATE_RULESET, None, 0, _LANDLOCK_VERSION_FLAG)
    if version < 1:
        return False
    rights = (1 << _LANDLOCK_RIGHTS[min(version, max(_LANDLOCK_RIGHTS))]) - 1
    handled = ctypes.create_string_buffer(struct.pack("=Q", rights), 8)
    ruleset = libc.syscall(_LANDLOCK_CREATE_RULESET, handled, 8, 0)
    if ruleset < 0:
        return False
    try:
        for path in readable:
            with contextlib.suppress(FileNotFoundError):
                _allow_reading(libc, ruleset, path)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        return bool(libc.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0) == 0)
    finally:
        os.close(ruleset)


def limit_child(limits: RenderLimits) -> None:
    """Bound the calling process, which is about to render one document and exit.

    The timer's signal keeps its default action: the kernel ends the process without asking its code.
    """
    for name, value in (
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_CPU, limits.cpu_seconds),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 64),
    ):
        hard = resource.getrlimit(name)[1]
        allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
        # Not every system knows every limit (macOS has no address space limit to speak of).
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(name, (allowed, allowed))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, limits.wall_seconds)


def _allow_reading(libc: ctypes.CDLL, ruleset: int, path: Path) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rights = _LANDLOCK_READ_FILE | (_LANDLOCK_READ_DIR if path.is_dir() else 0)
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, descriptor), 12)
        libc.syscall(_LANDLOCK_ADD_RULE, ruleset, _LANDLOCK_RULE_PATH_BENEATH, rule, 0)
    finally:
        os.close(descriptor)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
