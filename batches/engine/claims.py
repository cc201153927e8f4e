"""Claiming work: exclusive for a lease's length, with a fencing token that grows each time.

A claim hands back frozen facts. Every later write repeats the token, so that whoever lost the lease can change
nothing, however late it wakes up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import Count, F, Max, Q, QuerySet, Subquery
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

    def with_result(self, result: dict[str, Any]) -> OpenSubmission:
        return replace(self, result=result)


@dataclass(frozen=True, slots=True)
class Claim:
    """One job that this pump alone may work on until `lease_until`.

    `input_bytes` is the size of its input, `batch_size` how many items its batch has; `unfinished_at` when a status
    read last found it unfinished, and `observed` how long it took, once its end was seen: what durations are learned
    from.
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
    observed: Sample | None = None

    def moved(self, state: JobState, **changes: Any) -> Claim:
        return replace(self, state=state, **changes)


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
        jobs = list(
            Job.objects.filter(id__in=ids, lease_owner=owner)
            .annotate(last_sequence=Coalesce(Max("submissions__sequence"), 0))
            .select_related("version__document__workspace")
            .defer("version__input_inline")
        )
        submissions = _open_submissions([job.pk for job in jobs])
        counts = (sizes or BatchSizes()).of(jobs)
    place = {job_id: index for index, job_id in enumerate(ids)}
    jobs.sort(key=lambda job: place[job.pk])
    return [_claim(job, submissions.get(job.pk), job.last_sequence, counts[job.pk]) for job in jobs]


def _lease_oldest(
    account: ProviderAccount, states: Sequence[JobState], *, owner: str, now: datetime, most: int
) -> list[int]:
    candidates = claimable(now).filter(account=account, state__in=states, due_at__lte=now).order_by("due_at", "id")
    if connection.features.has_select_for_update_skip_locked:
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


def in_flight(account_id: int) -> int:
    """Jobs that are at the provider, by all that we know."""
    return Job.objects.filter(account_id=account_id, state__in=IN_FLIGHT_STATES).count()


def sendable(account_id: int, job_ids: Sequence[int]) -> tuple[set[int], int]:
    """Which of these jobs are led by a running batch, and how many jobs of the account are in flight: one question."""
    if not job_ids:
        return set(), 0
    counted = Job.objects.filter(account_id=account_id, state__in=IN_FLIGHT_STATES).order_by().values("account_id")
    count = Coalesce(Subquery(counted.annotate(count=Count("pk")).values("count")), 0)
    rows = Job.objects.filter(turns.led_by_a_running_batch(), pk__in=job_ids).values_list("pk", count)
    live = dict(rows)
    return set(live), next(iter(live.values()), 0)


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


def _open_submissions(job_ids: Sequence[int]) -> dict[int, OpenSubmission]:
    rows = Submission.objects.filter(job_id__in=job_ids, outcome=SubmissionOutcome.OPEN).defer("body_inline")
    return {row.job_id: open_submission(row) for row in rows}


def open_submission(row: Submission) -> OpenSubmission:
    return OpenSubmission(
        id=row.pk,
        sequence=row.sequence,
        idempotency_key=row.idempotency_key,
        route=row.route,
        request_sha256=row.request_sha256,
        body_key=row.body_key,
        try_count=row.try_count,
        in_doubt=row.in_doubt,
        first_sent_at=row.first_sent_at,
        resend_until=row.resend_until,
        provider_job_id=row.provider_job_id,
        result=row.result,
        failed_at=row.failed_at,
        accepted_at=row.accepted_at,
    )


def _claim(job: Job, submission: OpenSubmission | None, last_sequence: int, batch_size: int) -> Claim:
    document = job.version.document
    return Claim(
        job_id=job.pk,
        token=job.fencing_token,
        state=JobState(job.state),
        account_id=job.account_id,
        workspace_id=document.workspace_id,
        workspace_slug=document.workspace.slug,
        document_id=document.pk,
        business_id=document.business_id,
        version_id=job.version_id,
        version_number=job.version.number,
        due_at=job.due_at,
        deadline_at=job.deadline_at,
        state_changed_at=job.state_changed_at,
        poll_count=job.poll_count,
        fetch_count=job.fetch_count,
        next_sequence=last_sequence + 1,
        submission=submission,
        input_bytes=job.version.input_bytes,
        batch_id=job.lead_batch_id,
        batch_size=batch_size,
        unfinished_at=job.provider_status_at if job.state == JobState.ACCEPTED else None,
    )
