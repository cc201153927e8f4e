"""The sandbox's own time: the system's clock plus an offset that tests can push forward.

Expiry, key retention, limits and job durations follow it, so that "24 hours later" takes no time. Webhook
signatures do not: the receiver compares them with its own clock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime


class Clock:
    """Thread-safe. `now()` is in seconds since the epoch."""

    def __init__(self, offset: float = 0.0) -> None:
        self._offset = offset
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []

    @property
    def offset(self) -> float:
        return self._offset

    def now(self) -> float:
        return time.time() + self._offset

    @staticmethod
    def system_now() -> float:
        """The time that others see: for signatures and dates in headers."""
        return time.time()

    def advance(self, seconds: float) -> float:
        """Push the time forward, wake everybody who waits for it, and give the new offset."""
        with self._lock:
            self._offset += seconds
        for listener in self._listeners:
            listener()
        return self._offset

    def on_advance(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)


def iso(seconds: float) -> str:
    """The vendor's form: UTC with milliseconds and `Z`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
