"""The pace of an account as the receiving side saw it, judged by the rule of the engine's contract."""

from __future__ import annotations

from collections.abc import Sequence


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
