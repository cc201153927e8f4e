"""Known bugs, to be put into the engine: a simulator that does not find them proves nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from batches.engine import bulk, collection, retries, spending
from batches.storage import StoredObject


def _without_fencing(stack: ExitStack) -> None:
    """Guarded writes no longer ask for the fencing token, so a holder whose lease ran out goes on writing."""
    plain = bulk.guarded_update

    def unfenced(model: Any, rows: Any, *, guard: Any = (), **given: Any) -> set[int]:
        return plain(model, rows, guard=[name for name in guard if name != "fencing_token"], **given)

    stack.enter_context(mock.patch.object(bulk, "guarded_update", unfenced))


def _saved_before_stored(stack: ExitStack) -> None:
    """A collection says that it stored the PDF, and stores it a moment later."""
    plain = collection._Collection._fetch_and_store

    def hasty(self: Any, *given: Any) -> Any:
        store = self.store
        self.store = _WriteBehind(store)
        try:
            return plain(self, *given)
        finally:
            self.store = store

    stack.enter_context(mock.patch.object(collection._Collection, "_fetch_and_store", hasty))


class _WriteBehind:
    """A store that answers at once and writes half a second later."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def put(self, key: str, path: Any) -> StoredObject:
        content = path.read_bytes()
        scheduler, durable = self._store.scheduler, self._store.durable
        scheduler.spawn(scheduler.process, lambda: durable.__setitem__(key, content), after=0.5)
        return StoredObject(key, len(content))

    def put_if_absent(self, key: str, path: Any) -> StoredObject | None:
        return None if key in self._store.durable else self.put(key, path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def _resend_after_retention(stack: ExitStack) -> None:
    """A lost submission is sent again however long ago it was sent first."""
    stack.enter_context(mock.patch.object(retries, "may_resend", return_value=True))


def _spending_beyond_the_cap(stack: ExitStack) -> None:
    """A batch is paused at its spend cap, but what waits to leave is not held back under it."""
    stack.enter_context(mock.patch.object(spending, "held_back", return_value=spending.NOTHING_HELD_BACK))


BUGS = {
    "": lambda stack: None,
    "fencing": _without_fencing,
    "saved": _saved_before_stored,
    "retention": _resend_after_retention,
    "cap": _spending_beyond_the_cap,
}


@contextmanager
def bug(name: str) -> Iterator[None]:
    """The engine with this bug in it; "" is the engine as it is."""
    with ExitStack() as stack:
        BUGS[name](stack)
        yield
