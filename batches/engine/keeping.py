"""Giving a verified PDF to the store: never over another one, and not again and again to a store in trouble.

Two rules live here. A pump that was asleep may put its PDF after a later submission's was saved; it must find the
place taken, or a row's digest would no longer be that of its object. And while the store has no room, one download at
a time finds out whether it has some again, not every document's.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from weakref import WeakKeyDictionary

from batches.storage import ArtifactStore, StoredObject, StoreError, StoreUnavailable, named_by_digest

COPY_BYTES = 256 * 1024
#: Between two looks at a store that refused an object; doubled each time up to the longest.
PROBE_FIRST = timedelta(seconds=2)
PROBE_MOST = timedelta(seconds=30)
#: Longer than any download and put may take.
PROBE_LOST = timedelta(minutes=3)


def keep(store: ArtifactStore, key: str, path: Path, *, sha256: str) -> StoredObject:
    """Store the file under `key`, or, where other bytes lie there already, beside it under its own digest.

    Returns where it lies. The same file again changes nothing. What lay there is left alone: it is the PDF of another
    submission, or the first half of a write whose row was refused; the sweep reports it when no row names it.
    """
    stored = store.put_if_absent(key, path)
    if stored is None:
        byte_count = path.stat().st_size
        if holds(store, key, sha256=sha256, byte_count=byte_count):
            return StoredObject(key, byte_count)
        # Only these very bytes are ever meant to lie under this name, so replacing them changes nothing.
        stored = store.put(named_by_digest(key, sha256), path)
    return stored


def holds(store: ArtifactStore, key: str, *, sha256: str, byte_count: int) -> bool:
    """Whether exactly these bytes lie under `key`, read back from the store."""
    if store.size(key) != byte_count:
        return False
    return digest_of(store, key) == sha256


def digest_of(store: ArtifactStore, key: str) -> str:
    """The hex SHA-256 of an object, read whole. Raises `StoreError`."""
    digest = hashlib.sha256()
    with store.open(key) as stream:
        try:
            while chunk := stream.read(COPY_BYTES):
                digest.update(chunk)
        except OSError as error:
            raise StoreUnavailable(f"{key} cannot be read ({error.strerror or error}).") from error
    return digest.hexdigest()


class StoreWaits(StoreError):
    """The store refused an object a moment ago; nothing was downloaded for it now."""


class StoreGate:
    """Whether it makes sense to download for this store now. Shared by the threads of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._words = ""
        self._probe_at: datetime | None = None
        self._wait = PROBE_FIRST

    @contextmanager
    def passing(self, store: ArtifactStore, *, now: datetime) -> Iterator[None]:
        """One download with its put. Raises `StoreWaits` instead of beginning one that could not be stored.

        After a refusal, one passes at a time, and only once the store says that it is ready; `stored` ends that.
        """
        is_probe = self._enter(now)
        try:
            if is_probe:
                store.ready()
            yield
        except StoreError as error:
            is_probe = False
            self._refused(error.words, now)
            raise
        finally:
            if is_probe:
                self._said_nothing(now)

    def stored(self) -> None:
        """The store took an object: all may pass."""
        with self._lock:
            self._probe_at, self._wait = None, PROBE_FIRST

    def _enter(self, now: datetime) -> bool:
        with self._lock:
            if self._probe_at is None:
                return False
            if now < self._probe_at:
                raise StoreWaits(self._words)
            self._probe_at = now + PROBE_LOST  # the others wait until this one knows
            return True

    def _refused(self, words: str, now: datetime) -> None:
        with self._lock:
            self._wait = min(self._wait * 2, PROBE_MOST) if self._probe_at is not None else PROBE_FIRST
            self._words, self._probe_at = words, now + self._wait

    def _said_nothing(self, now: datetime) -> None:
        """The probe came back without having put anything: the next one may try at once."""
        with self._lock:
            if self._probe_at is not None:
                self._probe_at = now


_gates: WeakKeyDictionary[ArtifactStore, StoreGate] = WeakKeyDictionary()
_gates_lock = threading.Lock()


def gate_of(store: ArtifactStore) -> StoreGate:
    """The one gate of this process for a store; it outlives a pump, as the trouble does."""
    with _gates_lock:
        return _gates.setdefault(store, StoreGate())
