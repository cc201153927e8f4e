"""How many repeats of maybe-sent submissions an account may send: a share of its first submissions, and a little more.

A token bucket in the account's submission lane, advanced by the statement that takes the slots. Retries that grow with
the number of failures would add load to a provider in trouble; with the budget they stay under a share of all requests
(`conf.py` says which), though what is accepted gives its token back.
The arithmetic is pure; what has to wait is told so in its history.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F

from batches.conf import ENGINE
from batches.engine import bulk, pacing, transitions
from batches.engine.claims import Claim
from batches.engine.contention import again_after_deadlock
from batches.models import Job, JobState, Lane, PacingLane

WAITS_WORDS = "It may have arrived; it is sent again when the account's budget for repeats allows."


@dataclass(frozen=True)
class Asking:
    """One submission that wants to leave. `repeats`: a try went wrong and may have arrived; `earns`: its first."""

    claim: Claim
    repeats: bool
    earns: bool
    resend_until: datetime | None


@dataclass(frozen=True)
class Verdict:
    """Positions in what was asked: those that may leave, the urgent ones first, and until when the others wait."""

    admitted: tuple[int, ...]
    waits: tuple[tuple[int, datetime], ...]


def tokens_now(tokens: float | None, at_us: int, now_us: int) -> float:
    """What the bucket holds now; `tokens` None is a bucket that was never used, and full."""
    if tokens is None:
        return ENGINE.retry_tokens_most
    passed = max(0, now_us - at_us) / 1_000_000
    return min(ENGINE.retry_tokens_most, tokens + passed * ENGINE.retry_tokens_per_second)


def tokens_after(tokens: float, *, repeated: int, earned: int) -> float:
    """What is left when these have left. What was urgent may have overdrawn it; that is forgiven."""
    return min(ENGINE.retry_tokens_most, max(0.0, tokens - repeated) + earned * ENGINE.retry_share)


def judge(asking: Sequence[Asking], tokens: float, *, now: datetime) -> Verdict:
    """Which may leave. A repeat whose window would close goes first, and goes without a token too.

    First submissions never wait here. The n-th repeat that waits is told the time at which n tokens will have come.
    """
    urgent = [at for at, each in enumerate(asking) if each.repeats and is_urgent(each.resend_until, now)]
    tokens -= len(urgent)
    admitted = list(urgent)
    waits: list[tuple[int, datetime]] = []
    for at, each in enumerate(asking):
        if at in urgent:
            continue
        if not each.repeats:
            admitted.append(at)
        elif tokens >= 1:
            tokens -= 1
            admitted.append(at)
        else:
            missing = len(waits) + 1 - max(0.0, tokens)
            due_at = now + timedelta(seconds=missing / ENGINE.retry_tokens_per_second)
            waits.append((at, min(due_at, _urgent_from(each.resend_until) or due_at)))
    return Verdict(tuple(admitted), tuple(waits))


def is_urgent(resend_until: datetime | None, now: datetime) -> bool:
    """The window of its key would close before the budget is sure to allow it."""
    urgent_from = _urgent_from(resend_until)
    return urgent_from is not None and now >= urgent_from


def _urgent_from(resend_until: datetime | None) -> datetime | None:
    if resend_until is None:
        return None
    return resend_until - timedelta(seconds=ENGINE.read_timeout + ENGINE.resend_urgent_seconds)


def columns_after(lane: PacingLane, left: Sequence[Asking], *, now_us: int) -> dict[str, Any]:
    """The lane's columns when `left` have taken their slots; none where the bucket is full and stays full."""
    tokens = tokens_now(lane.retry_tokens, lane.retry_tokens_at_us, now_us)
    repeated, earned = sum(each.repeats for each in left), sum(each.earns for each in left)
    if not repeated and tokens == ENGINE.retry_tokens_most:
        return {}
    return {
        "retry_tokens": tokens_after(tokens, repeated=repeated, earned=earned),
        "retry_tokens_at_us": now_us,
    }


@again_after_deadlock
def give_back(account_id: int, count: int, *, now: datetime) -> None:
    """So many repeats were accepted: their tokens come back, and as many of what was put off may try at once.

    So after an outage what is in doubt goes out one after the other as fast as it is answered, and not token by token.
    """
    with transaction.atomic():
        lane = pacing.lock(account_id, Lane.SUBMIT)
        if lane.retry_tokens is None:
            return
        tokens = min(ENGINE.retry_tokens_most, tokens_of(lane, now) + count)
        PacingLane.objects.filter(pk=lane.pk).update(retry_tokens=tokens, retry_tokens_at_us=pacing.to_us(now))
        # What waits for anything else, such as an answer that asked for a pause, was given another `due_at` since.
        put_off = Job.objects.filter(
            account_id=account_id, state=JobState.SUBMITTING, lease_owner=None, put_off_until=F("due_at")
        )
        waiting = put_off.filter(due_at__gt=now).order_by("due_at", "id")
        ids = list(waiting.values_list("pk", flat=True)[: min(count, int(tokens))])
        put_off.filter(pk__in=ids).update(due_at=now)


def put_off(waits: Sequence[tuple[Claim, datetime]], *, now: datetime) -> None:
    """Give these back until then, and say why in their history. Call it inside the transaction that decided it."""
    if not waits:
        return
    kept = bulk.guarded_update(
        Job,
        [
            {
                "pk": claim.job_id,
                "guard:fencing_token": claim.token,
                "due_at": until,
                "put_off_until": until,
                "lease_owner": None,
                "lease_until": None,
            }
            for claim, until in waits
        ],
        guard=("fencing_token",),
    )
    told = [(claim.job_id, claim.state) for claim, _until in waits if claim.job_id in kept]
    transitions.record_unmoved(told, reason="waits_for_retry_budget", words=WAITS_WORDS, now=now)


def tokens_of(lane: PacingLane, now: datetime) -> float:
    return tokens_now(lane.retry_tokens, lane.retry_tokens_at_us, pacing.to_us(now))
