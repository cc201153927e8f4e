"""The pause of a pump while the database does not answer: nothing is sent, and outcomes wait in memory."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from datetime import datetime

from django.db import connection

from batches.engine import mishaps, retries
from batches.engine.clock import Clock

log = logging.getLogger(__name__)

#: While it lasts the pump looks around this often.
LOOK_SECONDS = 0.25
#: The pause grows with the failures in a row up to this one.
FAILURES_COUNTED = 3


class Outage:
    """Only the pump's own thread uses it."""

    def __init__(self, clock: Clock, rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng
        self._failures = 0
        self._until: datetime | None = None

    def attempt(self, *parts: Callable[[datetime], None]) -> None:
        """Run parts that need the database, unless it is paused; when it does not answer, pause."""
        now = self._clock.now()
        if self.seconds_left(now):
            return
        try:
            for part in parts:
                part(self._clock.now())
        except mishaps.DATABASE_AWAY as error:
            self._pause(error, now)
        else:
            self._failures = 0
            self._until = None

    def _pause(self, error: Exception, now: datetime) -> None:
        if not self._failures:
            log.warning("the database does not answer; outcomes wait in memory", exc_info=error)
        self._failures += 1
        self._until = now + retries.backoff(min(self._failures, FAILURES_COUNTED), self._rng)
        connection.close()

    def seconds_left(self, now: datetime) -> float:
        """How long the pause lasts still; 0 when there is none."""
        return max(0.0, (self._until - now).total_seconds()) if self._until else 0.0

    def cut_short(self) -> None:
        """The next attempt is made whatever the time: it is the last one."""
        self._until = None
