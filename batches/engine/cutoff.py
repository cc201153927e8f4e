"""One finished file whose download never comes to its end while the account's other files do: when to stop trying.

A way to the provider that is gone is waited for, as long as the link lives. This is for the one file that is reset, or
dripped, or announced in a way that cannot be read, each time.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from batches.conf import ENGINE
from batches.engine import mishaps
from batches.engine.claims import Claim
from batches.engine.collection import NotCollected
from batches.models import Exchange, ExchangeKind, Job, JobState


def tries_in_vain(claim: Claim, missed: NotCollected, *, now: datetime) -> int:
    """How often its download was begun, where that is enough for this file alone to be at fault; else 0.

    Asked of the database only of a file that has been finished for a good while. An error of the database counts for
    nothing: the next try asks again.
    """
    waited = now - claim.state_changed_at
    if missed.kind != "unreached" or waited < timedelta(seconds=ENGINE.cut_off_seconds):
        return 0
    if not any(facts.kind == ExchangeKind.DOWNLOAD and facts.error_class for facts in missed.exchanges):
        return 0
    try:
        return _tries(claim)
    except mishaps.DATABASE_AWAY:
        return 0


def _tries(claim: Claim) -> int:
    failed = Exchange.objects.filter(job=claim.job_id, kind=ExchangeKind.DOWNLOAD, at__gte=claim.state_changed_at)
    earlier = list(failed.exclude(error_class="").order_by("-id").values_list("at", flat=True))
    if len(earlier) + 1 < ENGINE.cut_off_tries:
        return 0
    # Since its last try but this one another file came whole, so the way there is open.
    others = Job.objects.filter(account=claim.account_id, state=JobState.SAVED, state_changed_at__gte=earlier[0])
    return len(earlier) + 1 if others.exists() else 0
