"""Early looks: now and then a job is read on the way to its expected end, so that a provider which became faster is
noticed within about a minute, whatever had been learned from slower times. One account's; it reads and writes nothing.

Without them each job would be read first when the old ones ended, and "finished by then" contradicts nothing that was
learned: with twenty in flight and a quarter of an hour behind it, an account would stay slow for hours.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from batches.engine.expectations import PollPlan, Sample

#: A job becomes one when this share of the expected wait, or these seconds, have passed since the last.
APART_SHARE = 1.0
APART_LEAST, APART_MOST = timedelta(seconds=10), timedelta(seconds=60)
#: Its looks grow apart by this factor up to this share of the expected wait.
LOOKS_GROWTH = 3.0
LOOKS_END = 0.8
#: Where the expected wait is shorter than so many first looks, its own read is early enough.
LOOKS_LEAST = 8.0
#: An end is early when at most this share of all that was learned ended as soon.
EARLY_SHARE = 0.25
#: What was learned no longer holds when a row of early ends is less likely than this. One end alone never proves it:
#: none counts as less likely than `LEAST_LIKELY`.
CHANCE_MOST = 1e-4
LEAST_LIKELY = 0.009


class Sentinels:
    """Which jobs look early, and what their looks came to."""

    def __init__(self) -> None:
        self._first_looks: dict[int, float] = {}
        self._next_at: datetime | None = None
        self._row: list[int] = []
        self._chance = 1.0

    def appoint(self, job_id: int, plan: PollPlan, *, first_look: float, now: datetime) -> None:
        """Make a job that was just accepted one of them, when it is time and worth it. `first_look` is in seconds."""
        if plan.reads[0] < first_look * LOOKS_LEAST or (self._next_at is not None and now < self._next_at):
            return
        apart = timedelta(seconds=plan.reads[0] * APART_SHARE)
        self._next_at = now + min(max(apart, APART_LEAST), APART_MOST)
        self._first_looks[job_id] = first_look

    def plan(self, job_id: int, plan: PollPlan) -> PollPlan:
        """The plan for this job: with the early looks before its own reads, where it is one of them."""
        look = self._first_looks.get(job_id)
        if look is None:
            return plan
        looks = []
        while look < plan.reads[0] * LOOKS_END:
            looks.append(look)
            look *= LOOKS_GROWTH
        return replace(plan, looks=tuple(looks))

    def ended(self, job_id: int, submission_id: int, sample: Sample, plan: PollPlan) -> tuple[int, ...]:
        """A job's end was seen. The submissions that are still to be learned from, once the others are proven old."""
        if self._first_looks.pop(job_id, None) is None:
            return ()
        share = plan.share_by(sample.by)
        if share > EARLY_SHARE or sample.by > plan.reads[0] * LOOKS_END:
            self._row, self._chance = [], 1.0
            return ()
        self._row.append(submission_id)
        self._chance *= max(share, LEAST_LIKELY)
        self._next_at = None  # whether it was chance, the next one says
        if self._chance > CHANCE_MOST:
            return ()
        row, self._row, self._chance = tuple(self._row), [], 1.0
        return row

    def forget(self, job_id: int) -> None:
        self._first_looks.pop(job_id, None)
