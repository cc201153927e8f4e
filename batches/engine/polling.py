"""Reading a provider job's status until it ends or its deadline passes. A read that fails proves nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from batches import wording
from batches.conf import ENGINE
from batches.engine import breaker, durations, retries
from batches.engine.changes import Change, Follow, FollowStep, moving
from batches.engine.claims import Claim, OpenSubmission
from batches.engine.effects import NO_EFFECT, AccountEffect
from batches.engine.expectations import PollPlan, Sample
from batches.models import (
    AccountHealth,
    AlertKind,
    FailureClass,
    HoldReason,
    JobState,
    Lane,
    ProviderAccount,
    SubmissionOutcome,
)
from batches.models.accounts import sound_limit
from batches.providers import errors
from batches.providers.base import ExchangeFacts, JobPhase, JobStatus, Provider, ResultRef

#: Of what is read as a draft at its deadline.
NEVER_BEGUN = "So it lies there as a draft whose rendering was never begun, and nothing is billed for it."
MAYBE_BEGUN = "It lay there as a draft then; it was told to begin, and whether that arrived is not known."


@dataclass(frozen=True)
class PollContext:
    """What a judgement needs beside the claim: when, whose limits, which dice, and what is expected of such a job."""

    account: ProviderAccount
    now: datetime
    rng: random.Random
    plan: PollPlan | None = None


def read(claim: Claim, provider: Provider, *, now: datetime) -> JobStatus:
    """One status read. Raises `errors.ProviderError`."""
    assert claim.submission is not None
    assert claim.submission.provider_job_id is not None
    return provider.fetch_status(claim.submission.provider_job_id, now=now)


def first_due(account: ProviderAccount, plan: PollPlan | None, *, now: datetime, rng: random.Random) -> datetime:
    """When a job that is accepted `now` is read first: when such jobs are finished, where that is known."""
    if plan is not None:
        return now + timedelta(seconds=plan.first_delay(rng))
    return now + retries.poll_delay(
        0, initial_ms=sound_limit(account, "poll_initial_ms"), most_ms=sound_limit(account, "poll_max_ms"), rng=rng
    )


def judge_status(claim: Claim, status: JobStatus, context: PollContext) -> Change:
    """What a complete, readable answer means."""
    effect = breaker.reached(context.account)
    if status.phase is JobPhase.FAILED and status.no_credit:
        effect = replace(effect, hold=HoldReason.CREDIT, words=status.error_words)
    return replace(_judge_status(claim, status, context), effect=effect)


def _judge_status(claim: Claim, status: JobStatus, context: PollContext) -> Change:
    assert claim.submission is not None
    seen: dict[str, Any] = {
        "provider_status": status.status_word[:100],
        "provider_status_at": context.now,
        "poll_count": claim.poll_count + 1,
    }
    exchanges = ((status.exchange, claim.submission.id),)
    if status.phase is JobPhase.SUCCEEDED:
        return _rendered(claim, status, seen, context)
    if status.phase is JobPhase.FAILED:
        # Where a later submission exists, what became of that one decides, not this one's failure.
        is_last = claim.next_sequence <= claim.submission.sequence + 1
        if status.unbilled and is_last and claim.submission.sequence <= ENGINE.render_again_most:
            return _failed_unbilled(claim, status, seen, context)
        words = status.error_words or "The provider could not render this document."
        failure = FailureClass.INSUFFICIENT_CREDIT if status.no_credit else FailureClass.RENDER_FAILED
        return Change(
            claim=claim,
            at=context.now,
            move=moving(
                claim,
                JobState.FAILED,
                reason="provider_job_failed",
                words=words,
                fields={
                    **seen,
                    "failure_class": failure,
                    "failure_code": status.error_code[:100],
                    "failure_words": words,
                },
            ),
            submission_id=claim.submission.id,
            submission_fields=_closed_as_failed(claim.submission, status, context),
            exchanges=exchanges,
        )
    if claim.submission.failed_at is not None:
        return _not_failed_after_all(claim, seen, exchanges, context)
    if deadline_passed(claim, status.exchange.started_at, context):
        word = status.status_word
        last = f"Its last status was “{word}”." if word else "Its last answer named no status."
        if status.phase is JobPhase.DRAFT:
            last += f" {NEVER_BEGUN if claim.submission.started_at is None else MAYBE_BEGUN}"
        return _deadline_exceeded(claim, last, seen, exchanges, context)
    claim = replace(claim, unfinished_at=status.exchange.started_at, status_word=seen["provider_status"])
    return _poll_again(claim, seen, exchanges, context)


def _failed_unbilled(claim: Claim, status: JobStatus, seen: dict[str, Any], context: PollContext) -> Change:
    """Failed and not billed. Read so twice, a poll cap apart, it is believed, and the document is rendered again."""
    assert claim.submission is not None
    exchanges = ((status.exchange, claim.submission.id),)
    first_at = claim.submission.failed_at
    if not is_second_reading(status, first_at, context.account):
        cap = poll_cap(context.account)
        first_at = first_at or context.now
        due_at = first_at + cap * context.rng.uniform(1.0, 1.2)
        after = claim.moved(
            claim.state,
            submission=replace(claim.submission, failed_at=first_at),
            poll_count=seen["poll_count"],
            due_at=due_at,
        )
        return Change(
            claim=claim,
            at=context.now,
            job_fields={**seen, "due_at": due_at},
            submission_id=claim.submission.id,
            submission_fields={"failed_at": first_at},
            exchanges=exchanges,
            after=after,
            follow=Follow(FollowStep.POLL, due_at),
        )
    words = status.error_words or "The provider could not render this document."
    # Kept while it waits, so that pages can say why it does, and for its end where nobody needs it any more.
    failure = {"failure_code": status.error_code[:100], "failure_words": words}
    due_at = context.now + retries.backoff(claim.submission.sequence, context.rng)
    fields = {**seen, **failure, "due_at": due_at, "deadline_at": None, "poll_count": 0}
    return Change(
        claim=claim,
        at=context.now,
        move=moving(claim, JobState.PENDING, reason="render_again", words=words, fields=fields),
        submission_id=claim.submission.id,
        submission_fields=_closed_as_failed(claim.submission, status, context),
        exchanges=exchanges,
    )


def poll_cap(account: ProviderAccount) -> timedelta:
    """The longest wait between two status reads: readings that lie as far apart are two readings."""
    return timedelta(milliseconds=retries.poll_most_ms(sound_limit(account, "poll_max_ms")))


def is_second_reading(status: JobStatus, first_at: datetime | None, account: ProviderAccount) -> bool:
    """Whether a reading of “failed, not billed” confirms the one of `first_at`, and is not just its echo."""
    return first_at is not None and status.exchange.started_at >= first_at + poll_cap(account)


def readings(
    status: JobStatus, first_at: datetime | None, again_at: datetime | None, account: ProviderAccount, *, now: datetime
) -> dict[str, datetime | None]:
    """What the submission's `failed_at` and `failed_again_at` are after this reading: both empty unless it says so."""
    if status.phase is not JobPhase.FAILED or not status.unbilled:
        return {"failed_at": None, "failed_again_at": None}
    if again_at is None and is_second_reading(status, first_at, account):
        again_at = now
    return {"failed_at": first_at or now, "failed_again_at": again_at}


def _closed_as_failed(known: OpenSubmission, status: JobStatus, context: PollContext) -> dict[str, Any]:
    said = readings(status, known.failed_at, None, context.account, now=context.now)
    return {"outcome": SubmissionOutcome.RENDER_FAILED, "closed_at": context.now, **said}


def _not_failed_after_all(
    claim: Claim, seen: dict[str, Any], exchanges: tuple[Any, ...], context: PollContext
) -> Change:
    """It was read as failed once, and now it is not: that first read counts for nothing."""
    assert claim.submission is not None
    change = _poll_again(replace(claim, submission=replace(claim.submission, failed_at=None)), seen, exchanges, context)
    return replace(change, submission_id=claim.submission.id, submission_fields={"failed_at": None})


def _rendered(claim: Claim, status: JobStatus, seen: dict[str, Any], context: PollContext) -> Change:
    assert claim.submission is not None
    columns = result_columns(status.result, status.warnings, known=claim.submission.result, now=context.now)
    # Where it was read as failed once, that counts for nothing now.
    anew = {} if claim.submission.failed_at is None else {"failed_at": None}
    submission = replace(claim.submission.with_result(columns["result"]), failed_at=None)
    after = claim.moved(
        JobState.RENDERED,
        submission=submission,
        poll_count=seen["poll_count"],
        state_changed_at=context.now,
        observed=_observed(claim, status.exchange),
    )
    return Change(
        claim=claim,
        at=context.now,
        move=moving(claim, JobState.RENDERED, reason="provider_job_finished", fields={**seen, "due_at": context.now}),
        submission_id=claim.submission.id,
        submission_fields={**columns, **anew},
        exchanges=((status.exchange, claim.submission.id),),
        after=after,
        follow=Follow(FollowStep.FETCH, context.now),
    )


def _observed(claim: Claim, exchange: ExchangeFacts) -> Sample | None:
    assert claim.submission is not None
    if claim.submission.accepted_at is None or not durations.teaches(claim):
        return None
    answered_at = exchange.started_at + timedelta(milliseconds=exchange.duration_ms)
    return durations.observe(claim.input_bytes, claim.submission.accepted_at, claim.unfinished_at, answered_at)


def effect_of(
    error: errors.ProviderError, account: ProviderAccount, *, now: datetime, rng: random.Random
) -> AccountEffect:
    """What a status read that failed says about the account, whoever made it."""
    if isinstance(error, errors.InsufficientCredit):
        return AccountEffect(hold=HoldReason.CREDIT, words=error.words)
    if isinstance(error, errors.Unauthorized):
        return AccountEffect(hold=HoldReason.AUTH, words=error.words)
    if isinstance(error, errors.RateLimited):
        return AccountEffect(cool_down_until=now + retries.retry_after(error, rng), cool_down_lane=Lane.POLL)
    return breaker.failed(account, error)


def judge_error(claim: Claim, error: errors.ProviderError, context: PollContext) -> Change:
    """A read that failed: ask again, until the deadline. The account may be at fault, the job never is."""
    assert claim.submission is not None
    seen: dict[str, Any] = {"poll_count": claim.poll_count + 1}
    exchanges = ((error.exchange, claim.submission.id),) if error.exchange else ()
    effect = effect_of(error, context.account, now=context.now, rng=context.rng)
    wait = retries.asked_wait(error.retry_after)
    if isinstance(error, errors.Unauthorized):
        # Only a person ends that, so all that is waited for is their correction.
        refused = retries.backoff(3 + claim.poll_count, context.rng)
        wait = max(wait, refused, timedelta(seconds=ENGINE.poll_held_seconds))
    elif deadline_passed(claim, error.exchange.started_at if error.exchange else context.now, context):
        failure = FailureClass.DEADLINE_EXCEEDED
        last = f"The last status read failed: {error.words}"
        if isinstance(error, errors.NotFound):
            failure = FailureClass.JOB_NOT_FOUND
            last = "The provider does not know this job."
        if claim.status_word:
            last += f" The last status seen was “{claim.status_word}”."
        elif claim.unfinished_at is None:
            last += " No status was ever seen."
        return replace(_deadline_exceeded(claim, last, seen, exchanges, context, failure=failure), effect=effect)
    elif effect.cool_down_until is not None:
        wait = effect.cool_down_until - context.now
    return _poll_again(claim, seen, exchanges, context, effect=effect, at_least=wait)


def _poll_again(
    claim: Claim,
    seen: dict[str, Any],
    exchanges: tuple[Any, ...],
    context: PollContext,
    *,
    effect: AccountEffect = NO_EFFECT,
    at_least: timedelta = timedelta(0),
) -> Change:
    delay = _delay(claim, context)
    due_at = context.now + max(delay, at_least)
    if claim.deadline_at and context.now < claim.deadline_at < due_at and not at_least:
        due_at = claim.deadline_at  # one read at the deadline decides
    after = claim.moved(claim.state, poll_count=seen["poll_count"], due_at=due_at)
    return Change(
        claim=claim,
        at=context.now,
        job_fields={**seen, "due_at": due_at},
        exchanges=exchanges,
        effect=effect,
        after=after,
        follow=Follow(FollowStep.POLL, due_at),
    )


def _delay(claim: Claim, context: PollContext) -> timedelta:
    """Growing waits up to the account's longest; in small steps around the time at which such jobs are finished."""
    account, accepted_at = context.account, claim.submission.accepted_at if claim.submission else None
    if context.plan is not None and accepted_at is not None:
        elapsed = max(0.0, (context.now - accepted_at).total_seconds())
        seconds = context.plan.next_delay(elapsed, context.rng)
        if elapsed >= context.plan.reads[0]:
            seconds = min(seconds, retries.poll_most_ms(sound_limit(account, "poll_max_ms")) / 1000)
        return timedelta(seconds=seconds)
    return retries.poll_delay(
        claim.poll_count + 1,
        initial_ms=sound_limit(account, "poll_initial_ms"),
        most_ms=sound_limit(account, "poll_max_ms"),
        rng=context.rng,
    )


def deadline_passed(claim: Claim, began_at: datetime, context: PollContext) -> bool:
    """Declared only after a read that began at or past the deadline, and not while the account's key is refused."""
    held_for_auth = context.account.health == AccountHealth.HELD and context.account.hold_reason == HoldReason.AUTH
    return claim.deadline_at is not None and began_at >= claim.deadline_at and not held_for_auth


def _deadline_exceeded(
    claim: Claim,
    last: str,
    seen: dict[str, Any],
    exchanges: tuple[Any, ...],
    context: PollContext,
    *,
    failure: FailureClass = FailureClass.DEADLINE_EXCEEDED,
) -> Change:
    assert claim.submission is not None
    # Not since its state changed: a job comes back to being rendered in more ways than one.
    accepted_at = claim.submission.accepted_at or claim.submission.first_sent_at
    elapsed = round((context.now - accepted_at).total_seconds())
    allowed = sound_limit(context.account, "deadline_seconds")
    if claim.deadline_at is not None:
        allowed = round((claim.deadline_at - accepted_at).total_seconds())
    reads, sent = seen["poll_count"], claim.submission.try_count
    words = (
        f"No result {elapsed} s after it was accepted (deadline {allowed} s, {reads} status reads, sent "
        f"{'once' if sent == 1 else f'{sent} times'}, in a batch of {claim.batch_size:,}). {last} "
        "The provider's job id is kept."
    )
    return Change(
        claim=claim,
        at=context.now,
        move=moving(
            claim,
            JobState.DEADLINE_EXCEEDED,
            reason="deadline_exceeded",
            words=words,
            fields={**seen, "failure_class": failure, "failure_code": "", "failure_words": words},
        ),
        exchanges=exchanges,
        alert=(AlertKind.DEADLINE_EXCEEDED, f"{claim.business_id}: {words} {_what_to_do(claim, failure)}"),
    )


def _what_to_do(claim: Claim, failure: FailureClass) -> str:
    assert claim.submission is not None
    named = f"Provider job {wording.masked(claim.submission.provider_job_id or '')}."
    return f"{named} {wording.WHAT_TO_DO[failure]}"


def result_columns(
    ref: ResultRef | None, warnings: Sequence[str] = (), *, known: dict[str, Any] | None = None, now: datetime
) -> dict[str, Any]:
    """Of a submission that was read as finished; what it cost only where the provider says so. `known` as below."""
    billed = {} if ref is None or ref.billed is None else {"billed_amount": ref.billed}
    return {"result": result_facts(ref, warnings, known=known, now=now), **billed}


def result_facts(
    ref: ResultRef | None, warnings: Sequence[str] = (), *, known: dict[str, Any] | None = None, now: datetime
) -> dict[str, Any]:
    """What is kept of where the finished PDF lies, and of what the provider warned about.

    `made_at` is when it was first seen there (`known` is what was kept before): a file does not live longer because
    its link is asked for once more, or because our store has lost it.
    """
    if ref is None:
        return {}
    return {
        **({"warnings": list(warnings)} if warnings else {}),
        "url": ref.url if ref.url.isprintable() else "",  # PostgreSQL takes no NUL; the job's id is enough to fetch it
        "size_bytes": ref.size_bytes,
        "expires_at": ref.expires_at.isoformat() if ref.expires_at else None,
        "filename": ref.filename,
        **({"file_id": ref.file_id} if ref.file_id.isprintable() and ref.file_id else {}),
        "made_at": (known or {}).get("made_at") or now.isoformat(),
    }
