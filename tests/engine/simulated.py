"""A provider that lives in the test's process: it keeps RelayPDF's promises about keys, and a ledger of what it did.

Each call can be scripted per document, which it knows by the `<h1>` (else the `<p>`) of its HTML. What no script says
goes well: a submission is accepted, the second status read says completed, the download is a real PDF that holds the
name.

    provider.script("INV-1", submit=[Lose(), Refuse(errors.RateLimited, retry_after=2)])
    provider.script("INV-2", status=itertools.repeat(Word("processing")))
    provider.trouble = Refuse(errors.NotSent)      # every call, until it is None again; or those of `trouble_hits`

It asserts on every call that the engine's threads have no database connection, so that no transaction can be open.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import BinaryIO

from django.db import connection

from batches.engine.clock import Clock
from batches.providers import errors
from batches.providers.base import (
    Accepted,
    AccountState,
    Capabilities,
    Deleted,
    DocumentSource,
    Downloaded,
    ExchangeFacts,
    Finished,
    Gone,
    JobPhase,
    JobStatus,
    LookedUp,
    PreparedRequest,
    Receipt,
    Receipts,
    ResultRef,
)
from tests.engine.vendor import Vendor, name_in, pdf

# --- what a call can answer ---


@dataclass(frozen=True)
class Refuse:
    """The call raises `kind`, and nothing happened at the provider."""

    kind: type[errors.ProviderError]
    words: str = "The simulated provider says no."
    code: str = ""
    retry_after: float | None = None
    replayed: bool = False


@dataclass(frozen=True)
class Accept:
    """The submission is taken, or found again by its key."""


@dataclass(frozen=True)
class Finish:
    """The submission is taken, and the answer is the finished result."""


@dataclass(frozen=True)
class Lose:
    """The submission is taken, or found again, and the answer to it is lost: the call raises `kind`."""

    kind: type[errors.OutcomeUnknown] = errors.AnswerLost


@dataclass(frozen=True)
class Double:
    """The submission is taken as a new job although its key is known: a provider that breaks its promise."""


@dataclass(frozen=True)
class Word:
    """A status word that is not final."""

    word: str


@dataclass(frozen=True)
class Fail:
    """The provider's job has failed."""

    code: str = "render_error"
    words: str = "The page would not render."
    unbilled: bool = False


@dataclass(frozen=True)
class Complete:
    """The provider's job is done. `link_seconds` is how long its link is said to live; None says nothing."""

    link_seconds: float | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Whole:
    """The PDF."""


@dataclass(frozen=True)
class Cut:
    """Half of the PDF. With `announced` its whole length was promised, else only the half's."""

    announced: bool = True


@dataclass(frozen=True)
class Page:
    """Something else than a PDF, with status 200."""

    content: bytes = b"<html><body>Please sign in</body></html>"
    content_type: str = "text/html"


Answer = Refuse | Accept | Finish | Lose | Double | Word | Fail | Complete | Whole | Cut | Page


# --- the ledger ---


@dataclass(frozen=True)
class Arrival:
    """One submission as it arrived. `became` is accepted, replayed, or the name of the error that was answered."""

    at: datetime
    name: str
    key: str
    body_sha256: str
    became: str


@dataclass
class SimulatedJob:
    """One job at the provider: it is billed, whatever becomes of its answer."""

    id: str
    name: str
    key: str
    body_sha256: str
    accepted_at: datetime
    read_count: int = 0
    deleted: bool = False


@dataclass
class _Script:
    submit: Iterator[Answer] = field(default_factory=lambda: iter(()))
    status: Iterator[Answer] = field(default_factory=lambda: iter(()))
    download: Iterator[Answer] = field(default_factory=lambda: iter(()))


class SimulatedProvider(Vendor):
    """See `providers.base.Provider`. An answer takes `submit_seconds` or `download_seconds` of the clock's time."""

    capabilities = Capabilities(client_key=True, key_retention_seconds=3600, link_lifetime_seconds=24 * 3600)

    def __init__(self, clock: Clock, *, key_retention_seconds: float = 3600) -> None:
        self.clock = clock
        self.submit_seconds = 0.0
        self.download_seconds = 0.0
        self.key_retention = timedelta(seconds=key_retention_seconds)
        self.trouble: Refuse | None = None
        self.trouble_hits: frozenset[str] | None = None  # the kinds of calls that meet it; None: all
        self.key_is_good = True
        self.has_credit = True
        self.balance: Decimal | None = None  # what an account check names; None names nothing
        self.billed_amount: Decimal | None = None  # what a finished job is said to have cost; None says nothing
        self.unpreparable: dict[str, Exception] = {}
        self.arrivals: list[Arrival] = []
        self.jobs: dict[str, SimulatedJob] = {}
        self.reads: list[str] = []
        self.downloads: list[str] = []
        self.deletions: list[str] = []
        self.keeps_deleted = False  # a deletion is answered with success, and the file is handed out all the same
        self.probes = 0
        self.look_ups: list[str] = []
        self.receipts: list[Receipt] = []
        self.remembers = timedelta(days=2)
        self.hides_ids = False  # a look-up shows that jobs are there, and no id of them
        self._by_key: dict[str, SimulatedJob] = {}
        self.ages_from_sight = False  # a key's retention runs from its first arrival, whatever was answered
        self._seen_at: dict[str, datetime] = {}
        self._scripts: dict[str, _Script] = {}
        self._ids = itertools.count(1)
        self._lock = threading.Lock()

    def script(
        self,
        name: str,
        *,
        submit: Iterable[Answer] = (),
        status: Iterable[Answer] = (),
        download: Iterable[Answer] = (),
    ) -> None:
        """What this document's calls answer, one after the other; afterwards all goes well."""
        self._scripts[name] = _Script(iter(submit), iter(status), iter(download))

    def jobs_of(self, name: str) -> list[SimulatedJob]:
        return [job for job in self.jobs.values() if job.name == name]

    def arrivals_of(self, name: str) -> list[Arrival]:
        return [arrival for arrival in self.arrivals if arrival.name == name]

    # --- the contract ---

    def prepare(self, source: DocumentSource) -> PreparedRequest:
        request = super().prepare(source)
        problem = self.unpreparable.get(name_in(request.body))
        if problem is not None:
            raise problem
        return request

    def submit(
        self, request: PreparedRequest, *, idempotency_key: str, now: datetime, gate: Callable[[], None]
    ) -> Accepted | Finished:
        assert_no_transaction()
        if self.trouble is not None and self.trouble.kind is errors.NotSent and self._is_hit("submit"):
            raise self._error("submit", self.trouble)  # no connection stands, so the gate is never reached
        gate()
        assert_no_transaction()
        with self._lock:
            answer = self._submitted(name_in(request.body), request, idempotency_key)
        self.clock.wait(threading.Event(), self.submit_seconds)
        return answer

    def fetch_status(self, provider_job_id: str, *, now: datetime) -> JobStatus:
        assert_no_transaction()
        with self._lock:
            self.reads.append(provider_job_id)
            self._refuse_if_troubled("poll", with_key=True)
            job = self.jobs.get(provider_job_id)
            if job is None:
                raise self._error("poll", Refuse(errors.NotFound))
            answer = next(self._script(job.name).status, None)
            if isinstance(answer, Refuse):
                raise self._error("poll", answer)
            job.read_count += 1
            return self._status(job, answer or (Word("processing") if job.read_count < 2 else Complete()))

    def find_submission(self, idempotency_key: str, *, first_sent_at: datetime, now: datetime) -> LookedUp | None:
        """What `look_up` of its capabilities allows: every job of the key, those of a broken promise included."""
        assert_no_transaction()
        if not self.capabilities.look_up:
            return None
        with self._lock:
            self.look_ups.append(idempotency_key)
            self._refuse_if_troubled("look_up", with_key=True)
            if first_sent_at < self.clock.now() - self.remembers:
                return None
            jobs = [job for job in self.jobs.values() if job.key == idempotency_key]
            if self.hides_ids:
                return LookedUp((), self._exchange("look_up", 200), nameless=len(jobs))
            return LookedUp(
                tuple(self._status(job, Complete() if job.read_count > 1 else Word("processing")) for job in jobs),
                self._exchange("look_up", 200),
            )

    def list_receipts(self, *, now: datetime) -> Receipts | None:
        assert_no_transaction()
        if not self.capabilities.receipts:
            return None
        with self._lock:
            self._refuse_if_troubled("account", with_key=True)
            return Receipts(tuple(self.receipts), self._exchange("account", 200))

    def download(self, ref: ResultRef, sink: BinaryIO, *, max_bytes: int, now: datetime) -> Downloaded:
        assert_no_transaction()
        with self._lock:
            self.downloads.append(ref.provider_job_id)
            self._refuse_if_troubled("download", with_key=False)
            job = self.jobs[ref.provider_job_id]
            answer = next(self._script(job.name).download, Whole())
        self.clock.wait(threading.Event(), self.download_seconds)
        if isinstance(answer, Refuse):
            raise self._error("download", answer)
        whole = pdf(job.name)
        content, declared, content_type = whole, (len(whole),), "application/pdf"
        if isinstance(answer, Cut):
            content = whole[: len(whole) // 2]
            declared = (len(whole if answer.announced else content),)
        elif isinstance(answer, Page):
            content, declared, content_type = answer.content, (len(answer.content),), answer.content_type
        sink.write(content)
        return Downloaded(len(content), content_type, declared, self._exchange("download", 200))

    def delete_remote(self, ref: ResultRef, *, now: datetime) -> Deleted:
        assert_no_transaction()
        with self._lock:
            self._refuse_if_troubled("delete", with_key=True)
            job = self.jobs.get(ref.provider_job_id)
            gone = job is None or job.deleted
            self.deletions.append(ref.provider_job_id)
            if job is not None:
                job.deleted = not self.keeps_deleted
            return Deleted(already_gone=gone, exchange=self._exchange("delete", 404 if gone else 204))

    def is_gone(self, ref: ResultRef, *, now: datetime) -> Gone:
        assert_no_transaction()
        with self._lock:
            if self.trouble is not None and self._is_hit("is_gone"):
                raise self._error("delete", self.trouble)
            job = self.jobs.get(ref.provider_job_id)
            gone = job is None or job.deleted
            return Gone(gone, self._exchange("delete", 404 if gone else 200))

    def check_account(self, *, now: datetime) -> AccountState:
        assert_no_transaction()
        with self._lock:
            self.probes += 1
            self._refuse_if_troubled("account", with_key=True)
            return AccountState(
                plan="simulated", rate_tier="", exchange=self._exchange("account", 200), balance=self.balance
            )

    # --- inside ---

    def _script(self, name: str) -> _Script:
        return self._scripts.setdefault(name, _Script())

    def _submitted(self, name: str, request: PreparedRequest, key: str) -> Accepted | Finished:
        answer: Answer = Accept()
        became, at = "", self.clock.now()
        digest = hashlib.sha256(request.body).hexdigest()
        if at >= self._seen_at.setdefault(key, at) + self.key_retention:
            self._seen_at[key] = at
        try:
            self._refuse_if_troubled("submit", with_key=True)
            answer = next(self._script(name).submit, Accept())
            if isinstance(answer, Refuse):
                raise self._error("submit", answer)
            if isinstance(answer, Double):
                self._by_key.pop(key, None)
            job, became = self._taken(name, key, digest, at)
        except errors.ProviderError as error:
            became = type(error).__name__
            raise
        finally:
            self.arrivals.append(Arrival(at, name, key, digest, became))
        if isinstance(answer, Lose):
            raise self._error("submit", Refuse(answer.kind, "The answer was lost."))
        exchange = self._exchange("submit", 202)
        if isinstance(answer, Finish):
            job.read_count = 2
            return Finished(job.id, "completed", self._result(job, Complete()), exchange)
        return Accepted(job.id, "queued", exchange)

    def _taken(self, name: str, key: str, digest: str, at: datetime) -> tuple[SimulatedJob, str]:
        """The job that this key made, or a new one: billed, also when the key was made before and is forgotten."""
        known = self._by_key.get(key)
        first_at = self._seen_at[key] if self.ages_from_sight else known.accepted_at if known else at
        if known is not None and first_at <= known.accepted_at and at < first_at + self.key_retention:
            if known.body_sha256 != digest:
                raise self._error("submit", Refuse(errors.KeyConflict, code="idempotency_conflict"))
            return known, "replayed"
        if not self.has_credit:
            raise self._error("submit", Refuse(errors.InsufficientCredit, "No funds are left."))
        job = SimulatedJob(f"pdf_{next(self._ids)}", name, key, digest, at)
        self.jobs[job.id] = self._by_key[key] = job
        return job, "accepted"

    def _refuse_if_troubled(self, call: str, *, with_key: bool) -> None:
        if self.trouble is not None and self._is_hit(call):
            raise self._error(call, self.trouble)
        if with_key and not self.key_is_good:
            raise self._error(call, Refuse(errors.Unauthorized, "The key is refused."))

    def _is_hit(self, call: str) -> bool:
        return self.trouble_hits is None or call in self.trouble_hits

    def _status(self, job: SimulatedJob, answer: Answer) -> JobStatus:
        if isinstance(answer, Word):
            return JobStatus(
                job.id, JobPhase.RUNNING, answer.word, self._exchange("poll", 200), created_at=job.accepted_at
            )
        if isinstance(answer, Fail):
            return JobStatus(
                job.id,
                JobPhase.FAILED,
                "failed",
                self._exchange("poll", 200),
                error_code=answer.code,
                error_words=answer.words,
                unbilled=answer.unbilled,
                created_at=job.accepted_at,
            )
        assert isinstance(answer, Complete)
        return JobStatus(
            job.id,
            JobPhase.SUCCEEDED,
            "completed",
            self._exchange("poll", 200),
            result=self._result(job, answer),
            warnings=answer.warnings,
            created_at=job.accepted_at,
        )

    def _result(self, job: SimulatedJob, answer: Complete) -> ResultRef:
        expires_at = None
        if answer.link_seconds is not None:
            expires_at = self.clock.now() + timedelta(seconds=answer.link_seconds)
        return ResultRef(
            job.id,
            url=f"https://files.test/{job.id}",
            size_bytes=len(pdf(job.name)),
            expires_at=expires_at,
            billed=self.billed_amount,
        )

    def _exchange(self, kind: str, status: int | None, error_class: str = "") -> ExchangeFacts:
        return ExchangeFacts(kind, self.clock.now(), 5, status, error_class)

    def _error(self, call: str, refusal: Refuse) -> errors.ProviderError:
        name = refusal.kind.__name__
        return refusal.kind(
            refusal.words,
            code=refusal.code,
            retry_after=refusal.retry_after,
            replayed=refusal.replayed,
            exchange=self._exchange(call, None, name),
        )


def assert_no_transaction() -> None:
    """No transaction may be open across a network call; the engine's threads have no database at all."""
    assert not connection.in_atomic_block, "the network is called inside a transaction"
    if threading.current_thread() is not threading.main_thread():
        assert connection.connection is None, "a step of the engine has a database connection"
