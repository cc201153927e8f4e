"""Webhook events as wake-up calls: they make a status read due, and change nothing else.

So neither their order nor their number matters, and one that says a lie costs one read. Every pump looks at the newest
events, since only the pump that holds a job can wake it in memory; whoever comes first settles the rows.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Exists, Max, OuterRef

from batches.conf import EngineConf
from batches.engine import mishaps
from batches.engine.contention import again_after_deadlock
from batches.models import Duration, Job, JobState, ProviderAccount, Submission, WebhookEvent, WebhookOutcome
from batches.providers import capabilities_of

log = logging.getLogger(__name__)

#: How long an id that is missing from the order may still turn up: a slower transaction took it and commits later.
LATE_COMMIT = timedelta(seconds=3)
GAPS_EVERY = timedelta(seconds=1)
#: Looked at again in memory until its job is known: an event may overtake the answer to its submission.
UNMATCHED_FOR = timedelta(minutes=10)
UNMATCHED_MOST = 500
UNMATCHED_EVERY = timedelta(seconds=5)
#: Whoever stores an event settles it at once, or a pump does within seconds.
LEFT_AFTER = timedelta(minutes=1)
#: Webhooks are trusted to come when so many of the newest completions, and this share of them, were told of.
TRUST_LEAST = 20
TRUST_MOST = 100
TRUST_SHARE = 0.95
#: An event that names no job has the account's accepted jobs read: the oldest, and not again for a while, since the
#: next such event may be one of hundreds.
UNNAMED_WAKES_MOST = 200
UNNAMED_EVERY = timedelta(seconds=5)


@dataclass(frozen=True)
class Event:
    """What a pump needs of one row."""

    id: int
    account_id: int
    provider_job_id: str
    is_settled: bool
    wakes: bool = True


class Wakeups:
    """One pump's view of the events."""

    def __init__(self, conf: EngineConf) -> None:
        self._conf = conf
        self._next_at: datetime | None = None
        self._floor: int | None = None
        self._gaps_at: datetime | None = None
        self._highest: deque[tuple[datetime, int]] = deque()
        self._handled: set[int] = set()
        self._unmatched: dict[int, tuple[Event, datetime]] = {}
        self._unmatched_at: datetime | None = None

    def news(self, now: datetime, account_ids: Sequence[int]) -> list[tuple[int, str]]:
        """Account and provider job id of each event that arrived since the last look; settles their rows.

        The id is empty where an event named none, and any of the account's jobs may have ended.

        `account_ids` are those that have webhooks; without one nothing is asked.
        """
        if not account_ids or (self._next_at is not None and now < self._next_at):
            return []
        self._next_at = now + timedelta(seconds=self._conf.events_seconds)
        if self._floor is None:
            highest = WebhookEvent.objects.aggregate(highest=Max("id"))["highest"] or 0
            self._floor = max(0, highest - self._conf.events_behind)
        events = [event for event in self._read(now) if event.id not in self._handled]
        self._move_floor(now)
        self._handled |= {event.id for event in events}
        waiting = [event for event in events if not event.is_settled]
        if waiting:
            for event in _settle_each(waiting, now=now):
                self._unmatched[event.id] = (event, now)
        self._match_again(now)
        return [(event.account_id, event.provider_job_id) for event in events if event.wakes]

    def _read(self, now: datetime) -> list[Event]:
        """What is newer than all that was seen; now and then also what turned up late among it."""
        since = max(self._handled, default=self._floor or 0)
        if self._gaps_at is None or now >= self._gaps_at:
            self._gaps_at = now + GAPS_EVERY
            since = self._floor or 0
        rows = WebhookEvent.objects.filter(id__gt=since).order_by("id")
        return [
            Event(
                pk,
                account_id,
                provider_job_id,
                _is_settled(WebhookOutcome(outcome), received_at, now),
                wakes=bool(provider_job_id) or outcome == WebhookOutcome.WOKE,
            )
            for pk, account_id, provider_job_id, outcome, received_at in rows.values_list(
                "id", "account_id", "provider_job_id", "outcome", "received_at"
            )[: self._conf.events_most]
        ]

    def _move_floor(self, now: datetime) -> None:
        if self._handled:
            self._highest.append((now, max(self._handled)))
        while self._highest and self._highest[0][0] <= now - LATE_COMMIT:
            self._floor = max(self._floor or 0, self._highest.popleft()[1])
        self._handled = {pk for pk in self._handled if pk > (self._floor or 0)}

    def _match_again(self, now: datetime) -> None:
        if not self._unmatched or (self._unmatched_at is not None and now < self._unmatched_at):
            return
        self._unmatched_at = now + UNMATCHED_EVERY
        recent = [(event, at) for event, at in self._unmatched.values() if at > now - UNMATCHED_FOR]
        still = {event.id for event in _settle_each([event for event, _at in recent], now=now)}
        kept = [(event, at) for event, at in recent if event.id in still][-UNMATCHED_MOST:]
        self._unmatched = {event.id: (event, at) for event, at in kept}


def _is_settled(outcome: WebhookOutcome, received_at: datetime, now: datetime) -> bool:
    """Nothing is left to do. One whose job was not known when it came is matched by whoever looks while it is young."""
    if outcome is WebhookOutcome.UNMATCHED:
        return received_at <= now - UNMATCHED_FOR
    return outcome is not WebhookOutcome.WAITING


def _settle_each(events: Sequence[Event], *, now: datetime) -> list[Event]:
    """As `settle`; where one of them cannot be settled, it is left out and the others are not."""
    try:
        return settle(events, now=now)
    except mishaps.DATABASE_AWAY:
        raise
    except Exception as error:  # not `contained`: nothing is left out yet, for each of them is tried by itself
        log.exception("a group of webhook events failed; one by one now", exc_info=mishaps.without_row(error))
    unmatched = []
    for event in events:
        with mishaps.contained(f"webhook event {event.id}"):
            unmatched += settle([event], now=now)
    return unmatched


def settle(events: Sequence[Event], *, now: datetime) -> list[Event]:
    """Make the read of each event's job due now, and say on its row what it did. Returns those without a job."""
    outcomes = settled(events, now=now)
    return [event for event in events if outcomes[event.id] is WebhookOutcome.UNMATCHED]


@again_after_deadlock
def settled(events: Sequence[Event], *, now: datetime) -> dict[int, WebhookOutcome]:
    """As `settle`; returns what each event did, by its id."""
    named = [event for event in events if event.provider_job_id]
    unnamed = [event for event in events if not event.provider_job_id]
    rows = Submission.objects.filter(
        account_id__in={event.account_id for event in named},
        provider_job_id__in={event.provider_job_id for event in named},
    )
    known = {
        (account_id, provider_job_id): (pk, job_id, state, watch_at)
        for pk, account_id, provider_job_id, job_id, state, watch_at in rows.values_list(
            "pk", "account_id", "provider_job_id", "job_id", "job__state", "watch_at"
        )
    }
    jobs, watches = set(), set()
    outcomes: dict[int, WebhookOutcome] = {}
    for account_id in sorted({event.account_id for event in unnamed}):
        found = _oldest_accepted(account_id, now=now)
        jobs.update(found)
        outcome = WebhookOutcome.WOKE if found else WebhookOutcome.IGNORED
        outcomes |= {event.id: outcome for event in unnamed if event.account_id == account_id}
    for event in named:
        match = known.get((event.account_id, event.provider_job_id))
        if match is None:
            outcomes[event.id] = WebhookOutcome.UNMATCHED
            continue
        pk, job_id, state, watch_at = match
        outcomes[event.id] = WebhookOutcome.WOKE
        if watch_at is not None:
            watches.add(pk)
        elif state == JobState.ACCEPTED:
            jobs.add(job_id)
        else:
            outcomes[event.id] = WebhookOutcome.IGNORED
    if jobs:
        # Also where a pump holds it: should that one end before it looks, the next finds it due.
        Job.objects.filter(pk__in=jobs, state=JobState.ACCEPTED, due_at__gt=now).update(due_at=now)
    if watches:
        Submission.objects.filter(pk__in=watches, watch_at__gt=now).update(watch_at=now)
    _mark(outcomes, now=now)
    return outcomes


def _oldest_accepted(account_id: int, *, now: datetime) -> list[int]:
    """Jobs that may be what an event without a name speaks of; none where one of a moment ago woke them already."""
    woke_lately = WebhookEvent.objects.filter(
        account_id=account_id, provider_job_id="", outcome=WebhookOutcome.WOKE, processed_at__gt=now - UNNAMED_EVERY
    )
    if woke_lately.exists():
        return []
    accepted = Job.objects.filter(account_id=account_id, state=JobState.ACCEPTED).order_by("state_changed_at", "pk")
    return list(accepted.values_list("pk", flat=True)[:UNNAMED_WAKES_MOST])


def settle_left(*, now: datetime, most: int) -> int:
    """Settle events that nobody did: whoever stored them died before, and no pump has looked so far back."""
    left = WebhookEvent.objects.filter(outcome=WebhookOutcome.WAITING, received_at__lt=now - LEFT_AFTER)
    rows = left.order_by("received_at").values_list("pk", "account_id", "provider_job_id")[:most]
    events = [Event(pk, account_id, provider_job_id, False) for pk, account_id, provider_job_id in rows]
    if events:
        _settle_each(events, now=now)
    return len(events)


def match_recorded(*, now: datetime, most: int) -> int:
    """Settle events whose job became known after everybody had stopped waiting for it. How many there were."""
    recorded = Submission.objects.filter(account_id=OuterRef("account_id"), provider_job_id=OuterRef("provider_job_id"))
    waiting = WebhookEvent.objects.filter(outcome=WebhookOutcome.UNMATCHED).exclude(provider_job_id="")
    rows = waiting.filter(Exists(recorded)).order_by("pk").values_list("pk", "account_id", "provider_job_id")[:most]
    events = [Event(pk, account_id, provider_job_id, False) for pk, account_id, provider_job_id in rows]
    if events:
        _settle_each(events, now=now)
    return len(events)


def _mark(outcomes: dict[int, WebhookOutcome], *, now: datetime) -> None:
    for outcome in sorted(set(outcomes.values())):
        mine = [pk for pk, each in outcomes.items() if each is outcome]
        WebhookEvent.objects.filter(pk__in=mine).exclude(outcome__in=(WebhookOutcome.WOKE, outcome)).update(
            outcome=outcome, processed_at=now
        )


@dataclass(frozen=True)
class Told:
    """Of so many of an account's newest completions, so many were told of before they were seen here."""

    told: int
    completions: int


def told_lately(account_id: int, *, kind: str | None = None) -> Told:
    """Only events that say that a job has ended count, where the vendor's words for that are known."""
    told = WebhookEvent.objects.filter(
        account_id=OuterRef("account_id"),
        provider_job_id=OuterRef("submission__provider_job_id"),
        received_at__lte=OuterRef("at"),
    )
    kind = kind or ProviderAccount.objects.values_list("kind", flat=True).get(pk=account_id)
    if types := capabilities_of(kind).finished_events:
        told = told.filter(type__in=types)
    newest = Duration.objects.filter(account_id=account_id, outcome=JobState.SAVED).order_by("-id")
    seen: Iterable[bool] = newest.annotate(told=Exists(told)).values_list("told", flat=True)[:TRUST_MOST]
    shares = list(seen)
    return Told(told=sum(shares), completions=len(shares))


def prove_reliable(account_id: int) -> bool:
    """Whether nearly all of the newest completions were told of before they were seen to be saved."""
    lately = told_lately(account_id)
    return lately.completions >= TRUST_LEAST and lately.told >= TRUST_SHARE * lately.completions
