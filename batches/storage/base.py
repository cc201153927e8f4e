"""The interface of the artifact store: put, open, size, delete, list. No database, no decision about any document."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import BinaryIO, Protocol


@dataclass(frozen=True)
class StoredObject:
    """An object that is durably there. `byte_count` was read back from the store after the write."""

    key: str
    byte_count: int


@dataclass(frozen=True)
class ObjectFacts:
    """What the store knows of an object without reading it. `changed_at` is UTC, by the store's own clock.

    `trouble`: why it, or all that lies below a folder, could not be looked at; the other facts then say nothing.
    """

    key: str
    byte_count: int
    changed_at: datetime
    trouble: str = ""


class ArtifactStore(Protocol):
    """Objects under keys made by `keys.py`. Every method raises from the tree in `errors.py`.

    Safe to share between threads, and to carry over a fork.
    """

    def put(self, key: str, source: Path | BinaryIO) -> StoredObject:
        """Store `source` whole, from its first byte wherever its pointer stands, and leave it open.

        When this returns, the object survives a power cut. It replaces what the key held; readers see the old object or
        the new one, never a part. The same put again changes nothing.
        """
        ...

    def put_if_absent(self, key: str, source: Path) -> StoredObject | None:
        """As `put`, but an object that is there already is never replaced; None when nothing was written.

        None also where this store cannot promise that for an object of this size. Of two who put at once, one wins.
        """
        ...

    def open(self, key: str) -> BinaryIO:
        """The object for reading, seekable. Raises `ObjectMissing`."""
        ...

    def open_range(self, key: str, *, start: int, length: int) -> Iterator[bytes]:
        """So many bytes of an object from `start` on, in pieces, without reading the others. Raises `ObjectMissing`
        before the first piece; the object may turn out to end earlier."""
        ...

    def size(self, key: str) -> int | None:
        """Byte count, or None when the store says that the object is not there."""
        ...

    def delete(self, key: str) -> None:
        """Remove the object; no error when it is gone already."""
        ...

    def iter_facts(self, after: str = "") -> Iterator[ObjectFacts]:
        """Every object whose key stands behind `after`, in the order of their keys.

        Also what somebody else put there, whose names are no keys of ours and may hold anything that a file's name can
        (`keys.shown` makes them fit for people and rows). `after` is only compared, so it may be such a name. What
        cannot be looked at is told as an object's `trouble`, and the others follow.
        """
        ...

    def sweep_temporaries(self, older_than: timedelta, now: datetime) -> int:
        """Remove what killed writers left behind; how many there were."""
        ...

    def staging(self) -> AbstractContextManager[Path]:
        """The path of a new, empty, private file to collect bytes in; it is removed at the end."""
        ...

    def ensure(self) -> None:
        """Make the store where there is none yet. Only an installation that has stored nothing may call this."""
        ...

    def ready(self) -> None:
        """Return when objects can be read and written, as far as can be told without writing one."""
        ...

    def free_bytes(self) -> int | None:
        """What still fits, or None where nobody can tell."""
        ...
