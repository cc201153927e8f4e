"""What earlier durations say about the next one: when to read its status, and which deadline would do. Pure.

A duration is never known exactly: it lies between the last status read that found the job unfinished and the one that
found its end. What is learned must respect that, or each late read would make durations look longer, and the next read
later still. So the distribution is the one that makes the observed brackets likeliest (Turnbull's self-consistency
for interval-censored data): "finished by 6 s" alone never moves it up, and a few scouts, read early on purpose, keep it
from drifting.
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from batches.conf import ENGINE

#: Fewest durations from which a status read is timed. One or two may be chance; five of a kind are a habit.
SAMPLES_LEAST = 5
#: Fewest of one size class before it stands for itself; below, the account's whole is the better guess.
SAMPLES_LEAST_IN_CLASS = 20
#: Only so many, the newest, are learned from: a few hundred forget an old habit within a batch.
SAMPLES_MOST = 400

#: Upper ends in bytes. Steps of four: work grows about with the size, and within a class by no more than that; five
#: classes, so that each fills soon. The last has no end.
SIZE_CLASSES: tuple[int, ...] = (16 * 1024, 64 * 1024, 256 * 1024, 1024 * 1024)

#: Status reads that a document may cost on average, and what a delay of the whole duration is worth in reads. The
#: first weight that keeps to the limit is taken, so that delay is what gives way where durations differ widely.
READS_MOST = 2.6
DELAY_WEIGHTS = (40.0, 30.0, 24.0, 20.0, 16.0, 12.0, 10.0, 8.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0)
#: A delay is counted up to this share of the duration: one that is late by so much may as well be later.
DELAY_SHARE_MOST = 0.5
#: A read comes this much after a likely end, so that it need not be repeated for a trifle.
READ_MARGIN = 0.02
#: Either side of a planned read, so that reads do not come in step, and sample the time around the end.
JITTER = 0.015
#: One in so many is read early, once, to see whether the provider became faster; up to this share before its time.
SCOUT_ONE_IN = 32
SCOUT_SHARE = 0.6
#: While the end is only known to lie in a bracket wider than this share of it, more of them look where in it.
LOOSE_SHARE = 0.08
SCOUT_ONE_IN_WHILE_LOOSE = 4
#: An early look that comes sooner after the last read than this factor of the time passed would show nothing new.
LOOK_STEP = 1.5
#: Past the last planned read, the next comes after this share of the time passed; past the worst ever seen, reads
#: grow apart as fast as those of an account that nothing is known of.
STEP_SHARE = 0.1
_ROUNDS = 30
_POINTS = 48


@dataclass(frozen=True)
class Sample:
    """One success: it ended after more than `after` and at most `by` seconds from its acceptance."""

    after: float
    by: float
    size_class: int = 0


@dataclass(frozen=True)
class PollPlan:
    """When a job of this kind is read, in seconds since its acceptance, ascending; at least one.

    `loose_from` is set while little is known of where before the first read the end lies: somewhere from there.
    `looks` are further reads on the way to the first, of the few jobs that look early (`sentinels.py`). `known` is what
    the plan was made from.
    """

    reads: tuple[float, ...]
    worst_seconds: float
    sample_count: int
    loose_from: float | None = None
    looks: tuple[float, ...] = ()
    known: Spread | None = field(default=None, repr=False)

    def share_by(self, seconds: float) -> float:
        """The share of all that is known that had ended by then."""
        return self.known.share_by(seconds) if self.known else 1.0

    def first_delay(self, rng: random.Random) -> float:
        """Seconds from acceptance to the first read."""
        if self.looks:
            return _around(0.0, self.looks[0], rng)
        if self.loose_from is not None and rng.random() * SCOUT_ONE_IN_WHILE_LOOSE < 1:
            return rng.uniform(max(self.loose_from, self.reads[0] * (1 - SCOUT_SHARE)), self.reads[0])
        return _around(0.0, self.reads[0], rng)

    def next_delay(self, elapsed: float, rng: random.Random) -> float:
        """Seconds from a read that found it unfinished, `elapsed` after its acceptance, to the next."""
        least = ENGINE.poll_step_least_seconds
        for look in self.looks:
            if look > elapsed * LOOK_STEP:
                return max(least, _around(elapsed, look, rng) - elapsed)
        for read in self.reads:
            if read > elapsed * (1 + 2 * JITTER):
                return max(least, _around(elapsed, read, rng) - elapsed)
        share = STEP_SHARE
        if elapsed > self.worst_seconds:
            # The worst may be nothing at all: all were finished as soon as they were accepted.
            share += min(ENGINE.poll_growth - 1, elapsed / max(self.worst_seconds, 0.001) - 1)
        return max(least, elapsed * share * rng.uniform(0.85, 1.15))


def _around(elapsed: float, planned: float, rng: random.Random) -> float:
    """The planned instant with jitter; now and then a scout's, earlier, and mostly not by much."""
    if rng.random() * SCOUT_ONE_IN < 1:
        return planned - (planned - elapsed) * SCOUT_SHARE * rng.random() ** 2
    return planned * rng.uniform(1 - JITTER, 1 + JITTER)


@dataclass(frozen=True)
class Spread:
    """A distribution of durations: ascending values in seconds, with weights that add up to 1 and, in `lows`, how
    much earlier each may have been."""

    values: tuple[float, ...]
    weights: tuple[float, ...]
    lows: tuple[float, ...]

    def quantile(self, share: float) -> float:
        """The least value that at least `share` of the weight does not exceed."""
        sums = list(accumulate(self.weights))
        return self.values[min(bisect_left(sums, share - 1e-9), len(self.values) - 1)]

    def share_by(self, seconds: float) -> float:
        """The weight of the values up to this one."""
        return sum(self.weights[: bisect_right(self.values, seconds)])


def size_class(byte_count: int) -> int:
    """Which class a request of so many bytes belongs to, counted from 0."""
    return bisect_left(SIZE_CLASSES, byte_count)


def spread(samples: Sequence[Sample]) -> Spread:
    """The likeliest distribution behind the brackets. Needs at least one sample.

    Its mass lies on the innermost brackets: those that begin at some `after`, end at the next `by` and hold no other
    end. Each is stood for by its upper end, so that a read there finds the job finished.
    """
    ends = sorted({sample.by for sample in samples})
    starts = sorted({sample.after for sample in samples})
    inner: list[tuple[float, float]] = []
    for by in ends:
        after = starts[bisect_left(starts, by) - 1] if bisect_left(starts, by) else 0.0
        if not inner or after >= inner[-1][1]:
            inner.append((after, by))
    lows, highs = [after for after, _by in inner], [by for _after, by in inner]
    # Which innermost brackets each sample covers, as a range of indices.
    covered: dict[tuple[int, int], int] = {}
    for sample in samples:
        span = (bisect_left(lows, sample.after), bisect_right(highs, sample.by))
        if span[0] < span[1]:
            covered[span] = covered.get(span, 0) + 1
    weights = [1 / len(inner)] * len(inner)
    for _round in range(_ROUNDS):
        weights = _shared_out(weights, covered)
    return Spread(tuple(highs), tuple(weights), tuple(lows))


def _shared_out(weights: Sequence[float], covered: dict[tuple[int, int], int]) -> list[float]:
    """One round of self-consistency: each sample gives its one vote to what it covers, by the present weights."""
    sums = [0.0, *accumulate(weights)]
    steps = [0.0] * (len(weights) + 1)
    total = 0
    for (start, stop), count in covered.items():
        mass = sums[stop] - sums[start]
        if mass <= 0:
            continue
        steps[start] += count / mass
        steps[stop] -= count / mass
        total += count
    return [weight * vote / total for weight, vote in zip(weights, accumulate(steps), strict=False)]


def plan(samples: Sequence[Sample], *, woken: bool = False) -> PollPlan | None:
    """The plan that costs least in reads and delay; None while too little is known.

    With `woken`, webhooks have proven to come: the first read only catches what they miss.
    """
    if len(samples) < SAMPLES_LEAST:
        return None
    known = spread(samples)
    worst = known.values[-1]
    if woken:
        first = known.quantile(0.99) * ENGINE.woken_patience + ENGINE.woken_patience_seconds
        return PollPlan((first,), max(worst, first), len(samples), known=known)
    points = _thinned(known)
    reads: tuple[float, ...] = ()
    for weight in DELAY_WEIGHTS:
        reads, per_document = _cheapest(points, weight)
        if per_document <= READS_MOST:
            break
    low = known.lows[bisect_left(known.values, reads[0] / (1 + READ_MARGIN) - 1e-9)]
    is_loose = low < reads[0] * (1 - READ_MARGIN) * (1 - LOOSE_SHARE)
    return PollPlan(reads, worst, len(samples), loose_from=low if is_loose else None, known=known)


def _thinned(known: Spread) -> list[tuple[float, float]]:
    """Values and weights, at most `_POINTS` of them."""
    if len(known.values) <= _POINTS:
        return [(value, weight) for value, weight in zip(known.values, known.weights, strict=True) if weight > 1e-6]
    quantiles = [known.quantile((index + 1) / _POINTS) for index in range(_POINTS)]
    return [(value, 1 / _POINTS) for value in quantiles]


def _cheapest(points: Sequence[tuple[float, float]], delay_weight: float) -> tuple[tuple[float, ...], float]:
    """The read times with the least expected cost, and how many reads a document then needs.

    Each read lies just past one of the values. `best[j]` is the cheapest way to have read just past value j: every
    document that was still unfinished at the read before pays one read, and what ended between the two pays its delay.
    """
    count = len(points)
    unfinished = [1.0, *(1 - passed for passed in accumulate(weight for _value, weight in points))]
    best: list[tuple[float, int]] = []
    for j, (value, _weight) in enumerate(points):
        seen_at = value * (1 + READ_MARGIN)
        delay = 0.0
        options = []
        for i in range(j, -1, -1):  # the read before lies just past value i - 1, or nowhere
            ended_at, weight = points[i]
            # One that was finished as soon as it was accepted has no length that a delay could be a share of.
            delay += weight * (min(DELAY_SHARE_MOST, seen_at / ended_at - 1) if ended_at > 0 else DELAY_SHARE_MOST)
            before = best[i - 1][0] if i else 0.0
            options.append((before + unfinished[i] + delay_weight * delay, i - 1))
        best.append(min(options))
    reads, per_document, j = [], 0.0, count - 1
    while j >= 0:
        reads.append(points[j][0] * (1 + READ_MARGIN))
        j = best[j][1]
        per_document += unfinished[j + 1]
    return tuple(reversed(reads)), per_document
