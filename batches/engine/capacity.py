"""What an account's own evidence says of its speed: how long it takes, what more in flight brought, what is suggested.

Reads the newest rows only, by an index, and reckons the rest without a query: `levels` and the advice are pure. Where
too little is known it says nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from django.db.models import Subquery

from batches import figures
from batches.engine import deadlines
from batches.models import Duration, Exchange, ExchangeKind, JobState

#: Documents whose durations are looked at: an hour and a half at one a second.
ENDED_MOST = 6000
#: Of the newest requests of all accounts those are looked at that this account sent: no index leads to them, and more
#: of the past says nothing of today.
REQUESTS_MOST = 20_000
SUBMISSIONS_MOST = 500
#: The spacing now is that of the last few.
GAPS_MOST = 20
#: How many in flight count as about the same.
LEVELS = (1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 120, 200, 300, 500, 800, 1200, 2000, 5000, 10_000)
MINUTES_LEAST, LEVELS_LEAST = 3, 3
#: Of the best rate: from there on more in flight brought nothing that is worth it.
AS_GOOD_AS = 0.95
#: Of what the pace allows: there the pace is the limit, and not the provider.
AT_PACE = 0.9


@dataclass(frozen=True)
class Ended:
    """One saved document: when it was saved, seconds from acceptance until then, and what the provider took of it."""

    at: datetime
    total: float
    remote: float | None

    @property
    def seconds(self) -> float:
        return self.total if self.remote is None else self.remote


@dataclass(frozen=True)
class Times:
    """Percentiles in seconds, over so many documents since then."""

    count: int
    since: datetime
    p50: float
    p95: float
    p99: float
    worst: float


@dataclass(frozen=True)
class Level:
    """Minutes in which about so many were in flight, and what was saved in one of them."""

    in_flight: int
    minutes: int
    per_minute: float


@dataclass(frozen=True)
class Sending:
    """The newest submissions: how many were repeats or refused for their pace, and how they went."""

    count: int = 0
    repeats: int = 0
    limited: int = 0
    limited_at: datetime | None = None
    spacing_seconds: float | None = None
    p50_ms: int | None = None
    p95_ms: int | None = None

    @property
    def repeat_share(self) -> float:
        return self.repeats / self.count if self.count else 0.0


def ended(account_id: int) -> list[Ended]:
    """The newest saved documents of an account, newest first. One query."""
    saved = Duration.objects.filter(account_id=account_id, outcome=JobState.SAVED).order_by("-id")
    return [Ended(*row) for row in saved.values_list("at", "total_seconds", "remote_seconds")[:ENDED_MOST]]


def times(documents: Sequence[Ended]) -> Times | None:
    if not documents:
        return None
    known = sorted(each.seconds for each in documents)
    p50, p95, p99 = (known[max(0, math.ceil(share * len(known)) - 1)] for share in (0.5, 0.95, 0.99))
    since = min(each.at for each in documents)
    return Times(len(known), since, p50=p50, p95=p95, p99=p99, worst=known[-1])


def suggested_deadline(documents: Sequence[Ended]) -> deadlines.Suggestion | None:
    """By the rule of `deadlines`. One that only the late watch saw says nothing of when it ended."""
    seen = [each.remote for each in documents[: deadlines.ROWS_MOST] if each.remote is not None]
    return deadlines.suggest(None, seen)


def levels(documents: Sequence[Ended]) -> list[Level]:
    """Saves a minute against what was in flight, for each level that enough whole minutes are known of. Pure."""
    if len(documents) < 2:
        return []
    known = times(documents)
    assert known is not None
    newest = max(each.at for each in documents)
    # What has not ended yet is no row: of the last minutes only a part is known, and of the first one too.
    first, last = _minute(known.since) + 1, _minute(newest - timedelta(seconds=known.p95)) - 1
    saved: dict[int, int] = defaultdict(int)
    busy: dict[int, float] = defaultdict(float)
    for each in documents:
        end = each.at.timestamp()
        saved[int(end // 60)] += 1
        start = max(end - each.total, first * 60.0)
        while start < end:
            minute = int(start // 60)
            until = min(end, (minute + 1) * 60.0)
            busy[minute] += until - start
            start = until
    rates: dict[int, list[int]] = defaultdict(list)
    for minute in range(first, last + 1):
        if busy[minute] >= 30:  # half of one document all the time: else it was idle
            rates[_level(busy[minute] / 60)].append(saved[minute])
    return [
        Level(level, len(found), sum(found) / len(found))
        for level, found in sorted(rates.items())
        if len(found) >= MINUTES_LEAST
    ]


def enough(found: Sequence[Level]) -> int | None:
    """From how many in flight on more brought nothing; None where it still did, or too few levels are known. Pure."""
    if len(found) < LEVELS_LEAST:
        return None
    best = max(level.per_minute for level in found)
    first = next(level for level in found if level.per_minute >= AS_GOOD_AS * best)
    return first.in_flight if first is not found[-1] else None


def advice(found: Sequence[Level], *, known: Times | None, interval_ms: float, cap: int) -> list[str]:
    """What the limits could be, each with its reason. Pure."""
    said = []
    if known is not None and known.count >= deadlines.SAMPLES_LEAST and interval_ms > 0:
        needed = max(1, math.ceil(known.p95 * 1000 / interval_ms))
        pace, slow = figures.pace(interval_ms), f"{known.p95:.2g} s"
        words = f"At {pace}, and with 95 % rendered within {slow}, about {needed:,} in flight keep the pace; {cap:,} "
        said.append(words + ("are allowed." if needed <= cap else "are allowed, which slows this account down."))
    if (more := enough(found)) is not None:
        best = max(level.per_minute for level in found)
        if interval_ms > 0 and best >= AT_PACE * 60_000 / interval_ms:
            said.append(f"From about {more:,} in flight on more helped nothing, because the pace was reached.")
        else:
            said.append(f"From about {more:,} in flight on more helped nothing: the provider took no more at once.")
    return said


def sending(account_id: int) -> Sending:
    """The newest submissions of an account, as far as they are among the newest requests of all. One query."""
    newest = Exchange.objects.order_by("-id").values("id")[:1]
    sent = Exchange.objects.filter(account_id=account_id, kind=ExchangeKind.SUBMIT)
    sent = sent.filter(id__gt=Subquery(newest) - REQUESTS_MOST)
    rows = list(
        sent.order_by("-id").values_list("at", "status", "duration_ms", "submission_id", "job_id")[:SUBMISSIONS_MOST]
    )
    if not rows:
        return Sending()
    limited = [at for at, status, *_ in rows if status == 429]
    left_at = sorted(at for at, *_ in rows[: GAPS_MOST + 1])
    gaps = sorted((later - earlier).total_seconds() for earlier, later in pairwise(left_at))
    took = sorted(duration for _at, status, duration, *_ in rows if status is not None)
    # A submission of which two tries are among them was repeated once.
    tries = len(rows) - len({(submission, job) for *_, submission, job in rows})
    return Sending(
        count=len(rows),
        repeats=tries,
        limited=len(limited),
        limited_at=max(limited, default=None),
        spacing_seconds=gaps[len(gaps) // 2] if gaps else None,
        p50_ms=took[len(took) // 2] if took else None,
        p95_ms=took[max(0, math.ceil(0.95 * len(took)) - 1)] if took else None,
    )


def _minute(at: datetime) -> int:
    return int(at.timestamp() // 60)


def _level(in_flight: float) -> int:
    return LEVELS[max(0, bisect_right(LEVELS, in_flight) - 1)]
