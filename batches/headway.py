"""Read-only queries behind the progress of one batch that moves: its last minutes, its turns, its tail.

What follows from them is `finishing.py`, pure. At most three queries, two of them only near the end.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, Exists, Max, OuterRef, Q, Subquery, Sum, Value
from django.db.models.functions import Coalesce

from batches import finishing, selectors, sentences, wording
from batches.models import OUTCOME_STATES, AccountHealth, Batch, Duration, Job, JobState
from batches.wording import BatchState, Group

#: Of so many of the last renders the usual one is told.
RENDERS_LATELY = 200


@dataclass(frozen=True)
class Straggler:
    """One of the last documents: how long it has been where it is, and what the provider last said of it."""

    business_id: str
    document_id: str
    label: str
    since: datetime
    provider_status: str
    deadline_at: datetime | None


@dataclass(frozen=True)
class Headway:
    """What the head of a batch that moves says beside its counters. `why_not`: why no time is said.

    `basis` is what the words rest on.
    """

    words: str = ""
    basis: str = ""
    why_not: str = ""
    last_saved_at: datetime | None = None
    tail: Sequence[Straggler] = ()
    tail_count: int = 0

    @property
    def more_count(self) -> int:
        return self.tail_count - len(self.tail)

    @property
    def revision(self) -> tuple[object, ...]:
        """Changes with what is shown, but for ages that go on by themselves."""
        return (
            self.words,
            self.basis,
            self.why_not,
            self.last_saved_at,
            [(each.document_id, each.label) for each in self.tail],
        )


def of(batch: Batch, progress: selectors.Progress, *, now: datetime) -> Headway:
    """Of a batch that has ended, nothing in no query."""
    remaining = progress.counts.in_progress
    if progress.state in wording.ENDED_STATES:
        return Headway()
    if not remaining:
        return Headway(why_not=_why_not(batch, progress))
    count, span = finishing.spans(max(1.0, (now - batch.created_at).total_seconds()))
    finished, last_saved_at, others = _lately(batch, count, span, now=now)
    is_tail = finishing.is_tail(remaining + progress.counts.held, progress.counts.total)
    usual, slow = _renders(batch) if is_tail else (None, None)
    tail = _tail(batch) if is_tail else []
    why_not = _why_not(batch, progress)
    if why_not:
        return Headway("", "", why_not, last_saved_at, tail, remaining if is_tail else 0)
    share, shares = (batch.weight, batch.weight + others) if progress.waiting_count else (1, 1)
    work = finishing.Work(
        remaining=remaining,
        waiting=progress.waiting_count,
        saved=progress.counts.saved,
        age=(now - batch.created_at).total_seconds(),
        finished=finished,
        span=span,
        interval=sentences.interval_ms(batch.account) / 1000,
        share=share,
        shares=shares,
        usual=usual,
        slow=slow,
    )
    words, basis = _finishing(tail, remaining, usual, now=now) if is_tail and not progress.waiting_count else "", ""
    estimated = finishing.left(work)
    if not words and estimated is not None:
        words, basis = f"{estimated.words[0].upper()}{estimated.words[1:]}", estimated.basis
    return Headway(words, basis, "", last_saved_at, tail, remaining if is_tail else 0)


def _why_not(batch: Batch, progress: selectors.Progress) -> str:
    if batch.paused_at is not None:
        return "How long it takes is not said while it is paused."
    if batch.account.health == AccountHealth.HELD and (progress.waiting_count or progress.counts.held):
        return "How long it takes is not said while its account is held."
    return "How long it takes is not said while documents are held." if progress.state == BatchState.HELD else ""


def _lately(batch: Batch, count: int, span: float, *, now: datetime) -> tuple[list[int], datetime | None, int]:
    """What came to rest in each of the last spans, the newest first; when the last one was saved in that time; and the
    weight of the other batches that are sent at its account."""
    edges = [now - timedelta(seconds=span * number) for number in range(count + 1)]
    counts = {
        f"n{number}": Count("pk", filter=Q(state_changed_at__gt=edges[number + 1], state_changed_at__lte=edges[number]))
        for number in range(count)
    }
    rested = Job.objects.filter(state__in=OUTCOME_STATES, state_changed_at__gt=edges[-1], version__items__batch=batch)
    row = rested.aggregate(
        **counts,
        last=Max("state_changed_at", filter=Q(state=JobState.SAVED)),
        # Asked in the same statement, of which Django makes one only beside something that is counted.
        others=Coalesce(_others(batch), 0) + 0 * Count("pk"),
    )
    return [row[f"n{number}"] for number in range(count)], row["last"], row["others"]


def _others(batch: Batch) -> Subquery:
    waits = Job.objects.filter(account=batch.account_id, lead_batch=OuterRef("pk"), state=JobState.PENDING)
    running = Batch.objects.filter(Exists(waits), paused_at=None, cancelled_at=None).exclude(pk=batch.pk)
    together = running.order_by().annotate(all=Value(1)).values("all").annotate(weights=Sum("weight"))
    return Subquery(together.values("weights"))


def _renders(batch: Batch) -> tuple[float | None, float | None]:
    """Seconds of half, and of 95 %, of the last renders at the account."""
    latest = Duration.objects.filter(account=batch.account_id, outcome=JobState.SAVED).order_by("-pk")
    seconds = sorted(latest.values_list("total_seconds", flat=True)[:RENDERS_LATELY])
    if not seconds:
        return None, None
    return statistics.median(seconds), seconds[int(len(seconds) * 0.95)]


def _tail(batch: Batch) -> list[Straggler]:
    """Those that are in progress, the longest first."""
    items = selectors.in_group(batch, Group.IN_PROGRESS)
    job = "version__job__"
    columns = (
        "document__business_id",
        "document__public_id",
        f"{job}state",
        f"{job}state_changed_at",
        f"{job}provider_status",
        f"{job}deadline_at",
    )
    rows = items.order_by(f"{job}state_changed_at", "position").values_list(*columns)[: finishing.TAIL_COUNT]
    return [
        Straggler(business_id, document_id, wording.JOB_BADGES[state].label, since, status, deadline_at)
        for business_id, document_id, state, since, status, deadline_at in rows
    ]


def _finishing(tail: Sequence[Straggler], remaining: int, usual: float | None, *, now: datetime) -> str:
    if not tail:
        return ""
    oldest = tail[0]
    deadline = (oldest.deadline_at - oldest.since).total_seconds() if oldest.deadline_at else None
    since = max(0.0, (now - oldest.since).total_seconds())
    return finishing.finishing(remaining, since, usual=usual, deadline=deadline) + "."
