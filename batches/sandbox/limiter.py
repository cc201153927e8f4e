"""Rate limits over sliding windows: never more than `limit` counted requests within any `seconds`.

Pure bookkeeping in memory; a restart forgets it. A refused request does not count.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque

from batches.sandbox.answers import ApiError, retry_after_headers
from batches.sandbox.switches import LimitSwitches


class Limiter:
    """Thread-safe; one log of counted requests per account."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._log: dict[str, deque[float]] = defaultdict(deque)

    def wait_for(
        self, account: str, windows: tuple[tuple[int, float], ...], *, now: float, tolerance: float = 0.0
    ) -> float:
        """0 and the request is counted, or the seconds until it would be let through."""
        if not windows:
            return 0.0
        with self._lock:
            log = self._log[account]
            longest = max(seconds for _, seconds in windows)
            while log and log[0] <= now - longest:
                log.popleft()
            wait = max(self._wait(log, limit, seconds, now) for limit, seconds in windows)
            if wait > tolerance:
                return wait
            log.append(now)
            return 0.0

    def require_slot(self, account: str, switches: LimitSwitches, *, now: float, system_now: float) -> None:
        """Count a request, or raise the vendor's 429 with `Retry-After` in the form that is switched on.

        `now` is the sandbox's time; `system_now` is what a date in a header is read against.
        """
        wait = self.wait_for(account, switches.windows, now=now, tolerance=switches.tolerance_seconds)
        if wait:
            raise ApiError(
                429,
                "rate_limited",
                "Too many requests. Wait before you send the next one.",
                headers=retry_after_headers(wait, switches.retry_after, now=system_now),
            )

    def forget(self) -> None:
        with self._lock:
            self._log.clear()

    @staticmethod
    def _wait(log: deque[float], limit: int, seconds: float, now: float) -> float:
        if limit < 1:
            return seconds
        if len(log) < limit:
            return 0.0
        # The request that must have left the window before the next one fits in.
        return max(0.0, log[-limit] + seconds - now)
