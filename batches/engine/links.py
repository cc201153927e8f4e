"""Links that grow old: finished PDFs that wait at the provider for longer than they should.

Owns the alert at a quarter of a link's life, and the rule that an account whose finished files pile up sends nothing
new. Never fetches anything itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count

from batches.engine import alerts, kept, mishaps
from batches.models import Alert, AlertKind, Job, JobState, ProviderAccount, Submission, SubmissionOutcome

#: Of a link's life, what may pass before a person is told: three quarters are left to do something about it.
TOLD_AFTER_SHARE = 0.25
#: Jobs that one pass looks at, the oldest first.
ROWS_MOST = 2000


@dataclass(frozen=True)
class Late:
    """The late downloads of one account."""

    count: int
    is_all: bool
    oldest_at: datetime
    first_dies_at: datetime


def dies_at(rendered_at: datetime, result: dict[str, Any] | None, kept_for: timedelta) -> datetime:
    """When a link ends, as the provider said, else `kept_for` (`kept.py`) after the file was made.

    `rendered_at` stands in where only rows of an earlier version know when that was.
    """
    known = result or {}
    if said := known.get("expires_at"):
        return datetime.fromisoformat(said)
    made_at = datetime.fromisoformat(known["made_at"]) if known.get("made_at") else rendered_at
    return made_at + kept_for


def is_late(rendered_at: datetime, ends_at: datetime, *, now: datetime) -> bool:
    return now >= rendered_at + (ends_at - rendered_at) * TOLD_AFTER_SHARE


def tell_late(*, now: datetime) -> int:
    """Open, renew or close the alert of each account. Returns how many late downloads were seen. Safe to repeat."""
    waiting = (
        Submission.objects.filter(job__state=JobState.RENDERED, outcome=SubmissionOutcome.OPEN)
        .order_by("job__state_changed_at")
        .values_list("job__account_id", "job__account__kind", "job__state_changed_at", "result")
    )
    rows = list(waiting[: ROWS_MOST + 1])
    late: dict[int, list[tuple[datetime, datetime]]] = {}
    for account_id, kind, rendered_at, result in rows[:ROWS_MOST]:
        with mishaps.contained(f"the look at a link of account {account_id}"):
            ends_at = dies_at(rendered_at, result, kept.at_kind(kind))
            if is_late(rendered_at, ends_at, now=now):
                late.setdefault(account_id, []).append((rendered_at, ends_at))
    for account in ProviderAccount.objects.filter(pk__in=late).only("pk", "name"):
        mine = late[account.pk]
        facts = Late(len(mine), len(rows) <= ROWS_MOST, min(mine)[0], min(ends_at for _, ends_at in mine))
        words = late_words(account.name, facts, now=now)
        alerts.tell(AlertKind.LINKS_AGEING, _subject(account.pk), words, now=now, account_id=account.pk)
    subjects = [_subject(account_id) for account_id in late]
    over = Alert.objects.filter(kind=AlertKind.LINKS_AGEING, closed_at=None).exclude(subject__in=subjects)
    over.update(closed_at=now)
    return sum(map(len, late.values()))


def late_words(name: str, late: Late, *, now: datetime) -> str:
    """What happened and what to do."""
    count = f"{late.count:,}" if late.is_all else f"At least {late.count:,}"
    are = "finished PDF is" if late.count == 1 else "finished PDFs are"
    left = _span(late.first_dies_at - now)
    ends = f"The first link ends in {left}" if late.first_dies_at > now else "The first link has ended"
    return (
        f"{name}: {count} {are} not fetched yet, the oldest for {_span(now - late.oldest_at)}. {ends}; a PDF that is "
        "not stored by then expires. Look for other alerts about the store and the account, whether there is room and "
        "whether the cluster runs (/readyz). Fetching goes on by itself."
    )


def crowded(account_ids: Iterable[int], *, most: int) -> set[int]:
    """Accounts with more finished PDFs than `most` still to fetch: they send nothing new meanwhile.

    Each further submission would be paid for and would add a link that ages behind all the others; what the fetch
    threads or the store cannot take has to wait unsent, where it costs nothing.
    """
    waiting = Job.objects.filter(account__in=list(account_ids), state=JobState.RENDERED).order_by()
    counts = waiting.values_list("account_id").annotate(count=Count("pk"))
    return {account_id for account_id, count in counts if count > most}


def _subject(account_id: int) -> str:
    return f"account:{account_id}"


def _span(length: timedelta) -> str:
    minutes = max(0, round(length.total_seconds() / 60))
    return f"{minutes} min" if minutes < 120 else f"{round(minutes / 60)} h"
