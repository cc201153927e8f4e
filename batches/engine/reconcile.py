"""Reconcile: what is known of a document whose end is not certain, what follows, and which verbs are safe.

Collect our own evidence, ask the provider what it can tell, then write under a lock what is certain and free; all else
is offered and left to a person. This verb alone is no single transaction: it calls the network between reading and
writing, so it reads again under the lock before it writes. Nothing here ever sends a document.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from django.conf import settings
from django.db import IntegrityError, transaction

from batches import queue, wording
from batches.conf import ENGINE
from batches.engine import adoption, alerts, audit, evidence, exchanges, standings, transitions, verbs
from batches.engine.accounts import Providers
from batches.engine.adoption import Taking
from batches.engine.contention import again_after_deadlock
from batches.engine.evidence import Candidate, Ours, Sentence, StoredPdf
from batches.engine.exchanges import Evidence
from batches.engine.orders import Order, Result
from batches.engine.pdfcheck import PdfChecker
from batches.engine.transitions import Move
from batches.engine.verbs import Answer
from batches.models import (
    FAILED_STATES,
    Artifact,
    BatchItem,
    FailureClass,
    ItemResult,
    Job,
    JobState,
    ProviderAccount,
    Submission,
    SubmissionOutcome,
    UnreadableSecret,
    Verb,
)
from batches.providers import errors
from batches.providers.base import ExchangeFacts, JobPhase, JobStatus, Provider
from batches.storage import ArtifactStore, open_store

#: A look-up that knows nothing is believed so long after the last try: until then that may still be on its way.
NONE_BELIEVED_AFTER = timedelta(minutes=5)
#: Kept of the evidence in the audit log.
AUDITED_MOST = 12


class Verdict(enum.Enum):
    """What the evidence comes to."""

    ACCEPTED = "accepted"
    SAVED = "saved already"
    NOT_ACCEPTED = "not accepted"
    UNKNOWABLE = "cannot be known"


@dataclass(frozen=True)
class Findings:
    """The evidence as dated sentences, the verdict, and what may follow. Provider job ids are masked in all words.

    `candidates` may be adopted after a look; `offers` are the other safe verbs with their prices. `done` says what was
    certain and has been written.
    """

    evidence: tuple[Sentence, ...]
    verdict: Verdict
    verdict_words: str
    candidates: tuple[Candidate, ...] = ()
    offers: Mapping[Verb, Answer] = field(default_factory=dict)
    may_adopt: bool = False
    done: str = ""


@dataclass(frozen=True)
class _Said:
    """What the provider said just now, by submission: the jobs of a look-up, the status reads, and who is not there."""

    sentences: list[Sentence] = field(default_factory=list)
    seen: list[tuple[ExchangeFacts, int]] = field(default_factory=list)
    found: dict[int, tuple[JobStatus, ...]] = field(default_factory=dict)
    read: dict[int, JobStatus] = field(default_factory=dict)
    absent: set[int] = field(default_factory=set)


def look(item_id: int, *, store: ArtifactStore, checker: PdfChecker, now: datetime) -> Findings:
    """What is known here, without asking anybody. Writes nothing."""
    ours = evidence.collect(item_id, store=store, checker=checker, now=now)
    return _findings(ours, _Said(), now=now)


def settle(
    item_id: int,
    *,
    order: Order,
    provider: Provider | None,
    store: ArtifactStore,
    checker: PdfChecker,
    now: datetime,
) -> Findings:
    """Collect, ask the provider, and write what is certain. Without a provider it is not asked."""
    ours = evidence.collect(item_id, store=store, checker=checker, now=now)
    said = _ask(ours, provider, now=now)
    _record(ours, said)
    done = _settled(ours, said, order, now=now)
    findings = replace(_findings(ours, said, now=now), done=done)
    _audit(ours, findings, order, now=now)
    if done:
        queue.ring()
    return findings


def reconcile(
    item_ids: Sequence[int],
    *,
    order: Order,
    now: datetime,
    providers: Providers | None = None,
    store: ArtifactStore | None = None,
    checker: PdfChecker | None = None,
) -> dict[int, Result]:
    """The verb for many items. Call it outside a transaction: each item is read, asked after, then written."""
    ours, theirs = providers or Providers(), store or open_store(settings.STORAGE_URL)
    looking = checker or PdfChecker(seconds=ENGINE.pdf_check_seconds)
    try:
        standing = standings.of_items(BatchItem.objects.filter(pk__in=item_ids))
        results: dict[int, Result] = {}
        for item_id in item_ids:
            allowed = verbs.answer(Verb.RECONCILE, standing[item_id], now=now)
            if not allowed.allowed:
                results[item_id] = Result(ItemResult.SKIPPED, allowed.words)
                continue
            provider = provider_of(item_id, ours)
            found = settle(item_id, order=order, provider=provider, store=theirs, checker=looking, now=now)
            results[item_id] = Result(ItemResult.DONE, " ".join(filter(None, (found.verdict_words, found.done))))
        return results
    finally:
        if providers is None:
            ours.close()
        if checker is None:
            looking.close()


@contextmanager
def tools() -> Iterator[tuple[Providers, PdfChecker]]:
    """What a face needs to reconcile or to adopt, for as long as it does: adapters, and the child that opens PDFs."""
    providers, checker = Providers(), PdfChecker(seconds=ENGINE.pdf_check_seconds)
    try:
        yield providers, checker
    finally:
        providers.close()
        checker.close()


def provider_of(item_id: int, providers: Providers) -> Provider | None:
    """The adapter of an item's account; None where its key cannot be read."""
    try:
        return providers.of(ProviderAccount.objects.get(jobs__version__items=item_id))
    except UnreadableSecret:
        return None


# --- asking ---


def _ask(ours: Ours, provider: Provider | None, *, now: datetime) -> _Said:
    said = _Said()
    if provider is None:
        said.sentences.append(Sentence("The provider was not asked: the account's key cannot be read.", now))
        return said
    for row in ours.named:
        if row.outcome not in (SubmissionOutcome.DELIVERED, SubmissionOutcome.SURPLUS):
            _read(row, provider, said, now=now)
    for row in ours.doubtful:
        if provider.capabilities.look_up:
            _look_up(row, provider, said, now=now)
        else:
            words = "The provider offers no look-up by key, so it cannot be asked whether it has submission"
            said.sentences.append(Sentence(f"{words} {row.sequence}."))
    if ours.doubtful and provider.capabilities.receipts:
        at = f"{ours.doubtful[0].first_sent_at:%Y-%m-%d %H:%M} UTC"
        words = f"The provider keeps receipts of what it billed: compare those from {at} on by hand."
        said.sentences.append(Sentence(words))
    return said


def _read(row: Submission, provider: Provider, said: _Said, *, now: datetime) -> None:
    assert row.provider_job_id is not None
    shown = wording.masked(row.provider_job_id)
    try:
        status = provider.fetch_status(row.provider_job_id, now=now)
    except errors.ProviderError as error:
        _failed(row, error, said, what=f"{shown} could not be read", now=now)
        return
    said.seen.append((status.exchange, row.pk))
    said.read[row.pk] = status
    said.sentences.append(Sentence(f"The provider says of {shown}: “{status.status_word}”.", now))


def _look_up(row: Submission, provider: Provider, said: _Said, *, now: datetime) -> None:
    try:
        looked = provider.find_submission(row.idempotency_key, first_sent_at=row.first_sent_at, now=now)
    except errors.ProviderError as error:
        _failed(row, error, said, what=f"Submission {row.sequence} could not be looked up", now=now)
        return
    if looked is None:
        words = f"The provider keeps too little of that time to tell whether it has submission {row.sequence}."
        said.sentences.append(Sentence(words, now))
        return
    said.seen.append((looked.exchange, row.pk))
    if looked.jobs:
        said.found[row.pk] = looked.jobs
        shown = " and ".join(wording.masked(job.provider_job_id) for job in looked.jobs)
        said.sentences.append(Sentence(f"The provider has submission {row.sequence} as {shown}.", now))
    elif now < row.last_sent_at + NONE_BELIEVED_AFTER:
        words = f"The provider has no job of submission {row.sequence} yet; it may still be on its way. Ask again soon."
        said.sentences.append(Sentence(words, now))
    else:
        said.absent.add(row.pk)
        said.sentences.append(Sentence(f"The provider has no job of submission {row.sequence}: it never arrived.", now))


def _failed(row: Submission, error: errors.ProviderError, said: _Said, *, what: str, now: datetime) -> None:
    if error.exchange is not None:
        said.seen.append((error.exchange, row.pk))
    words = "the provider does not know it." if isinstance(error, errors.NotFound) else error.words
    said.sentences.append(Sentence(f"{what}: {words}", now))


# --- what follows ---


def _findings(ours: Ours, said: _Said, *, now: datetime) -> Findings:
    standing = standings.of_items(BatchItem.objects.filter(pk=ours.item.pk))[ours.item.pk]
    offers = verbs.offered(standing, now=now)
    offers.pop(Verb.RECONCILE, None)
    verdict, words = _verdict(ours, said)
    several = [
        Candidate(job.provider_job_id, "named by the provider's own look-up")
        for jobs in said.found.values()
        for job in jobs
        if adoption.owner_of(ours.job.account_id, job.provider_job_id) is None
    ]
    is_settled = standing.state not in FAILED_STATES
    return Findings(
        evidence=(*ours.sentences, *said.sentences),
        verdict=verdict,
        verdict_words=words,
        candidates=() if is_settled else (*several, *ours.candidates),
        offers=offers,
        may_adopt=not is_settled and bool(ours.doubtful),
    )


def _verdict(ours: Ours, said: _Said) -> tuple[Verdict, str]:
    if ours.stored is not None:
        return Verdict.SAVED, "Saved already: its whole PDF lies in our store."
    ids = [row.provider_job_id or "" for row in ours.named]
    ids += [job.provider_job_id for jobs in said.found.values() for job in jobs]
    if ids:
        shown = " and ".join(wording.masked(each) for each in ids)
        finished = [each for each in said.read.values() if each.phase is JobPhase.SUCCEEDED]
        more = ", and finished there" if finished else ""
        return Verdict.ACCEPTED, f"Accepted as {shown}{more}."
    if all(row.pk in said.absent for row in ours.doubtful):
        return Verdict.NOT_ACCEPTED, "Not accepted: nothing of it exists at the provider."
    words = "Cannot be known: the answer to its submission was lost, and nothing else tells whether it was accepted."
    if ours.candidates:
        count = len(ours.candidates)
        words += f" {count} provider job{'' if count == 1 else 's'} may be its own."
    return Verdict.UNKNOWABLE, words


def _settled(ours: Ours, said: _Said, order: Order, *, now: datetime) -> str:
    """Write what is certain and free; what was done, in words."""
    if ours.stored is not None and ours.named:
        return _save(ours, ours.stored, order, now=now)
    taking = _certain(ours, said, order)
    if taking is not None:
        return _take(taking, now=now)
    if ours.doubtful and not ours.named and all(row.pk in said.absent for row in ours.doubtful):
        return _close(ours, said.absent, order, now=now)
    return ""


def _certain(ours: Ours, said: _Said, order: Order) -> Taking | None:
    """The one provider job that evidence gives to this job, where there is exactly one."""
    state = JobState(ours.job.state)
    found = [(pk, job) for pk, jobs in said.found.items() for job in jobs]
    if len(found) == 1 and not ours.named and state is JobState.UNKNOWN:
        pk, status = found[0]
        return Taking(ours.job.pk, pk, status, "found_by_look_up", actor=order.by.words)
    for row in reversed(ours.named):
        status_read = said.read.get(row.pk)
        is_finished = status_read is not None and status_read.phase is JobPhase.SUCCEEDED
        goes_on = state is JobState.UNKNOWN or (state is JobState.DEADLINE_EXCEEDED and is_finished)
        if status_read is not None and goes_on:
            return Taking(ours.job.pk, row.pk, status_read, "read_by_reconcile", actor=order.by.words)
    return None


@again_after_deadlock
def _take(taking: Taking, *, now: datetime) -> str:
    try:
        with transaction.atomic():
            refusal = adoption.take_up(taking, now=now)
    except IntegrityError:
        return "That provider job was given to another document at this moment; look again."
    return refusal or "It is read and fetched by itself now, free of charge."


@again_after_deadlock
@transaction.atomic
def _close(ours: Ours, absent: set[int], order: Order, *, now: datetime) -> str:
    """Nothing of it was ever there: its submissions are refused, and it is failed, so that it may be sent anew."""
    job = Job.objects.select_for_update(no_key=True).get(pk=ours.job.pk)
    rows = Submission.objects.filter(job=job, in_doubt=True, provider_job_id=None)
    current = set(rows.values_list("pk", "last_sent_at"))
    if job.state != JobState.UNKNOWN or current != {(row.pk, row.last_sent_at) for row in ours.doubtful}:
        return "It was changed meanwhile; look again."
    if {pk for pk, _at in current} != absent:
        return ""
    words = "The provider's own look-up knows nothing of it: it never arrived, and was not billed. Retry sends it anew."
    failure = {"failure_class": FailureClass.TRANSIENT, "failure_code": "", "failure_words": words}
    freed = {"fencing_token": job.fencing_token + 1, "lease_owner": None, "lease_until": None}
    edge = (JobState.UNKNOWN, JobState.FAILED)
    fields = {**failure, **freed}
    move = Move(job.pk, job.fencing_token, *edge, "never_arrived", words, actor=order.by.words, fields=fields)
    transitions.move(move, now=now)
    rows.filter(outcome=SubmissionOutcome.OPEN).update(outcome=SubmissionOutcome.REFUSED, closed_at=now)
    Submission.objects.filter(pk__in=absent).update(in_doubt=False)
    alerts.close_for_jobs([job.pk], now=now)
    return "Its submission is closed; Retry sends it anew."


@again_after_deadlock
@transaction.atomic
def _save(ours: Ours, stored: StoredPdf, order: Order, *, now: datetime) -> str:
    """Its PDF lies at its place, whole, and only a row was missing. Locks as the grouped write does."""
    job = Job.objects.select_for_update(no_key=True).get(pk=ours.job.pk)
    state = JobState(job.state)
    row = ours.named[-1]
    if Artifact.objects.filter(version=job.version_id).exists() or state not in FAILED_STATES:
        return "It was changed meanwhile; look again."
    freed = {"fencing_token": job.fencing_token + 1, "lease_owner": None, "lease_until": None}
    via = None
    if (state, JobState.SAVED) not in transitions.EDGES:
        via = Move(job.pk, job.fencing_token, state, JobState.RENDERED, "read_by_reconcile", actor=order.by.words)
    edge = (JobState.RENDERED if via else state, JobState.SAVED)
    actor = order.by.words
    move = Move(job.pk, job.fencing_token, *edge, "found_in_store", actor=actor, fields=freed, via=via)
    transitions.move(move, now=now)
    others = Submission.objects.filter(job=job, outcome=SubmissionOutcome.OPEN).exclude(pk=row.pk)
    others.update(outcome=SubmissionOutcome.SUPERSEDED, closed_at=now)
    Submission.objects.filter(pk=row.pk).update(outcome=SubmissionOutcome.DELIVERED, closed_at=now, watch_at=None)
    Artifact.objects.create(
        version=ours.item.version,
        submission=row,
        storage_key=stored.key,
        sha256=stored.sha256,
        byte_count=stored.byte_count,
        page_count=stored.page_count,
        stored_at=now,
        verified_at=now,
    )
    alerts.close_for_jobs([job.pk], now=now)
    return "It is saved now, from our own store."


def _record(ours: Ours, said: _Said) -> None:
    with transaction.atomic():
        exchanges.record(Evidence(facts, ours.job.account_id, ours.job.pk, pk) for facts, pk in said.seen)


def _audit(ours: Ours, findings: Findings, order: Order, *, now: datetime) -> None:
    if not order.is_audited:
        return
    document = ours.item.version.document
    audit.record(
        "reconcile",
        subject=f"document {document.public_id}",
        workspace=document.workspace,
        actor=order.by.actor,
        actor_words=order.by.words,
        from_where=order.by.from_where,
        now=now,
        reason=order.reason,
        facts={
            "version": ours.item.version.number,
            "verdict": findings.verdict.value,
            "evidence": [each.words for each in findings.evidence[-AUDITED_MOST:]],
            "done": findings.done,
        },
    )
