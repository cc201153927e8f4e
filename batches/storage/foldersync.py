"""Bringing a folder's entries down to the disk, together for all threads that wait for the same folder.

A name survives a power cut only after a sync of its folder that began when the name was there. Threads that finish at
once need no sync each: one that begins after all of them have asked serves them all.
"""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path


class _Folder:
    """One folder's syncs in this process: how many were asked for, and up to which of these they are done."""

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.counting = threading.Lock()
        self.asked = 0
        self.done = 0


class FolderSyncs:
    """The shared syncs of one store. Safe to share between threads, and to carry over a fork."""

    def __init__(self) -> None:
        #: By process id, for a lock that another thread holds while a process forks stays locked in the child.
        self._folders: dict[tuple[int, Path], _Folder] = {}

    def sync(self, folder: Path) -> None:
        """Return when a sync of `folder` has ended that began after this call did. Raises `OSError`."""
        key = (os.getpid(), folder)
        known = self._folders.get(key) or self._folders.setdefault(key, _Folder())
        with known.counting:
            known.asked += 1
            mine = known.asked
        with known.turn:
            if known.done >= mine:
                return  # the one before began it after we had asked
            with known.counting:
                served = known.asked
            sync_folder(folder)
            known.done = served


def sync_folder(folder: Path) -> None:
    """One sync, now. Raises `OSError`."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some network file systems have no sync for folders; the rename is then as durable as they make it.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)
