"""How many of its threads a pump uses: all, while they wait; few, while it is this process that they wait for.

Threads are there to wait for a provider. Where that is near and answers at once, a step costs more of the interpreter
than it waits, and then further threads only take its lock from one another. So a process that is busy most of the time
halves what it uses, and doubles it again as soon as it has time to spare, as when calls begin to hang. Measured in
`docs/decisions/0015-few-threads-when-busy.md`. Pure but for what it remembers.
"""

from __future__ import annotations

from datetime import datetime

from batches.conf import EngineConf

#: The pools are divided by this at most, which leaves a thread of each.
DIVISOR_MOST = 16


def divisor_after(divisor: int, busy: float, conf: EngineConf) -> int:
    """What the pools are divided by next; `busy` is the CPU time of this process over the time that passed."""
    if busy > conf.breadth_busy_share:
        return min(DIVISOR_MOST, divisor * 2)
    if busy < conf.breadth_idle_share:
        return max(1, divisor // 2)
    return divisor


def width(most: int, divisor: int, *, least: int) -> int:
    """How many of `most` threads are used."""
    return min(most, max(least, most // divisor))


class Breadth:
    """One pump's. Only its own thread uses it."""

    def __init__(self, conf: EngineConf) -> None:
        self._conf = conf
        self._divisor = 1
        self._seen: tuple[datetime, float] | None = None

    def look(self, now: datetime, cpu_seconds: float, *, is_paced: bool) -> int:
        """The divisor from now on. `cpu_seconds` is what this process has used since it began.

        Where an account has a pace, steps hold their threads until their slots come, so that few would break it.
        """
        if is_paced:
            self._divisor, self._seen = 1, None
        elif self._seen is None:
            self._seen = (now, cpu_seconds)
        elif (seconds := (now - self._seen[0]).total_seconds()) >= self._conf.breadth_look_seconds:
            self._divisor = divisor_after(self._divisor, (cpu_seconds - self._seen[1]) / seconds, self._conf)
            self._seen = (now, cpu_seconds)
        return self._divisor
