"""Pausing, resuming and cancelling a batch. These stop new submissions only: what the provider has is saved.

Each is one transaction that first takes the workspace (intake attaches documents under it) and the submission lanes
of the accounts that the batch's jobs lie at (intents are committed under them): when `pause` returns, no further
intent of the batch is committed. Who may do it is for the caller to decide; that it was done is recorded here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Subquery

from batches import figures, queue, wording
from batches.engine import alerts, audit, pacing, settled, spending, transitions, turns
from batches.engine.audit import By
from batches.engine.contention import again_after_deadlock
from batches.engine.errors import SpendCapReached
from batches.models import (
    ACCOUNT_SECRETS,
    NOTHING_THERE,
    AlertKind,
    Batch,
    BatchItem,
    FailureClass,
    Job,
    JobEvent,
    JobState,
    Lane,
    ProviderAccount,
    Submission,
    SubmissionOutcome,
    Workspace,
)

#: Jobs that one transaction ends: a few hundredths of a second, so that intake and the other verbs hardly wait.
ENDED_AT_ONCE = 500
#: The jobs whose items a cancellation takes: not sent, or perhaps not sent. What the provider has is still saved.
CANCELLABLE_STATES = (JobState.PENDING, JobState.SUBMITTING)


@again_after_deadlock
def pause(batch_id: int, *, reason: str, by: By, now: datetime) -> bool:
    """Send nothing new of this batch; true when this call paused it, false when it was paused or cancelled before.

    A document that another running batch needs as well goes on in that one's turns.
    """
    with transaction.atomic():
        batch = _taken(batch_id)
        return batch is not None and _pause(batch, reason=reason, by=by, now=now)


@again_after_deadlock
def stop(batch_id: int, *, reason: str, alert: str, now: datetime) -> bool:
    """The batch's own rule pauses it. False too when an intake holds the workspace just now: the sweep asks again."""
    with transaction.atomic():
        batch = _taken(batch_id, wait=False)
        if batch is None or not _pause(batch, reason=reason, by=audit.ENGINE, now=now):
            return False
        alerts.open_for_batch(batch, AlertKind.BATCH_STOPPED, alert, now=now)
        return True


@again_after_deadlock
def resume(
    batch_id: int,
    *,
    reason: str,
    by: By,
    now: datetime,
    spend_cap: Decimal | None = None,
    only_release: bool = False,
) -> bool:
    """Let a paused batch go on; true when this call did it. Its stop rules count from here on.

    One that waits for somebody to look at its sample is released by it; with `only_release` no other goes on.
    `spend_cap` raises its cap. Raises `SpendCapReached` with nothing changed where the cap lets nothing more leave.
    """
    with transaction.atomic():
        batch = _taken(batch_id)
        if batch is None or batch.paused_at is None or batch.cancelled_at is not None:
            return False
        if batch.writing_at is not None:
            return False  # it runs by itself once all of its rows are there
        if only_release and not batch.waits_for_release:
            return False
        facts = _raise_cap(batch, spend_cap)
        action = "release_batch" if batch.waits_for_release else "resume_batch"
        Batch.objects.filter(pk=batch.pk).update(
            paused_at=None, pause_reason="", waits_for_release=False, stop_counts_from=now
        )
        alerts.close_for_batch(batch, AlertKind.BATCH_STOPPED, now=now)
        turns.choose_leads(Job.objects.filter(version__in=_named(batch).values("version")))
        _record(action, batch, reason=reason, by=by, now=now, facts=facts)
        queue.ring()
    return True


def _raise_cap(batch: Batch, spend_cap: Decimal | None) -> dict[str, str]:
    """Write the new cap, if one is given; what the audit log says of it. Raises `SpendCapReached`."""
    if spend_cap is not None:
        if batch.spend_cap is None:
            raise SpendCapReached("This batch has no spend cap, so there is none to raise.")
        if spend_cap < batch.spend_cap:
            least = figures.money(batch.spend_cap, batch.account.price_currency)
            raise SpendCapReached(f"A spend cap can only be raised: give at least {least}.")
    words = spending.why_not_go_on(batch, spend_cap or batch.spend_cap)
    if words and _named(batch).filter(cancelled_at=None, version__job__state=JobState.PENDING).exists():
        raise SpendCapReached(f"{words} Raise the cap to let it go on.")
    if spend_cap is None:
        return {}
    Batch.objects.filter(pk=batch.pk).update(spend_cap=spend_cap)
    return {"spend_cap_before": str(batch.spend_cap), "spend_cap": str(spend_cap)}


def cancel(batch_id: int, *, reason: str, by: By, now: datetime) -> bool:
    """Give up what was not sent, of the batch and of its sample; true when this call cancelled it.

    Items that wait are cancelled at once. An item whose submission may have left is cancelled too, and that is the
    memory of the wish: its job is resolved first, and ends as cancelled only if it proves never to have arrived. What
    the provider has is polled, collected and saved, and its items stay live.
    """
    workspace_id = _give_up(batch_id, reason=reason, by=by, now=now)
    if workspace_id is None:
        return False
    ids = _unneeded(Q(version__document__workspace=workspace_id)).get(workspace_id, [])
    for start in range(0, len(ids), ENDED_AT_ONCE):  # what a death leaves here, the sweep ends
        end(workspace_id, ids[start : start + ENDED_AT_ONCE], now=now)
    return True


@again_after_deadlock
@transaction.atomic
def _give_up(batch_id: int, *, reason: str, by: By, now: datetime) -> int | None:
    """Mark the batch and its unsent items; the workspace, or None when it was cancelled before."""
    batch = _taken(batch_id)
    if batch is None or batch.cancelled_at is not None:
        return None
    given_up = [batch, *Batch.objects.select_for_update(no_key=True).filter(sample_of=batch, cancelled_at=None)]
    for each in given_up:
        Batch.objects.filter(pk=each.pk).update(
            cancelled_at=now, paused_at=None, pause_reason="", waits_for_release=False
        )
        alerts.close_for_batch(each, AlertKind.BATCH_STOPPED, now=now)
        unsent = _named(each).filter(cancelled_at=None, version__job__state__in=CANCELLABLE_STATES)
        facts = {"items_cancelled": unsent.update(cancelled_at=now)}
        settled.void([each.pk])
        _record("cancel_batch", each, reason=reason, by=by, now=now, facts=facts)
    for each in given_up:
        turns.choose_leads(Job.objects.filter(lead_batch=each))
    _revoke(Job.objects.filter(lead_batch=None, version__in=_named(batch).values("version")))
    return batch.workspace_id


def end_unneeded(*, now: datetime, most: int) -> int:
    """End waiting jobs that no live item needs, at most `most`; returns how many ended.

    One that was never sent, or refused on every try, is cancelled. One whose earlier submission the provider had
    accepted is not: it stays what it was read as, failed, and a late success may still be taken.
    """
    ended = 0
    for workspace_id, ids in sorted(_unneeded(Q(), most=most).items()):
        for start in range(0, len(ids), ENDED_AT_ONCE):
            ended += end(workspace_id, ids[start : start + ENDED_AT_ONCE], now=now)
    return ended


def _unneeded(which: Q, *, most: int | None = None) -> dict[int, list[int]]:
    """Waiting jobs that nobody leads, all of them or `most`, by workspace.

    Each account is named, and the order is that of the partial index of waiting jobs, so that both databases answer
    from it: by id, PostgreSQL walks over every job that ever was.
    """
    accounts = list(ProviderAccount.objects.order_by("pk").values_list("pk", flat=True))
    waiting = Job.objects.filter(which, state=JobState.PENDING, account__in=accounts, lead_batch=None)
    found: dict[int, list[int]] = defaultdict(list)
    in_order = waiting.order_by("account_id", "lead_batch_id", "due_at", "pk")
    for pk, workspace_id in in_order.values_list("pk", "version__document__workspace_id")[:most]:
        found[workspace_id].append(pk)
    return found


@again_after_deadlock
@transaction.atomic
def end(workspace_id: int, ids: Sequence[int], *, now: datetime) -> int:
    """End those of these jobs that wait and that no live item needs, as `end_unneeded` says; how many ended."""
    Workspace.objects.select_for_update(no_key=True).get(pk=workspace_id)
    jobs = Job.objects.filter(pk__in=ids, state=JobState.PENDING)
    turns.choose_leads(jobs)  # an intake may have come between
    may_exist = Submission.objects.filter(job=OuterRef("pk")).exclude(NOTHING_THERE)
    rows = jobs.filter(lead_batch=None).annotate(may_exist=Exists(may_exist)).order_by("pk")
    failed = JobEvent.objects.filter(job=OuterRef("pk"), reason="render_again").order_by("-id")
    rows = rows.annotate(said=Subquery(failed.values("words")[:1]))
    columns = ("pk", "fencing_token", "failure_code", "said", "may_exist")
    moves = [
        _last_move(pk, token, code, said or "", may_exist=exists)
        for pk, token, code, said, exists in rows.values_list(*columns)
    ]
    moved = transitions.move_many(moves, now=now)
    cancelled = [move.job_id for move in moves if move.to_state is JobState.CANCELLED and move.job_id in moved]
    Submission.objects.filter(job__in=cancelled, outcome=SubmissionOutcome.OPEN).update(
        outcome=SubmissionOutcome.REFUSED, closed_at=now
    )
    return len(moved)


def _last_move(job_id: int, token: int, code: str, said: str, *, may_exist: bool) -> transitions.Move:
    """`code` and `said` are the provider's own, of the render that failed; empty where it gave none."""
    freed = transitions.taken_over(token)
    if not may_exist:
        return transitions.Move(
            job_id, token, JobState.PENDING, JobState.CANCELLED, reason="nobody_needs_it", fields=freed
        )
    why = wording.sentence(said) or "The provider could not render it."
    words = f"{why} It was not sent again: no batch needs it any more."
    failure = {"failure_class": FailureClass.RENDER_FAILED, "failure_code": code, "failure_words": words}
    return transitions.Move(
        job_id,
        token,
        JobState.PENDING,
        JobState.FAILED,
        reason="nobody_needs_it",
        words=words,
        fields={**freed, **failure},
    )


def _taken(batch_id: int, *, wait: bool = True) -> Batch | None:
    """The batch, with everything held that could send its documents or attach to them. None: the workspace is busy."""
    workspace_id = Batch.objects.values_list("workspace_id", flat=True).get(pk=batch_id)
    workspaces = Workspace.objects.select_for_update(no_key=True, skip_locked=not wait).filter(pk=workspace_id)
    if workspaces.first() is None:
        return None
    items = BatchItem.objects.filter(batch=batch_id)
    accounts = set(items.order_by().values_list("version__job__account_id", flat=True).distinct()) - {None}
    accounts.add(Batch.objects.values_list("account_id", flat=True).get(pk=batch_id))
    for account_id in sorted(accounts):
        pacing.lock(account_id, Lane.SUBMIT)
    return (
        Batch.objects.select_for_update(no_key=True, of=("self",))
        .select_related("workspace", "account")
        .defer(*(f"account__{name}" for name in ACCOUNT_SECRETS))
        .get(pk=batch_id)
    )


def _pause(batch: Batch, *, reason: str, by: By, now: datetime) -> bool:
    if batch.paused_at is not None or batch.cancelled_at is not None:
        return False
    Batch.objects.filter(pk=batch.pk).update(paused_at=now, pause_reason=reason)
    led = Job.objects.filter(lead_batch=batch)
    turns.choose_leads(led)
    _revoke(led)
    _record("pause_batch", batch, reason=reason, by=by, now=now)
    return True


def _revoke(jobs: QuerySet[Job]) -> None:
    """Take waiting jobs from the pumps that hold them: what such a pump still writes is stale, and recorded so.

    Rows that a pump is writing at this moment are left (PostgreSQL): the commit of an intent asks for the lead anyway.
    """
    held = jobs.filter(state=JobState.PENDING, lease_owner__isnull=False).order_by("pk")
    ids = list(held.select_for_update(skip_locked=True, of=("self",)).values_list("pk", flat=True))
    Job.objects.filter(pk__in=ids, state=JobState.PENDING).update(
        lease_owner=None, lease_until=None, fencing_token=F("fencing_token") + 1
    )


def _named(batch: Batch) -> QuerySet[BatchItem]:
    return BatchItem.objects.filter(batch=batch)


def _record(
    action: str, batch: Batch, *, reason: str, by: By, now: datetime, facts: dict[str, Any] | None = None
) -> None:
    audit.record(
        action,
        subject=f"batch {batch.public_id}",
        workspace=batch.workspace,
        by=by,
        now=now,
        reason=reason,
        facts=facts,
    )
