"""The artifact store of a simulated world: objects in memory, a disk that fills up, an S3 that answers late or not.

A `put` takes time, so a process can die before the object is there or between the object and the answer. What
`durable` holds survives everything; checks read it directly.
"""

from __future__ import annotations

import io
import itertools
import random
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO

from batches.engine.pdfcheck import PdfFacts
from batches.storage import ObjectFacts, ObjectMissing, StoredObject, StoreFull, StoreUnavailable
from tests.simulation.plan import Plan
from tests.simulation.scheduler import Scheduler


class SimulatedStore:
    """See `storage.base.ArtifactStore`."""

    def __init__(self, scheduler: Scheduler, rng: random.Random, plan: Plan, folder: Path) -> None:
        self.scheduler = scheduler
        self.rng = rng
        self.plan = plan
        self.folder = folder
        self.durable: dict[str, bytes] = {}
        self.changed: dict[str, datetime] = {}
        self.is_full = False
        self.is_away = False
        self.is_calm = False
        self._staged = itertools.count(1)

    def _meets(self, kind: str) -> bool:
        return not self.is_calm and self.plan.has(kind) and self.rng.random() < self.plan.share

    def _takes_time(self) -> None:
        if self.scheduler.current is None:
            return  # somebody looks after the run
        self.scheduler.sleep(self.rng.uniform(1, 25) if self._meets("store_slow") else self.rng.uniform(0.001, 0.02))

    def put(self, key: str, source: Path | BinaryIO) -> StoredObject:
        if isinstance(source, Path):
            content = source.read_bytes()
        else:
            source.seek(0)
            content = source.read()
        stored = self._put(key, content, replaces=True)
        assert stored is not None
        return stored

    def put_if_absent(self, key: str, source: Path) -> StoredObject | None:
        return self._put(key, source.read_bytes(), replaces=False)

    def _put(self, key: str, content: bytes, *, replaces: bool) -> StoredObject | None:
        self._takes_time()
        if self.is_full:
            raise StoreFull("No space is left in the store.")
        if self.is_away or self._meets("store_errors"):
            raise StoreUnavailable("The store does not answer.")
        if not replaces and key in self.durable:
            return None
        self.durable[key] = content
        self.changed[key] = self.scheduler.now()
        if self._meets("store_errors"):
            raise StoreUnavailable("The store's answer was lost.")
        self._takes_time()
        return StoredObject(key, len(content))

    def open(self, key: str) -> BinaryIO:
        self._takes_time()
        if self.is_away or self._meets("store_errors"):
            raise StoreUnavailable("The store does not answer.")
        if key not in self.durable:
            raise ObjectMissing(key)
        return io.BytesIO(self.durable[key])

    def size(self, key: str) -> int | None:
        if self.is_away:
            raise StoreUnavailable("The store does not answer.")
        return len(self.durable[key]) if key in self.durable else None

    def delete(self, key: str) -> None:
        self.durable.pop(key, None)

    def iter_facts(self, after: str = "") -> Iterator[ObjectFacts]:
        for key in sorted(key for key in self.durable if key > after):
            yield ObjectFacts(key, len(self.durable[key]), self.changed[key])

    def sweep_temporaries(self, older_than: timedelta, now: datetime) -> int:
        return 0

    @contextmanager
    def staging(self) -> Iterator[Path]:
        path = self.folder / f"staged-{next(self._staged)}"
        path.touch()
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def ensure(self) -> None:
        """It is there."""

    def ready(self) -> None:
        if self.is_away:
            raise StoreUnavailable("The store does not answer.")

    def lose(self, key: str, *, damages: bool) -> None:
        """Somebody removes the object, or a disk spoils a byte of it."""
        content = self.durable.pop(key)
        if damages:
            place = self.rng.randrange(len(content))
            self.durable[key] = self.rng.choice(
                (content[:place], content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
            )


class StoreOfProcess:
    """One process's way to the store: what the engine remembers per store, it remembers per process."""

    def __init__(self, store: SimulatedStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class AtOnce:
    """Stands for the `ThreadPoolExecutor` of `engine.storecheck`: the same questions, one after the other."""

    def __init__(self, most: int, thread_name_prefix: str) -> None:
        """There are no threads here."""

    def __enter__(self) -> AtOnce:
        return self

    def __exit__(self, *_error: object) -> None:
        """Nothing is left over."""

    def map(self, ask: Callable[..., Any], *rows: Iterable[Any]) -> Generator[Any]:
        return (ask(*each) for each in zip(*rows, strict=True))


class SimulatedChecker:
    """Stands for `engine.pdfcheck.PdfChecker`: the PDFs here are our own, so their structure is known."""

    def check(self, path: Path) -> PdfFacts:
        content = path.read_bytes()
        pages = content.count(b"/Type /Page ")
        return PdfFacts(pages) if pages else PdfFacts(0, "It cannot be opened.")

    def close(self) -> None:
        """It holds nothing."""


def make_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder in memory where the machine has one."""
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(prefix="simulation-", dir=memory if memory.is_dir() else None)
