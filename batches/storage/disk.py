"""The store on a disk, as files that survive a power cut.

Django's own file storage writes in place and never syncs, so a crash leaves a short file under the final name; here a
file gets its name only after its bytes are on the disk. It still lends its deleting.

    root/                         0700
      .artifact-store             says that this is the store, not the empty mount point of one
      .temporary/                 files that have no name yet, and staging files; swept by age
      {workspace}/{document}/v1.pdf
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

from django.core.files.storage import FileSystemStorage

from batches.storage.base import ObjectFacts, StoredObject
from batches.storage.errors import ObjectMissing, StoreDenied, StoreError, StoreFull, StoreUnavailable
from batches.storage.foldersync import FolderSyncs, sync_folder
from batches.storage.keys import MAX_KEY_LENGTH, checked_key, shown

MARKER = ".artifact-store"
TEMPORARY = ".temporary"
COPY_BYTES = 1024 * 1024


class DiskStore:
    """See `base.ArtifactStore`. All of `root` must lie on one file system, since a rename makes an object appear."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._files = FileSystemStorage(location=str(root), allow_overwrite=True)
        #: Folders whose own entry in their parent is known to be on the disk. Only ever a shortcut, so without a lock
        #: (which a fork could leave locked): what is missing in it is synced once more.
        self._synced: set[Path] = set()
        self._syncs = FolderSyncs()
        self._temporary, self._marker = root / TEMPORARY, root / MARKER

    def put(self, key: str, source: Path | BinaryIO) -> StoredObject:
        if isinstance(source, Path):
            with source.open("rb") as opened:
                return self.put(key, opened)
        if source.seekable():
            source.seek(0)
        with _store_words(self.root):
            final = self._path(key)
            self._require_marker()
            temporary = self._temporary_file()
            try:
                self._make_folder(final.parent)
                byte_count = _write_synced(temporary, source)
                self._appear(temporary, final)
            finally:
                temporary.unlink(missing_ok=True)
            found = final.stat().st_size
        if found != byte_count:
            raise StoreUnavailable(f"The store wrote {byte_count} bytes but holds {found}; is something else writing?")
        return StoredObject(key, byte_count)

    def put_if_absent(self, key: str, source: Path) -> StoredObject | None:
        # A staging file lies where it can get its name as it is; anything else is copied there first.
        is_staged = source.parent == self._temporary
        with _store_words(self.root):
            final = self._path(key)
            self._require_marker()
            if not is_staged and final.exists():
                return None
        with source.open("rb", buffering=0) as opened, _store_words(self.root):
            temporary = source if is_staged else self._temporary_file()
            try:
                # First: what brings the bytes down brings a new folder down with them, on a disk with a journal.
                self._make_folder(final.parent)
                byte_count = _synced(opened) if is_staged else _write_synced(temporary, opened)
                self._appear(temporary, final, anew=True)
            except FileExistsError:
                return None
            finally:
                if not is_staged:
                    temporary.unlink(missing_ok=True)
            found = final.stat().st_size
        if found != byte_count:
            raise StoreUnavailable(f"The store wrote {byte_count} bytes but holds {found}; is something else writing?")
        return StoredObject(key, byte_count)

    def open(self, key: str) -> BinaryIO:
        with _store_words(self.root):
            try:
                return self._path(key).open("rb")
            except (FileNotFoundError, NotADirectoryError):
                self._require_marker()
                raise ObjectMissing(key) from None

    def open_range(self, key: str, *, start: int, length: int) -> Iterator[bytes]:
        file = self.open(key)
        file.seek(start)
        return self._pieces(file, length)

    def _pieces(self, file: BinaryIO, length: int) -> Iterator[bytes]:
        with file, _store_words(self.root):
            while length and (piece := file.read(min(COPY_BYTES, length))):
                length -= len(piece)
                yield piece

    def size(self, key: str) -> int | None:
        with _store_words(self.root):
            try:
                found = self._path(key).stat()
            except (FileNotFoundError, NotADirectoryError):
                self._require_marker()
                return None
            return found.st_size if stat.S_ISREG(found.st_mode) else None

    def delete(self, key: str) -> None:
        with _store_words(self.root):
            final = self._path(key)
            self._files.delete(checked_key(key))
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                sync_folder(final.parent)
            self._remove_empty(final.parent)

    def iter_facts(self, after: str = "") -> Iterator[ObjectFacts]:
        with _store_words(self.root):
            self._require_marker()
            for key, trouble in self._walk("", after=after):
                facts = self._facts(key, trouble)
                if facts is not None:
                    yield facts

    def sweep_temporaries(self, older_than: timedelta, now: datetime) -> int:
        oldest = (now - older_than).timestamp()
        removed = 0
        with _store_words(self.root), contextlib.suppress(FileNotFoundError):
            for path in (self.root / TEMPORARY).iterdir():
                with contextlib.suppress(FileNotFoundError):
                    if path.stat().st_mtime < oldest:
                        path.unlink()
                        removed += 1
        return removed

    @contextmanager
    def staging(self) -> Iterator[Path]:
        with _store_words(self.root):
            self._require_marker()
            path = self._temporary_file()
        try:
            with full_disk_words(self.root):
                yield path
        finally:
            path.unlink(missing_ok=True)

    def ready(self) -> None:
        with _store_words(self.root):
            self._require_marker()
            if not os.access(self.root, os.R_OK | os.W_OK | os.X_OK):
                raise StoreDenied(f"The store's folder {self.root} is not writable for this process.")
            if shutil.disk_usage(self.root).free == 0:
                raise StoreFull(f"No space is left in {self.root}.")

    # --- how a file appears --------------------------------------------------------------------------------------

    def free_bytes(self) -> int | None:
        try:
            return shutil.disk_usage(self.root).free
        except OSError:
            return None

    def _path(self, key: str) -> Path:
        return self.root / checked_key(key)  # which holds no step that could leave it

    def ensure(self) -> None:
        with _store_words(self.root):
            self._make_folder(self.root / TEMPORARY)
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self.root / MARKER, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
                sync_folder(self.root)

    def _require_marker(self) -> None:
        """Before anything is written or called missing: the mount point of an absent volume must not look like the
        store, neither as one without files nor as a place for new ones."""
        if not self._marker.exists():
            raise StoreUnavailable(
                f"The folder {self.root} is not the store (it has no {MARKER} file). Is its volume mounted? "
                "`manage.py bootstrap` makes a new store where none was used yet."
            )

    def _temporary_file(self) -> Path:
        path = self._temporary / secrets.token_hex(16)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        return path

    def _appear(self, temporary: Path, final: Path, *, anew: bool = False) -> None:
        """Give the written file its name in its folder, which was made before, and sync the folder: only then does the
        name survive a power cut.

        With `anew`, raises `FileExistsError` where the name is taken.
        """
        for last_try in (False, True):
            try:
                if anew:
                    _name_anew(temporary, final)
                else:
                    temporary.replace(final)
                sync_folder(final.parent)
                return
            except FileNotFoundError:
                # A deletion in another process took the folder away in between, for it was empty.
                self._synced.discard(final.parent)
                if last_try:
                    raise
                self._make_folder(final.parent)

    def _make_folder(self, folder: Path) -> None:
        """Create `folder` and its parents, private, each one's entry synced in the folder above."""
        if folder in self._synced and folder.is_dir():
            return
        above = folder.parent
        # In the store, each folder on the way is seen to once by every process; those above the store are only made.
        is_inside = len(folder.parts) > len(self.root.parts)
        if above not in self._synced if is_inside else not (folder == above or above.is_dir()):
            self._make_folder(above)
        try:
            self._make_one(folder)
        except FileNotFoundError:
            self._synced.discard(above)  # it is there no more
            self._make_folder(above)
            self._make_one(folder)
        # Also where another process made it a moment ago: its entry may not be on the disk yet.
        with contextlib.suppress(PermissionError) if folder == self.root else contextlib.nullcontext():
            self._syncs.sync(above)
        if len(self._synced) > 10_000:
            self._synced.clear()
        self._synced.add(folder)

    @staticmethod
    def _make_one(folder: Path) -> None:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)

    def _facts(self, key: str, trouble: str) -> ObjectFacts | None:
        """Of the file itself, also where it is a link, whose end may be anything. None: deleted since it was listed."""
        try:
            found = (self.root / key).lstat()
        except FileNotFoundError:
            return None
        except OSError as error:
            return ObjectFacts(key, 0, datetime.fromtimestamp(0, UTC), trouble or _said(error))
        return ObjectFacts(key, found.st_size, datetime.fromtimestamp(found.st_mtime, UTC), trouble)

    def _walk(self, folder: str, after: str = "") -> Iterator[tuple[str, str]]:
        """Keys under `folder` ("" or ending in a slash) behind `after`, in the order of their bytes, as S3 lists them.

        Whole folders that stand before `after` are not read. One that cannot be read is told itself, with the reason.
        """
        if len(folder) > MAX_KEY_LENGTH:
            if folder > after:
                yield folder, "its name is longer than any key of this program"
            return
        try:
            with os.scandir(self.root / folder) as entries:
                names = sorted(
                    f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name
                    for entry in entries
                    if not entry.name.startswith(".")
                )
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            if not folder:
                raise
            if folder > after:
                yield folder, _said(error)
            return
        for name in names:
            key = folder + name
            if name.endswith("/") and (key > after or after.startswith(key)):
                yield from self._walk(key, after)
            elif not name.endswith("/") and key > after:
                yield key, ""

    def _remove_empty(self, folder: Path) -> None:
        """Remove `folder` when nothing is left in it; `_appear` makes it again when a writer meets this."""
        if folder == self.root:
            return
        with contextlib.suppress(OSError):
            folder.rmdir()
            self._synced.discard(folder)


def _synced(file: BinaryIO) -> int:
    """Bring the bytes of a file that is written down to the disk; the byte count."""
    os.fsync(file.fileno())
    return os.fstat(file.fileno()).st_size


def _write_synced(path: Path, source: BinaryIO) -> int:
    """Copy the rest of `source` into `path`, down to the disk; the byte count."""
    with path.open("wb") as out:
        shutil.copyfileobj(source, out, COPY_BYTES)
        byte_count = out.tell()
        out.flush()
        os.fsync(out.fileno())
    return byte_count


def _name_anew(temporary: Path, final: Path) -> None:
    """Give the file its name where nobody has it: a link fails where a rename would replace."""
    try:
        final.hardlink_to(temporary)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
            raise
        # A file system without links has nothing better than to look first.
        if final.exists():
            raise FileExistsError(errno.EEXIST, "the name is taken", str(final)) from None
        temporary.replace(final)


@contextmanager
def full_disk_words(where: Path) -> Iterator[None]:
    """Turns "no space left", met while something is written to a staging file, into `StoreFull`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(f"No space is left in {where}.") from error
        raise


@contextmanager
def _store_words(root: Path) -> Iterator[None]:
    """Turns the system's errors into the store's."""
    try:
        yield
    except StoreError:
        raise
    except PermissionError as error:
        raise StoreDenied(f"{_named(root, error)} refuses access to this process.") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(f"No space is left in {root}.") from error
        raise StoreUnavailable(f"{_named(root, error)} cannot be used: {_said(error)}.") from error


def _named(root: Path, error: OSError) -> str:
    """What the system's error is about: one path in the store, else the store's folder."""
    path = str(error.filename or root)
    inside = path.removeprefix(f"{root}/")
    return f"{shown(inside)} in the store's folder {root}" if inside != path else f"The store's folder {root}"


def _said(error: OSError) -> str:
    return error.strerror or str(error)
