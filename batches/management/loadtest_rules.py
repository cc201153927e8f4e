"""What a load test decides, pure: whether more concurrency still helps, where it stopped, and what to say.

Concurrency is the account's max_in_flight. Useful throughput is documents saved per second, nothing less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

from batches import figures

#: A step has to save this much more than the best one before it, or throughput has stopped rising.
LEAST_GAIN = 0.10
#: Of the steps that come this near the best, the smallest is recommended.
NEAR_BEST = 0.05
#: A step that saves less than this share of what the account's pace allows is not limited by the pace.
AT_THE_PACE = 0.85
LOOPBACK_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})
#: The smallest batch that is offered when little waits, and how many seconds of work one should hold.
LEAST_BATCH = 20
BATCH_SECONDS = 4.0


@dataclass(frozen=True)
class Step:
    """What one step saw over one interval. Latencies are seconds from the first send to the stored PDF.

    `database_wait` is in `database_wait_unit`: on SQLite the milliseconds (p95) that a writer waited for its turn, on
    PostgreSQL the percentage of busy sessions that waited. None stands for what could not be seen.
    """

    concurrency: int
    seconds: float
    completions: int
    oldest_pending_seconds: float
    latency_p50: float | None
    latency_p95: float | None
    latency_p99: float | None
    submissions: int
    retries: int
    database_wait: float | None
    database_wait_unit: str
    memory_megabytes: float | None
    ran_dry: bool

    @property
    def rate(self) -> float:
        return self.completions / self.seconds if self.seconds else 0.0

    @property
    def retry_share(self) -> float:
        return self.retries / self.submissions if self.submissions else 0.0

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "completions_per_second": self.rate, "retry_share": self.retry_share}


def is_test_address(base_url: str) -> bool:
    """Whether documents rendered there cost nothing for sure: only an address on this machine, as the sandbox's is.

    No provider of this version documents a test mode, so no key proves it either.
    """
    return urlsplit(base_url).hostname in LOOPBACK_HOSTS


def percentile(values: Sequence[float], share: float) -> float | None:
    """The value that `share` of the values do not exceed (nearest rank), or None without values."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def has_stopped_rising(rates: Sequence[float]) -> bool:
    """Whether the last step saved hardly more than the best one before it."""
    return len(rates) > 1 and rates[-1] < max(rates[:-1]) * (1 + LEAST_GAIN)


def best(steps: Sequence[Step]) -> Step:
    """The least concurrency that comes near the best throughput; more of it only adds waiting."""
    top = max(step.rate for step in steps)
    return min((step for step in steps if step.rate >= top * (1 - NEAR_BEST)), key=lambda step: step.concurrency)


def batch_size(rate: float, concurrency: int, waiting: int, left: int) -> int:
    """How many documents to offer now, none while enough wait. `rate` is what was last saved per second."""
    enough = max(2 * concurrency, math.ceil(rate * BATCH_SECONDS / 2))
    if waiting >= enough:
        return 0
    return min(left, max(LEAST_BATCH, 4 * concurrency, math.ceil(rate * BATCH_SECONDS)))


def pace_allows(interval_ms: int) -> float | None:
    """Submissions per second that the account's interval allows; None when it is not paced."""
    return 1000 / interval_ms if interval_ms else None


def verdict(steps: Sequence[Step], *, stopped: bool, pace: float | None) -> str:
    """What the test found, in sentences."""
    found = best(steps)
    last = steps[-1]
    if not found.completions:
        return "Not one document was saved, so nothing can be said about throughput."
    words = f"Best: {found.concurrency} at once, {found.rate:.1f} documents a second."
    if last.ran_dry:
        words += f" The documents ran out at {last.concurrency} at once; give more with --documents to go on."
    elif stopped:
        words += f" Throughput stopped rising at {last.concurrency} at once ({last.rate:.1f} a second)."
    elif found is last:
        words += " It still rose at the last step; give larger --steps to find the end."
    if pace is not None and found.rate >= AT_THE_PACE * pace:
        words += f" The account's pace is what limits it ({pace:.1f} submissions a second), not this machine."
    return words


def price_words(documents: int, price_per_job: Any, currency: str) -> str:
    """What a test of so many documents may cost."""
    if price_per_job is None:
        return f"up to {figures.documents(documents)} at a price that the account does not name"
    return (
        f"up to {figures.documents(documents)} at {price_per_job} {currency} each, {documents * price_per_job} in all"
    )
