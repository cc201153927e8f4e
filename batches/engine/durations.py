"""How long submissions took: one row for each that ended, and what is read back of them.

A failure to record is seen (an alert, and the log) and never costs the outcome that it belongs to. What the rows teach
is decided in `expectations.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError, connection, transaction

from batches.engine import alerts, bulk, expectations, mishaps
from batches.engine.expectations import Sample
from batches.models import OUTCOME_STATES, AlertKind, Duration, JobState, ProviderAccount, SubmissionOutcome

if TYPE_CHECKING:
    from batches.engine.changes import Change  # `writes` hands them over, in groups
    from batches.engine.claims import Claim

log = logging.getLogger(__name__)

WHAT_TO_DO = (
    "Documents go on and are saved as before, but status reads and deadlines learn nothing from them. The log has the "
    "trace: look whether the database's table of durations can be written to."
)


class Book:
    """Writes the durations of one pump's outcomes. Remembers whose alert is closed."""

    def __init__(self) -> None:
        self._sound: set[int] = set()

    def record(self, changes: Sequence[Change], *, now: datetime) -> None:
        """One row per submission that these end, inside the caller's transaction and in a savepoint of its own.

        Raises only when the caller's transaction is lost with it.
        """
        ended = [(change, outcome) for change in changes if (outcome := _outcome(change)) is not None]
        if not ended:
            return
        accounts = {change.claim.account_id for change, _outcome in ended}
        try:
            with transaction.atomic():
                bulk.insert(Duration, [_row(change, outcome) for change, outcome in ended])
                for account_id in accounts - self._sound:
                    alerts.close_for_account(ProviderAccount(pk=account_id), AlertKind.DURATIONS, now=now)
        except Exception as error:
            if connection.needs_rollback:
                raise  # the savepoint could not be gone back to: the outcomes are lost as well, and tried again
            trace = mishaps.without_row(error)
            log.exception("the durations of %d submissions could not be recorded", len(ended), exc_info=trace)
            self._sound -= accounts
            self._alert(accounts, error, now=now)
        else:
            self._sound |= accounts

    def _alert(self, account_ids: Iterable[int], error: Exception, *, now: datetime) -> None:
        try:
            with transaction.atomic():
                for account in ProviderAccount.objects.only("name").filter(pk__in=list(account_ids)):
                    words = f"{account.name}: durations could not be recorded ({type(error).__name__}). {WHAT_TO_DO}"
                    alerts.open_for_account(account, AlertKind.DURATIONS, words, now=now)
        except DatabaseError as error_of_alert:
            if connection.needs_rollback:
                raise
            trace = mishaps.without_row(error_of_alert)
            log.exception("the alert about it could not be opened", exc_info=trace)


def _row(change: Change, outcome: JobState) -> dict[str, Any]:
    claim = change.claim
    assert claim.submission is not None
    began_at = claim.submission.accepted_at or claim.submission.first_sent_at
    observed = _observed(change)
    return {
        "account": claim.account_id,
        "job": claim.job_id,
        "submission": claim.submission.id,
        "outcome": outcome,
        "at": change.at,
        "remote_seconds": observed.by if observed else None,
        "total_seconds": max(0.0, (change.at - began_at).total_seconds()),
        "seen_after_seconds": observed.by - observed.after if observed else 0.0,
        "poll_count": change.move.fields.get("poll_count", claim.poll_count) if change.move else claim.poll_count,
        "request_bytes": claim.input_bytes,
        "batch_size": claim.batch_size,
    }


def _outcome(change: Change) -> JobState | None:
    """The state that the change ends its submission in; None when it ends none.

    One whose stored PDF was lost had ended before: how long a repair takes says nothing of the provider.
    """
    if change.move is None or change.claim.submission is None or change.claim.lost_key is not None:
        return None
    if change.move.to_state in OUTCOME_STATES:
        return change.move.to_state
    # A move elsewhere ends it too, where it closes the submission.
    closed = change.submission_fields.get("outcome", SubmissionOutcome.OPEN)
    return JobState.FAILED if closed in (SubmissionOutcome.RENDER_FAILED, SubmissionOutcome.REFUSED) else None


def _observed(change: Change) -> Sample | None:
    """How long it took there; None when no end was seen there, or only by the late watch, minutes after it."""
    claim, move = change.claim, change.move
    assert claim.submission is not None
    assert move is not None
    accepted_at = claim.submission.accepted_at
    if accepted_at is None or not teaches(claim) or move.to_state in (JobState.DEADLINE_EXCEEDED, JobState.UNKNOWN):
        return None
    if claim.state is JobState.ACCEPTED:  # this very read saw the end
        return observe(claim.input_bytes, accepted_at, claim.unfinished_at, change.at)
    # A pump that took it over knows when its end was seen, and not when it was last found unfinished.
    return claim.observed or observe(claim.input_bytes, accepted_at, None, claim.state_changed_at)


def teaches(claim: Claim) -> bool:
    """How long it takes can be learned from: it had not ended before (a repair), nor unseen (the late watch)."""
    return claim.lost_key is None and claim.submission is not None and claim.submission.watch_until is None


def observe(input_bytes: int, accepted_at: datetime, unfinished_at: datetime | None, ended_at: datetime) -> Sample:
    """The bracket in which the end lies, in seconds from acceptance."""
    by = max(0.0, (ended_at - accepted_at).total_seconds())
    after = max(0.0, ((unfinished_at or accepted_at) - accepted_at).total_seconds())
    return Sample(min(after, by), by, expectations.size_class(input_bytes))


def latest(
    account_id: int, *, after_id: int = 0, most: int = expectations.SAMPLES_MOST
) -> list[tuple[int, int, Sample]]:
    """The newest successes of an account whose end a status read saw: row id, submission id, sample; oldest first."""
    rows = Duration.objects.filter(
        account_id=account_id, outcome=JobState.SAVED, id__gt=after_id, poll_count__gt=0, remote_seconds__gt=0
    )
    newest = rows.order_by("-id").values_list(
        "id", "submission_id", "remote_seconds", "seen_after_seconds", "request_bytes"
    )[:most]
    found = [
        (pk, submission_id, Sample(max(0.0, seconds - gap), seconds, expectations.size_class(byte_count)))
        for pk, submission_id, seconds, gap, byte_count in newest
        if seconds is not None
    ]
    return found[::-1]
