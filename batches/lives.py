"""Proof that a cluster is dead: a lock that all of its processes hold together, and that only their last end frees.

A life is one run of q-main with everything below it. Its file is locked (`flock`) by q-main before it forks; children
inherit the descriptor, and with it the lock. So whoever can lock the file knows that not one of them is left: not a
worker that was stopped or orphaned, whatever became of process ids and namespaces. Names of lives are random, so that a
name in a row (`PumpSlot.owner`, `Job.lease_owner`) can belong to no other process.

Holds for one kernel, the one that keeps the locks: files of other machines in a shared folder are never judged.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path

logger = logging.getLogger(__name__)

#: Leases outlast a cluster by seconds; a file that nobody has judged for this long says nothing that still matters.
FORGOTTEN_SECONDS = 7 * 86400.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_current = ""
#: Kept open until the process ends, here and in every process that is forked from it.
_descriptor: int | None = None


def current() -> str:
    """The life that this process belongs to; empty outside a cluster, and where a life could not be begun."""
    return _current


def begin(folder: Path) -> None:
    """Begin a life that this process shares with all that it forks from now on. To be called before the first fork.

    Where the folder cannot be written or locked, there is no life: then only leases say when a cluster is dead.
    """
    global _current, _descriptor
    name = secrets.token_hex(8)
    path = folder / f"{_kernel()}.{name}.life"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Locked before it has the name under which it is judged, and never inherited by a program (close-on-exec).
        unborn = path.with_suffix(".new")
        descriptor = os.open(unborn, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unborn.rename(path)
    except OSError as error:
        logger.warning("%s cannot hold a lock (%s); what a killed cluster held waits for its leases", folder, error)
        return
    _current, _descriptor = name, descriptor


def bury(folder: Path, take_over: Callable[[str], None]) -> int:
    """Call `take_over` with the name of each life that has ended, then forget that life; how many there were.

    An error of `take_over` is passed on, and the life is found again at the next call.
    """
    buried = 0
    for path in sorted(folder.glob(f"{_kernel()}.*.life")):
        try:
            descriptor = os.open(path, os.O_RDWR)
        except OSError:
            continue  # buried by another since it was listed
        try:
            if _is_over(descriptor, path):
                take_over(path.name.split(".")[-2])
                path.unlink(missing_ok=True)
                buried += 1
        finally:
            os.close(descriptor)
    _forget(folder)
    return buried


def _is_over(descriptor: int, path: Path) -> bool:
    """Whether nobody holds the life any more; then this process holds it, until it closes the descriptor."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Somebody else may have buried it between the opening and the lock.
        return os.fstat(descriptor).st_ino == path.stat().st_ino
    except OSError:
        return False


def _forget(folder: Path) -> None:
    """Remove what other machines, earlier boots and unfinished beginnings left long ago."""
    for path in folder.glob("*.*"):
        if path.name.startswith(f"{_kernel()}.") and path.suffix == ".life":
            continue
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < time.time() - FORGOTTEN_SECONDS:
                path.unlink()


def _kernel() -> str:
    """What tells one running kernel from another; containers of one machine share it, as they share its locks."""
    try:
        return _BOOT_ID.read_text("ascii").strip().replace("-", "")
    except OSError:
        return "".join(letter if letter.isalnum() else "-" for letter in socket.gethostname())
