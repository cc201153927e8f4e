"""Cooperative tasks in virtual time: exactly one runs, and only a wait lets another one go on.

Each task is a greenlet that belongs to a `Process`, which can be killed (its tasks die where they stand) or suspended
(its tasks go on later, as after SIGSTOP). Between two waits nothing else happens and no time passes, so one seed
decides everything: who is next among those that are due at the same instant is drawn from the run's dice.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from datetime import datetime, timedelta

import greenlet


class Killed(BaseException):
    """The process of this task is gone at this very instant: no handler of the engine may see it."""


class Overrun(BaseException):
    """The run took more steps or more time than any run may: something loops."""


class Event:
    """What the engine uses of `threading.Event`; setting it wakes the tasks that wait for it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._set = False
        self.waiting: list[Task] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        waiting, self.waiting = self.waiting, []
        for task in waiting:
            self._scheduler.wake(task)

    def clear(self) -> None:
        self._set = False


class Process:
    """A group of tasks that lives and dies together. `is_mortal`: crashes may be put into it."""

    def __init__(self, name: str, *, is_mortal: bool = False) -> None:
        self.name = name
        self.is_mortal = is_mortal
        self.alive = True
        self.suspended_until_us = 0
        self.tasks: dict[int, Task] = {}

    def __repr__(self) -> str:
        return self.name


class Task:
    """One greenlet. `turn` numbers its waits: an entry of the queue with an older one is void."""

    def __init__(self, number: int, process: Process, run: Callable[[], object], hub: greenlet.greenlet) -> None:
        self.number = number
        self.process = process
        self.turn = 0
        self.greenlet = greenlet.greenlet(run, parent=hub)


class Scheduler:
    """See the module. Times are microseconds since `start`."""

    def __init__(self, rng: random.Random, *, start: datetime, most_turns: int = 400_000) -> None:
        self.rng = rng
        self.start = start
        self.now_us = 0
        self.turns = 0
        self.most_turns = most_turns
        self.nobody = Process("world")
        self.current: Task | None = None
        self.guard: Callable[[], None] = lambda: None
        self._queue: list[tuple[int, float, int, int, Task]] = []
        self._numbers = itertools.count(1)
        self._doomed: list[Task] = []
        self._hub = greenlet.getcurrent()

    # --- time ---

    def now(self) -> datetime:
        return self.start + timedelta(microseconds=self.now_us)

    @property
    def process(self) -> Process:
        """Whose code runs now."""
        return self.current.process if self.current else self.nobody

    # --- tasks ---

    def spawn(self, process: Process, run: Callable[[], object], *, after: float = 0.0) -> Task:
        task = Task(next(self._numbers), process, run, self._hub)
        process.tasks[task.number] = task
        self._push(task, after)
        return task

    def wake(self, task: Task) -> None:
        """Let a waiting task go on now."""
        self._push(task, 0.0)

    def sleep(self, seconds: float) -> None:
        self.wait(None, seconds)

    def wait(self, event: Event | None, seconds: float | None) -> bool:
        """Let others run until `event` is set or `seconds` have passed; true when it was set."""
        task = self.current
        assert task is not None, "only a task can wait"
        if not task.process.alive:
            raise Killed
        if event is not None and event.is_set():
            return True
        if seconds is not None and seconds <= 0:
            return False
        self.guard()
        task.turn += 1
        if event is not None:
            event.waiting.append(task)
        if seconds is not None:
            self._push(task, seconds)
        self._hub.switch()
        if not task.process.alive:
            raise Killed
        if event is not None and task in event.waiting:
            event.waiting.remove(task)
        return event.is_set() if event is not None else False

    def kill(self, process: Process) -> None:
        """Nothing of the process runs any more. The caller, if it belongs to it, must raise `Killed` itself."""
        process.alive = False
        self._doomed += [task for task in process.tasks.values() if task is not self.current]

    def suspend(self, process: Process, seconds: float) -> None:
        process.suspended_until_us = max(process.suspended_until_us, self.now_us + int(seconds * 1_000_000))

    # --- the loop ---

    def run(self, *, until_us: int, is_over: Callable[[], bool] = lambda: False) -> None:
        """Run tasks in order of time, until `is_over` holds after one, nothing waits, or the time is reached."""
        self._bury()
        while self._queue and self._queue[0][0] <= until_us:
            at, _dice, _number, turn, task = heapq.heappop(self._queue)
            if turn != task.turn or task.greenlet.dead or not task.process.alive:
                continue
            self.now_us = max(self.now_us, at)
            if task.process.suspended_until_us > self.now_us:
                until = task.process.suspended_until_us
                heapq.heappush(self._queue, (until, self.rng.random(), next(self._numbers), turn, task))
                continue
            self.turns += 1
            if self.turns > self.most_turns:
                raise Overrun(f"{self.turns} turns by {self.now_us / 1e6:.1f} s")
            task.turn += 1
            self._switch_to(task)
            self._bury()
            if is_over():
                return
        if not self._queue:
            return
        self.now_us = max(self.now_us, until_us)

    def close(self) -> None:
        """End every task that still waits."""
        for process in {id(entry[4].process): entry[4].process for entry in self._queue}.values():
            self.kill(process)
        self._bury()
        self._queue.clear()

    def _switch_to(self, task: Task) -> None:
        self.current = task
        try:
            task.greenlet.switch()
        except Killed:
            self.kill(task.process)  # a task of a dead process ended by it
        finally:
            self.current = None
            if task.greenlet.dead:
                task.process.tasks.pop(task.number, None)

    def _bury(self) -> None:
        """Unwind the tasks of processes that were killed, so that nothing of them is left on any stack."""
        while self._doomed:
            task = self._doomed.pop(0)
            if task.greenlet.dead:
                continue
            self.current = task
            try:
                task.greenlet.throw(Killed)
            except Killed:
                pass
            finally:
                self.current = None
                task.process.tasks.pop(task.number, None)

    def _push(self, task: Task, seconds: float) -> None:
        at = self.now_us + max(0, round(seconds * 1_000_000))
        heapq.heappush(self._queue, (at, self.rng.random(), next(self._numbers), task.turn, task))


class ProcessClock:
    """`engine.clock.Clock` of one process: the world's time, moved by what its host's clock showed when it started."""

    def __init__(self, scheduler: Scheduler, *, offset_us: int = 0) -> None:
        self._scheduler = scheduler
        self._offset = timedelta(microseconds=offset_us)

    def now(self) -> datetime:
        return self._scheduler.now() + self._offset

    def cpu_seconds(self) -> float:
        return 0.0

    def wait(self, event: object, seconds: float) -> bool:
        if isinstance(event, Event):
            return self._scheduler.wait(event, seconds)
        self._scheduler.sleep(seconds)
        return False
