"""Drafts at a provider: made by the submission, begun by a second call, which is the one that bills.

The way to one bill without a key of the vendor: the draft's id is recorded first. Only of a draft that a status read
has just called one, and whose start was not tried a moment ago, is the start committed and then sent; whether an answer
that was lost had its effect is seen by the next status read. Pure; the call itself is a step (`steps.start`).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from batches.engine import polling
from batches.engine.changes import Change, Follow, FollowStep, moving
from batches.engine.claims import Claim
from batches.engine.polling import PollContext
from batches.models import AccountHealth, FailureClass, JobState, SubmissionOutcome
from batches.providers import errors
from batches.providers.base import Accepted, JobStatus

#: A start whose answer was lost may still be on its way for so long; a draft that is older did not get it.
SETTLED_AFTER = timedelta(seconds=60)


def may_start(claim: Claim, context: PollContext) -> bool:
    """Whether a draft may be begun now: nothing that bills leaves on a held account, or beside a start under way."""
    assert claim.submission is not None
    tried_at = claim.submission.started_at
    is_settled = tried_at is None or context.now >= tried_at + SETTLED_AFTER
    return is_settled and context.account.health == AccountHealth.OPEN


def starting(claim: Claim, status: JobStatus, context: PollContext) -> Change:
    """That its start is tried now, to be committed before the call leaves."""
    assert claim.submission is not None
    seen = {
        "provider_status": status.status_word[:100],
        "provider_status_at": context.now,
        "poll_count": claim.poll_count + 1,
    }
    submission = replace(claim.submission, started_at=context.now)
    after = claim.moved(
        claim.state, submission=submission, poll_count=seen["poll_count"], due_at=context.now, starts_draft=True
    )
    return Change(
        claim=claim,
        at=context.now,
        job_fields={**seen, "due_at": context.now},
        submission_id=submission.id,
        submission_fields={"started_at": context.now},
        exchanges=((status.exchange, submission.id),),
        after=after,
        follow=Follow(FollowStep.START, context.now),
    )


def judge_started(claim: Claim, answer: Accepted, context: PollContext) -> Change:
    """The provider works on it from now on: its status is read when such jobs are usually finished."""
    assert claim.submission is not None
    due_at = polling.first_due(context.account, context.plan, now=context.now, rng=context.rng)
    return Change(
        claim=claim,
        at=context.now,
        job_fields={
            "provider_status": answer.status_word[:100],
            "provider_status_at": context.now,
            "due_at": due_at,
        },
        exchanges=((answer.exchange, claim.submission.id),),
        after=claim.moved(claim.state, due_at=due_at, starts_draft=False),
        follow=Follow(FollowStep.POLL, due_at),
    )


def judge_start_error(claim: Claim, error: errors.ProviderError, context: PollContext) -> Change:
    """It did not begin, or nobody knows: a status read says which. A definite no about the document ends it."""
    submission = claim.submission
    assert submission is not None
    claim = replace(claim, starts_draft=False)
    if isinstance(error, errors.InvalidInput):
        failure = {"failure_class": FailureClass.INVALID_INPUT, "failure_code": error.code[:100]}
        failure["failure_words"] = error.words
        return Change(
            claim=claim,
            at=context.now,
            move=moving(claim, JobState.FAILED, reason="start_refused", words=error.words, fields=failure),
            submission_id=submission.id,
            submission_fields={"outcome": SubmissionOutcome.RENDER_FAILED, "closed_at": context.now},
            exchanges=((error.exchange, submission.id),) if error.exchange else (),
        )
    change = polling.judge_error(claim, error, context)
    if not isinstance(error, errors.NotSent | errors.Refused):
        return change
    # Nothing of it had an effect, so the next try need not wait for it.
    fields = {**change.submission_fields, "started_at": None}
    after = change.after
    if after is not None and after.submission is not None:
        after = replace(after, submission=replace(after.submission, started_at=None))
    return replace(change, submission_id=submission.id, submission_fields=fields, after=after)
