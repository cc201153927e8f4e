"""What our own rows and our own store say about one job whose end is not certain, as dated sentences. Asks nobody.

Provider job ids stand masked in every sentence: whoever has one whole can fetch the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from batches import figures, wording
from batches.engine import callbacks, collection, keeping, kept, retries, standings
from batches.engine.pdfcheck import PdfChecker
from batches.models import (
    Artifact,
    BatchItem,
    Exchange,
    ExchangeKind,
    Job,
    ProviderAccount,
    Submission,
    SubmissionOutcome,
    WebhookEvent,
    WebhookOutcome,
)
from batches.providers.base import Downloaded, ExchangeFacts
from batches.storage import ArtifactStore, StoreError, artifact_key

#: Sentences of one kind; a submission has six tries at most, its status reads are told as one.
SHOWN_MOST = 20
#: Calls that named no job, which are looked through for those to the address of one submission.
CALLS_LOOKED_AT = 1000


@dataclass(frozen=True)
class Sentence:
    """One thing that is known, and since when; without a time it holds now."""

    words: str
    at: datetime | None = None


@dataclass(frozen=True)
class Candidate:
    """A provider job that may be this document's, and why it is thought so. A hint, no proof."""

    provider_job_id: str
    words: str

    @property
    def token(self) -> str:
        """Names it on a page without giving it away."""
        return hashlib.sha256(self.provider_job_id.encode()).hexdigest()[:20]


@dataclass(frozen=True)
class StoredPdf:
    """A whole PDF that lies at the very place of a version, and is named by no row."""

    key: str
    sha256: str
    byte_count: int
    page_count: int


@dataclass(frozen=True)
class Ours:
    """One item's job with its submissions, oldest first, as they stood when they were read.

    `called` are those in doubt whose own address the provider called: nobody else knows it, so they arrived there.
    """

    item: BatchItem
    job: Job
    submissions: tuple[Submission, ...]
    sentences: tuple[Sentence, ...]
    candidates: tuple[Candidate, ...]
    stored: StoredPdf | None
    called: frozenset[int] = frozenset()

    @property
    def doubtful(self) -> list[Submission]:
        """Those that may have been accepted without our knowing an id."""
        return [row for row in self.submissions if row.is_maybe_there]

    @property
    def named(self) -> list[Submission]:
        """Those whose provider job is known."""
        return [row for row in self.submissions if row.provider_job_id]


def collect(item_id: int, *, store: ArtifactStore, checker: PdfChecker, now: datetime) -> Ours:
    """Everything that is known here. Reads the store; call it outside a transaction."""
    item = BatchItem.objects.select_related("version__document__workspace", "version__job").get(pk=item_id)
    job = item.version.job
    submissions = tuple(Submission.objects.filter(job=job).defer("body_inline").order_by("sequence"))
    candidates, events = _events(job, submissions, now=now)
    stored, in_store = _in_store(item, store, checker, now=now)
    calls = _calls(job, submissions)
    called = [
        Sentence(f"The provider called the address of submission {row.sequence}: it arrived, and may be billed.", at)
        for row, at in calls.items()
    ]
    kind = ProviderAccount.objects.values_list("kind", flat=True).get(pk=job.account_id)
    windows = _windows(submissions, is_harmless=standings.repeat_price(kind) is not None, now=now)
    sentences = [*_sent(job, submissions), *windows, *events, *called, *in_store]
    dated = sorted((each for each in sentences if each.at), key=lambda each: each.at or now)
    undated = [each for each in sentences if each.at is None]
    known = frozenset(row.pk for row in calls)
    return Ours(item, job, submissions, (*dated, *undated), tuple(candidates), stored, known)


def _sent(job: Job, submissions: Sequence[Submission]) -> Iterator[Sentence]:
    numbers = {row.pk: row.sequence for row in submissions}
    kinds = (ExchangeKind.SUBMIT, ExchangeKind.LOOK_UP)
    rows = Exchange.objects.filter(job=job, kind__in=kinds).order_by("-id")[:SHOWN_MOST]
    for exchange in rows:
        number = numbers.get(exchange.submission_id or 0, 1)
        what = "was sent" if exchange.kind == ExchangeKind.SUBMIT else "was looked up at the provider"
        yield Sentence(f"Submission {number} {what}: {_answer(exchange)}.", exchange.at)
    for row in submissions:
        if not any(each.submission_id == row.pk for each in rows):
            words = f"Submission {row.sequence} was about to be sent; no answer of it was kept."
            yield Sentence(words, row.last_sent_at)
        if row.provider_job_id:
            known = wording.masked(row.provider_job_id)
            yield Sentence(f"The provider accepted submission {row.sequence} as {known}.", row.accepted_at)
        if row.outcome not in (SubmissionOutcome.OPEN, SubmissionOutcome.DELIVERED):
            words = SubmissionOutcome(row.outcome).label.lower()
            yield Sentence(f"Submission {row.sequence} was closed: {words}.", row.closed_at)
    for kind in (ExchangeKind.POLL, ExchangeKind.DOWNLOAD):
        yield from _last_of(job, kind)


def _last_of(job: Job, kind: ExchangeKind) -> Iterator[Sentence]:
    rows = Exchange.objects.filter(job=job, kind=kind)
    last = rows.order_by("-id").first()
    if last is None:
        return
    count = rows.count()
    times = "" if count == 1 else f" (the last of {count:,})"
    word = f" It said “{job.provider_status}”." if kind is ExchangeKind.POLL and job.provider_status else ""
    yield Sentence(f"{kind.label}{times}: {_answer(last)}.{word}", last.at)


def _answer(exchange: Exchange) -> str:
    if exchange.error_class:
        words = wording.ERROR_WORDS.get(exchange.error_class, "it failed")
        return f"{words} (HTTP {exchange.status})" if exchange.status else words
    return f"HTTP {exchange.status}" if exchange.status else "no answer"


def _windows(submissions: Sequence[Submission], *, is_harmless: bool, now: datetime) -> Iterator[Sentence]:
    """Until when each may be repeated; `is_harmless`: at this provider a repeat always may."""
    for row in submissions:
        if not row.in_doubt or row.provider_job_id or row.outcome != SubmissionOutcome.OPEN:
            continue
        if is_harmless:
            yield Sentence(
                f"Submission {row.sequence} may be sent again at any time: a repeat makes no second document."
            )
        elif row.resend_until is None:
            yield Sentence(f"A repeat of submission {row.sequence} was never safe: no key protects it.")
        elif retries.may_resend(row.resend_until, now):
            until = f"{row.resend_until:%Y-%m-%d %H:%M} UTC"
            may = "may be sent again with the same key, without a second bill,"
            yield Sentence(f"Submission {row.sequence} {may} until {until}.")
        else:
            words = f"The time in which submission {row.sequence} could be sent again without a second bill is over."
            yield Sentence(words, row.resend_until if row.resend_until <= now else None)


def time_of(doubtful: Sequence[Submission]) -> tuple[datetime, datetime]:
    """When a trace of these, at least one, may have been left: from the first send on, while their PDF is kept."""
    ends = max(row.last_sent_at for row in doubtful) + kept.at_account(doubtful[0].account_id)
    return min(row.first_sent_at for row in doubtful), ends


def _events(job: Job, submissions: Sequence[Submission], *, now: datetime) -> tuple[list[Candidate], list[Sentence]]:
    """Webhook events of the account about provider jobs that nobody knows, from the first send on."""
    doubtful = [row for row in submissions if row.is_maybe_there]
    if not doubtful:
        return [], []
    begins, ends = time_of(doubtful)
    rows = WebhookEvent.objects.filter(
        account=job.account_id,
        outcome__in=(WebhookOutcome.UNMATCHED, WebhookOutcome.WAITING),
        received_at__gte=begins,
        received_at__lte=ends,
    ).exclude(provider_job_id="")
    known = set(
        Submission.objects.filter(
            account=job.account_id, provider_job_id__in=rows.values("provider_job_id")
        ).values_list("provider_job_id", flat=True)
    )
    candidates: dict[str, Candidate] = {}
    sentences: list[Sentence] = []
    for event in rows.exclude(provider_job_id__in=known).order_by("received_at", "pk")[:SHOWN_MOST]:
        shown = wording.masked(event.provider_job_id)
        after = figures.duration((event.received_at - begins).total_seconds())
        words = f"A webhook ({event.type or 'of no type'}) named {shown}, a job that none of our documents has, {after}"
        sentences.append(Sentence(f"{words} after the first sending. A hint, no proof.", event.received_at))
        why = f"named by a webhook {after} after the first sending"
        candidates.setdefault(event.provider_job_id, Candidate(event.provider_job_id, why))
    if not sentences:
        sentences.append(Sentence("No webhook of that time named a job that is unknown to us."))
    return list(candidates.values()), sentences


def _calls(job: Job, submissions: Sequence[Submission]) -> dict[Submission, datetime]:
    """Submissions in doubt whose own address was called, each with the first time; the call names no job else."""
    doubtful = {callbacks.mark_of(row.idempotency_key): row for row in submissions if row.is_maybe_there}
    if not doubtful:
        return {}
    begins, _ends = time_of(list(doubtful.values()))
    rows = WebhookEvent.objects.filter(account=job.account_id, provider_job_id="", received_at__gte=begins)
    calls = rows.order_by("received_at", "pk").values_list("body", "received_at")
    found: dict[Submission, datetime] = {}
    for body, received_at in calls[:CALLS_LOOKED_AT]:
        row = doubtful.get(callbacks.mark_in(bytes(body)))
        if row is not None:
            found.setdefault(row, received_at)
    return found


def _in_store(
    item: BatchItem, store: ArtifactStore, checker: PdfChecker, *, now: datetime
) -> tuple[StoredPdf | None, list[Sentence]]:
    """Whether a whole PDF lies where this version's belongs, though no row says so."""
    version = item.version
    artifact = Artifact.objects.filter(version=version).first()
    if artifact is not None and artifact.missing_at is None and artifact.local_deleted_at is None:
        return None, [Sentence("Its PDF was verified and stored.", artifact.stored_at)]
    if artifact is not None:
        return None, [Sentence("It was stored once; “manage.py check_store” says what became of the file.")]
    key = artifact_key(version.document.workspace.slug, version.document.business_id, version.number)
    try:
        size = store.size(key)
        if size is None:
            return None, [Sentence("Nothing lies in our store at its place.")]
        with store.staging() as path:
            return _looked_at(key, path, store, checker, now=now)
    except StoreError as error:
        return None, [Sentence(f"Our store cannot say whether its file is there: {error.words}")]


def _looked_at(
    key: str, path: Path, store: ArtifactStore, checker: PdfChecker, *, now: datetime
) -> tuple[StoredPdf | None, list[Sentence]]:
    with store.open(key) as source, path.open("wb") as file:
        sink = collection.HashingSink(file)
        while chunk := source.read(keeping.COPY_BYTES):
            sink.write(chunk)
    read = Downloaded(sink.byte_count, "application/pdf", (), ExchangeFacts(ExchangeKind.DOWNLOAD, now, 0, None))
    problem, pages = collection.verify(path, sink.head, sink.tail, read, checker)
    if problem:
        return None, [Sentence(f"A file lies at its place in our store, and is no usable PDF. {problem}")]
    words = f"A whole PDF of {pages} page{'' if pages == 1 else 's'} lies at its place in our store."
    return StoredPdf(key, sink.hexdigest(), sink.byte_count, pages), [Sentence(words)]
