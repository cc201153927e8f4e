"""A pump's threads as tasks of its process: the interface of `engine.threads.Threads`, in virtual time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from datetime import datetime
from functools import partial
from typing import Any

from batches.engine.shares import Lines
from tests.simulation.scheduler import Event, Killed, Process, Scheduler


class Pool:
    """At most `most` steps at once, the others in the engine's own lines."""

    def __init__(self, scheduler: Scheduler, process: Process, most: int) -> None:
        self._scheduler = scheduler
        self._process = process
        self._lines = Lines(most)
        self._waiting = 0

    def submit(self, step: Callable[[], object], account_id: int) -> None:
        self._waiting += 1
        self._lines.add(account_id, step)
        self._begin()

    def free(self, account_id: int) -> int:
        return self._lines.free(account_id)

    def know(self, account_ids: Collection[int]) -> None:
        self._lines.known = account_ids
        self._begin()

    def _begin(self) -> None:
        while begun := self._lines.begin():
            account_id, step = begun
            self._scheduler.spawn(self._process, partial(self._run, account_id, step))

    def _run(self, account_id: int, step: Callable[[], object]) -> None:
        try:
            step()
        except Killed:
            return
        self._waiting -= 1
        self._lines.ended(account_id)
        self._begin()

    @property
    def is_idle(self) -> bool:
        return not self._waiting


class Threads:
    """See `engine.threads.Threads`."""

    def __init__(self, scheduler: Scheduler, process: Process, conf: Any) -> None:
        self._scheduler = scheduler
        self._process = process
        self._results: deque[Any] = deque()
        self.wake: Any = Event(scheduler)
        self.halt: Any = Event(scheduler)
        self.submit: Any = Pool(scheduler, process, conf.submit_threads)
        self.poll: Any = Pool(scheduler, process, conf.poll_threads)
        self.fetch: Any = Pool(scheduler, process, conf.fetch_threads)
        self.prepare: Any = Pool(scheduler, process, conf.prepare_threads)

    def know(self, account_ids: Collection[int], *, is_paced: bool) -> None:
        for pool in (self.prepare, self.submit, self.poll, self.fetch):
            pool.know(account_ids)

    def fit(self, now: datetime, cpu_seconds: float) -> None:
        assert cpu_seconds == 0, "nobody is ever busy in virtual time"

    def start(self, pool: Any, step: Callable[[], Any], *, instead: Any = None, account_id: int = 0) -> bool:
        if self.halt.is_set():
            return False

        def run() -> None:
            self._results.append(instead if instead is not None and self.halt.is_set() else step())
            self.wake.set()

        pool.submit(run, account_id)
        return True

    def results(self) -> Iterator[Any]:
        while self._results:
            yield self._results.popleft()

    def close(self) -> None:
        """Wait for every step that has begun; a process that was killed waits for nothing."""
        if not self._process.alive:
            return
        self.halt.set()
        while not all(pool.is_idle for pool in (self.prepare, self.submit, self.poll, self.fetch)):
            self._scheduler.sleep(0.05)
