"""What follows from a failed call: pure decisions, in one place. Nothing here sends, waits or writes."""

from __future__ import annotations

import enum
import random
from dataclasses import dataclass
from datetime import datetime, timedelta

from batches.conf import ENGINE
from batches.models import FailureClass, HoldReason
from batches.models.accounts import MILLISECONDS_MOST, POLL_INITIAL_MS_LEAST, POLL_MAX_MS_LEAST
from batches.providers import errors

#: A failed way to the provider, which counts for the account's breaker on a submission, a status read or a download.
#: A 5xx is no way through: the service is not there for anybody, or not for this one call.
TRANSPORT_ERRORS = (errors.NotSent, errors.AnswerLost, errors.ServerFault)
#: An exchange keeps the name of its error only.
TRANSPORT_ERROR_NAMES = frozenset(kind.__name__ for kind in TRANSPORT_ERRORS)


#: Before a document is sent again that was refused in words that are not the service's.
STRANGE_SECONDS = 5.0
REFUSES_THIS_ONE = "The service, or something in front of it, refuses this document, while it accepts others."


class Next(enum.Enum):
    """Where a submission goes after an answer that brought no id."""

    REQUEUE = "requeue"  # definitely not there: the job waits as pending
    RESEND = "resend"  # may be there: the same key and bytes again, at `due_at`
    ANEW = "anew"  # refused on every try, and the key is bound to that: the job waits for a submission with another key
    FAIL = "fail"  # definitely refused for good
    UNKNOWN = "unknown"  # may be there, and may not be sent again: a person decides


@dataclass(frozen=True)
class SubmissionFacts:
    """What the decision needs of the submission, as it was before this try.

    `in_doubt`: an earlier try may have arrived. `tries` were spent before this one. `sent_before`: this key left
    before, whatever came of it, so that the provider can have stored an answer for it. `refused_before`: the account
    was refused for this document before, under any key; `others_pass`: others were sent since and accepted.
    `limited_alone`: this key was refused with 429 again and again, while others were accepted. `refused_keys` of it
    were refused before this one.
    """

    in_doubt: bool
    tries: int
    resend_until: datetime | None
    sent_before: bool = False
    refused_before: bool = False
    others_pass: bool = False
    limited_alone: bool = False
    refused_keys: int = 0


@dataclass(frozen=True)
class Decision:
    """`hold` is only a suspicion where `is_strange`: one document's refusal, in words that are not the service's.

    `words` are said before those of the error.
    """

    next: Next
    due_at: datetime
    in_doubt: bool
    spends_try: bool
    failure_class: FailureClass | None = None
    hold: HoldReason | None = None
    cool_down_until: datetime | None = None
    transport_failure: bool = False
    is_strange: bool = False
    words: str = ""


def decide_submission(
    error: errors.ProviderError, facts: SubmissionFacts, *, now: datetime, rng: random.Random
) -> Decision:
    """Maybe-sent is sticky: once a try may have arrived, no later refusal of another try proves anything.

    The one exception is an answer that says of itself that it is the stored answer to the key's first request.
    """
    if error.replayed and (facts.sent_before or facts.in_doubt) and not isinstance(error, errors.KeyConflict):
        return _after_replay(error, facts, now=now, rng=rng)
    if isinstance(error, errors.OutcomeUnknown | errors.KeyConflict):
        return _after_doubt(error, facts, now=now, rng=rng)
    if isinstance(error, errors.InvalidInput | errors.NotFound):
        if facts.in_doubt:
            return Decision(Next.UNKNOWN, now, True, True, FailureClass.UNKNOWN_OUTCOME)
        return Decision(Next.FAIL, now, False, True, FailureClass.INVALID_INPUT)

    if isinstance(error, errors.Unauthorized) and facts.refused_before and facts.others_pass:
        # The account was refused for this document alone: with others it was accepted in between.
        if facts.in_doubt:
            return Decision(Next.UNKNOWN, now, True, True, FailureClass.UNKNOWN_OUTCOME, words=REFUSES_THIS_ONE)
        return Decision(Next.FAIL, now, False, True, FailureClass.INVALID_INPUT, words=REFUSES_THIS_ONE)

    # What is left is about the account or the way there. No try is spent; the document is not at fault.
    hold: HoldReason | None = None
    cool_down_until: datetime | None = None
    due_at = now + backoff(facts.tries, rng)
    is_strange = isinstance(error, errors.StrangeRefusal) and not facts.refused_before
    if isinstance(error, errors.Unauthorized):
        hold = HoldReason.AUTH
        if is_strange:
            due_at = now + timedelta(seconds=STRANGE_SECONDS)  # the others go first and show whose trouble it is
    elif isinstance(error, errors.InsufficientCredit):
        hold = HoldReason.CREDIT
    elif isinstance(error, errors.RateLimited):
        cool_down_until = due_at = now + retry_after(error, rng)
    follows = Next.RESEND if facts.in_doubt else Next.REQUEUE
    if follows is Next.REQUEUE and facts.sent_before and isinstance(error, errors.AccountRefused):
        # Refused again after the account was resumed: the provider may be repeating what it stored for the key.
        follows = Next.ANEW
    if follows is Next.REQUEUE and facts.limited_alone and isinstance(error, errors.RateLimited):
        follows = Next.ANEW  # so is this: no pace is refused to one document alone
    return Decision(
        follows,
        due_at,
        facts.in_doubt,
        spends_try=False,
        hold=hold,
        cool_down_until=cool_down_until,
        transport_failure=isinstance(error, TRANSPORT_ERRORS),
        is_strange=is_strange,
    )


def _after_replay(
    error: errors.ProviderError, facts: SubmissionFacts, *, now: datetime, rng: random.Random
) -> Decision:
    """What the provider stored for this key is its last word on it: asking again brings the same.

    A stored definite refusal settles all doubt: nothing exists under the key. A stored 5xx settles nothing.
    """
    if isinstance(error, errors.InvalidInput | errors.NotFound):
        return Decision(Next.FAIL, now, False, True, FailureClass.INVALID_INPUT)
    if isinstance(error, errors.AccountRefused | errors.RateLimited):
        # Old news about the account; the next submission learns how it stands now. A refusal that outlives several
        # keys is bound to none of them, so the further ones come later and later.
        due_at = now + backoff(max(facts.tries, facts.refused_keys), rng)
        return Decision(Next.ANEW, due_at, False, spends_try=False)
    return Decision(Next.UNKNOWN, now, True, True, FailureClass.UNKNOWN_OUTCOME)


def _after_doubt(error: errors.ProviderError, facts: SubmissionFacts, *, now: datetime, rng: random.Random) -> Decision:
    """The try may have arrived (or its key is known there): only the same key and bytes may follow it."""
    tries = facts.tries + 1
    transport_failure = isinstance(error, TRANSPORT_ERRORS)
    if isinstance(error, errors.KeyConflict):
        own = conflict_wait(tries, rng)
    else:
        own = doubt_wait(tries, rng, resend_until=facts.resend_until, now=now)
    wait = max(own, asked_wait(error.retry_after))
    if tries < ENGINE.submit_tries_most and may_resend(facts.resend_until, now + wait):
        return Decision(Next.RESEND, now + wait, True, spends_try=True, transport_failure=transport_failure)
    kind = FailureClass.IDEMPOTENCY_CONFLICT if isinstance(error, errors.KeyConflict) else FailureClass.UNKNOWN_OUTCOME
    return Decision(Next.UNKNOWN, now, True, True, kind, transport_failure=transport_failure)


def may_resend(resend_until: datetime | None, now: datetime) -> bool:
    """The provider still knows the key when a request that leaves now arrives, even at its slowest."""
    return resend_until is not None and now + timedelta(seconds=ENGINE.read_timeout) < resend_until


def resend_until(
    first_sent_at: datetime, retention_seconds: int, *, takes_key: bool = True, harmless: bool = False
) -> datetime | None:
    """First send + key retention - a margin; None when nothing is left of it, or the provider takes no key.

    Where it takes no key and a second render is free and harmless, repeats are allowed for a fixed time.
    """
    if not takes_key:
        return first_sent_at + timedelta(seconds=ENGINE.harmless_resend_seconds) if harmless else None
    margin = max(ENGINE.resend_margin_seconds, ENGINE.resend_margin_share * retention_seconds)
    return first_sent_at + timedelta(seconds=retention_seconds - margin) if retention_seconds > margin else None


def backoff(tries: int, rng: random.Random) -> timedelta:
    """Capped exponential delay with full jitter; never under a quarter of a second, so that no loop is hot."""
    ceiling = min(ENGINE.backoff_most_seconds, ENGINE.backoff_first_seconds * 2 ** min(tries, 16))
    return timedelta(seconds=max(0.25, rng.uniform(0, ceiling)))


def doubt_wait(tries: int, rng: random.Random, *, resend_until: datetime | None, now: datetime) -> timedelta:
    """Before a maybe-sent submission is sent again, with full jitter.

    Twice soon, for an answer that was lost by chance, then spread over minutes, so that six tries outlast a short
    outage; never longer than half of what its window has left.
    """
    if tries <= 2:
        return backoff(tries, rng)
    ceiling = min(ENGINE.doubt_most_seconds, ENGINE.doubt_first_seconds * ENGINE.doubt_growth ** min(tries - 3, 16))
    if resend_until is not None:
        left = (resend_until - now).total_seconds() - ENGINE.read_timeout
        ceiling = min(ceiling, left / 2)
    return timedelta(seconds=max(0.25, rng.uniform(0, max(0.0, ceiling))))


def conflict_wait(tries: int, rng: random.Random) -> timedelta:
    """Before the first request under a key is asked for again: long enough that a few tries outlast a slow render."""
    ceiling = min(
        ENGINE.conflict_most_seconds, ENGINE.conflict_first_seconds * ENGINE.conflict_growth ** min(tries, 16)
    )
    return timedelta(seconds=ceiling * rng.uniform(0.5, 1.0))


def asked_wait(seconds: float | None) -> timedelta:
    """The wait that the provider asked for, as far as it is believed; none where it asked for none."""
    return timedelta(seconds=min(max(seconds or 0.0, 0.0), ENGINE.retry_after_most_seconds))


def retry_after(error: errors.ProviderError, rng: random.Random) -> timedelta:
    """The provider's own wait plus a small skew with jitter, bounded; its absence means our backoff's first steps."""
    asked = error.retry_after if error.retry_after is not None else rng.uniform(1, 4)
    skew = ENGINE.retry_after_skew_seconds + rng.uniform(0, ENGINE.retry_after_spread_seconds)
    return asked_wait(asked) + timedelta(seconds=skew)


def poll_most_ms(most_ms: int) -> int:
    """The longest wait between two status reads. A row may have been written past the model: no loop is hot."""
    return min(max(most_ms, POLL_MAX_MS_LEAST), MILLISECONDS_MOST)


def poll_delay(polls: int, *, initial_ms: int, most_ms: int, rng: random.Random) -> timedelta:
    """Bounded exponential delay before status read number `polls` + 1, with a fifth of jitter either side."""
    delay = min(poll_most_ms(most_ms), max(initial_ms, POLL_INITIAL_MS_LEAST) * ENGINE.poll_growth ** min(polls, 32))
    return timedelta(milliseconds=delay * rng.uniform(0.8, 1.2))


def probe_delay(failures: int, rng: random.Random) -> timedelta:
    """Before the next single probe of an account that could not be reached."""
    return probe_ceiling(failures) * rng.uniform(0.7, 1.0)


def probe_ceiling(failures: int) -> timedelta:
    seconds = ENGINE.probe_first_seconds * 2 ** min(max(failures - 1, 0), 16)
    return timedelta(seconds=min(ENGINE.probe_most_seconds, seconds))
