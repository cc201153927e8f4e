"""What happened to batches that somebody wants to hear of, derived from rows that are there anyway.

Nothing here runs in a pump or in its transactions. A batch of a million documents costs its look a few probes of an
index: it is counted only when something is to be told, or when nothing of it waits any more. Only batches of a
`NoticeWatch` that is due are looked at, and none after its last news.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from batches import failures, figures, selectors, wording
from batches.engine import mishaps, notices, spending
from batches.engine.notices import Event
from batches.models import (
    ACCOUNT_SECRETS,
    FAILED_STATES,
    IN_FLIGHT_STATES,
    AccountHealth,
    Alert,
    AlertKind,
    Batch,
    BatchItem,
    HoldReason,
    Job,
    JobState,
    Notice,
    NoticeEvent,
    NoticeWatch,
)
from batches.notices import is_mail_on
from batches.selectors import Progress

log = logging.getLogger(__name__)

LOOK_EVERY = timedelta(minutes=1)
#: After it had finished: late results and repairs are looked for, ever less often, for two weeks.
LOOK_AFTERWARDS = ((timedelta(days=1), timedelta(minutes=10)), (timedelta(days=14), timedelta(hours=1)))
WATCHES_AT_ONCE = 50
#: A pump writes an outcome down a moment after the time that it gives it.
OVERLAP = timedelta(minutes=2)
#: Of so many changes at once a batch is counted without looking which are its own.
CHANGES_MOST = 1000
#: A provider that answers again after a moment resumes by itself, and is no news.
UNREACHABLE_FOR = timedelta(minutes=10)
CAUSES_TOLD = 3


@dataclass(frozen=True)
class Known:
    """What was told of a batch before, by event and occasion, and how many were saved when it was last said."""

    events: Collection[tuple[str, str]] = ()
    finished_at: datetime | None = None
    saved: int = 0
    is_saved_whole: bool = False

    @property
    def is_over(self) -> bool:
        return self.finished_at is not None

    def has(self, event: NoticeEvent, occasion: str = "") -> bool:
        return (event, occasion) in self.events


@dataclass(frozen=True)
class Hold:
    """Why nothing new of a batch is sent although nobody paused it. `words` is a headline, `reason` a sentence."""

    occasion: str
    words: str
    reason: str


def look(*, now: datetime) -> int:
    """Look at the watched batches that are due; how many events were noted.

    One that cannot be looked at keeps no other from it.
    """
    due = NoticeWatch.objects.filter(due_at__lte=now, batch__writing_at=None).order_by("due_at")
    watches = due.select_related("batch__account", "batch__created_by").defer(
        *(f"batch__account__{name}" for name in ACCOUNT_SECRETS)
    )[:WATCHES_AT_ONCE]
    found = list(watches)
    told = _told([watch.batch_id for watch in found])
    noted = 0
    for watch in found:
        with mishaps.contained(f"looking for notices of batch {watch.batch_id}"):
            noted += _look_at(watch, told.get(watch.batch_id, Known()), now=now)
    return noted


def _told(batch_ids: Sequence[int]) -> Mapping[int, Known]:
    rows = Notice.objects.filter(batch__in=batch_ids).order_by("pk")
    found: dict[int, Known] = {}
    for batch_id, event, occasion, at, facts in rows.values_list("batch", "event", "occasion", "happened_at", "facts"):
        known = found.get(batch_id, Known())
        saved, finished_at = known.saved, known.finished_at
        is_whole = known.is_saved_whole
        if event in (NoticeEvent.FINISHED, NoticeEvent.IMPROVED):
            counts = facts["counts"]
            saved, is_whole = counts["saved"], counts["saved"] == counts["total"]
            finished_at = finished_at or at
        found[batch_id] = Known({*known.events, (event, occasion)}, finished_at, saved, is_whole)
    return found


def _look_at(watch: NoticeWatch, known: Known, *, now: datetime) -> int:
    people = notices.listeners(watch.batch)
    events = _events(watch, known, now=now) if people else []
    due_at = _next_look(known, events, now=now) if people else None
    notices.record(watch, events, people=people, is_mailed=is_mail_on(), due_at=due_at, now=now)
    return len(events)


def _next_look(known: Known, events: Sequence[Event], *, now: datetime) -> datetime | None:
    """None once nothing can follow: all of it is saved, or two weeks have passed since it finished. Pure."""
    said = [event for event in events if event.kind in (NoticeEvent.FINISHED, NoticeEvent.IMPROVED)]
    counts = said[-1].facts["counts"] if said else None
    if counts["saved"] == counts["total"] if counts else known.is_saved_whole:
        return None
    if not (known.is_over or said):
        return now + LOOK_EVERY
    age = now - (known.finished_at or now)
    for until, every in LOOK_AFTERWARDS:
        if age < until:
            return now + every
    return None


# --- what is so -----------------------------------------------------------------------------------------------------


def _events(watch: NoticeWatch, known: Known, *, now: datetime) -> list[Event]:
    """What is to be told of this batch now. Counts it only where that can be anything."""
    batch = watch.batch
    waits = _waits(batch)
    hold = _hold(batch, now=now) if waits else None
    if hold is not None and known.has(NoticeEvent.HELD, hold.occasion):
        hold = None
    moves = waits or _is_at_provider(batch)
    changed_to = [JobState.SAVED] if known.is_over else FAILED_STATES
    if moves:
        has_failed = not known.is_over and not known.has(NoticeEvent.NEEDS_PERSON) and _has_failed(watch)
        if hold is None and not has_failed:
            return []
    elif known.is_over and not _changed(batch, changed_to, since=watch.looked_at - OVERLAP):
        return []
    progress = selectors.progress(batch)
    return list(_told_of(batch, progress, known, hold))


def _told_of(batch: Batch, progress: Progress, known: Known, hold: Hold | None) -> Iterator[Event]:
    counts = progress.counts
    if progress.state in wording.ENDED_STATES:
        if not known.is_over:
            yield Event(NoticeEvent.FINISHED, "", _facts(batch, progress))
        elif counts.saved > known.saved:
            facts = _facts(batch, progress) | {"more": counts.saved - known.saved}
            yield Event(NoticeEvent.IMPROVED, f"saved:{counts.saved}", facts)
        return
    if hold is not None:
        facts = {"held_words": hold.words, "reason": hold.reason}
        yield Event(NoticeEvent.HELD, hold.occasion, _facts(batch, progress) | facts)
    if progress.attention_count and not known.is_over and not known.has(NoticeEvent.NEEDS_PERSON):
        yield Event(NoticeEvent.NEEDS_PERSON, "", _facts(batch, progress))


def _facts(batch: Batch, progress: Progress) -> dict[str, Any]:
    """What a letter says: numbers, causes, cost. Neither document content nor provider job ids."""
    counts, currency, price = progress.counts, batch.account.price_currency, batch.account.price_per_job
    causes = failures.causes(batch, total=counts.total) if progress.attention_count else failures.Causes()
    told = causes.shown[:CAUSES_TOLD]
    return {
        "name": batch.name,
        "file": batch.manifest_name,
        "started_by": selectors.starters([batch]).get(batch.pk, ""),
        "state": progress.state.value,
        "counts": counts.as_dict(),
        "causes": [[cause.title, cause.count] for cause in told],
        "more_causes": len(causes.shown) - len(told) + causes.more_count,
        "cost": figures.money(spending.spent(batch.pk).amount(price), currency) if price is not None else None,
    }


def _waits(batch: Batch) -> bool:
    """Whether something of it waits in its own turns: it cannot have ended. One probe of an index."""
    waiting = Job.objects.filter(account=batch.account_id, lead_batch=batch, state=JobState.PENDING)
    return waiting.exists()


def _is_at_provider(batch: Batch) -> bool:
    """Whether something of it is under way; false, so that it is counted, where very much of all batches is."""
    moving = Job.objects.filter(state__in=(*IN_FLIGHT_STATES, JobState.RENDERED))
    versions = list(moving.values_list("version", flat=True)[: CHANGES_MOST + 1])
    return len(versions) <= CHANGES_MOST and _needs_any(batch, versions)


def _has_failed(watch: NoticeWatch) -> bool:
    """Whether something may have failed since the last look; at the first, whether it had before the start."""
    batch = watch.batch
    if watch.looked_at <= batch.created_at and batch.report.get("summary", {}).get("attached_failed"):
        return True
    return _changed(batch, FAILED_STATES, since=watch.looked_at - OVERLAP)


def _changed(batch: Batch, states: Sequence[JobState], *, since: datetime) -> bool:
    """Whether documents of it came to one of these states since; true without a look where very many of all did."""
    lately = Job.objects.filter(state__in=states, state_changed_at__gte=since)
    versions = list(lately.values_list("version", flat=True)[: CHANGES_MOST + 1])
    return len(versions) > CHANGES_MOST or _needs_any(batch, versions)


def _needs_any(batch: Batch, versions: Sequence[int]) -> bool:
    """Whether one of these versions is a live item of the batch. Asked by versions alone: told the batch as well,
    SQLite walks through all that the batch holds."""
    items = BatchItem.objects.filter(version__in=versions, cancelled_at=None, dismissed_at=None)
    return batch.pk in set(items.values_list("batch", flat=True)) if versions else False


def _hold(batch: Batch, *, now: datetime) -> Hold | None:
    """Why it does not go on by itself; None where it does, or where a person paused it."""
    if batch.waits_for_release:
        return _ready_sample(batch)
    if batch.paused_at is not None:
        stop = Alert.objects.filter(kind=AlertKind.BATCH_STOPPED, batch=batch, closed_at=None).first()
        return Hold(f"stop:{stop.pk}", "paused by itself", batch.pause_reason) if stop else None
    account = batch.account
    if account.health != AccountHealth.HELD or account.held_at is None:
        return None
    if account.hold_reason == HoldReason.UNREACHABLE and account.held_at > now - UNREACHABLE_FOR:
        return None
    occasion = f"account:{account.pk}:{int(account.held_at.timestamp())}"
    reason = f"{account.name} is held. {wording.sentence(account.hold_words)}"
    return Hold(occasion, "held", f"{reason} Nothing is lost; it goes on once the account does.")


def _ready_sample(batch: Batch) -> Hold | None:
    sample = Batch.objects.filter(sample_of=batch).first()
    if sample is None:
        return None
    progress = selectors.progress(sample)
    if progress.state not in wording.ENDED_STATES:
        return None
    saved = f"{progress.counts.saved:,} of {progress.counts.total:,}"
    reason = f"{saved} documents of its sample are saved. Look at them, then release or cancel the others."
    return Hold("sample", "its sample is ready", reason)
