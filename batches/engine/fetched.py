"""What a download came to: saved, tried again, or ended with a name. Pure; nothing here ever renders a second time.

The steps themselves are `collection.py`'s. The mark `saved` is a compare-and-set under the claim's token (`writes.py`).
"""

from __future__ import annotations

import logging
import random
from dataclasses import replace
from datetime import datetime
from typing import Any

from batches import wording
from batches.conf import ENGINE
from batches.engine import kept, links, polling, retries, storerepair
from batches.engine.changes import ArtifactFacts, Change, moving
from batches.engine.claims import Claim
from batches.engine.collection import Collected, NotCollected, Trail
from batches.engine.effects import NO_EFFECT, AccountEffect
from batches.engine.polling import PollContext
from batches.models import AlertKind, FailureClass, HoldReason, JobState, Lane, SubmissionOutcome
from batches.providers import errors
from batches.providers.base import ExchangeFacts

log = logging.getLogger(__name__)


def judge_collected(claim: Claim, collected: Collected, *, now: datetime) -> Change:
    """Stored and verified: now, and only now, it is saved."""
    assert claim.submission is not None
    return Change(
        claim=claim,
        at=now,
        move=moving(claim, JobState.SAVED, reason="stored", fields={"fetch_count": claim.fetch_count + 1}),
        submission_id=claim.submission.id,
        submission_fields={"outcome": SubmissionOutcome.DELIVERED, "closed_at": now, **_learned(collected)},
        exchanges=_of(claim, collected.exchanges),
        artifact=ArtifactFacts(
            submission_id=claim.submission.id,
            storage_key=collected.storage_key,
            sha256=collected.sha256,
            byte_count=collected.byte_count,
            page_count=collected.page_count,
        ),
    )


def judge_not_collected(claim: Claim, missed: NotCollected, context: PollContext, *, tries_in_vain: int = 0) -> Change:
    """Try again, or stop with a name: nothing here ever renders a second time.

    `tries_in_vain`: how often this file alone was cut off (`cutoff.py`), so that it is given up on.
    """
    assert claim.submission is not None
    now, rng = context.now, context.rng
    fetches = claim.fetch_count + 1
    change = Change(
        claim=claim,
        at=now,
        submission_id=claim.submission.id,
        submission_fields=_learned(missed),
        exchanges=_of(claim, missed.exchanges),
        effect=_effect(missed, context),
    )
    if missed.kind == "unfinished":
        return _unfinished(change, missed, fetches, now=now, rng=rng)
    if missed.kind == "gone":
        words = f"{missed.words} The provider's job id is kept, and nothing was submitted again."
        return _expired(change, words, fetches)
    if missed.kind == "bad_output" and fetches >= ENGINE.bad_output_fetches:
        words = f"Fetched {fetches} times, and each time it was no usable PDF. {missed.words}"
        return _ending(change, JobState.FAILED, FailureClass.BAD_OUTPUT, words, fetches)
    if tries_in_vain:
        words = (
            f"Its download was begun {tries_in_vain} times and never came to its end, while other files did. "
            f"{missed.words} The provider's job id is kept, and nothing was submitted again."
        )
        return _ending(change, JobState.FAILED, FailureClass.BAD_OUTPUT, words, claim.fetch_count)
    dies_at = link_dies_at(claim, context.account.kind, missed.result)
    if missed.kind != "bad_output":
        fetches = claim.fetch_count  # the file was never judged; waiting is not failing
        if now >= dies_at:
            return _expired(change, f"The file could not be fetched while its link lived. {missed.words}", fetches)
    # A store that is full, or a provider that is away for a while, is not asked every second.
    patient = missed.kind == "store" or (now - claim.state_changed_at).total_seconds() > 60
    tries = fetches + (5 if patient else 1)
    alert = None
    if missed.kind == "store":
        log.warning("the PDF of job %s cannot be stored: %s", claim.job_id, missed.words)
        words = f"A finished PDF cannot be stored: {missed.words} Until it can, PDFs wait at the provider."
        alert = (AlertKind.STORE, words)
    wait = max(retries.backoff(tries, rng), retries.asked_wait(missed.error.retry_after if missed.error else None))
    due_at = max(now + wait, change.effect.cool_down_until or now)
    fields = {"fetch_count": fetches, "due_at": min(due_at, max(dies_at, now))}
    return replace(change, job_fields=fields, alert=alert)


def _effect(missed: NotCollected, context: PollContext) -> AccountEffect:
    """What it says about the account: a limit pauses the lane that met it, for every document behind this one."""
    error = missed.error
    if error is None:
        return NO_EFFECT
    if missed.lane is Lane.POLL:
        return polling.effect_of(error, context.account, now=context.now, rng=context.rng)
    if isinstance(error, errors.Unauthorized):
        return AccountEffect(hold=HoldReason.AUTH, words=missed.words)
    if isinstance(error, errors.RateLimited):
        until = context.now + retries.retry_after(error, context.rng)
        return AccountEffect(cool_down_until=until, cool_down_lane=missed.lane)
    return NO_EFFECT


def untold(claim: Claim, trail: Trail, *, now: datetime) -> Change:
    """What was asked and learned for a download that a pump, which ends, does not begin any more."""
    assert claim.submission is not None
    return Change(
        claim=claim,
        at=now,
        job_fields={"due_at": now},
        submission_id=claim.submission.id,
        submission_fields=_learned(trail),
        exchanges=_of(claim, trail.exchanges),
    )


def _unfinished(change: Change, missed: NotCollected, fetches: int, *, now: datetime, rng: random.Random) -> Change:
    """It was read as finished, there is no file, and now it is read as not finished: it is read on, further apart.

    A provider may say so for ever, and its status reads alone never come past the deadline, which ends it here.
    """
    claim = change.claim
    ends_at = claim.deadline_at or now  # none: it came as finished, and was never waited for
    # Taken up again by the late watch, whose deadline is over: one read says whether it goes back to being watched.
    is_first_read = bool(claim.submission and claim.submission.watch_until) and claim.poll_count == 0
    if now >= ends_at and not is_first_read:
        words = (
            f"The provider said that it is finished and had no file, until the deadline had passed. {missed.words} "
            "The provider's job id is kept, and nothing was submitted again."
        )
        return _expired(change, words, fetches)
    # Each way there and back is one more status read, which is counted from the acceptance on.
    due_at = min(now + retries.backoff(claim.poll_count, rng), max(ends_at, now))
    fields = {"due_at": due_at}
    return replace(
        change,
        move=moving(claim, JobState.ACCEPTED, reason="not_finished_after_all", words=missed.words, fields=fields),
    )


def link_dies_at(claim: Claim, kind: str, learned: dict[str, Any] | None = None) -> datetime:
    """When the provider's copy is gone, as it said last, else by the lifetime that is believed.

    Not counted from when the job's state changed, where it is known when the file was made: a job comes back to here.
    """
    known = claim.submission.result if claim.submission else None
    return links.dies_at(claim.state_changed_at, learned or known, kept.at_kind(kind))


def _learned(outcome: Collected | NotCollected | Trail) -> dict[str, Any]:
    """Where the PDF lies, as a fresh status read said: kept, so that the next try does not begin at a dead link."""
    return {"result": outcome.result} if outcome.result else {}


def _expired(change: Change, words: str, fetches: int) -> Change:
    """The provider's file is gone. One that was saved once may still lie in a backup, and its key says where to."""
    if change.claim.lost_key is None:
        return _ending(change, JobState.EXPIRED, FailureClass.EXPIRED, words, fetches)
    lost = storerepair.lost_words(change.claim.lost_key)
    return _ending(change, JobState.EXPIRED, FailureClass.EXPIRED, lost, fetches, code=wording.OBJECT_LOST)


def _ending(
    change: Change, to_state: JobState, failure_class: FailureClass, words: str, fetches: int, *, code: str = ""
) -> Change:
    fields: dict[str, Any] = {
        "failure_class": failure_class,
        "failure_code": code,
        "failure_words": words,
        "fetch_count": fetches,
    }
    return replace(change, move=moving(change.claim, to_state, reason=failure_class.value, words=words, fields=fields))


def _of(claim: Claim, facts: tuple[ExchangeFacts, ...]) -> tuple[tuple[ExchangeFacts, int | None], ...]:
    submission_id = claim.submission.id if claim.submission else None
    return tuple((exchange, submission_id) for exchange in facts)
