"""Working through stored webhook events again: a plan that counts, then the same events once more through `wakeups`.

An event only makes a status read due, so a replay may be done any number of times. Nothing is sent that bills.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet

from batches import queue
from batches.engine import audit, wakeups
from batches.engine.audit import By
from batches.engine.wakeups import Event
from batches.models import JobState, ProviderAccount, Submission, WebhookEvent, WebhookOutcome

#: In one replay, which is done while a person waits for the page; the newest of a larger range.
EVENTS_MOST = 2000
_SLICE = 500


@dataclass(frozen=True)
class Range:
    """Events of one account, received from `since` (None: the first) to `until` (None: the last), with an outcome or
    any (""). `up_to` is the newest that was looked at when it was planned."""

    account: ProviderAccount
    since: datetime | None = None
    until: datetime | None = None
    outcome: str = ""
    up_to: int | None = None

    def events(self) -> QuerySet[WebhookEvent]:
        """Those that name a job, newest first. What is about the account's money is heeded once, when it comes."""
        found = WebhookEvent.objects.filter(account=self.account).exclude(provider_job_id="")
        found = found.filter(received_at__gte=self.since) if self.since else found
        found = found.filter(received_at__lte=self.until) if self.until else found
        found = found.filter(outcome=self.outcome) if self.outcome else found
        found = found.filter(pk__lte=self.up_to) if self.up_to is not None else found
        return found.order_by("-received_at", "-pk")


@dataclass(frozen=True)
class Plan:
    """What a replay would look at. `waking` are documents that are still awaited, so that a read is brought forward."""

    count: int
    is_cut: bool
    by_outcome: Mapping[str, int]
    waking: int
    up_to: int


@dataclass(frozen=True)
class Done:
    """What it came to, in events."""

    count: int
    woke: int
    late: int
    unmatched: int

    @property
    def words(self) -> str:
        return (
            f"{self.count:,} event{'' if self.count == 1 else 's'} worked through again: {self.woke:,} woke a "
            f"document, {self.late:,} came after its end, {self.unmatched:,} named none that is known. Nothing was "
            "billed."
        )


def plan(asked: Range) -> Plan:
    rows = list(asked.events().values_list("pk", "outcome", "provider_job_id")[: EVENTS_MOST + 1])
    is_cut, rows = len(rows) > EVENTS_MOST, rows[:EVENTS_MOST]
    awaited = Submission.objects.filter(
        Q(job__state=JobState.ACCEPTED) | Q(watch_at__isnull=False),
        account=asked.account,
        provider_job_id__in={provider_job_id for _pk, _outcome, provider_job_id in rows},
    )
    return Plan(
        count=len(rows),
        is_cut=is_cut,
        by_outcome=Counter(outcome for _pk, outcome, _id in rows),
        waking=awaited.count() if rows else 0,
        up_to=max((pk for pk, _outcome, _id in rows), default=0),
    )


def run(asked: Range, *, by: By, now: datetime) -> Done:
    """Work through the events of the range again, a slice in a transaction; what came of it is written down."""
    rows = list(asked.events().values_list("pk", "provider_job_id")[:EVENTS_MOST])
    events = [Event(pk, asked.account.pk, provider_job_id, is_settled=False) for pk, provider_job_id in rows]
    outcomes: Counter[WebhookOutcome] = Counter()
    for start in range(0, len(events), _SLICE):
        outcomes.update(wakeups.settled(events[start : start + _SLICE], now=now).values())
    done = Done(
        count=len(events),
        woke=outcomes[WebhookOutcome.WOKE],
        late=outcomes[WebhookOutcome.IGNORED],
        unmatched=outcomes[WebhookOutcome.UNMATCHED],
    )
    if done.woke:
        queue.ring()
    facts: dict[str, Any] = {"events": done.count, "woke": done.woke, "late": done.late, "unmatched": done.unmatched}
    facts |= {name: f"{at:%Y-%m-%d %H:%M} UTC" for name, at in (("from", asked.since), ("to", asked.until)) if at}
    facts |= {"only": asked.outcome} if asked.outcome else {}
    audit.record(
        "replay_events",
        subject=f"account {asked.account.slug}",
        workspace=asked.account.workspace,
        by=by,
        now=now,
        facts=facts,
    )
    return done
