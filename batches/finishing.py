"""How long the rest of a batch takes: a range with its reason, or the reason why none is said. Pure: asks no query.

The range comes from what the batch itself did lately, minute by minute: `low` at the pace of its better minutes, `high`
at that of its worse ones. Neither is faster than the account sends. It says nothing before it can know something.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from batches import figures

#: Too early to say anything.
SECONDS_LEAST = 15.0
SAVED_LEAST = 20
#: So many of the last minutes count.
WINDOWS_MOST = 10
#: A range is never narrower than a tenth: nobody knows it better.
NARROWEST = 0.05
#: The tail: its documents are named one by one.
TAIL_COUNT = 10
TAIL_SHARE = 0.02


@dataclass(frozen=True)
class Work:
    """What is known at one look. `finished` counts what came to rest in each of the last spans of `span` seconds.

    `interval` is the seconds between two documents of the account; `share` of `shares` turns are this batch's. `usual`
    and `slow` are the seconds of half and of 95 % of the last renders, None where none is known.
    """

    remaining: int
    waiting: int
    saved: int
    age: float
    finished: Sequence[int]
    span: float
    interval: float = 0.0
    share: int = 1
    shares: int = 1
    usual: float | None = None
    slow: float | None = None


@dataclass(frozen=True)
class Left:
    """Seconds that are left, and in words what that rests on."""

    low: float
    high: float
    basis: str

    @property
    def words(self) -> str:
        return f"{between(self.low, self.high)} left"


def spans(age: float) -> tuple[int, float]:
    """How many spans of how many seconds a batch of that age is looked at in: minutes, once it has some."""
    if age < 180:
        return 3, age / 3
    return min(WINDOWS_MOST, int(age // 60)), 60.0


def is_tail(remaining: int, total: int) -> bool:
    """Whether so little is left that each of it is named."""
    return remaining > 0 and (remaining < TAIL_COUNT or remaining < total * TAIL_SHARE)


def left(work: Work) -> Left | None:
    """None where it is too early, or nothing came to rest lately."""
    if work.age < SECONDS_LEAST or work.saved < SAVED_LEAST or not work.remaining or not any(work.finished):
        return None
    worse, _middle, better = statistics.quantiles(work.finished, n=4, method="inclusive")
    # Where most minutes brought nothing, what they brought together counts, and half of that as the worse case.
    mean = statistics.fmean(work.finished)
    worse, better = worse or mean / 2, max(better, mean)
    at_pace = work.waiting * work.interval
    low = max(work.remaining / better * work.span, at_pace) + (work.usual or 0.0 if work.waiting else 0.0)
    high = max(work.remaining / worse * work.span, at_pace * work.shares / work.share, low) + (work.slow or 0.0)
    return Left(low * (1 - NARROWEST), high * (1 + NARROWEST), _basis(work))


def _basis(work: Work) -> str:
    minutes = round(len(work.finished) * work.span / 60)
    lately = f"by its last {minutes} minutes" if minutes > 1 else "by its first minute"
    others = work.shares - work.share
    if work.interval * work.waiting < 1:
        return lately
    among = "the only batch that is sent" if not others else f"{work.share} of {work.shares} turns are this batch’s"
    return f"{lately}; the account sends {figures.pace(work.interval * 1000)}, {among}"


def between(low: float, high: float) -> str:
    """`about 24–31 min`, `less than a minute`, `about 1 h 10 min to 1 h 40 min`."""
    if high < 50:
        return "less than a minute"
    first, last = max(1, round(low / 60)), max(1, round(high / 60))
    if first == last:
        return figures.duration(last * 60)
    if last < 60:
        return f"about {first}–{last} min"
    return f"{figures.duration(first * 60)} to {figures.duration(last * 60).removeprefix('about ')}"


def finishing(remaining: int, oldest: float, *, usual: float | None, deadline: float | None) -> str:
    """`Finishing: last 6 rendering, oldest 41 s (usual 3 s, deadline 10 min)`, of a batch that is all sent."""
    known = [f"usual {age(usual)}"] if usual is not None else []
    known += [f"deadline {age(deadline)}"] if deadline is not None else []
    compared = f" ({', '.join(known)})" if known else ""
    one = "the last one is with the provider, for" if remaining == 1 else f"last {remaining:,} rendering, oldest"
    return f"Finishing: {one} {age(oldest)}{compared}"


def age(seconds: float) -> str:
    """`3 s`, `41 s`, `10 min`, `2 h 5 min`"""
    whole = max(1, round(seconds))
    return f"{whole} s" if whole < 60 else figures.offset(whole).removeprefix("+")
