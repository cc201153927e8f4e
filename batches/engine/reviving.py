"""A job that was cancelled before it was ever sent waits again: for its own batch, or at the account of another one."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from batches.engine.transitions import Move, taken_over
from batches.models import Batch, Job, JobState, ProviderAccount


def back(
    job: Job,
    batch: Batch | None = None,
    account: ProviderAccount | None = None,
    *,
    reason: str,
    words: str = "",
    actor: str = "engine",
    now: datetime,
) -> Move:
    """Its move from cancelled to pending, due now. With a `batch` it is sent in the turns of that one, at its account
    or the one that is given.

    That nothing of it may exist at the provider was asked by the caller.
    """
    fields: dict[str, Any] = {"due_at": now, **taken_over(job.fencing_token)}
    if batch is not None:
        fields |= {"account": account.pk if account else batch.account_id, "lead_batch": batch.pk}
    return Move(
        job.pk, job.fencing_token, JobState.CANCELLED, JobState.PENDING, reason, words, actor=actor, fields=fields
    )
