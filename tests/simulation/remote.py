"""The vendor of a simulated world: what it accepted, rendered and billed, and the network on the way to it.

`Remote` is the vendor's side and the truth; `RemoteProvider` is the adapter that the engine calls. A request that has
left is a task of nobody's: it arrives whether or not its sender still lives. What the ledger here says is held against
what the engine says (`checks.py`).
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import BinaryIO

from batches.conf import ENGINE
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
    JobPhase,
    JobStatus,
    PreparedRequest,
    ProviderEvent,
    ResultRef,
    SignatureRefused,
)
from tests.engine.simulated import pdf
from tests.simulation.plan import Plan
from tests.simulation.scheduler import Event, Process, Scheduler

#: A request that left arrives within the engine's own timeout or not at all.
SLOWEST_WAY = ENGINE.read_timeout - 1.0
#: Failures that this vendor documents as final and not billed.
UNBILLED_CODES = frozenset({"render_crashed"})


#: What a vendor may refuse once and then repeat for the key.
STORED: tuple[tuple[type[errors.ProviderError], int, str], ...] = (
    (errors.ServerFault, 500, ""),
    (errors.InsufficientCredit, 402, ""),
    (errors.RateLimited, 429, ""),
    (errors.InvalidInput, 422, "invalid_html"),
)


@dataclass
class RemoteJob:
    """One render at the vendor. `bills` is what stands on the invoice for it."""

    id: str
    name: str
    key: str
    accepted_us: int
    finishes_us: int
    file_until_us: int
    visible_us: int
    failure: str = ""
    recovers_us: int | None = None
    bills: int = 1


@dataclass
class KnownKey:
    """What the vendor remembers of an idempotency key until its retention ends."""

    body_sha256: str
    job: RemoteJob
    since_us: int
    busy_until_us: int


@dataclass(frozen=True)
class Refusal:
    """What the vendor answers again to every request with a key that it refused once."""

    kind: type[errors.ProviderError]
    status: int
    code: str
    until_us: int


@dataclass
class Remote:
    """The vendor. `report` takes what it saw that must never happen; `on_job` is told of every job's end."""

    scheduler: Scheduler
    rng: random.Random
    plan: Plan
    report: Callable[[str], None]
    on_job: Callable[[RemoteJob], None]
    intent_is_committed: Callable[[str, str], bool]
    trace: Callable[..., None]
    is_calm: bool = False
    outage: str = ""
    key_is_good: bool = True
    credit: int | None = None
    jobs: dict[str, RemoteJob] = field(default_factory=dict)
    keys: dict[str, KnownKey] = field(default_factory=dict)
    accepted_keys: dict[str, list[RemoteJob]] = field(default_factory=dict)
    bodies: dict[str, str] = field(default_factory=dict)
    doubled: set[str] = field(default_factory=set)
    refusals: dict[str, Refusal] = field(default_factory=dict)
    #: Whose process was told each job's id.
    told: dict[str, Process] = field(default_factory=dict)
    under_way: set[tuple[int, int]] = field(default_factory=set)
    trial: Callable[[], int] = lambda: 0
    departures_us: list[int] = field(default_factory=list)
    invalid: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.retention_us = int(self.plan.retention_seconds * 1e6)

    def meets(self, kind: str, times: float = 1.0) -> bool:
        """Does this call meet that trouble?"""
        return not self.is_calm and self.plan.has(kind) and self.rng.random() < min(0.9, self.plan.share * times)

    # --- submissions ---

    def arrive(self, body: bytes, key: str) -> Accepted | Finished:
        """One submission reaches the vendor. Raises what it answers."""
        digest = hashlib.sha256(body).hexdigest()
        name = name_in(body)
        if not self.intent_is_committed(key, digest):
            self.report(f"{name}: bytes arrived whose intent is not committed")
        if self.bodies.setdefault(key, digest) != digest:
            self.report(f"{name}: other bytes under a key that is known")
        now = self.scheduler.now_us
        self._refuse_by_mood()
        if not self.key_is_good:
            raise self.error("submit", errors.Unauthorized, 401)
        if self.meets("rate_limits"):
            raise self.error("submit", errors.RateLimited, 429, retry_after=self.rng.choice((None, 0.0, 1.0, 7.0)))
        self._repeat_refusal(key)
        if self.meets("stored_refusals", 0.7):
            kind, status, code = self.rng.choice(STORED)
            self._keep_refusal(key, kind, status, code)
            raise self.error("submit", kind, status, code=code)
        if self.meets("server_faults", 0.5):
            self._keep_refusal(key, errors.ServerFault, 503)
            raise self.error("submit", errors.ServerFault, 503, retry_after=self.rng.choice((None, 2.0)))
        known = self.keys.get(key)
        if known is not None and now < known.since_us + self.retention_us:
            if now < known.busy_until_us:
                raise self.error("submit", errors.KeyConflict, 409, code="in_flight")
            if self.meets("double_jobs", 6):
                self.doubled.add(key)
                return self._accept(name, key, digest)
            self.trace("replayed", name, known.job.id)
            return self._answer(known.job)
        if name in self.invalid:
            self._keep_refusal(key, errors.InvalidInput, 422, "invalid_html")
            raise self.error("submit", errors.InvalidInput, 422, code="invalid_html")
        if self.credit is not None and self.credit <= 0:
            self._keep_refusal(key, errors.InsufficientCredit, 402)
            raise self.error("submit", errors.InsufficientCredit, 402)
        if known is not None:
            self.report(f"{name}: sent again with a key that the provider had accepted and forgotten")
        return self._accept(name, key, digest)

    def _keep_refusal(self, key: str, kind: type[errors.ProviderError], status: int, code: str = "") -> None:
        """Some vendors store a refusal under its key as well, and repeat it."""
        if key not in self.accepted_keys and self.meets("stored_refusals", 3):
            self.refusals[key] = Refusal(kind, status, code, self.scheduler.now_us + self.retention_us)

    def _repeat_refusal(self, key: str) -> None:
        kept = self.refusals.get(key)
        if kept is not None and self.scheduler.now_us < kept.until_us:
            self.trace("repeats its refusal", key[:6], kept.status)
            error = self.error("submit", kept.kind, kept.status, code=kept.code)
            error.replayed = self.plan.has("marks_replays")
            raise error

    def _refuse_by_mood(self) -> None:
        if self.outage == "5xx":
            raise self.error("submit", errors.ServerFault, 502)
        if self.outage == "429":
            raise self.error("submit", errors.RateLimited, 429, retry_after=self.rng.choice((None, 1.0, 5.0)))
        if self.outage == "402":
            raise self.error("submit", errors.InsufficientCredit, 402)

    def _accept(self, name: str, key: str, digest: str) -> Accepted | Finished:
        now = self.scheduler.now_us
        low, high = self.plan.render_seconds
        seconds = self.rng.uniform(low, high)
        if self.meets("slow_jobs"):
            seconds *= self.rng.choice((5, 20))
        if self.meets("finished_at_once"):
            seconds = 0.0
        finishes = now + int(seconds * 1e6)
        file_seconds = self.rng.choice((5.0, 20.0)) if self.meets("link_expiry") else 24 * 3600.0
        job = RemoteJob(
            id=f"pdf_{len(self.jobs) + 1}",
            name=name,
            key=key,
            accepted_us=now,
            finishes_us=finishes,
            file_until_us=finishes + int(file_seconds * 1e6),
            visible_us=now + int(self.rng.uniform(0.5, 8) * 1e6) if self.meets("not_found_at_first") else now,
        )
        if self.meets("failed_jobs"):
            job.failure = self.rng.choice(("render_error", "render_crashed"))
            if job.failure in UNBILLED_CODES:
                job.bills = 0
            elif self.rng.random() < 0.3:
                job.recovers_us = finishes + int(self.rng.uniform(1, 60) * 1e6)
        self.jobs[job.id] = job
        self.accepted_keys.setdefault(key, []).append(job)
        busy = int(self.rng.uniform(0.1, 3) * 1e6) if self.meets("slow_network") else 0
        self.keys[key] = KnownKey(digest, job, now, now + busy)
        if self.credit is not None:
            self.credit -= 1
        self.trace("accepted", name, job.id)
        self.scheduler.spawn(self.scheduler.nobody, lambda: self.on_job(job), after=max(0.0, seconds))
        return self._answer(job)

    def _answer(self, job: RemoteJob) -> Accepted | Finished:
        facts = self.exchange("submit", 202)
        if self.scheduler.now_us >= job.finishes_us and not job.failure and self.plan.has("finished_at_once"):
            return Finished(job.id, "completed", self.result(job), facts)
        return Accepted(job.id, "queued", facts)

    # --- the rest ---

    def status(self, job_id: str) -> JobStatus:
        self._refuse_reads("poll")
        job, now = self.jobs.get(job_id), self.scheduler.now_us
        if job is None:
            self.report(f"a status read names job {job_id}, which this provider never made")
        if job is None or now < job.visible_us:
            raise self.error("poll", errors.NotFound, 404)
        facts = self.exchange("poll", 200)
        if now < job.finishes_us:
            word = self.rng.choice(("reticulating", "")) if self.meets("unknown_words") else "processing"
            return JobStatus(job.id, JobPhase.RUNNING, word, facts)
        if job.failure and (job.recovers_us is None or now < job.recovers_us):
            return JobStatus(
                job.id,
                JobPhase.FAILED,
                "failed",
                facts,
                error_code=job.failure,
                error_words="The page would not render.",
                unbilled=job.failure in UNBILLED_CODES,
            )
        return JobStatus(job.id, JobPhase.SUCCEEDED, "completed", facts, result=self.result(job))

    def has_finished(self, job_id: str) -> bool:
        """Is there a PDF of it, now or soon, as far as the vendor knows?"""
        job = self.jobs[job_id]
        return not job.failure or job.recovers_us is not None

    def result(self, job: RemoteJob) -> ResultRef:
        expires = self.scheduler.start + timedelta(microseconds=job.file_until_us)
        return ResultRef(job.id, f"https://files.test/{job.id}", len(pdf(job.name)), expires, f"{job.name}.pdf")

    def file(self, job_id: str) -> tuple[bytes, str, int]:
        """What a download gives: content, type and announced size."""
        self._refuse_reads("download")
        job = self.jobs[job_id]
        if self.scheduler.now_us >= job.file_until_us:
            raise self.error("download", errors.NotFound, 410)
        whole = pdf(job.name)
        if not self.meets("bad_downloads"):
            return whole, "application/pdf", len(whole)
        spoilt = self.rng.choice(("cut", "short", "page", "garbage", "empty"))
        if spoilt == "cut":
            return whole[: len(whole) // 2], "application/pdf", len(whole)
        if spoilt == "short":
            return whole[: len(whole) // 2], "application/pdf", len(whole) // 2
        if spoilt == "page":
            return b"<html>Please sign in</html>", "text/html", 27
        if spoilt == "garbage":
            return b"%PDF-1.4\nnothing that opens\n%%EOF\n", "application/pdf", 35
        return b"", "application/pdf", 0

    def _refuse_reads(self, call: str) -> None:
        if self.outage in ("5xx", "429"):
            kind, status = {"5xx": (errors.ServerFault, 502), "429": (errors.RateLimited, 429)}[self.outage]
            raise self.error(call, kind, status)
        if not self.key_is_good:
            raise self.error(call, errors.Unauthorized, 401)
        if self.meets("download_errors", 0.7):
            raise self.error(call, errors.ServerFault, 500)
        if self.meets("rate_limits", 0.3):
            raise self.error(call, errors.RateLimited, 429, retry_after=self.rng.choice((None, 1.0)))

    def exchange(self, kind: str, status: int | None, error_class: str = "") -> ExchangeFacts:
        return ExchangeFacts(kind, self.scheduler.now(), 5, status, error_class)

    def error(
        self,
        call: str,
        kind: type[errors.ProviderError],
        status: int | None = None,
        *,
        code: str = "",
        retry_after: float | None = None,
    ) -> errors.ProviderError:
        return kind(
            f"The simulated provider: {kind.__name__}.",
            code=code,
            status=status,
            retry_after=retry_after,
            exchange=self.exchange(call, status, kind.__name__),
        )


class RemoteProvider:
    """See `providers.base.Provider`."""

    kind = "relaypdf"
    capabilities = Capabilities(
        client_key=True,
        key_retention_seconds=3600,
        link_lifetime_seconds=24 * 3600,
        topup_events=frozenset({"wallet.topup"}),
        unbilled_failure_codes=UNBILLED_CODES,
    )

    def __init__(self, remote: Remote) -> None:
        self.remote = remote
        self._scheduler = remote.scheduler

    def prepare(self, source: DocumentSource) -> PreparedRequest:
        body = json.dumps({source.kind: source.text, "options": dict(source.options)}, sort_keys=True).encode()
        return PreparedRequest(route="/v1/pdf", body=body)

    def submit(
        self, request: PreparedRequest, *, idempotency_key: str, now: datetime, gate: Callable[[], None]
    ) -> Accepted | Finished:
        remote, wait = self.remote, self._scheduler.sleep
        wait(remote.rng.uniform(0, 0.02))
        if remote.outage == "refused" or remote.meets("not_sent", 0.6):
            raise remote.error("submit", errors.NotSent)
        gate()
        remote.departures_us.append(self._scheduler.now_us)
        remote.trace("left", name_in(request.body), idempotency_key[:6])
        self._maybe_suspend()
        answered = Event(self._scheduler)
        reply: list[Accepted | Finished | errors.ProviderError] = []
        self._travel(request.body, idempotency_key, answered, reply)
        if remote.meets("double_jobs", 5):
            # Long enough for another holder to send it again, and to be given another job for the same key.
            self._scheduler.suspend(self._scheduler.process, remote.rng.uniform(16, 40))
        with self._alone_on_trial():
            if not self._scheduler.wait(answered, ENGINE.read_timeout):
                raise remote.error("submit", errors.AnswerLost)
        if isinstance(reply[0], errors.ProviderError):
            raise reply[0]
        remote.told[reply[0].provider_job_id] = self._scheduler.process
        return reply[0]

    @contextmanager
    def _alone_on_trial(self) -> Iterator[None]:
        """After a top-up one submission at a time finds out whether there is credit."""
        remote, now = self.remote, self._scheduler.now_us
        trial = remote.trial()
        longest_us = int((ENGINE.read_timeout + ENGINE.connect_timeout) * 1e6)
        if trial and any(each == trial and now < since + longest_us for each, since in remote.under_way):
            remote.report("two submissions are under way while one is to show whether there is credit")
        mine = (trial, now)
        remote.under_way.add(mine)
        try:
            yield
        finally:
            remote.under_way.discard(mine)

    def _travel(
        self, body: bytes, key: str, answered: Event, reply: list[Accepted | Finished | errors.ProviderError]
    ) -> None:
        """The request's way there and the answer's way back, whatever becomes of the sender meanwhile."""
        remote = self.remote
        there = remote.rng.uniform(1, SLOWEST_WAY) if remote.meets("slow_network") else remote.rng.uniform(0.001, 0.05)
        is_lost = remote.outage == "silent" or remote.meets("lost_answers", 0.5)
        back = remote.rng.uniform(0.001, 0.05)
        loses_answer = remote.meets("lost_answers")
        resets = remote.rng.random() < 0.7  # the loss shows at once, or only by the timeout
        breaks = remote.meets("server_faults", 0.7)

        def way() -> None:
            answer: Accepted | Finished | errors.ProviderError
            if is_lost:
                if resets:
                    reply.append(remote.error("submit", errors.AnswerLost))
                    answered.set()
                return
            try:
                answer = remote.arrive(body, key)
                if breaks:
                    answer = remote.error("submit", remote.rng.choice((errors.ServerFault, errors.ContractBroken)), 500)
            except errors.ProviderError as refused:
                answer = refused
            self._scheduler.sleep(back)
            if loses_answer:
                self._maybe_go_dark()
                answer = remote.error("submit", errors.AnswerLost)
                if not resets:
                    return
            reply.append(answer)
            answered.set()

        self._scheduler.spawn(self._scheduler.nobody, way, after=there)

    def _maybe_go_dark(self) -> None:
        """An answer is often lost because the vendor is going down: for about as long as it knows its keys."""
        remote = self.remote
        if remote.is_calm or remote.outage or not remote.plan.has("outages") or remote.rng.random() > 0.3:
            return
        remote.outage = mood = remote.rng.choice(("refused", "silent", "5xx", "429"))
        seconds = min(300.0, remote.plan.retention_seconds) * remote.rng.uniform(0.5, 1.5)
        remote.trace("goes dark", mood, seconds)

        def light() -> None:
            if remote.outage == mood:
                remote.outage = ""

        self._scheduler.spawn(self._scheduler.nobody, light, after=seconds)

    def _maybe_suspend(self) -> None:
        """The caller's whole process stands still while its call is under way, often for longer than its leases."""
        remote = self.remote
        if remote.meets("suspensions", 0.3):
            # Just past the end of a lease is where two holders are likeliest to meet.
            seconds = remote.rng.choice((remote.rng.uniform(10, 20), remote.rng.uniform(10, 45)))
            remote.trace("suspended in a call", seconds)
            self._scheduler.suspend(self._scheduler.process, seconds)

    def fetch_status(self, provider_job_id: str, *, now: datetime) -> JobStatus:
        self._call("poll")
        return self.remote.status(provider_job_id)

    def download(self, ref: ResultRef, sink: BinaryIO, *, max_bytes: int, now: datetime) -> Downloaded:
        self._call("download")
        content, content_type, announced = self.remote.file(ref.provider_job_id)
        sink.write(content)
        self._scheduler.sleep(self.remote.rng.uniform(0.001, 0.1))
        declared = tuple(size for size in (announced, ref.size_bytes) if size is not None)
        return Downloaded(len(content), content_type, declared, self.remote.exchange("download", 200))

    def delete_remote(self, provider_job_id: str, *, now: datetime) -> Deleted:
        self._call("delete")
        return Deleted(already_gone=False, exchange=self.remote.exchange("delete", 204))

    def check_account(self, *, now: datetime) -> AccountState:
        self._call("account")
        if not self.remote.key_is_good:
            raise self.remote.error("account", errors.Unauthorized, 401)
        if self.remote.outage == "5xx":
            raise self.remote.error("account", errors.ServerFault, 502)
        return AccountState(
            plan="simulated",
            rate_tier="",
            exchange=self.remote.exchange("account", 200),
            balance=self._balance(),
        )

    def _balance(self) -> Decimal | None:
        """Named in the runs in which somebody tops up."""
        if self.remote.credit is None or not self.remote.plan.has("topups"):
            return None
        return Decimal(self.remote.credit)

    def _call(self, call: str) -> None:
        """The way there and back of a call that changes nothing."""
        remote = self.remote
        self._maybe_suspend()
        self._scheduler.sleep(remote.rng.uniform(0.001, 0.05))
        if remote.outage == "refused" or remote.meets("not_sent", 0.4):
            raise remote.error(call, errors.NotSent)
        if remote.outage == "silent" or remote.meets("lost_answers", 0.3):
            self._scheduler.sleep(remote.rng.choice((0.1, ENGINE.read_timeout)))
            raise remote.error(call, errors.AnswerLost)

    def verify_webhook(
        self, headers: Mapping[str, str], body: bytes, secrets: Sequence[str], *, now: datetime
    ) -> datetime:
        raise SignatureRefused("The simulated provider signs nothing.")

    def parse_webhook(self, body: bytes) -> list[ProviderEvent]:
        return []

    def close(self) -> None:
        """It holds nothing."""


def name_in(body: bytes) -> str:
    """The document's business id, which its HTML shows as `<h1>`."""
    found = re.search(rb"<h1>(.*?)</h1>", body)
    return found[1].decode() if found else ""
