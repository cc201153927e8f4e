"""Claiming work: exclusive for a lease's length, with a fencing token that grows each time.

A claim hands back frozen facts. Every later write repeats the token, so that whoever lost the lease can change
nothing, however late it wakes up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db import transaction
from django.db.models import Case, Count, F, Q, QuerySet, Subquery, When
from django.db.models.functions import Coalesce

from batches.conf import ENGINE
from batches.engine import turns
from batches.engine.batchsizes import BatchSizes
from batches.engine.contention import again_after_deadlock
from batches.engine.expectations import Sample
from batches.models import (
    ACTIVE_STATES,
    IN_FLIGHT_STATES,
    Job,
    JobState,
    ProviderAccount,
    Submission,
    SubmissionOutcome,
)

#: Sent, or about to be: claimed whatever the account's health, since held stops new submissions only.
IN_PROGRESS_STATES = tuple(state for state in ACTIVE_STATES if state is not JobState.PENDING)


@dataclass(frozen=True, slots=True)
class OpenSubmission:
    """The open submission of a claimed job, without its body."""

    id: int
    sequence: int
    idempotency_key: str
    route: str
    request_sha256: str
    body_key: str | None
    try_count: int
    in_doubt: bool
    first_sent_at: datetime
    resend_until: datetime | None
    provider_job_id: str | None
    result: dict[str, Any] | None = field(repr=False)
    failed_at: datetime | None = None
    accepted_at: datetime | None = None
    watch_until: datetime | None = None  # set once it was given up on
    last_sent_at: datetime | None = None
    started_at: datetime | None = None

    def with_result(self, result: dict[str, Any]) -> OpenSubmission:
        return replace(self, result=result)


#: Its columns, in their order.
_OPEN_COLUMNS = tuple(each.name for each in fields(OpenSubmission))


@dataclass(frozen=True, slots=True)
class Claim:
    """One job that this pump alone may work on until `lease_until`.

    `input_bytes` is the size of its input, `batch_size` how many items its batch has; `unfinished_at` when a status
    read last found it unfinished, `status_word` what it said then, and `observed` how long it took, once its end was
    seen: what durations are learned from. `refused_keys` counts its submissions that were refused for good. `lost_key`
    is where its PDF was stored, when it is fetched again because the store no longer has it. `starts_draft`: that its
    draft is begun now is committed, so its next step is that call and no status read.
    """

    job_id: int
    token: int
    state: JobState
    account_id: int
    workspace_id: int
    workspace_slug: str
    document_id: int
    business_id: str
    version_id: int
    version_number: int
    due_at: datetime
    deadline_at: datetime | None
    state_changed_at: datetime
    poll_count: int
    fetch_count: int
    next_sequence: int
    submission: OpenSubmission | None
    input_bytes: int = 0
    batch_id: int | None = None
    batch_size: int = 0
    unfinished_at: datetime | None = None
    status_word: str = ""
    observed: Sample | None = None
    lost_key: str | None = None
    refused_keys: int = 0
    starts_draft: bool = False

    def moved(self, state: JobState, **changes: Any) -> Claim:
        return replace(self, state=state, **changes)


#: What is read of each job that was leased, in one statement.
_CLAIMED_COLUMNS = (
    "pk",
    "fencing_token",
    "state",
    "account_id",
    "version__document__workspace_id",
    "version__document__workspace__slug",
    "version__document_id",
    "version__document__business_id",
    "version_id",
    "version__number",
    "due_at",
    "deadline_at",
    "state_changed_at",
    "poll_count",
    "fetch_count",
    "version__input_bytes",
    "lead_batch_id",
    "provider_status_at",
    "provider_status",
    "version__artifact__storage_key",
    "version__artifact__missing_at",
)


@again_after_deadlock
def claim_due(
    account: ProviderAccount,
    states: Sequence[JobState],
    *,
    owner: str,
    now: datetime,
    most: int,
    sizes: BatchSizes | None = None,
) -> list[Claim]:
    """Up to `most` due jobs of the account in `states`, leased to `owner`.

    Pending ones, asked for alone, come in turns of the batches that lead them (`turns`), all others oldest first.
    Losing a race is not "no work": rows that another pump holds are skipped (PostgreSQL) or cannot be seen half
    claimed (SQLite, where transactions are alone).
    """
    if most < 1:
        return []
    with transaction.atomic():
        if list(states) == [JobState.PENDING]:
            ids = turns.lease_pending(account.pk, owner=owner, now=now, most=most)
        else:
            ids = _lease_oldest(account, states, owner=owner, now=now, most=most)
        if not ids:
            return []
        # Rows, not models: a pump claims hundreds of jobs a second.
        jobs: list[Any] = list(
            Job.objects.filter(id__in=ids, lease_owner=owner).values_list(*_CLAIMED_COLUMNS, named=True)
        )
        submissions, sequences, refused = _submissions([job.pk for job in jobs])
        counts = (sizes or BatchSizes()).of(jobs)
    place = {job_id: index for index, job_id in enumerate(ids)}
    jobs.sort(key=lambda job: place[job.pk])
    return [
        _claim(job, submissions.get(job.pk), sequences.get(job.pk, 0), counts[job.pk], refused[job.pk]) for job in jobs
    ]


def _lease_oldest(
    account: ProviderAccount, states: Sequence[JobState], *, owner: str, now: datetime, most: int
) -> list[int]:
    candidates = claimable(now).filter(account=account, state__in=states, due_at__lte=now).order_by("due_at", "id")
    candidates = candidates.select_for_update(skip_locked=True, of=("self",))
    ids = list(candidates.values_list("id", flat=True)[:most])
    if ids:
        claimable(now).filter(id__in=ids, state__in=states).update(
            lease_owner=owner,
            lease_until=now + timedelta(seconds=ENGINE.lease_seconds),
            fencing_token=F("fencing_token") + 1,
        )
    return ids


def claimable(now: datetime) -> QuerySet[Job]:
    """Nobody holds it, or its holder's lease ran out."""
    return Job.objects.filter(Q(lease_until=None) | Q(lease_until__lt=now))


@dataclass(frozen=True, slots=True)
class Standing:
    """How an account and some of its jobs stand: `led` are those that a running batch leads, by the batch.

    `caps` are the spend caps of these batches, of those that have one.
    """

    health: str
    on_probation: bool
    in_flight: int
    led: Mapping[int, int]
    caps: Mapping[int, Decimal]


def standing(account_id: int, job_ids: Sequence[int]) -> Standing:
    """The account's health, its jobs in flight, and which of these jobs a running batch leads: one question.

    Asked after the lane's row is locked, and by a statement of its own: what the locking statement itself reads of
    other rows is as old as its wait (PostgreSQL), so that a hold which was waited for would not be seen.
    """
    counted = Job.objects.filter(account_id=account_id, state__in=IN_FLIGHT_STATES).order_by().values("account_id")
    count = Coalesce(Subquery(counted.annotate(count=Count("pk")).values("count")), 0)
    lead = Case(When(turns.led_by_a_running_batch(), then="lead_batch_id"), default=None)
    rows = Job.objects.filter(pk__in=job_ids).annotate(lead=lead, in_flight=count)
    of_account = ("account__health", "account__on_probation", "in_flight")
    found = list(rows.values_list(*of_account, "pk", "lead", "lead_batch__spend_cap"))
    health, on_probation, in_flight = found[0][:3] if found else ("", False, 0)  # of no jobs, none is to leave
    led = {pk: batch_id for *_account, pk, batch_id, _cap in found if batch_id is not None}
    caps = {batch_id: cap for *_account, _pk, batch_id, cap in found if batch_id is not None and cap is not None}
    return Standing(health, on_probation, in_flight, led, caps)


@again_after_deadlock
def renew(owner: str, job_ids: Sequence[int], *, now: datetime) -> set[int]:
    """Prolong the lease of the jobs that `owner` still holds; returns them. The others were lost."""
    until = now + timedelta(seconds=ENGINE.lease_seconds)
    held: set[int] = set()
    for start in range(0, len(job_ids), 1000):
        mine = Job.objects.filter(id__in=job_ids[start : start + 1000], lease_owner=owner)
        if mine.update(lease_until=until) == len(job_ids[start : start + 1000]):
            held |= set(job_ids[start : start + 1000])
        else:
            held |= set(mine.values_list("id", flat=True))
    return held


@again_after_deadlock
def release(owner: str, job_ids: Sequence[int], *, now: datetime) -> None:
    """Give back what `owner` still holds, due at once, so that another pump goes on without waiting for the lease."""
    for start in range(0, len(job_ids), 1000):
        mine = Job.objects.filter(id__in=job_ids[start : start + 1000], lease_owner=owner)
        mine.filter(due_at__gt=now, state=JobState.PENDING).update(due_at=now)
        mine.update(lease_owner=None, lease_until=None)


@again_after_deadlock
def release_life(life: str) -> int:
    """Give back what pumps of a cluster held that is proven dead (`batches/lives.py`); how many jobs.

    What may be on its way to the provider keeps its lease: the next try must not race the request of the dead.
    """
    held = Job.objects.filter(lease_until__isnull=False, lease_owner__contains=f":{life}:")
    return held.exclude(state=JobState.SUBMITTING).update(lease_owner=None, lease_until=None)


def _submissions(job_ids: Sequence[int]) -> tuple[dict[int, OpenSubmission], dict[int, int], Counter[int]]:
    """The open submission and the last sequence of each job that has some, and how many were refused."""
    open_ones: dict[int, OpenSubmission] = {}
    sequences: dict[int, int] = {}
    refused: Counter[int] = Counter()
    rows = Submission.objects.filter(job_id__in=job_ids).values_list("job_id", "outcome", *_OPEN_COLUMNS)
    for job_id, outcome, *values in rows:
        one = OpenSubmission(*values)
        sequences[job_id] = max(one.sequence, sequences.get(job_id, 0))
        if outcome == SubmissionOutcome.OPEN:
            open_ones[job_id] = one
        refused[job_id] += outcome == SubmissionOutcome.REFUSED
    return open_ones, sequences, refused


def _claim(
    job: Any, submission: OpenSubmission | None, last_sequence: int, batch_size: int, refused_keys: int
) -> Claim:
    return Claim(
        job_id=job.pk,
        token=job.fencing_token,
        state=JobState(job.state),
        account_id=job.account_id,
        workspace_id=job.version__document__workspace_id,
        workspace_slug=job.version__document__workspace__slug,
        document_id=job.version__document_id,
        business_id=job.version__document__business_id,
        version_id=job.version_id,
        version_number=job.version__number,
        due_at=job.due_at,
        deadline_at=job.deadline_at,
        state_changed_at=job.state_changed_at,
        poll_count=job.poll_count,
        fetch_count=job.fetch_count,
        next_sequence=last_sequence + 1,
        submission=submission,
        input_bytes=job.version__input_bytes,
        batch_id=job.lead_batch_id,
        batch_size=batch_size,
        unfinished_at=job.provider_status_at if job.state == JobState.ACCEPTED else None,
        status_word=job.provider_status if job.state == JobState.ACCEPTED else "",
        lost_key=job.version__artifact__storage_key if job.version__artifact__missing_at else None,
        refused_keys=refused_keys,
    )
