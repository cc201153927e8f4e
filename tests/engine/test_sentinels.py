"""A provider that was slow for a while is fast again: what was learned from the slow time is soon given up."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pytest

from batches.conf import ENGINE
from batches.engine import expectations, polling
from batches.engine.changes import Change, Follow, FollowStep, moving
from batches.engine.claims import Claim
from batches.engine.expectations import Sample
from batches.engine.polls import Polls
from batches.engine.sentinels import Sentinels
from batches.models import JobState
from batches.providers.base import ExchangeFacts, JobPhase, JobStatus, ResultRef
from tests.engine.samples import accepted_submission, account, claim
from tests.factories import NOW

ACCOUNT = account(poll_initial_ms=1000)
#: How many are in flight at once, and the seconds between two submissions.
IN_FLIGHT, PACE = 20, 3.0


@dataclass(frozen=True)
class Seen:
    """One job: when its end was seen and when it was accepted, in seconds, how long it took, and its status reads."""

    at: float
    accepted_at: float
    took: float
    reads: int


class Line:
    """Jobs of one account, so many in flight at a time: another is accepted when one's end was seen, at a pace."""

    def __init__(self, duration: Callable[[random.Random], float], *, before: list[Sample], seed: int) -> None:
        self.rng = random.Random(seed)
        self.duration = duration
        self.polls = Polls(ENGINE, self.rng)
        self.ends: dict[int, float] = {}
        self.seen: list[Seen] = []
        self.next_slot = 0.0
        for number, sample in enumerate(before, start=1):
            known = replace(accepted_submission(), id=number, accepted_at=NOW)
            learned_from = claim(JobState.RENDERED, job_id=number)
            self.polls.saw_end(replace(learned_from, submission=known, observed=sample), NOW)
        self.last_id = len(before)

    def run(self, *, seconds: float) -> list[Seen]:
        for _ in range(IN_FLIGHT):
            self._accept(0.0)
        while (at := self.polls.next_at()) is not None and at < NOW + timedelta(seconds=seconds):
            for waiting in self.polls.due(at).get(ACCOUNT.pk, []):
                self._read(waiting, at)
        return self.seen

    def _accept(self, freed_at: float) -> None:
        at = max(freed_at, self.next_slot)
        self.next_slot = at + PACE
        self.last_id += 1
        now = NOW + timedelta(seconds=at)
        before = claim(JobState.SUBMITTING, job_id=self.last_id)
        known = replace(accepted_submission(), id=self.last_id, accepted_at=now)
        after = before.moved(JobState.ACCEPTED, submission=known, deadline_at=now + timedelta(hours=2))
        move = moving(before, JobState.ACCEPTED, reason="accepted")
        change = Change(before, now, move, submission_id=known.id, after=after, follow=Follow(FollowStep.POLL, now))
        timed = self.polls.timed(change, ACCOUNT)
        assert timed.after is not None
        assert timed.follow is not None
        self.ends[self.last_id] = at + self.duration(self.rng)
        self.polls.schedule(timed.after, timed.follow.due_at)

    def _read(self, waiting: Claim, now: datetime) -> None:
        at = (now - NOW).total_seconds()
        is_over = self.ends[waiting.job_id] <= at
        facts = ExchangeFacts("poll", now, 5, 200)
        phase = JobPhase.SUCCEEDED if is_over else JobPhase.RUNNING
        status = JobStatus("pdf_1", phase, phase.value, facts, ResultRef("pdf_1") if is_over else None)
        context = polling.PollContext(ACCOUNT, now, self.rng, self.polls.plan(waiting))
        change = polling.judge_status(waiting, status, context)
        assert change.after is not None
        assert change.follow is not None
        if not is_over:
            self.polls.schedule(change.after, change.follow.due_at)
            return
        assert waiting.submission is not None
        assert waiting.submission.accepted_at is not None
        accepted_at = (waiting.submission.accepted_at - NOW).total_seconds()
        self.seen.append(Seen(at, accepted_at, self.ends.pop(waiting.job_id) - accepted_at, change.after.poll_count))
        self.polls.saw_end(change.after, now)
        self.polls.forget(waiting.job_id)
        self._accept(at)


def slow(seconds: float, *, seed: int) -> list[Sample]:
    """What four hundred jobs of an overload taught."""
    rng = random.Random(seed)
    ends = [seconds * rng.uniform(0.8, 1.2) for _ in range(400)]
    return [Sample(max(0.0, end - 7 * rng.random()), end + 8 * rng.random()) for end in ends]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("before", "now"), [(60.0, 1.0), (300.0, 2.0), (900.0, 2.0)])
def test_a_provider_that_is_fast_again_is_waited_for_no_longer_than_a_few_minutes(
    before: float, now: float, seed: int
) -> None:
    line = Line(lambda rng: now * rng.uniform(0.9, 1.1), before=slow(before, seed=seed), seed=seed)
    seen = line.run(seconds=1200)
    late = [each for each in seen if each.at - each.accepted_at > 5 * now + 2 and each.accepted_at > 90]
    assert len(late) <= len(seen) / 20, (len(late), len(seen))
    assert len(seen) > 300, "one every three seconds, once that is known"


@pytest.mark.parametrize(("seconds", "most_reads"), [(5.0, 2.2), (30.0, 2.8), (300.0, 3.6)])
def test_where_nothing_changes_they_cost_little_and_nothing_is_forgotten(seconds: float, most_reads: float) -> None:
    line = Line(lambda rng: seconds * rng.uniform(0.9, 1.1), before=slow(seconds, seed=1), seed=2)
    seen = line.run(seconds=60 * seconds)
    settled = seen[len(seen) // 2 :]
    assert sum(each.reads for each in settled) / len(settled) <= most_reads
    delays = sorted(each.at - each.accepted_at - each.took for each in settled)
    assert delays[len(delays) // 2] <= 0.08 * seconds


def test_one_early_end_proves_nothing() -> None:
    plan = expectations.plan([Sample(58.0, 60.0)] * 30)
    assert plan is not None
    sentinels = Sentinels()
    sentinels.appoint(1, plan, first_look=1.0, now=NOW)
    assert sentinels.ended(1, 11, Sample(0.0, 1.0), plan) == ()
    sentinels.appoint(2, plan, first_look=1.0, now=NOW)
    assert sentinels.ended(2, 12, Sample(57.0, 60.0), plan) == (), "an end at its usual time: the early one was chance"
    for job_id, expected in ((3, ()), (4, (13, 14))):
        sentinels.appoint(job_id, plan, first_look=1.0, now=NOW + timedelta(minutes=2))
        assert sentinels.ended(job_id, 10 + job_id, Sample(0.0, 1.0), plan) == expected


def test_between_two_of_them_a_usual_duration_passes() -> None:
    plan = expectations.plan([Sample(28.0, 30.0)] * 30)
    assert plan is not None
    sentinels = Sentinels()
    looking = []
    for second in range(100):
        sentinels.appoint(second, plan, first_look=1.0, now=NOW + timedelta(seconds=second))
        if sentinels.plan(second, plan).looks:
            looking.append(second)
    assert looking == [0, 31, 62, 93]
