"""Virtual time for the real engine: it stands still while anybody works and jumps to the next instant that matters.

`VirtualClock` is an `engine.clock.Clock`. Threads that take part are counted: the one that made the clock, and every
step that runs on a pool made by `pools`. When all of them wait on the clock, it moves on to the earliest end of a wait.
A day of deadlines takes milliseconds, and nothing depends on how fast the machine is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

#: A thread that seems awake may be waiting outside the clock, such as for a pool to end. So each waiting thread looks
#: now and then (real seconds) whether its event is set, and moves the time on after so many looks without any change.
LOOK_SECONDS = 0.02
PATIENT_LOOKS = 25


@dataclass(eq=False)
class _Sleeper:
    event: threading.Event
    until: datetime
    released: bool = False


class VirtualClock:
    """See `engine.clock.Clock`. `on_look` is called whenever the thread that made the clock asks it for the time.

    It may itself ask for the time. What it raises passes through: a test kills a pump that way, at any instant between
    two of its statements.
    """

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._changed = threading.Condition()
        self._sleepers: list[_Sleeper] = []
        self._awake = 1
        self._releases = 0
        self._owner = threading.get_ident()
        self.on_look: Callable[[], None] | None = None
        self._looking = False

    def now(self) -> datetime:
        if self.on_look and not self._looking and threading.get_ident() == self._owner:
            self._looking = True
            try:
                self.on_look()
            finally:
                self._looking = False
        with self._changed:
            return self._now

    def cpu_seconds(self) -> float:
        return 0.0  # nobody's work takes any time

    def wait(self, event: threading.Event, seconds: float) -> bool:
        with self._changed:
            if event.is_set() or seconds <= 0:
                return event.is_set()
            sleeper = _Sleeper(event, self._now + timedelta(seconds=seconds))
            self._sleepers.append(sleeper)
            self._fall_asleep()
            looks, seen = 0, self._releases
            while not sleeper.released:
                self._changed.wait(LOOK_SECONDS)
                looks, seen = (looks + 1 if seen == self._releases else 0), self._releases
                if not sleeper.released and (event.is_set() or looks >= PATIENT_LOOKS):
                    looks = 0
                    self._move_on()
            return event.is_set()

    def advance(self, seconds: float) -> None:
        """Let time pass, as if every thread that is awake had been suspended for so long."""
        with self._changed:
            self._now += timedelta(seconds=seconds)
            self._release_due()

    # --- who is awake ---

    def begin(self) -> None:
        """One more thread takes part."""
        with self._changed:
            self._awake += 1

    def end(self) -> None:
        """A thread that took part is done."""
        with self._changed:
            self._fall_asleep()

    def _fall_asleep(self) -> None:
        self._awake -= 1
        if self._awake <= 0 and self._sleepers:
            self._move_on()

    def _move_on(self) -> None:
        """Wake whoever may go on by now; if nobody may, the earliest end of a wait becomes now."""
        if not self._release_due():
            self._now = max(self._now, min(sleeper.until for sleeper in self._sleepers))
            self._release_due()

    def _release_due(self) -> bool:
        due = [sleeper for sleeper in self._sleepers if sleeper.event.is_set() or sleeper.until <= self._now]
        for sleeper in due:
            self._release(sleeper)
        return bool(due)

    def _release(self, sleeper: _Sleeper) -> None:
        sleeper.released = True
        self._sleepers.remove(sleeper)
        self._releases += 1
        self._awake += 1
        self._changed.notify_all()

    def pools(self, max_workers: int, **options: Any) -> ThreadPoolExecutor:
        """Stands for `ThreadPoolExecutor(max_workers, …)`, with its threads counted."""
        return _CountedPool(self, max_workers, **options)


class _CountedPool(ThreadPoolExecutor):
    """Counts a step as awake from the moment that a thread is free for it."""

    def __init__(self, clock: VirtualClock, max_workers: int, **options: Any) -> None:
        super().__init__(max_workers, **options)
        self._clock = clock
        self._threads_most = max_workers
        self._under_way = 0
        self._counting = threading.Lock()

    def submit(self, step: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        with self._counting:
            self._under_way += 1
            if self._under_way <= self._threads_most:
                self._clock.begin()
        return super().submit(self._run, step, *given, **named)

    def _run(self, step: Callable[..., Any], *given: Any, **named: Any) -> Any:
        try:
            return step(*given, **named)
        finally:
            with self._counting:
                self._under_way -= 1
                # A step that waited for a thread takes this one's place.
                if self._under_way < self._threads_most:
                    self._clock.end()
