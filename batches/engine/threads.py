"""A pump's threads: bounded pools for preparing, submissions, status reads and downloads, and one queue of results."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from batches.conf import EngineConf
from batches.engine import breadth
from batches.engine.breadth import Breadth
from batches.engine.shares import Lines, Step
from batches.engine.steps import Result

#: A download waits for the disk too.
FETCH_LEAST = 2

log = logging.getLogger(__name__)


class Pool:
    """So many threads, shared by accounts as `shares` says."""

    def __init__(self, most: int, name: str, *, least: int = 1) -> None:
        self._most, self._least = most, least
        self._executor = ThreadPoolExecutor(most, thread_name_prefix=name)
        self._lines = Lines(most)
        self._lock = threading.Lock()

    def submit(self, step: Step, account_id: int) -> None:
        with self._lock:
            self._lines.add(account_id, step)
        self._begin()

    def free(self, account_id: int) -> int:
        """How many steps of the account would begin at once. Only `submit` and `know` make that less."""
        with self._lock:
            return self._lines.free(account_id)

    def know(self, account_ids: Collection[int]) -> None:
        with self._lock:
            self._lines.known = account_ids
        self._begin()

    def divide(self, divisor: int) -> None:
        """Use that share of the threads, at least the least; what is under way goes on."""
        used = breadth.width(self._most, divisor, least=self._least)
        with self._lock:
            self._lines.most = used
        self._begin()

    def shutdown(self) -> None:
        """Wait for all that was submitted: a thread ends only when no step waits that it could go on with."""
        self._executor.shutdown(wait=True)

    def _begin(self) -> None:
        while True:
            with self._lock:
                begun = self._lines.begin()
            if begun is None:
                return
            self._executor.submit(self._work, *begun)

    def _work(self, account_id: int, step: Step) -> None:
        """Run the step, and then whatever is next: a thread that is free asks nobody."""
        while True:
            try:
                step()
            except Exception:  # all of them, for the account's line must be told that a thread is free again
                log.exception("a step of account %s ended without a result", account_id)
            with self._lock:
                self._lines.ended(account_id)
                begun = self._lines.begin()
            if begun is None:
                return
            account_id, step = begun


class Threads:
    """Steps run here; their results are taken by the pump's own thread. `wake` is set whenever one arrives.

    `halt` ends every wait for a slot and lets nothing new begin.
    """

    def __init__(self, conf: EngineConf) -> None:
        self.wake = threading.Event()
        self.halt = threading.Event()
        self._results: queue.SimpleQueue[Result] = queue.SimpleQueue()
        self.submit = Pool(conf.submit_threads, "submit")
        self.poll = Pool(conf.poll_threads, "poll")
        self.fetch = Pool(conf.fetch_threads, "fetch", least=FETCH_LEAST)
        self.prepare = Pool(conf.prepare_threads, "prepare")
        self._breadth = Breadth(conf)
        self._divisor = 1
        self._is_paced = True

    def know(self, account_ids: Collection[int], *, is_paced: bool) -> None:
        """Whose steps may come: of each pool a little is kept for those among them that have less than their least.

        `is_paced`: some of them wait for slots on their threads, so that all threads are used.
        """
        self._is_paced = is_paced
        for pool in self._pools():
            pool.know(account_ids)

    def fit(self, now: datetime, cpu_seconds: float) -> None:
        """Use as many as are worth it, as busy as this process is: `cpu_seconds` is what it has used so far."""
        self.divide(self._breadth.look(now, cpu_seconds, is_paced=self._is_paced))

    def start(self, pool: Pool, step: Callable[[], Result], *, account_id: int, instead: Result | None = None) -> bool:
        """Begin a step as soon as the account has a thread for it; false when the pump is ending.

        `instead` is the result of a step whose turn comes only then; None runs it all the same.
        """
        if self.halt.is_set():
            return False

        def run() -> None:
            self._results.put(instead if instead is not None and self.halt.is_set() else step())
            self.wake.set()

        pool.submit(run, account_id)
        return True

    def divide(self, divisor: int) -> None:
        """Use only so much of the pools that wait for a provider (`breadth`)."""
        if divisor != self._divisor:
            self._divisor = divisor
            for pool in (self.submit, self.poll, self.fetch):
                pool.divide(divisor)

    def results(self) -> Iterator[Result]:
        """What has arrived since the last time."""
        while True:
            try:
                yield self._results.get_nowait()
            except queue.Empty:
                return

    def close(self) -> None:
        """Wait for every step that has begun."""
        self.halt.set()
        for pool in self._pools():
            pool.shutdown()

    def _pools(self) -> tuple[Pool, ...]:
        return self.prepare, self.submit, self.poll, self.fetch
