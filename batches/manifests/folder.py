"""Files beside a manifest on disk, for the command line. Never leaves the manifest's folder."""

from __future__ import annotations

import os
import stat
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from batches.manifests import contents, paths
from batches.manifests.limits import Limits
from batches.manifests.problems import Code, Unfit


class FolderFiles:
    """The files below one folder. Links are followed only to places inside it."""

    def __init__(self, root: Path, limits: Limits) -> None:
        self._root = root.resolve()
        self._limits = limits

    def locate(self, path: str) -> str:
        """The name, from the folder on, of the file that a row means by `path`. Raises Unfit."""
        try:
            wanted = paths.normalised(path)
            found = self._existing(path, wanted)
        except paths.UnsafePath as reason:
            raise Unfit(Code.ARCHIVE_UNSAFE, f"{reason}.", _FIX_INSIDE) from reason
        except OSError as error:
            raise Unfit(Code.MISSING_FILE, f"cannot be read ({error.strerror}).", _FIX_THERE) from error
        if found is None:
            raise Unfit(Code.MISSING_FILE, "is not in the manifest's folder.", _FIX_THERE)
        if not found.is_relative_to(self._root):
            raise Unfit(Code.ARCHIVE_UNSAFE, "is a link that leads out of the manifest's folder.", _FIX_INSIDE)
        if not found.is_file():
            raise Unfit(Code.MISSING_FILE, "is not a file.", _FIX_THERE)
        return found.relative_to(self._root).as_posix()

    def read(self, name: str) -> bytes:
        """The bytes of a file that `locate` named. Raises Unfit."""
        try:
            descriptor = os.open(self._root / name, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | _NONBLOCK)
            with os.fdopen(descriptor, "rb") as file:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    raise Unfit(Code.MISSING_FILE, "is not a file.", _FIX_THERE)
                contents.check_size(status.st_size, self._limits)
                return file.read(self._limits.max_document_bytes + 1)
        except OSError as error:
            raise Unfit(Code.MISSING_FILE, f"cannot be read ({error.strerror}).", _FIX_THERE) from error

    def names(self) -> Iterator[str]:
        """All files below the folder, links and junk left out, at most `Limits.max_entries`."""
        count = 0
        for folder, _, files in os.walk(self._root):
            for file in sorted(files):
                full = Path(folder, file)
                name = full.relative_to(self._root).as_posix()
                count += 1
                if count > self._limits.max_entries:
                    return
                if not paths.is_junk(name) and not full.is_symlink():
                    yield name

    def _existing(self, path: str, wanted: str) -> Path | None:
        """The file as the disk spells it: composed, as written, or decomposed (macOS)."""
        as_written = path.replace("\\", "/")
        for spelling in (wanted, as_written, unicodedata.normalize("NFD", wanted)):
            found = (self._root / spelling).resolve()
            if found.exists():
                return found
        return None


_NONBLOCK = getattr(os, "O_NONBLOCK", 0)  # opening a pipe that nobody writes to would wait for ever
_FIX_INSIDE = "Name a file inside the manifest's folder, relative to the manifest."
_FIX_THERE = "Put the file there, or correct the path; it is taken relative to the manifest."
