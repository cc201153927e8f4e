"""The history of one document version: job events, requests, webhooks, the stored file and what the audit log says of
it, merged in the order of time. What moved it is said only where a row says so. Read only."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from batches import audits, figures, wording
from batches.models import (
    Artifact,
    AuditEntry,
    Document,
    DocumentVersion,
    Exchange,
    ExchangeKind,
    Job,
    JobEvent,
    JobState,
    Submission,
    WebhookEvent,
    WebhookOutcome,
)

#: Newest requests that are shown; a long wait may add thousands.
EXCHANGES_SHOWN = 400
EVENTS_SHOWN = 400
WEBHOOKS_SHOWN = 100
AUDIT_SHOWN = 100

_BY_READ, _BY_READ_AFTER_WEBHOOK = "by a status read", "by a status read, after a webhook"
_BY_WORKER = "by a worker"
#: What of ours moved a document, by the reason of its event. A reason that tells of no single cause is not among them.
MOVERS: Mapping[str, str] = {
    "intent_committed": _BY_WORKER,
    "accepted": _BY_WORKER,
    "id_was_recorded": _BY_WORKER,
    "id_arrived_late": _BY_WORKER,
    "stored": _BY_WORKER,
    "not_finished_after_all": _BY_WORKER,
    "never_left": _BY_WORKER,
    "not_sent_anew": _BY_WORKER,
    "submit_requeue": _BY_WORKER,
    "submit_resend": _BY_WORKER,
    "submit_anew": _BY_WORKER,
    "resend_window_closed": _BY_WORKER,
    "tries_used": _BY_WORKER,
    "parked": _BY_WORKER,
    "provider_job_finished": _BY_READ,
    "provider_job_failed": _BY_READ,
    "start_refused": _BY_WORKER,
    "render_again": _BY_READ,
    "finished_late": _BY_READ,
    "failed_late": _BY_READ,
    "finished_meanwhile": _BY_READ,
    "deadline_exceeded": "by the clock",
    "object_lost": "by the check of the store",
    "object_back": "by the check of the store",
    "revived_by_upload": "by an upload",
}
#: What came of a webhook.
WEBHOOK_WORDS: Mapping[str, str] = {
    WebhookOutcome.WAITING: "not looked at yet",
    WebhookOutcome.WOKE: "it had the status read at once",
    WebhookOutcome.UNMATCHED: "it came before its job was known",
    WebhookOutcome.IGNORED: "there was nothing left to do",
}


@dataclass(frozen=True)
class Entry:
    """One line of a timeline.

    `kind` is `state` (a transition), `request` (one HTTP exchange), `webhook`, `audit` (an entry of the audit log) or
    `note` (something that arrived and changed nothing). Several equal ones in a row that are no state are one entry,
    with its `count`. `actor` is a person, `mover` what of ours moved it. `seconds` is the time since the entry before.
    """

    at: datetime
    kind: str
    title: str
    colour: str
    words: str = ""
    actor: str = ""
    mover: str = ""
    count: int = 1
    seconds: float | None = None
    reached: str = ""

    @property
    def offset(self) -> str:
        return "" if self.seconds is None else figures.offset(max(0.0, self.seconds))


def timeline(
    version: DocumentVersion,
    job: Job,
    artifact: Artifact | None,
    submissions: Sequence[Submission],
    events: Sequence[JobEvent],
    *,
    reads_content: bool,
    audited: Document | None = None,
) -> list[Entry]:
    """Everything recorded about this version, oldest first, in three queries at most. `submissions` and `events` are
    its job's, newest first.

    The words of an event may be the provider's, and quote the document: without `reads_content` its reason is told
    instead. `audited` is its document, where the reader may see the audit log.
    """
    exchanges = list(Exchange.objects.filter(job=job).order_by("-id")[:EXCHANGES_SHOWN])
    maker = version.created_by.get_username() if version.created_by else ""
    made = [Entry(version.created_at, "state", "Taken in", "waiting", version.reason, maker, reached=JobState.PENDING)]
    # Where both carry the same instant, the intent stands before what it let leave.
    told = _events_with_file(events[::-1], artifact, reads_content=reads_content)
    streams = (made, told, map(_exchange_entry, reversed(exchanges)), _webhooks(job, submissions, reads_content))
    audit = _audit(audited, version, submissions) if audited else ()
    merged = heapq.merge(*streams, _deleted(artifact), audit, key=lambda entry: entry.at)
    return list(_with_offsets(_grouped(_with_wakes(merged))))


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
    return [(whose, figures.offset(spent).removeprefix("+")) for whose, spent in seconds.items() if spent > 0]


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
    facts = f"{figures.size(artifact.byte_count)}, {artifact.page_count} page{'s' * (artifact.page_count != 1)}"
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
    mover = "" if actor else MOVERS.get(event.reason, "")
    return Entry(event.at, "state", badge.label, badge.colour, words, actor, mover, reached=event.to_state)


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


def _webhooks(job: Job, submissions: Sequence[Submission], reads_content: bool) -> Iterator[Entry]:
    """Those that name one of its jobs. The type is the provider's word."""
    ids = [submission.provider_job_id for submission in submissions if submission.provider_job_id]
    if not ids:
        return
    found = WebhookEvent.objects.filter(account=job.account, provider_job_id__in=ids).order_by("-received_at", "-id")
    rows = list(found.values_list("received_at", "type", "outcome")[:WEBHOOKS_SHOWN])
    for at, kind, outcome in reversed(rows):
        what = f"{kind}: " if reads_content and kind else ""
        words = f"{what}{WEBHOOK_WORDS[outcome]}"
        yield Entry(at, "webhook", "Webhook received", "waiting", wording.sentence(words))


def _audit(document: Document, version: DocumentVersion, submissions: Sequence[Submission]) -> Iterator[Entry]:
    """What people did with the document or this version of it, since the version exists."""
    subject = f"document {document.public_id}"
    named = {subject: "it", f"{subject} v{version.number}": f"version {version.number}"}
    named |= {f"{subject} submission {each.sequence}": f"submission {each.sequence}" for each in submissions}
    entries = AuditEntry.objects.filter(
        workspace=document.workspace_id, subject__in=list(named), at__gte=version.created_at
    )
    columns = ("at", "actor_words", "action", "subject", "reason")
    rows = list(entries.order_by("-at", "-id").values_list(*columns)[:AUDIT_SHOWN])
    for at, who, action, about, reason in reversed(rows):
        said = audits.action_words(action).removesuffix(":")
        if said.rpartition(" ")[2] in ("of", "for", "on", "off"):
            said = f"{said} {named[about]}"
        yield Entry(at, "audit", said, "waiting", reason, who)


def _with_wakes(entries: Iterable[Entry]) -> Iterator[Entry]:
    """What a status read moved says so, and whether a webhook had made that read due: it came after the read before."""
    reads = (ExchangeKind.POLL.label, ExchangeKind.LOOK_UP.label)
    woken, is_after = False, False
    for entry in entries:
        if entry.kind == "webhook":
            woken = True
        elif entry.kind == "request" and entry.title in reads:
            woken, is_after = False, woken
        elif entry.mover == _BY_READ and is_after:
            entry = replace(entry, mover=_BY_READ_AFTER_WEBHOOK)
        yield entry


def _error(error_class: str) -> str:
    return wording.ERROR_WORDS.get(error_class, error_class.replace("_", " "))


_REPEATED = ("request", "webhook", "audit")


def _grouped(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Equal ones in a row become one entry with a count: a poll loop is one line, not forty."""
    last: Entry | None = None
    for entry in entries:
        if last and entry.kind in _REPEATED and replace(entry, at=last.at, count=last.count) == last:
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
