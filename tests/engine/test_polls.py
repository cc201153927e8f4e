"""When a job is read first, where a few teach the rest and some are not scheduled yet while they do."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

from batches.conf import ENGINE
from batches.engine.changes import Change, Follow, FollowStep, moving
from batches.engine.expectations import Sample
from batches.engine.polls import Polls
from batches.models import JobState
from tests.engine.samples import accepted_submission, account, claim
from tests.factories import NOW

ACCOUNT = account(poll_initial_ms=200)


def accepted(job_id: int) -> Change:
    before = claim(JobState.SUBMITTING, job_id=job_id)
    after = before.moved(JobState.ACCEPTED, submission=replace(accepted_submission(), id=job_id, accepted_at=NOW))
    return Change(
        claim=before,
        at=NOW,
        move=moving(before, JobState.ACCEPTED, reason="accepted"),
        submission_id=job_id,
        after=after,
        follow=Follow(FollowStep.POLL, NOW),
    )


def test_what_is_scheduled_after_the_first_few_have_shown_it_waits_no_longer_than_the_others() -> None:
    """Its first read was timed before anything was known, and its acceptance was on its way to the database since."""
    polls = Polls(ENGINE, random.Random(1))
    changes = [polls.timed(accepted(number), ACCOUNT) for number in range(1, ENGINE.pioneers_most + 3)]
    *pioneers, scheduled, late = changes
    assert all(change.follow and change.follow.due_at <= NOW + timedelta(seconds=1) for change in pioneers)
    for change in (scheduled, late):
        assert change.follow is not None
        assert change.follow.due_at > NOW + timedelta(seconds=10)
    for change in (*pioneers, scheduled):
        assert change.after is not None
        assert change.follow is not None
        polls.schedule(change.after, change.follow.due_at)
    for change in pioneers:
        assert change.after is not None
        polls.saw_end(change.after.moved(JobState.RENDERED, observed=Sample(0.9, 1.1, 0)), NOW + timedelta(seconds=1))
    assert late.after is not None
    assert late.follow is not None
    polls.schedule(late.after, late.follow.due_at)
    due = {claim.job_id for claim in polls.due(NOW + timedelta(seconds=5))[ACCOUNT.pk]}
    assert {scheduled.claim.job_id, late.claim.job_id} <= due
