"""The pace of an account as the receiving side saw it, judged by the rule of the engine's contract."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self


def closest_breach(arrivals: Sequence[float], *, interval: float) -> float:
    """By how many seconds the worst pair of arrivals breaks the pace; 0.0 or less when none does.

    For every i < j, arrivals i … j must span at least (j - i) x interval - tolerance, the tolerance being the larger
    of 20 ms and a tenth of the interval. Linear: arrival k's distance to k x interval may fall by no more than the
    tolerance below the largest distance before it.
    """
    tolerance = max(0.020, 0.10 * interval)
    worst = float("-inf")
    furthest = float("-inf")
    for index, arrival in enumerate(sorted(arrivals)):
        ahead = arrival - index * interval
        if furthest > float("-inf"):
            worst = max(worst, furthest - ahead - tolerance)
        furthest = max(furthest, ahead)
    return worst if len(arrivals) > 1 else 0.0


class StallWatch:
    """How long this machine kept a runnable thread waiting, at worst: while it stalls, no arrival proves a pace."""

    STEP = 0.002

    def __init__(self) -> None:
        self.worst = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        before = time.monotonic()
        while not self._over.wait(self.STEP):
            now = time.monotonic()
            self.worst = max(self.worst, now - before - self.STEP)
            before = now

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
