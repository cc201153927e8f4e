"""Submitting: the exact bytes are made, the intent is committed, then the bytes leave, and the answer is judged.

Order is everything here. `prepare` runs without the database; `commit_intents` commits slot, key, bytes and state
in one transaction; only then may `send` run. Whatever dies in between leaves a submission that is in doubt, which is
repeated with the same key and bytes or ends as `unknown`.
"""

from __future__ import annotations

import hashlib
import io
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction

from batches.conf import ENGINE
from batches.engine import claims, keys, pacing, polling, retries, transitions
from batches.engine.changes import AccountEffect, Change, Follow, FollowStep, moving, parking
from batches.engine.claims import Claim, OpenSubmission
from batches.models import (
    AlertKind,
    DocumentVersion,
    FailureClass,
    Job,
    JobState,
    Lane,
    ProviderAccount,
    Submission,
    SubmissionOutcome,
)
from batches.providers import errors
from batches.providers.base import Accepted, DocumentSource, Finished, PreparedRequest, Provider
from batches.storage import ArtifactStore, ObjectMissing, StoreError, request_key

WHAT_TO_DO_UNKNOWN = (
    "It may have been accepted and billed. Nothing is sent again by itself: reconcile it with the provider first."
)


@dataclass(frozen=True)
class Input:
    """A version's input as its row holds it, read by the pump before the step."""

    kind: str
    inline: bytes | None = field(repr=False)
    key: str | None
    filename: str
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Prepared:
    """A claimed job with the exact bytes that are to leave. `doubt_before`: an earlier try may have arrived."""

    claim: Claim
    request: PreparedRequest
    request_sha256: str
    body_key: str | None
    doubt_before: bool

    @property
    def is_resend(self) -> bool:
        return self.claim.state is JobState.SUBMITTING


@dataclass(frozen=True)
class Sending:
    """A prepared request whose intent is committed, and the slot in which it may leave."""

    prepared: Prepared
    submission: OpenSubmission
    slot: datetime


@dataclass(frozen=True)
class Intents:
    """What may be sent now; which jobs turned out to be somebody else's; and when to ask again for the rest."""

    sendings: list[Sending]
    lost: set[int]
    ask_again_at: datetime


def read_inputs(version_ids: Sequence[int]) -> dict[int, Input]:
    """The inputs of these versions, in one query."""
    rows = DocumentVersion.objects.filter(pk__in=version_ids).values_list(
        "pk", "kind", "input_inline", "input_key", "filename", "options"
    )
    return {
        pk: Input(kind, None if inline is None else bytes(inline), key, filename, options)
        for pk, kind, inline, key, filename, options in rows
    }


def read_bodies(submission_ids: Sequence[int]) -> dict[int, bytes]:
    """The request bytes of these submissions that lie in their rows, in one query."""
    rows = Submission.objects.filter(pk__in=submission_ids, body_inline__isnull=False)
    return {pk: bytes(body) for pk, body in rows.values_list("pk", "body_inline") if body is not None}


def prepare(claim: Claim, given: Input, provider: Provider, store: ArtifactStore) -> Prepared:
    """Make the exact bytes of a first send. Large ones are stored before the row that names them is written.

    Raises `errors.InvalidInput` for what the provider cannot render, and store errors.
    """
    if given.inline is not None:
        text = given.inline
    else:
        assert given.key is not None, "the database holds exactly one of the two"
        with store.open(given.key) as stream:
            text = stream.read()
    source = DocumentSource(kind=given.kind, text=text.decode(), filename=given.filename, options=given.options)
    request = provider.prepare(source)
    digest = hashlib.sha256(request.body).hexdigest()
    body_key = None
    if len(request.body) > ENGINE.inline_bytes_most:
        body_key = request_key(claim.workspace_slug, claim.business_id, digest)
        store.put(body_key, io.BytesIO(request.body))
    return Prepared(claim, request, digest, body_key, doubt_before=False)


def prepare_again(claim: Claim, submission: OpenSubmission, inline: bytes | None, store: ArtifactStore) -> Prepared:
    """The very bytes that were committed before; a release that would make others changes nothing."""
    if inline is not None:
        body = inline
    else:
        assert submission.body_key is not None, "the database holds exactly one of the two"
        with store.open(submission.body_key) as stream:
            body = stream.read()
    digest = hashlib.sha256(body).hexdigest()
    if digest != submission.request_sha256:
        raise ValueError(f"submission {submission.id}: the stored request bytes are damaged")
    request = PreparedRequest(route=submission.route, body=body)
    return Prepared(claim, request, digest, submission.body_key, doubt_before=submission.in_doubt)


def commit_intents(account: ProviderAccount, ready: Sequence[Prepared], *, now: datetime) -> Intents:
    """Commit the intent of as many of `ready` as slots and the in-flight cap allow.

    The account's lane row is locked throughout, so that neither pace nor cap can be passed by two pumps at once.
    """
    limits = pacing.submit_limits(account)
    with transaction.atomic():
        pacing.lock(account.pk, Lane.SUBMIT)
        room = max(0, account.max_in_flight - claims.in_flight(account.pk))
        chosen: list[Prepared] = []
        for prepared in ready:
            if prepared.is_resend:
                chosen.append(prepared)  # it is counted in flight already
            elif room:
                chosen.append(prepared)
                room -= 1
        if not chosen:
            return Intents([], set(), now + timedelta(seconds=ENGINE.claim_interval_seconds))
        reservation = pacing.reserve(
            account.pk, Lane.SUBMIT, limits, wanted=len(chosen), now=now, horizon_seconds=ENGINE.slot_horizon_seconds
        )
        slotted = list(zip(chosen, reservation.slots, strict=False))
        first = [pair for pair in slotted if not pair[0].is_resend]
        again = [pair for pair in slotted if pair[0].is_resend]
        sendings = _commit_first(account, first, now=now) + _commit_again(again, now=now)
    given = {prepared.claim.job_id for prepared, _slot in slotted}
    lost = given - {sending.prepared.claim.job_id for sending in sendings}
    return Intents(sendings, lost, reservation.ask_again_at)


def _commit_first(
    account: ProviderAccount, pairs: Sequence[tuple[Prepared, datetime]], *, now: datetime
) -> list[Sending]:
    """pending → submitting, with the submission's row: a new one, or the open one that was definitely refused."""
    if not pairs:
        return []
    moved = transitions.move_many(
        [moving(prepared.claim, JobState.SUBMITTING, reason="intent_committed") for prepared, _slot in pairs], now=now
    )
    until = retries.resend_until(now, account.key_retention_seconds)
    mine = [pair for pair in pairs if pair[0].claim.job_id in moved]
    fresh = [(prepared, slot) for prepared, slot in mine if prepared.claim.submission is None]
    rows = [_new_submission(account, prepared, until, now=now) for prepared, _slot in fresh]
    Submission.objects.bulk_create(rows)
    sendings = [
        _sending(prepared, claims.open_submission(row), slot) for (prepared, slot), row in zip(fresh, rows, strict=True)
    ]
    # Refused on every try so far, so nothing is there: the same key and bytes, and its time starts anew.
    refused = [(prepared, known, slot) for prepared, slot in mine if (known := prepared.claim.submission) is not None]
    Submission.objects.filter(pk__in=[known.id for _prepared, known, _slot in refused]).update(
        first_sent_at=now, last_sent_at=now, resend_until=until, in_doubt=True
    )
    sendings += [
        _sending(prepared, replace(known, first_sent_at=now, resend_until=until, in_doubt=True), slot)
        for prepared, known, slot in refused
    ]
    return sendings


def _new_submission(
    account: ProviderAccount, prepared: Prepared, until: datetime | None, *, now: datetime
) -> Submission:
    claim = prepared.claim
    sequence = claim.next_sequence
    return Submission(
        job_id=claim.job_id,
        account=account,
        sequence=sequence,
        idempotency_key=keys.idempotency_key(
            workspace_id=claim.workspace_id,
            account_id=account.pk,
            route=prepared.request.route,
            body_sha256=prepared.request_sha256,
            document_id=claim.document_id,
            version=claim.version_number,
            sequence=sequence,
        ),
        route=prepared.request.route,
        request_sha256=prepared.request_sha256,
        body_inline=None if prepared.body_key else prepared.request.body,
        body_key=prepared.body_key,
        first_sent_at=now,
        last_sent_at=now,
        resend_until=until,
    )


def _commit_again(pairs: Sequence[tuple[Prepared, datetime]], *, now: datetime) -> list[Sending]:
    """submitting → submitting, where the claim still holds."""
    if not pairs:
        return []
    jobs = Job.objects.filter(pk__in=[prepared.claim.job_id for prepared, _slot in pairs])
    tokens = dict(jobs.values_list("pk", "fencing_token"))
    sendings = []
    for prepared, slot in pairs:
        assert prepared.claim.submission is not None, "a submitting job has an open submission"
        if tokens[prepared.claim.job_id] == prepared.claim.token:
            sendings.append(Sending(prepared, prepared.claim.submission, slot))
    Submission.objects.filter(pk__in=[sending.submission.id for sending in sendings]).update(last_sent_at=now)
    return sendings


def _sending(prepared: Prepared, submission: OpenSubmission, slot: datetime) -> Sending:
    claim = prepared.claim.moved(JobState.SUBMITTING, submission=submission, state_changed_at=submission.first_sent_at)
    return Sending(replace(prepared, claim=claim), submission, slot)


def send(sending: Sending, provider: Provider, *, now: datetime, gate: Callable[[], None]) -> Accepted | Finished:
    """Send the committed bytes, once, when `gate` lets them pass. The thread has no database, so no transaction."""
    assert not connection.in_atomic_block, "the network is never called inside a transaction"
    return provider.submit(
        sending.prepared.request, idempotency_key=sending.submission.idempotency_key, now=now, gate=gate
    )


def judge_answer(sending: Sending, answer: Accepted | Finished, account: ProviderAccount, *, now: datetime) -> Change:
    """The provider has it: its id is recorded before anything else happens to the job."""
    claim = sending.prepared.claim
    deadline_at = now + timedelta(seconds=account.deadline_seconds)
    job_fields: dict[str, Any] = {
        "deadline_at": deadline_at,
        "provider_status": answer.status_word[:100],
        "provider_status_at": now,
        "poll_count": 0,
        "fetch_count": 0,
    }
    submission_fields: dict[str, Any] = {
        "try_count": sending.submission.try_count + 1,
        "in_doubt": False,
        "provider_job_id": answer.provider_job_id,
        "accepted_at": now,
    }
    submission = replace(
        sending.submission,
        provider_job_id=answer.provider_job_id,
        in_doubt=False,
        try_count=submission_fields["try_count"],
    )
    to_state = JobState.ACCEPTED
    if isinstance(answer, Finished):
        to_state = JobState.RENDERED
        submission_fields["result"] = polling.result_facts(answer.result)
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
        effect=AccountEffect(reached=True),
        after=after,
        follow=follow,
    )


def judge_error(
    sending: Sending, error: errors.ProviderError, account: ProviderAccount, *, now: datetime, rng: random.Random
) -> Change:
    """No id came back: where the submission goes is decided by `retries.decide_submission`."""
    claim, submission = sending.prepared.claim, sending.submission
    facts = retries.SubmissionFacts(
        in_doubt=sending.prepared.doubt_before, tries=submission.try_count, resend_until=submission.resend_until
    )
    decision = retries.decide_submission(error, facts, now=now, rng=rng)
    to_state, job_fields = _end_of(decision, error)
    fields: dict[str, Any] = {
        "in_doubt": decision.in_doubt,
        "try_count": submission.try_count + (1 if decision.spends_try else 0),
    }
    if decision.next is retries.Next.FAIL:
        fields |= {"outcome": SubmissionOutcome.REFUSED, "closed_at": now}
    move = None
    if to_state is not JobState.SUBMITTING:
        move = moving(claim, to_state, reason=f"submit_{decision.next.value}", words=error.words, fields=job_fields)
    alert = None
    if decision.next is retries.Next.UNKNOWN:
        alert = (AlertKind.UNKNOWN_OUTCOME, f"{claim.business_id}: {error.words} {WHAT_TO_DO_UNKNOWN}")
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
            cool_down_until=decision.cool_down_until,
            transport_failure=decision.transport_failure,
            words=error.words,
        ),
        alert=alert,
    )


def _end_of(decision: retries.Decision, error: errors.ProviderError) -> tuple[JobState, dict[str, Any]]:
    if decision.next is retries.Next.RESEND:
        return JobState.SUBMITTING, {}
    if decision.next is retries.Next.REQUEUE:
        return JobState.PENDING, {"due_at": decision.due_at}
    failure = {"failure_class": decision.failure_class, "failure_code": error.code[:100], "failure_words": error.words}
    if decision.next is retries.Next.FAIL:
        return JobState.FAILED, failure
    failure["failure_words"] = f"{error.words} {WHAT_TO_DO_UNKNOWN}"
    return JobState.UNKNOWN, failure


def judge_never_left(claim: Claim, *, now: datetime) -> Change:
    """The bytes provably never left (the pump is ending): back to pending, as if the slot had not been taken."""
    assert claim.submission is not None
    return Change(
        claim=claim,
        at=now,
        move=moving(claim, JobState.PENDING, reason="never_left", fields={"due_at": now}),
        submission_id=claim.submission.id,
        submission_fields={"in_doubt": False},
    )


def judge_held(claim: Claim, *, now: datetime) -> Change:
    """The account is held, so nothing may be sent; look again before the provider forgets the key."""
    assert claim.submission is not None
    due_at = now + timedelta(seconds=ENGINE.poll_held_seconds)
    if claim.submission.resend_until is not None:
        due_at = min(due_at, max(claim.submission.resend_until, now))
    return Change(claim=claim, at=now, job_fields={"due_at": due_at})


def judge_id_known(claim: Claim, account: ProviderAccount, *, now: datetime) -> Change:
    """A holder whose lease had run out recorded the id after all: there is nothing left to send."""
    deadline_at = now + timedelta(seconds=account.deadline_seconds)
    after = claim.moved(JobState.ACCEPTED, deadline_at=deadline_at, poll_count=0, fetch_count=0, state_changed_at=now)
    return Change(
        claim=claim,
        at=now,
        move=moving(
            claim,
            JobState.ACCEPTED,
            reason="id_was_recorded",
            fields={"deadline_at": deadline_at, "due_at": now, "poll_count": 0, "fetch_count": 0},
        ),
        after=after,
        follow=Follow(FollowStep.POLL, now),
    )


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


def judge_window_closed(claim: Claim, *, now: datetime) -> Change:
    """It may have been accepted, and the provider may no longer recognise a repeat."""
    assert claim.submission is not None
    words = "The answer to the submission was lost, and the provider may no longer recognise a repeat of it."
    return Change(
        claim=claim,
        at=now,
        move=moving(
            claim,
            JobState.UNKNOWN,
            reason="resend_window_closed",
            words=words,
            fields={
                "failure_class": FailureClass.UNKNOWN_OUTCOME,
                "failure_code": "",
                "failure_words": f"{words} {WHAT_TO_DO_UNKNOWN}",
            },
        ),
        submission_id=claim.submission.id,
        alert=(AlertKind.UNKNOWN_OUTCOME, f"{claim.business_id}: {words} {WHAT_TO_DO_UNKNOWN}"),
    )
