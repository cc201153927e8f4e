"""Deletion at the provider after saving, where an account wants it: requested, then proven by asking for the file.

A `Deletion` is committed before the first call, and settled by the answer to the question whether the file is still
handed out; the provider's own word for the deletion proves nothing. Each call may be repeated, so whoever dies leaves a
requested row that is gone on with. Calls are made outside transactions, at the account's pace of status reads.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef

from batches.engine import accounts, collection, exchanges, leases
from batches.engine.accounts import Providers
from batches.engine.clock import Clock
from batches.engine.contention import again_after_deadlock
from batches.engine.exchanges import Evidence
from batches.engine.readpace import ReadPace
from batches.models import (
    Artifact,
    Deletion,
    DeletionState,
    DeletionWhat,
    DeletionWhere,
    JobState,
    ProviderAccount,
    StoreSweep,
    Submission,
    SubmissionOutcome,
    SweepKind,
    UnreadableSecret,
)
from batches.providers import adapter_of, errors
from batches.providers.base import ExchangeFacts, Provider

log = logging.getLogger(__name__)

#: One slice; a call takes up to half a minute, so the lease is longer.
SLICE = timedelta(seconds=5)
LEASE = timedelta(minutes=5)
#: Saved longer ago, a copy has ended by itself at each provider that says how long it keeps one.
SAVED_WITHIN = timedelta(days=7)
LOOKED_AT_ONCE = 1000
#: After the first, with each try twice as long; until `GIVEN_UP_AFTER` has passed since it was requested.
AGAIN_FIRST, AGAIN_MOST = timedelta(minutes=1), timedelta(hours=1)
GIVEN_UP_AFTER = timedelta(hours=24)
#: How long one waits for a slot before the next slice.
PATIENCE = timedelta(seconds=2)
RULE = "the account has the provider’s copy deleted after saving"
CONFIRMED = "The provider was asked for it and has it no more."
STILL_THERE = "The provider said that it deleted it, and hands it out all the same."
_NAMED = (SubmissionOutcome.DELIVERED, SubmissionOutcome.SURPLUS)


@dataclass
class Report:
    """What one slice did, in deletions; `is_busy`: another worker has the walk."""

    noted: int = 0
    asked: int = 0
    settled: int = 0
    is_busy: bool = False


@dataclass
class Came:
    """What one try came to. Without a state it is tried again; `retry_after`: not before, in seconds."""

    words: str
    state: DeletionState | None = None
    retry_after: float = 0.0
    seen: list[ExchangeFacts] = field(default_factory=list)


def sweep(providers: Providers, clock: Clock, *, owner: str, seconds: timedelta = SLICE) -> Report:
    """One slice: note the copies of what was saved, then go on with those that are due."""
    now = clock.now()
    StoreSweep.objects.bulk_create([StoreSweep(kind=SweepKind.COPIES)], ignore_conflicts=True)
    rows = StoreSweep.objects.filter(kind=SweepKind.COPIES)
    if not leases.take(rows, owner, until=now + LEASE, now=now):
        return Report(is_busy=True)
    done = Report()
    try:
        done.noted = note(now=now)
        pace = ReadPace(clock, patience=PATIENCE)
        for pk in due(now=now):
            if clock.now() >= now + seconds:
                break
            if not leases.renew(rows, owner, until=clock.now() + LEASE):
                break
            done.settled += carry_on(pk, providers, pace, clock)
            done.asked += 1
    finally:
        leases.give_back(rows, owner)
    return done


# --- noting -----------------------------------------------------------------------------------------------------------


def note(*, now: datetime) -> int:
    """Commit a deletion for each copy of what was saved lately at an account that wants it; how many.

    A provider that deletes nothing on request has it written down at once. An account without the wish has nothing.
    """
    wishing = ProviderAccount.objects.filter(delete_remote_after_save=True).order_by("pk")
    noted = 0
    for account in wishing:
        try:
            offers = accounts.capabilities(account).remote_delete
        except UnreadableSecret:
            continue  # said where the account is held for that
        ids = _unnoted(account, now=now)
        for start in range(0, len(ids), LOOKED_AT_ONCE):
            noted += _note(account, ids[start : start + LOOKED_AT_ONCE], offers=offers, now=now)
    return noted


def _unnoted(account: ProviderAccount, *, now: datetime) -> list[int]:
    """Submissions with a copy and no deletion, by key; at most `LOOKED_AT_ONCE` of them."""
    noted = Deletion.objects.filter(submission=OuterRef("pk"), where=DeletionWhere.PROVIDER)
    rows = Submission.objects.filter(
        ~Exists(noted),
        account=account,
        provider_job_id__isnull=False,
        outcome__in=_NAMED,
        closed_at__gte=now - SAVED_WITHIN,
        job__state=JobState.SAVED,
    )
    return list(rows.order_by("-pk").values_list("pk", flat=True)[:LOOKED_AT_ONCE])


@again_after_deadlock
@transaction.atomic
def _note(account: ProviderAccount, ids: Sequence[int], *, offers: bool, now: datetime) -> int:
    state: dict[str, Any] = {"state": DeletionState.REQUESTED, "due_at": now}
    if not offers:
        words = f"{adapter_of(account.kind).label} deletes nothing on request."
        state = {"state": DeletionState.NOT_OFFERED, "settled_at": now, "words": words}
    sent = Submission.objects.filter(pk__in=ids, job__state=JobState.SAVED).order_by("pk")
    columns = ("pk", "job__version__document__workspace", "artifacts__sha256", "artifacts__byte_count")
    rows = [
        Deletion(
            workspace_id=workspace_id,
            submission_id=pk,
            what=DeletionWhat.PDF,
            where=DeletionWhere.PROVIDER,
            rule=RULE,
            by="sweep",
            requested_at=now,
            sha256=sha256 or "",  # none is known of a surplus one, which was never fetched
            byte_count=byte_count,
            **state,
        )
        for pk, workspace_id, sha256, byte_count in sent.values_list(*columns)
    ]
    made = Deletion.objects.bulk_create(rows, ignore_conflicts=True)
    if offers:
        Artifact.objects.filter(submission__in=ids, remote_delete_requested_at=None).update(
            remote_delete_requested_at=now
        )
    return len(made)


# --- asking -----------------------------------------------------------------------------------------------------------


def due(*, now: datetime, most: int = LOOKED_AT_ONCE) -> list[int]:
    """Requested deletions at providers that are due, the one that waits longest first."""
    rows = Deletion.objects.filter(where=DeletionWhere.PROVIDER, state=DeletionState.REQUESTED, due_at__lte=now)
    return list(rows.order_by("due_at", "pk").values_list("pk", flat=True)[:most])


def carry_on(deletion_id: int, providers: Providers, pace: ReadPace, clock: Clock) -> bool:
    """Ask the provider once to delete, and once whether it has; true when that settled it."""
    rows = Deletion.objects.filter(pk=deletion_id, state=DeletionState.REQUESTED)
    row = rows.select_related("submission__account").defer("submission__body_inline").first()
    if row is None or row.submission is None:
        return False
    account = row.submission.account
    try:
        provider = providers.of(ProviderAccount.objects.get(pk=account.pk))
    except UnreadableSecret:
        came = Came("The account’s key cannot be read.")
    else:
        if not provider.capabilities.remote_delete:
            came = Came(f"{provider.label} deletes nothing on request.", DeletionState.NOT_OFFERED)
        else:
            came = _asked(row.submission, account, provider, pace)
    return _settle(row, came, now=clock.now())


def _asked(sent: Submission, account: ProviderAccount, provider: Provider, pace: ReadPace) -> Came:
    came = Came("")
    ref = collection.stored_ref(sent)
    try:
        if (at := pace.next(account)) is None:
            return Came("The provider asked for a pause.")
        try:
            came.seen.append(provider.delete_remote(ref, now=at).exchange)
        except errors.NotFound as error:  # whether it is there at all is asked next
            came.seen += [error.exchange] if error.exchange else []
        if (at := pace.next(account)) is None:
            came.words = "The provider asked for a pause."
            return came
        gone = provider.is_gone(ref, now=at)
        came.seen.append(gone.exchange)
    except errors.ProviderError as error:
        came.seen += [error.exchange] if error.exchange else []
        came.words, came.retry_after = error.words, error.retry_after or 0.0
        return came
    came.words = CONFIRMED if gone.is_gone else STILL_THERE
    came.state = DeletionState.CONFIRMED if gone.is_gone else None
    return came


@again_after_deadlock
@transaction.atomic
def _settle(row: Deletion, came: Came, *, now: datetime) -> bool:
    """Keep the exchanges and what they came to, in one transaction."""
    sent = row.submission
    assert sent is not None, "the database holds the submission of a copy"
    kept = [exchanges.record_one(Evidence(facts, sent.account_id, sent.job_id, sent.pk)) for facts in came.seen]
    state, words = came.state, came.words
    if state is None and now >= row.requested_at + GIVEN_UP_AFTER:
        state, words = DeletionState.FAILED, f"Not confirmed in {GIVEN_UP_AFTER // timedelta(hours=1)} hours. {words}"
    columns: dict[str, Any] = {"words": words, "tries": row.tries + 1}
    if kept:
        columns["exchange"] = kept[-1]
    if state is None:
        wait = min(AGAIN_FIRST * 2 ** min(row.tries, 10), AGAIN_MOST)
        columns["due_at"] = now + max(wait, timedelta(seconds=came.retry_after))
    else:
        columns |= {"state": state, "settled_at": now, "due_at": None}
    requested = Deletion.objects.filter(pk=row.pk, state=DeletionState.REQUESTED)
    is_ours = bool(requested.update(**columns))
    if is_ours and state is DeletionState.CONFIRMED:
        Artifact.objects.filter(submission=sent, remote_deleted_at=None).update(remote_deleted_at=now)
    return is_ours and state is not None
