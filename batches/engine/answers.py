"""What came back of a submission, and what it means: pure judgements, each a `Change`.

The ladder of refusals itself is `retries.decide_submission`; here its decision becomes rows and words.
"""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from batches import wording
from batches.conf import ENGINE
from batches.engine import deadlines, polling, retries, standings, steps
from batches.engine.changes import Change, Follow, FollowStep, accepting, moving, parking
from batches.engine.claims import Claim
from batches.engine.effects import AccountEffect
from batches.engine.submission import Sending
from batches.models import AlertKind, FailureClass, JobState, ProviderAccount, SubmissionOutcome
from batches.providers import errors
from batches.providers.base import Accepted, Finished
from batches.storage import ObjectMissing, StoreError

WHAT_TO_DO_UNKNOWN = (
    "It may have been accepted and billed, so nothing is sent again by itself: reconcile it first, which is free."
)


def what_to_do_unknown(account: ProviderAccount) -> str:
    """What follows where it cannot be known whether a document was accepted, as the account's provider bills it."""
    price = standings.repeat_price(account.kind)
    return WHAT_TO_DO_UNKNOWN if price is None else wording.what_to_do_harmless(price.value)


def judge_answer(sending: Sending, answer: Accepted | Finished, account: ProviderAccount, *, now: datetime) -> Change:
    """The provider has it: its id is recorded before anything else happens to the job."""
    claim = sending.prepared.claim
    deadline_at = deadlines.of_account(account, now)
    job_fields: dict[str, Any] = {
        "deadline_at": deadline_at,
        "provider_status": answer.status_word[:100],
        "provider_status_at": now,
        "poll_count": 0,
        "fetch_count": 0,
    }
    submission_fields: dict[str, Any] = {
        "in_doubt": False,
        "provider_job_id": answer.provider_job_id,
        "accepted_at": now,
    }
    submission = replace(
        sending.submission,
        provider_job_id=answer.provider_job_id,
        in_doubt=False,
        accepted_at=now,
    )
    to_state = JobState.ACCEPTED
    if isinstance(answer, Finished):
        to_state = JobState.RENDERED
        submission_fields |= polling.result_columns(answer.result, now=now)
        submission = submission.with_result(submission_fields["result"])
        follow = Follow(FollowStep.FETCH, now)
    else:
        follow = Follow(FollowStep.POLL, now)
    job_fields["due_at"] = now
    after = claim.moved(
        to_state, submission=submission, deadline_at=deadline_at, poll_count=0, fetch_count=0, state_changed_at=now
    )
    return Change(
        claim=claim,
        at=now,
        move=moving(claim, to_state, reason="accepted", fields=job_fields),
        submission_id=sending.submission.id,
        submission_fields=submission_fields,
        exchanges=((answer.exchange, sending.submission.id),),
        effect=AccountEffect(
            reached=account.transport_failure_count > 0,
            repeat_was_accepted=sending.submission.try_count > 1,
            trial_was_accepted=True if account.on_probation else None,
        ),
        after=after,
        follow=follow,
    )


def judge_error(
    sending: Sending, error: errors.ProviderError, account: ProviderAccount, *, now: datetime, rng: random.Random
) -> Change:
    """No id came back: where the submission goes is decided by `retries.decide_submission`."""
    claim, submission = sending.prepared.claim, sending.submission
    if isinstance(error, errors.TooManyAtOnce) and not sending.others_in_flight:
        error = error.as_refused_key()
    facts = retries.SubmissionFacts(
        in_doubt=sending.prepared.doubt_before,
        tries=_without_this(submission.try_count),
        resend_until=submission.resend_until,
        sent_before=sending.prepared.sent_before,
        refused_before=sending.prepared.refused_before,
        others_pass=sending.prepared.others_pass,
        limited_alone=sending.prepared.limited_alone,
        refused_keys=claim.refused_keys,
    )
    decision = retries.decide_submission(error, facts, now=now, rng=rng)
    words = f"{decision.words} {error.words}".strip()
    to_state, job_fields = _end_of(decision, error, words, account)
    fields: dict[str, Any] = {
        "in_doubt": decision.in_doubt,
        "try_count": submission.try_count if decision.spends_try else _without_this(submission.try_count),
    }
    if decision.next in (retries.Next.FAIL, retries.Next.ANEW):
        fields |= {"outcome": SubmissionOutcome.REFUSED, "closed_at": now}
    move = None
    if to_state is not JobState.SUBMITTING:
        move = moving(claim, to_state, reason=f"submit_{decision.next.value}", words=words, fields=job_fields)
    alert = None
    if decision.next is retries.Next.UNKNOWN:
        alert = (AlertKind.UNKNOWN_OUTCOME, f"{claim.business_id}: {job_fields['failure_words']}")
    return Change(
        claim=claim,
        at=now,
        move=move,
        job_fields={"due_at": decision.due_at} if move is None else {},
        submission_id=submission.id,
        submission_fields=fields,
        exchanges=((error.exchange, submission.id),) if error.exchange else (),
        effect=AccountEffect(
            hold=decision.hold,
            is_strange=decision.is_strange,
            cool_down_until=decision.cool_down_until,
            transport_failure=decision.transport_failure,
            on_submission=decision.transport_failure,
            trial_was_accepted=False if account.on_probation else None,
            words=error.words,
        ),
        alert=alert,
    )


def _end_of(
    decision: retries.Decision, error: errors.ProviderError, words: str, account: ProviderAccount
) -> tuple[JobState, dict[str, Any]]:
    if decision.next is retries.Next.RESEND:
        return JobState.SUBMITTING, {}
    if decision.next in (retries.Next.REQUEUE, retries.Next.ANEW):
        return JobState.PENDING, {"due_at": decision.due_at}
    failure = {"failure_class": decision.failure_class, "failure_code": error.code[:100], "failure_words": words}
    if decision.next is retries.Next.FAIL:
        return JobState.FAILED, failure
    failure["failure_words"] = f"{_unknown_words(error, words)} {what_to_do_unknown(account)}"
    return JobState.UNKNOWN, failure


def _unknown_words(error: errors.ProviderError, words: str) -> str:
    if not error.replayed:
        return words
    return f"{words} The provider only repeats its first answer to this key, which proves nothing."


def judge_never_left(claim: Claim, *, now: datetime) -> Change:
    """The bytes provably never left (the pump is ending): back to pending, as if the slot had not been taken."""
    assert claim.submission is not None
    return Change(
        claim=claim,
        at=now,
        move=moving(claim, JobState.PENDING, reason="never_left", fields={"due_at": now}),
        submission_id=claim.submission.id,
        submission_fields={"in_doubt": False, **_given_back(claim)},
    )


def _given_back(claim: Claim) -> dict[str, Any]:
    """The count of a try that was committed and never left."""
    assert claim.submission is not None
    return {"try_count": _without_this(claim.submission.try_count)}


def _without_this(try_count: int) -> int:
    """The tries before the one at hand, which was counted when its intent was committed."""
    return max(0, try_count - 1)


def judge_missed(claim: Claim, *, now: datetime) -> Change:
    """A repeat that missed its slot, and its pump is ending: it may be there as before, and this try is not counted."""
    assert claim.submission is not None
    return Change(claim=claim, at=now, submission_id=claim.submission.id, submission_fields=_given_back(claim))


def judge_held(claim: Claim, *, now: datetime, missed_slot: bool = False) -> Change:
    """The account is held, so nothing may be sent; look again before the provider forgets the key."""
    assert claim.submission is not None
    due_at = now + timedelta(seconds=ENGINE.poll_held_seconds)
    if claim.submission.resend_until is not None:
        due_at = min(due_at, max(claim.submission.resend_until, now))
    change = judge_missed(claim, now=now) if missed_slot else Change(claim=claim, at=now)
    return replace(change, job_fields={"due_at": due_at})


def judge_id_known(claim: Claim, account: ProviderAccount, *, now: datetime) -> Change:
    """A holder whose lease had run out recorded the id after all: there is nothing left to send."""
    change = accepting(claim, reason="id_was_recorded", deadline_at=deadlines.of_account(account, now), now=now)
    assert change.move is not None
    after = claim.moved(JobState.ACCEPTED, state_changed_at=now, **change.move.fields)
    return replace(change, after=after, follow=Follow(FollowStep.POLL, now))


def judge_unpreparable(
    claim: Claim, error: errors.ProviderError | StoreError, *, now: datetime, rng: random.Random
) -> Change:
    """The bytes could not be made or read back, so none left on this try."""
    if isinstance(error, StoreError) and not isinstance(error, ObjectMissing):
        return Change(claim=claim, at=now, job_fields={"due_at": now + retries.backoff(4, rng)})
    if isinstance(error, StoreError):
        failure_class, words = FailureClass.INTERNAL, f"Its stored input is missing. {error.words}"
    else:
        failure_class, words = FailureClass.INVALID_INPUT, error.words
    return parking(claim, words, failure_class=failure_class, now=now)


def judge_window_closed(claim: Claim, account: ProviderAccount, *, now: datetime, counted: bool = False) -> Change:
    """It may have been accepted, and the provider may no longer recognise a repeat.

    `counted`: a try was committed, and its bytes stayed here.
    """
    words = "The answer to the submission was lost, and the provider may no longer recognise a repeat of it."
    if standings.repeat_price(account.kind) is not None:
        words = "The answer to the submission was lost, and it was sent again for as long as that is done by itself."
    change = _unknown(claim, account, "resend_window_closed", words, now=now)
    return replace(change, submission_fields=_given_back(claim)) if counted else change


def judge_tries_used(claim: Claim, account: ProviderAccount, *, now: datetime) -> Change:
    """Its last try ended with its pump: it may have been accepted, and no further one is made."""
    words = f"It was sent {ENGINE.submit_tries_most} times, and no answer was learned."
    return _unknown(claim, account, "tries_used", words, now=now)


def _unknown(claim: Claim, account: ProviderAccount, reason: str, words: str, *, now: datetime) -> Change:
    assert claim.submission is not None
    told = f"{words} {what_to_do_unknown(account)}"
    return Change(
        claim=claim,
        at=now,
        move=moving(
            claim,
            JobState.UNKNOWN,
            reason=reason,
            words=words,
            fields={
                "failure_class": FailureClass.UNKNOWN_OUTCOME,
                "failure_code": "",
                "failure_words": told,
            },
        ),
        submission_id=claim.submission.id,
        alert=(AlertKind.UNKNOWN_OUTCOME, f"{claim.business_id}: {told}"),
    )


def judge_nothing(result: steps.JobResult, error: Exception, account: ProviderAccount, *, now: datetime) -> Change:
    """A fault of ours while a result was judged: its job stops where a person sees it.

    What was accepted does not stop: its id is all that is needed to read it on, until its deadline.
    """
    words = f"Its last answer could not be judged ({type(error).__name__}); the log has the trace."
    parked = parking(result.claim, words, now=now)
    if not isinstance(result, steps.Answered):
        return parked
    submission, exchange = result.sending.submission, result.answer.exchange
    parked = replace(parked, submission_id=submission.id, exchanges=((exchange, submission.id),))
    if not result.answer.provider_job_id:
        return parked
    deadline_at = deadlines.of_account(account, result.at)
    kept = accepting(result.claim, reason="answer_not_judged", words=words, deadline_at=deadline_at, now=now)
    return replace(
        parked,
        move=kept.move,
        submission_fields={"provider_job_id": result.answer.provider_job_id, "accepted_at": result.at},
    )
