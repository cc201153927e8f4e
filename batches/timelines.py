"""The history of one document version: job events, requests and the stored file merged in the order of time."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from batches import wording
from batches.models import Artifact, DocumentVersion, Exchange, ExchangeKind, Job, JobEvent, JobState

#: Newest requests that are shown; a long wait may add thousands.
EXCHANGES_SHOWN = 400
EVENTS_SHOWN = 400


@dataclass(frozen=True)
class Entry:
    """One line of a timeline.

    `kind` is `state` (a transition), `request` (one HTTP exchange, or several equal ones in a row, `count`) or `note`
    (something that arrived and changed nothing). `seconds` is the time since the entry before.
    """

    at: datetime
    kind: str
    title: str
    colour: str
    words: str = ""
    actor: str = ""
    count: int = 1
    seconds: float | None = None
    reached: str = ""

    @property
    def offset(self) -> str:
        return "" if self.seconds is None else wording.offset(max(0.0, self.seconds))


def timeline(version: DocumentVersion, job: Job, artifact: Artifact | None, *, reads_content: bool) -> list[Entry]:
    """Everything recorded about this version, oldest first, in two queries. The words of an event may be the
    provider's, and quote the document: without `reads_content` its reason is told instead."""
    events = list(JobEvent.objects.filter(job=job).order_by("-id")[:EVENTS_SHOWN])
    exchanges = list(Exchange.objects.filter(job=job).order_by("-id")[:EXCHANGES_SHOWN])
    made = [Entry(version.created_at, "state", "Taken in", "waiting", version.reason, reached=JobState.PENDING)]
    # Where both carry the same instant, the intent stands before what it let leave.
    told = _events_with_file(events[::-1], artifact, reads_content=reads_content)
    streams = (made, told, map(_exchange_entry, reversed(exchanges)))
    merged = heapq.merge(*streams, _deleted(artifact), key=lambda entry: entry.at)
    return list(_with_offsets(_grouped(merged)))


#: Whose time a state is, in the order of a document's road.
_WHOSE: Mapping[str, str] = {
    JobState.PENDING: "waiting for its turn",
    JobState.SUBMITTING: "waiting for its turn",
    JobState.ACCEPTED: "at the provider",
    JobState.RENDERED: "download and storage",
}


def split(entries: Sequence[Entry]) -> list[tuple[str, str]]:
    """Where the time went that is over, as (`at the provider`, `3.1 s`), from a whole timeline."""
    seconds = dict.fromkeys(_WHOSE.values(), 0.0)
    states = [entry for entry in entries if entry.reached]
    for entry, after in itertools.pairwise(states):
        if entry.reached in _WHOSE:
            seconds[_WHOSE[entry.reached]] += max(0.0, (after.at - entry.at).total_seconds())
    return [(whose, wording.offset(spent).removeprefix("+")) for whose, spent in seconds.items() if spent > 0]


def _events_with_file(events: Sequence[JobEvent], artifact: Artifact | None, *, reads_content: bool) -> Iterator[Entry]:
    """The events, oldest first, with what was stored right before the state that it led to."""
    saved = [event.pk for event in events if event.to_state == JobState.SAVED != event.from_state]
    stored = _stored(artifact)
    last_at: datetime | None = None
    for event in events:
        if stored is not None and event.pk in saved[:1]:
            at = min(stored.at, event.at)
            yield replace(stored, at=max(at, last_at) if last_at else at)
            stored = None
        yield _event_entry(event, event.words if reads_content else "")
        last_at = event.at
    if stored is not None:
        yield replace(stored, at=max(stored.at, last_at) if last_at else stored.at)


def _stored(artifact: Artifact | None) -> Entry | None:
    if artifact is None:
        return None
    facts = f"{wording.size(artifact.byte_count)}, {artifact.page_count} page{'s' * (artifact.page_count != 1)}"
    return Entry(artifact.stored_at, "note", "Stored and checked", "saved", facts)


def _deleted(artifact: Artifact | None) -> Iterator[Entry]:
    if artifact is not None and artifact.local_deleted_at:
        yield Entry(artifact.local_deleted_at, "note", "Stored file deleted", "stopped", "by retention")


def _event_entry(event: JobEvent, said: str) -> Entry:
    badge = wording.JOB_BADGES[event.to_state]
    words = said or wording.EVENT_WORDS.get(event.reason, event.reason.replace("_", " "))
    actor = "" if event.actor == "engine" else event.actor
    if event.from_state == event.to_state:
        return Entry(event.at, "note", "Noted", "waiting", words, actor)
    return Entry(event.at, "state", badge.label, badge.colour, words, actor, reached=event.to_state)


def _exchange_entry(exchange: Exchange) -> Entry:
    took = f" in {exchange.duration_ms:,} ms"
    if exchange.status is None:
        answer, colour = _error(exchange.error_class) or "no answer", "failed"
        took = f", after {exchange.duration_ms:,} ms"
    else:
        answer, colour = f"HTTP {exchange.status}", "failed" if exchange.status >= 400 else "waiting"
        if exchange.error_class:
            answer += f", {_error(exchange.error_class)}"
    return Entry(
        exchange.at,
        "request",
        ExchangeKind(exchange.kind).label,
        colour,
        answer if exchange.kind == ExchangeKind.POLL else f"{answer}{took}",
    )


def _error(error_class: str) -> str:
    return wording.ERROR_WORDS.get(error_class, error_class.replace("_", " "))


def _grouped(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Equal requests in a row become one entry with a count: a poll loop is one line, not forty."""
    last: Entry | None = None
    for entry in entries:
        if last and entry.kind == last.kind == "request" and (entry.title, entry.words) == (last.title, last.words):
            last = replace(last, count=last.count + 1)
            continue
        if last:
            yield last
        last = entry
    if last:
        yield last


def _with_offsets(entries: Iterable[Entry]) -> Iterator[Entry]:
    before: Entry | None = None
    for entry in entries:
        yield entry if before is None else replace(entry, seconds=(entry.at - before.at).total_seconds())
        before = entry
