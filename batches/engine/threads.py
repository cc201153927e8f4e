"""A pump's threads: bounded pools for preparing, submissions, status reads and downloads, and one queue of results."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from batches.conf import EngineConf
from batches.engine.steps import Result


class Threads:
    """Steps run here; their results are taken by the pump's own thread. `wake` is set whenever one arrives.

    `halt` ends every wait for a slot and lets nothing new begin.
    """

    def __init__(self, conf: EngineConf) -> None:
        self.wake = threading.Event()
        self.halt = threading.Event()
        self._results: queue.SimpleQueue[Result] = queue.SimpleQueue()
        self.submit = ThreadPoolExecutor(conf.submit_threads, thread_name_prefix="submit")
        self.poll = ThreadPoolExecutor(conf.poll_threads, thread_name_prefix="poll")
        self.fetch = ThreadPoolExecutor(conf.fetch_threads, thread_name_prefix="fetch")
        self.prepare = ThreadPoolExecutor(conf.prepare_threads, thread_name_prefix="prepare")

    def start(self, pool: ThreadPoolExecutor, step: Callable[[], Result], *, instead: Result | None = None) -> bool:
        """Begin a step; false when the pump is ending.

        `instead` is the result of a step whose turn comes only then; None runs it all the same.
        """
        if self.halt.is_set():
            return False

        def run() -> None:
            self._results.put(instead if instead is not None and self.halt.is_set() else step())
            self.wake.set()

        pool.submit(run)
        return True

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
        for pool in (self.prepare, self.submit, self.poll, self.fetch):
            pool.shutdown(wait=True)
