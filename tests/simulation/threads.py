"""A pump's threads as tasks of its process: the interface of `engine.threads.Threads`, in virtual time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from tests.simulation.scheduler import Event, Killed, Process, Scheduler


class Pool:
    """At most `most` steps at once, the others in line."""

    def __init__(self, scheduler: Scheduler, process: Process, most: int) -> None:
        self._scheduler = scheduler
        self._process = process
        self._most = most
        self._line: deque[Callable[[], object]] = deque()
        self.under_way = 0

    def submit(self, step: Callable[[], object]) -> None:
        if self.under_way < self._most:
            self._begin(step)
        else:
            self._line.append(step)

    def _begin(self, step: Callable[[], object]) -> None:
        self.under_way += 1
        self._scheduler.spawn(self._process, lambda: self._run(step))

    def _run(self, step: Callable[[], object]) -> None:
        try:
            step()
        except Killed:
            return
        self.under_way -= 1
        if self._line:
            self._begin(self._line.popleft())

    @property
    def is_idle(self) -> bool:
        return not self.under_way and not self._line


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

    def start(self, pool: Any, step: Callable[[], Any], *, instead: Any = None) -> bool:
        if self.halt.is_set():
            return False

        def run() -> None:
            self._results.append(instead if instead is not None and self.halt.is_set() else step())
            self.wake.set()

        pool.submit(run)
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
