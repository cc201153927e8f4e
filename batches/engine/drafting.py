"""Drafts at a provider: made by the submission, begun by a second call, which is the one that bills.

The way to one bill without a key of the vendor: the draft's id is recorded first. Only of a draft that a status read
has just called one, and whose start was not tried a moment ago, is the start committed and then sent, soon or not at
all; whether an answer that was lost had its effect is seen by a status read that begins after the call can have had any
more. Pure; the call itself is a step (`steps.start`).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from batches.engine import breaker, polling
from batches.engine.changes import Change, Follow, FollowStep, moving
from batches.engine.claims import Claim
from batches.engine.polling import PollContext
from batches.models import AccountHealth, FailureClass, JobState, SubmissionOutcome
from batches.providers import errors
from batches.providers.base import Accepted, JobStatus

#: Once committed, a start leaves within so long or not at all: the status read that allows it is hardly older then.
LEAVES_WITHIN = timedelta(seconds=30)
#: A start whose answer was lost may still be on its way for so long; what is read as a draft later did not get it. Room
#: for the longest call after it (25 s), and for a process that is suspended with its call begun.
SETTLED_AFTER = timedelta(seconds=120)


def may_start(claim: Claim, status: JobStatus, context: PollContext) -> bool:
    """Whether what was read as a draft may be begun now.

    Nothing that bills leaves on a held account, past the deadline, or beside a start that may be under way; of the last
    only a read tells that began after it was settled.
    """
    known = claim.submission
    assert known is not None
    began_at = status.exchange.started_at
    is_settled = known.started_at is None or began_at >= known.started_at + SETTLED_AFTER
    is_in_time = not polling.deadline_passed(claim, began_at, context)
    is_plain = known.failed_at is None  # else the failure that was read before has to be taken back first
    return is_settled and is_in_time and is_plain and context.account.health == AccountHealth.OPEN


def may_leave(claim: Claim, now: datetime) -> bool:
    """Whether the start that was committed may still leave; later, the draft is read again first."""
    assert claim.submission is not None
    assert claim.submission.started_at is not None
    return claim.starts_draft and now <= claim.submission.started_at + LEAVES_WITHIN


def not_begun(claim: Claim) -> Claim:
    """A claim whose committed start provably never left, so that nothing has to settle: it is read again."""
    assert claim.submission is not None
    return replace(claim, starts_draft=False, submission=replace(claim.submission, started_at=None))


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
        effect=breaker.reached(context.account),
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
        effect=breaker.reached(context.account),
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
    # A refusal had no effect, so the next try need not wait for it.
    return never_left(change) if isinstance(error, errors.NotSent | errors.Refused) else change


def never_left(change: Change) -> Change:
    """The change, and with it that nothing of a committed start can have had an effect."""
    assert change.claim.submission is not None
    fields = {**change.submission_fields, "started_at": None}
    after = not_begun(change.after) if change.after is not None else None
    return replace(change, submission_id=change.claim.submission.id, submission_fields=fields, after=after)
