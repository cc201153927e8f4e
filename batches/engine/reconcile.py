"""Reconcile: what is known of a document whose end is not certain, what follows, and which verbs are safe.

Collect our own evidence, ask the provider what it can tell, then write under a lock what is certain and free; all else
is offered and left to a person. This verb alone is no single transaction: it calls the network between reading and
writing, so it reads again under the lock before it writes. Nothing here ever sends a document.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from django.conf import settings
from django.db import IntegrityError, transaction

from batches import queue, wording
from batches.conf import ENGINE
from batches.engine import (
    adoption,
    alerts,
    asking,
    audit,
    evidence,
    exchanges,
    giving_way,
    mishaps,
    standings,
    transitions,
    verbs,
)
from batches.engine.accounts import Providers
from batches.engine.adoption import Taking
from batches.engine.asking import Said
from batches.engine.clock import SystemClock
from batches.engine.contention import again_after_deadlock
from batches.engine.evidence import Candidate, Ours, Sentence, StoredPdf
from batches.engine.exchanges import Evidence
from batches.engine.orders import Order, Result
from batches.engine.pdfcheck import PdfChecker
from batches.engine.readpace import ReadPace
from batches.engine.transitions import Move
from batches.engine.verbs import Answer
from batches.models import (
    FAILED_STATES,
    MAYBE_THERE,
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
from batches.providers.base import JobPhase, Provider
from batches.storage import ArtifactStore, open_store

log = logging.getLogger(__name__)

#: How long one of many waits for a slot among the account's status reads.
PATIENCE = timedelta(seconds=30)
PUT_OFF = (
    "The provider asked for a pause of status reads, so it was not asked now; reconcile it again in a few minutes."
)
NAMELESS = (
    "Accepted, and perhaps billed: the provider tells of it without an id, so its PDF cannot be fetched. It is not "
    "sent again by itself; to render it anew is a second job with a second bill."
)
NAMELESS_BESIDE = "A further job of it is shown without an id: it may be billed, and cannot be fetched."
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
    certain and has been written; `is_put_off` that the provider could not be asked yet, so nothing was written.
    """

    evidence: tuple[Sentence, ...]
    verdict: Verdict
    verdict_words: str
    candidates: tuple[Candidate, ...] = ()
    offers: Mapping[Verb, Answer] = field(default_factory=dict)
    may_adopt: bool = False
    done: str = ""
    is_put_off: bool = False


def look(item_id: int, *, store: ArtifactStore, checker: PdfChecker, now: datetime) -> Findings:
    """What is known here, without asking anybody. Writes nothing."""
    ours = evidence.collect(item_id, store=store, checker=checker, now=now)
    return _findings(ours, Said(), now=now)


def settle(
    item_id: int,
    *,
    order: Order,
    provider: Provider | None,
    store: ArtifactStore,
    checker: PdfChecker,
    now: datetime,
    pace: ReadPace | None = None,
) -> Findings:
    """Collect, ask the provider, and write what is certain. Without a provider it is not asked.

    `pace` makes each question wait for its slot: one of many is paced, the one that a person asks for is not.
    """
    ours = evidence.collect(item_id, store=store, checker=checker, now=now)
    said = asking.ask(ours, provider, pace, now=now)
    _record(ours, said)
    if said.is_put_off:
        return replace(_findings(ours, said, now=now), is_put_off=True)
    findings = _written(ours, said, order, now=now)
    if findings.done:
        queue.ring()
    return findings


@again_after_deadlock
@transaction.atomic
def _written(ours: Ours, said: Said, order: Order, *, now: datetime) -> Findings:
    """What is certain together with its audit entry: a kill leaves both or neither."""
    done = _settled(ours, said, order, now=now)
    findings = replace(_findings(ours, said, now=now), done=done)
    _audit(ours, findings, order, now=now)
    return findings


def reconcile(
    item_ids: Sequence[int],
    *,
    order: Order,
    now: datetime,
    providers: Providers | None = None,
    store: ArtifactStore | None = None,
    checker: PdfChecker | None = None,
    pace: ReadPace | None = None,
) -> dict[int, Result]:
    """The verb for many items. Call it outside a transaction: each item is read, asked after, then written.

    A fault over one is its own result, so that none is done and recorded twice. WAITING: it could not be asked after
    within the patience of `pace`, and nothing was done.
    """
    pace = pace or ReadPace(SystemClock(now), patience=PATIENCE)
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
            results[item_id] = _one(item_id, ours, theirs, looking, pace, order=order, now=now)
        return results
    finally:
        if providers is None:
            ours.close()
        if checker is None:
            looking.close()


def _one(
    item_id: int,
    providers: Providers,
    store: ArtifactStore,
    checker: PdfChecker,
    pace: ReadPace,
    *,
    order: Order,
    now: datetime,
) -> Result:
    try:
        provider = provider_of(item_id, providers)
        found = settle(item_id, order=order, provider=provider, store=store, checker=checker, now=now, pace=pace)
    except mishaps.DATABASE_AWAY:
        raise
    except Exception as error:  # whatever it is, the others are not done again for it
        log.exception("reconcile failed over item %s", item_id)
        words = f"An internal error stopped it ({type(error).__name__}). The log has the trace; nothing is ever sent."
        return Result(ItemResult.FAILED, words)
    if found.is_put_off:
        return Result(ItemResult.WAITING, PUT_OFF)
    return Result(ItemResult.DONE, " ".join(filter(None, (found.verdict_words, found.done))))


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


# --- what follows ---


def _findings(ours: Ours, said: Said, *, now: datetime) -> Findings:
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
        candidates=() if is_settled else (*several, *_hinted(ours, said)),
        offers=offers,
        may_adopt=not is_settled and bool(ours.doubtful),
    )


def _verdict(ours: Ours, said: Said) -> tuple[Verdict, str]:
    if ours.stored is not None:
        return Verdict.SAVED, "Saved already: its whole PDF lies in our store."
    # Beside one whose answer was lost, a job that failed for good says nothing of where that one is.
    telling = [row for row in ours.named if not (ours.doubtful and _has_failed(row))]
    ids = [row.provider_job_id or "" for row in telling]
    ids += [job.provider_job_id for jobs in said.found.values() for job in jobs]
    if ids:
        shown = " and ".join(wording.masked(each) for each in ids)
        finished = [each for each in said.read.values() if each.phase is JobPhase.SUCCEEDED]
        more = ", and finished there" if finished else ""
        again = f" {NAMELESS_BESIDE}" if said.nameless else ""
        return Verdict.ACCEPTED, f"Accepted as {shown}{more}.{again}"
    if said.nameless or ours.called:
        return Verdict.ACCEPTED, NAMELESS
    if ours.doubtful and all(row.pk in said.absent for row in ours.doubtful):
        return Verdict.NOT_ACCEPTED, "Not accepted: nothing of it exists at the provider."
    words = "Cannot be known: the answer to its submission was lost, and nothing else tells whether it was accepted."
    if count := len(_hinted(ours, said)):
        words += f" {count} provider job{'' if count == 1 else 's'} may be its own."
    return Verdict.UNKNOWABLE, words


def _hinted(ours: Ours, said: Said) -> list[Candidate]:
    """Provider jobs that receipts or webhooks name, each once."""
    return list({each.provider_job_id: each for each in (*said.billed, *ours.candidates)}.values())


def _settled(ours: Ours, said: Said, order: Order, *, now: datetime) -> str:
    """Write what is certain and free, within the caller's transaction; what was done, in words."""
    if ours.stored is not None and ours.named:
        return _save(ours, ours.stored, order, now=now)
    taking = _certain(ours, said, order)
    if taking is not None:
        return _take(taking, now=now)
    if ours.doubtful and all(row.pk in said.absent for row in ours.doubtful) and not _may_be_there(ours):
        return _close(ours, said.absent, order, now=now)
    return ""


def _may_be_there(ours: Ours) -> bool:
    """Whether one of its known provider jobs has not failed for good, or its PDF lies in our store."""
    return ours.stored is not None or not all(map(_has_failed, ours.named))


def _has_failed(row: Submission) -> bool:
    """Whether the provider said that its job failed for good."""
    return row.outcome == SubmissionOutcome.RENDER_FAILED


def _certain(ours: Ours, said: Said, order: Order) -> Taking | None:
    """The one provider job that evidence gives to this job, where there is exactly one."""
    state = JobState(ours.job.state)
    found = [(pk, job) for pk, jobs in said.found.items() for job in jobs]
    is_only = len(found) == 1 and not said.nameless and not ours.named
    if is_only and state is JobState.UNKNOWN:
        pk, status = found[0]
        return Taking(ours.job.pk, pk, status, "found_by_look_up", actor=order.by.words)
    for row in reversed(ours.named):
        status_read = said.read.get(row.pk)
        is_finished = status_read is not None and status_read.phase is JobPhase.SUCCEEDED
        # Beside one whose answer was lost, another one counts only by its PDF: read as failed, it would be sent anew.
        goes_on = is_finished or (state is JobState.UNKNOWN and not ours.doubtful)
        goes_on = goes_on and state in (JobState.UNKNOWN, JobState.DEADLINE_EXCEEDED)
        if status_read is not None and goes_on:
            return Taking(ours.job.pk, row.pk, status_read, "read_by_reconcile", actor=order.by.words)
    return None


def _take(taking: Taking, *, now: datetime) -> str:
    try:
        with transaction.atomic():
            refusal = adoption.take_up(taking, now=now)
    except IntegrityError:
        return "That provider job was given to another document at this moment; look again."
    return refusal or "It is read and fetched by itself now, free of charge."


def _close(ours: Ours, absent: set[int], order: Order, *, now: datetime) -> str:
    """Nothing of it was ever there: its submissions are refused, and it is failed, so that it may be sent anew."""
    job = Job.objects.select_for_update(no_key=True).get(pk=ours.job.pk)
    rows = Submission.objects.filter(MAYBE_THERE, job=job)
    current = set(rows.values_list("pk", "last_sent_at"))
    if job.state != JobState.UNKNOWN or current != {(row.pk, row.last_sent_at) for row in ours.doubtful}:
        return "It was changed meanwhile; look again."
    if {pk for pk, _at in current} != absent:
        return ""
    words = "The provider's own look-up knows nothing of it: it never arrived, and was not billed. Retry sends it anew."
    failure = {"failure_class": FailureClass.TRANSIENT, "failure_code": "", "failure_words": words}
    edge = (JobState.UNKNOWN, JobState.FAILED)
    fields = {**failure, **transitions.taken_over(job.fencing_token)}
    move = Move(job.pk, job.fencing_token, *edge, "never_arrived", words, actor=order.by.words, fields=fields)
    transitions.move(move, now=now)
    rows.filter(outcome=SubmissionOutcome.OPEN).update(outcome=SubmissionOutcome.REFUSED, closed_at=now)
    Submission.objects.filter(pk__in=absent).update(in_doubt=False)
    alerts.close_for_jobs([job.pk], now=now)
    return "Its submission is closed; Retry sends it anew."


def _save(ours: Ours, stored: StoredPdf, order: Order, *, now: datetime) -> str:
    """Its PDF lies at its place, whole, and only a row was missing. Locks as the grouped write does."""
    job = Job.objects.select_for_update(no_key=True).get(pk=ours.job.pk)
    state = JobState(job.state)
    # The one whose result is known made it, rather than one that failed there.
    row = max(ours.named, key=lambda each: (bool(each.result), not _has_failed(each), each.pk))
    if Artifact.objects.filter(version=job.version_id).exists() or state not in FAILED_STATES:
        return "It was changed meanwhile; look again."
    freed = transitions.taken_over(job.fencing_token)
    via = None
    if (state, JobState.SAVED) not in transitions.EDGES:
        via = Move(job.pk, job.fencing_token, state, JobState.RENDERED, "read_by_reconcile", actor=order.by.words)
    edge = (JobState.RENDERED if via else state, JobState.SAVED)
    actor = order.by.words
    move = Move(job.pk, job.fencing_token, *edge, "found_in_store", actor=actor, fields=freed, via=via)
    transitions.move(move, now=now)
    business_id = ours.item.version.document.business_id
    giving_way.close_others(row, business_id=business_id, why="was found in our own store", now=now)
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


def _record(ours: Ours, said: Said) -> None:
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
        by=order.by,
        now=now,
        reason=order.reason,
        facts={
            "version": ours.item.version.number,
            "verdict": findings.verdict.value,
            "evidence": [each.words for each in findings.evidence[-AUDITED_MOST:]],
            "done": findings.done,
        },
    )
