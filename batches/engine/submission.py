"""Submitting: the exact bytes are there (`preparing.py`), the intent is committed, then the bytes leave.

Order is everything here. `commit_intents` commits slot, key, bytes and state in one transaction; only then may `send`
run. Whatever dies in between leaves a submission that is in doubt, which is repeated with the same key and bytes or
ends as `unknown`. What an answer means is `answers.py`'s.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import Case, F, When

from batches.conf import ENGINE
from batches.engine import bulk, claims, credit, keys, pacing, retries, retry_budget, spending, suspects, transitions
from batches.engine.changes import moving
from batches.engine.claims import OpenSubmission
from batches.engine.contention import again_after_deadlock
from batches.engine.preparing import Prepared
from batches.models import (
    NOTHING_THERE,
    PROVEN_UNBILLED,
    AccountHealth,
    FailureClass,
    Job,
    JobState,
    Lane,
    PacingLane,
    ProviderAccount,
    Submission,
    SubmissionOutcome,
)
from batches.models.accounts import sound_limit
from batches.providers.base import Accepted, Capabilities, Finished, Provider

DOUBTFUL_WORDS = (
    "An earlier submission of it may have been accepted, so it is not sent under another key. Reconcile shows what is "
    "known of it."
)
#: So long after the end of a pause that the provider asked for, it still counts as the latest word on what it takes.
JUST_LIMITED_US = 60_000_000


@dataclass(frozen=True)
class Sending:
    """A prepared request whose intent is committed, and the slot in which it may leave.

    `others_in_flight`: the account had other documents at the provider then, or about to be, which is what tells the
    two meanings of `TooManyAtOnce` apart.
    """

    prepared: Prepared
    submission: OpenSubmission
    slot: datetime
    others_in_flight: bool = False


@dataclass(frozen=True)
class Intents:
    """What may be sent now; which jobs turned out to be somebody else's; and when to ask again for the rest.

    `stopped` had a slot, missed it, and no running batch needs them any more: they go back as never sent. `capped` are
    batches of which nothing more may leave under their spend cap.
    """

    sendings: list[Sending]
    lost: set[int]
    ask_again_at: datetime
    stopped: tuple[Prepared, ...] = ()
    capped: frozenset[int] = frozenset()


@again_after_deadlock
def commit_intents(
    account: ProviderAccount,
    ready: Sequence[Prepared],
    *,
    now: datetime,
    capabilities: Capabilities,
    most: int,
    purse: spending.Purse | None = None,
    lead: timedelta = pacing.NO_LEAD,
) -> Intents:
    """Commit the intent of as many of `ready` as slots and the in-flight cap allow, at most `most`.

    `ready` is all that waits, not the front of it: what is in doubt fills the cap until it is sent again, so resends
    are looked for behind first sends, however many, that have no room before that.
    The account's lane row is locked throughout, so that neither pace nor cap can be passed by two pumps at once, and
    so that nothing of a batch leaves after its pause returned, or of an account after its hold did.
    """
    limits = pacing.submit_limits(account)
    with transaction.atomic():
        lane = pacing.lock(account.pk, Lane.SUBMIT)
        standing = claims.standing(account.pk, [prepared.claim.job_id for prepared in ready])
        if standing.health != AccountHealth.OPEN:
            return Intents([], set(), now + timedelta(seconds=ENGINE.claim_interval_seconds))
        account.on_probation = standing.on_probation  # the pump's row is up to a second old
        wanted, gone, stopped = _wanted(account, ready, standing, now=now)
        firsts = [prepared.claim.job_id for prepared in wanted if not prepared.is_resend]
        back = spending.held_back(
            purse or spending.Purse(), account, firsts, led=standing.led, caps=standing.caps, anew=lane.anew, now=now
        )
        chosen = _choose(account, [one for one in wanted if one.claim.job_id not in back.jobs], standing, now=now)
        chosen, put_off = _within_budget(chosen, lane, now=now)
        gone |= put_off
        chosen = chosen[:most]
        if not chosen:
            ask_again_at = now + timedelta(seconds=ENGINE.claim_interval_seconds)
            return Intents([], gone, ask_again_at, stopped, back.reached)
        reservation = pacing.reserve(
            account.pk,
            Lane.SUBMIT,
            limits,
            wanted=len(chosen),
            now=now,
            horizon_seconds=ENGINE.slot_horizon_seconds,
            lead=lead,
            row=lane,
            also=lambda given: _columns_after(lane, chosen[:given], now=now),
        )
        slotted = list(zip(chosen, reservation.slots, strict=False))
        if slotted and account.on_probation:
            credit.begin_trial(account, now=now)
        sendings = _commit(account, slotted, capabilities, led=standing.led, now=now)
        if _others_in_flight(standing, slotted, lane, now=now):
            sendings = [replace(sending, others_in_flight=True) for sending in sendings]
    given = {prepared.claim.job_id for prepared, _slot in slotted}
    lost = gone | given - {sending.prepared.claim.job_id for sending in sendings}
    return Intents(sendings, lost, reservation.ask_again_at, stopped, back.reached)


def _others_in_flight(
    standing: claims.Standing, slotted: Sequence[tuple[Prepared, datetime]], lane: PacingLane, *, now: datetime
) -> bool:
    """Whether more than the one at hand are at the provider, or leave together with it.

    Right after a pause those that leave together do not count: of a key that is refused they all come back, and would
    speak for each other for ever.
    """
    together = sum(not one.is_resend for one, _slot in slotted)
    if together > 1 and pacing.to_us(now) - lane.cool_down_until_us < JUST_LIMITED_US:
        together = 1
    return standing.in_flight + together > 1


def _columns_after(lane: PacingLane, left: Sequence[Prepared], *, now: datetime) -> dict[str, Any]:
    """The lane's columns when these have taken their slots."""
    columns = retry_budget.columns_after(lane, [_asking(prepared) for prepared in left], now_us=pacing.to_us(now))
    anew = sum(not prepared.is_resend and prepared.claim.submission is not None for prepared in left)
    return columns | ({"anew": lane.anew + anew} if anew else {})


def _wanted(
    account: ProviderAccount, ready: Sequence[Prepared], standing: claims.Standing, *, now: datetime
) -> tuple[list[Prepared], set[int], tuple[Prepared, ...]]:
    """What running batches lead, and what none leads any more.

    Of those, the jobs that wait as pending are lost to this pump; the others had an intent and are `stopped`.
    """
    unwanted = [prepared for prepared in ready if prepared.never_left and prepared.claim.job_id not in standing.led]
    gone = {prepared.claim.job_id for prepared in unwanted if not prepared.is_resend}
    stopped = tuple(prepared for prepared in unwanted if prepared.is_resend)
    wanted = [prepared for prepared in ready if not prepared.never_left or prepared.claim.job_id in standing.led]
    return _suspected(account.pk, wanted, now=now), gone, stopped


def _choose(
    account: ProviderAccount, wanted: Sequence[Prepared], standing: claims.Standing, *, now: datetime
) -> list[Prepared]:
    """What the cap of what is in flight and probation let through, resends first."""
    room = max(0, sound_limit(account, "max_in_flight") - standing.in_flight)
    chosen = [prepared for prepared in wanted if prepared.is_resend]  # they are counted in flight already
    chosen += [prepared for prepared in wanted if not prepared.is_resend][:room]
    return list(credit.admit(account, chosen, now=now))


def _within_budget(chosen: Sequence[Prepared], lane: PacingLane, *, now: datetime) -> tuple[list[Prepared], set[int]]:
    """What the retry budget admits; and the jobs that it does not, which are put off and no more this pump's."""
    verdict = retry_budget.judge([_asking(prepared) for prepared in chosen], retry_budget.tokens_of(lane, now), now=now)
    retry_budget.put_off([(chosen[at].claim, until) for at, until in verdict.waits], now=now)
    return [chosen[at] for at in verdict.admitted], {chosen[at].claim.job_id for at, _until in verdict.waits}


def _suspected(account_id: int, wanted: Sequence[Prepared], *, now: datetime) -> list[Prepared]:
    """With what is known of those for which the account was refused before; some of them let others go first."""
    sent_before = [one.claim.job_id for one in wanted if one.sent_before or one.claim.next_sequence > 1]
    known = suspects.look(account_id, sent_before, now=now)
    if not known.refused and not known.limited:
        return list(wanted)
    back = known.step_back([one.claim.job_id for one in wanted if _can_wait(one, now)])
    return [
        replace(
            one,
            refused_before=one.claim.job_id in known.refused,
            others_pass=one.claim.job_id in known.cleared,
            limited_alone=one.claim.job_id in known.limited,
        )
        for one in wanted
        if one.claim.job_id not in back
    ]


def _can_wait(prepared: Prepared, now: datetime) -> bool:
    """A resend can while its window is wide open: none becomes unknown for letting others go first."""
    if not prepared.is_resend:
        return True
    known = prepared.claim.submission
    return known is not None and retries.may_resend(
        known.resend_until, now + timedelta(seconds=ENGINE.resend_urgent_seconds)
    )


def _asking(prepared: Prepared) -> retry_budget.Asking:
    known = prepared.claim.submission
    return retry_budget.Asking(
        claim=prepared.claim,
        repeats=prepared.is_resend and prepared.doubt_before and not prepared.missed_slot,
        earns=known is None,
        resend_until=known.resend_until if known else None,
    )


def _commit(
    account: ProviderAccount,
    slotted: Sequence[tuple[Prepared, datetime]],
    capabilities: Capabilities,
    *,
    led: Mapping[int, int],
    now: datetime,
) -> list[Sending]:
    """The intents of what has a slot: first sends, then what is sent again."""
    until = retries.resend_until(
        now,
        sound_limit(account, "key_retention_seconds"),
        takes_key=capabilities.client_key,
        harmless=capabilities.resend_is_harmless,
    )
    first = [pair for pair in slotted if not pair[0].is_resend]
    again = [pair for pair in slotted if pair[0].is_resend]
    return _commit_first(account, first, until, led=led, now=now) + _commit_again(again, now=now)


def _commit_first(
    account: ProviderAccount,
    pairs: Sequence[tuple[Prepared, datetime]],
    until: datetime | None,
    *,
    led: Mapping[int, int],
    now: datetime,
) -> list[Sending]:
    """pending → submitting, with the submission's row: a new one, or the open one that was definitely refused.

    Either is counted where its turn is taken: `led`, the leading batch by job.
    """
    pairs = [(_with_time(prepared, until, now), slot) for prepared, slot in pairs]
    doubtful = _stop_doubtful([prepared for prepared, _slot in pairs], now=now)
    pairs = [pair for pair in pairs if pair[0].claim.job_id not in doubtful]
    if not pairs:
        return []
    moved = transitions.move_many(
        [moving(prepared.claim, JobState.SUBMITTING, reason="intent_committed") for prepared, _slot in pairs], now=now
    )
    mine = [pair for pair in pairs if pair[0].claim.job_id in moved]
    fresh = [(prepared, slot) for prepared, slot in mine if prepared.claim.submission is None]
    _close_aged([prepared.aged for prepared, _slot in fresh if prepared.aged is not None], now=now)
    rows = [
        _new_submission(account, prepared, until, batch_id=led[prepared.claim.job_id], now=now)
        for prepared, _slot in fresh
    ]
    made = bulk.insert_returning(Submission, rows, key="job_id")
    sendings = [
        _sending(prepared, _open_submission(made[row["job_id"]], row), slot, now)
        for (prepared, slot), row in zip(fresh, rows, strict=True)
    ]
    # Refused on every try so far, so nothing is there: the same key and bytes. Its time goes on: a provider may reckon
    # the age of a key from its first sight, whatever it answered then.
    refused = [(prepared, known, slot) for prepared, slot in mine if (known := prepared.claim.submission) is not None]
    by_batch: dict[int, list[int]] = defaultdict(list)
    for prepared, known, _slot in refused:
        by_batch[led[prepared.claim.job_id]].append(known.id)
    for batch_id, ids in by_batch.items():
        Submission.objects.filter(pk__in=ids).update(
            last_sent_at=now, in_doubt=True, try_count=F("try_count") + 1, batch_id=batch_id
        )
    sendings += [
        _sending(prepared, replace(known, in_doubt=True, try_count=known.try_count + 1), slot, now)
        for prepared, known, slot in refused
    ]
    return sendings


def _with_time(prepared: Prepared, until: datetime | None, now: datetime) -> Prepared:
    """As it is; or for a key of its own, where more than half of its key's window has passed while it was refused.

    Another key is safe, since nothing exists under the first, and leaves time to repeat it if its answer is lost.
    """
    known = prepared.claim.submission
    if known is None or until is None or _has_time(known.resend_until, until, now):
        return prepared
    return replace(prepared, claim=replace(prepared.claim, submission=None), sent_before=False, aged=known.id)


def _has_time(resend_until: datetime | None, anew_until: datetime, now: datetime) -> bool:
    return resend_until is not None and resend_until - now >= (anew_until - now) / 2


def _close_aged(ids: Sequence[int], *, now: datetime) -> None:
    """They were refused on every try, and give way to another submission of their job."""
    if ids:
        Submission.objects.filter(pk__in=ids).update(outcome=SubmissionOutcome.REFUSED, closed_at=now)


def _stop_doubtful(ready: Sequence[Prepared], *, now: datetime) -> set[int]:
    """Stop those that would get another key while an earlier submission may exist and is not proven unbilled.

    Nothing should bring a job here like that; it is asked all the same, where a second bill would begin.
    """
    anew = {
        one.claim.job_id: one.claim for one in ready if one.claim.submission is None and one.claim.next_sequence > 1
    }
    if not anew:
        return set()
    earlier = Submission.objects.filter(job__in=anew).exclude(NOTHING_THERE).exclude(PROVEN_UNBILLED)
    doubtful = set(earlier.values_list("job_id", flat=True))
    failure = {"failure_class": FailureClass.UNKNOWN_OUTCOME, "failure_code": "", "failure_words": DOUBTFUL_WORDS}
    fields = {**failure, "lease_owner": None, "lease_until": None}
    stopped = [
        moving(anew[job_id], JobState.FAILED, reason="not_sent_anew", words=DOUBTFUL_WORDS, fields=fields)
        for job_id in sorted(doubtful)
    ]
    transitions.move_many(stopped, now=now)
    return doubtful


def _new_submission(
    account: ProviderAccount, prepared: Prepared, until: datetime | None, *, batch_id: int, now: datetime
) -> dict[str, Any]:
    """The columns of the row that makes a submission."""
    claim = prepared.claim
    sequence = claim.next_sequence
    return {
        "job_id": claim.job_id,
        "account_id": account.pk,
        "batch_id": batch_id,
        "sequence": sequence,
        "idempotency_key": keys.idempotency_key(
            workspace_id=claim.workspace_id,
            account_id=account.pk,
            route=prepared.request.route,
            body_sha256=prepared.request_sha256,
            document_id=claim.document_id,
            version=claim.version_number,
            sequence=sequence,
        ),
        "route": prepared.request.route,
        "request_sha256": prepared.request_sha256,
        "body_inline": None if prepared.body_key else prepared.request.body,
        "body_key": prepared.body_key,
        "try_count": 1,
        "first_sent_at": now,
        "last_sent_at": now,
        "resend_until": until,
    }


def _open_submission(pk: int, row: Mapping[str, Any]) -> OpenSubmission:
    """The row that was just made."""
    return OpenSubmission(
        id=pk,
        sequence=row["sequence"],
        idempotency_key=row["idempotency_key"],
        route=row["route"],
        request_sha256=row["request_sha256"],
        body_key=row["body_key"],
        try_count=1,
        in_doubt=True,
        first_sent_at=row["first_sent_at"],
        resend_until=row["resend_until"],
        provider_job_id=None,
        result=None,
    )


def _commit_again(pairs: Sequence[tuple[Prepared, datetime]], *, now: datetime) -> list[Sending]:
    """submitting → submitting, where the claim still holds. Its try is counted, unless it was for a missed slot."""
    if not pairs:
        return []
    jobs = Job.objects.filter(pk__in=[prepared.claim.job_id for prepared, _slot in pairs])
    tokens = dict(jobs.values_list("pk", "fencing_token"))
    sendings = []
    for prepared, slot in pairs:
        assert prepared.claim.submission is not None, "a submitting job has an open submission"
        if tokens[prepared.claim.job_id] == prepared.claim.token:
            known = prepared.claim.submission
            counted = replace(known, try_count=known.try_count + (not prepared.missed_slot), last_sent_at=now)
            claim = replace(prepared.claim, submission=counted)
            sendings.append(Sending(replace(prepared, claim=claim), counted, slot))
    new_tries = [sending.submission.id for sending in sendings if not sending.prepared.missed_slot]
    Submission.objects.filter(pk__in=[sending.submission.id for sending in sendings]).update(
        last_sent_at=now, try_count=F("try_count") + Case(When(pk__in=new_tries, then=1), default=0)
    )
    return sendings


def _sending(prepared: Prepared, submission: OpenSubmission, slot: datetime, now: datetime) -> Sending:
    claim = prepared.claim.moved(JobState.SUBMITTING, submission=submission, state_changed_at=now)
    return Sending(replace(prepared, claim=claim), submission, slot)


def send(sending: Sending, provider: Provider, *, now: datetime, gate: Callable[[], None]) -> Accepted | Finished:
    """Send the committed bytes, once, when `gate` lets them pass. The thread has no database, so no transaction."""
    assert not connection.in_atomic_block, "the network is never called inside a transaction"
    return provider.submit(
        sending.prepared.request, idempotency_key=sending.submission.idempotency_key, now=now, gate=gate
    )
