"""Time as the engine sees it: one clock for all hosts, and a wait that a test can replace.

On PostgreSQL every process follows the database's clock, so that leases and slots of several hosts agree; the
difference to this host's clock is measured now and then instead of asked each time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Protocol

from django.db import connection

#: On a busy host one reading can be off by half of a long round trip, and a pump keeps its clock for its whole run.
READINGS = 5


class Clock(Protocol):
    def now(self) -> datetime:
        """The time on the engine's clock, UTC."""
        ...

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until `event` is set or `seconds` have passed; true when it was set."""
        ...

    def cpu_seconds(self) -> float:
        """CPU time that this process has used so far."""
        ...


class SystemClock:
    """This host's clock, moved by the difference to the database's clock that `calibrate` measured.

    `now` never runs backwards within a process: it is the calibrated instant plus monotonic time. `begins` is for who
    was told what time it is, and goes on from there.
    """

    def __init__(self, begins: datetime | None = None) -> None:
        self._base = begins or datetime.now(UTC)  # the interface to real time; everything else takes `now`
        self._mark = time.monotonic()

    def calibrate(self) -> None:
        """Follow the database's clock. On SQLite, which has none of its own, the host's."""
        if connection.vendor == "postgresql":
            self._base, self._mark = _quickest(_database_reading() for _ in range(READINGS))
        else:
            self._base, self._mark = datetime.now(UTC), time.monotonic()

    def now(self) -> datetime:
        return self._base + timedelta(seconds=time.monotonic() - self._mark)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        return event.wait(max(0.0, seconds))

    def cpu_seconds(self) -> float:
        return time.process_time()


def _database_reading() -> tuple[float, datetime, float]:
    """How long the asking took, the database's time, and this process's monotonic time at the middle of it."""
    before = time.monotonic()
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        reading = cursor.fetchone()[0]
    after = time.monotonic()
    return after - before, reading, (before + after) / 2


def _quickest(readings: Iterable[tuple[float, datetime, float]]) -> tuple[datetime, float]:
    """The reading that can be off by least: it took the shortest round trip."""
    _took, reading, mark = min(readings, key=lambda one: one[0])
    return reading, mark
