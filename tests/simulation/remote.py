"""The vendor of a simulated world: what it accepted, rendered and billed.

This is the vendor's side and the truth; the adapter that the engine calls is in `network.py`. What the ledger here says
is held against what the engine says (`checks.py`).
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from batches.providers import errors
from batches.providers.base import Accepted, ExchangeFacts, Finished, JobPhase, JobStatus, LookedUp, ResultRef
from tests.engine.vendor import name_in, pdf
from tests.simulation.plan import Plan
from tests.simulation.scheduler import Process, Scheduler

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
    """One render at the vendor. `bills` is what stands on the invoice for it; nothing while it is a draft."""

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
    is_draft: bool = False


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
    spares_reads: bool = False  # the outage hits submissions alone
    key_is_good: bool = True
    credit: int | None = None
    jobs: dict[str, RemoteJob] = field(default_factory=dict)
    keys: dict[str, KnownKey] = field(default_factory=dict)
    accepted_keys: dict[str, list[RemoteJob]] = field(default_factory=dict)
    bodies: dict[str, str] = field(default_factory=dict)
    doubled: set[str] = field(default_factory=set)
    refusals: dict[str, Refusal] = field(default_factory=dict)
    #: When each key was seen first, how often it arrived, and how often it was answered with 429 or for the account.
    seen_us: dict[str, int] = field(default_factory=dict)
    arrivals: Counter[str] = field(default_factory=Counter)
    limited: Counter[str] = field(default_factory=Counter)
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

    @property
    def outage_of_reads(self) -> str:
        return "" if self.spares_reads else self.outage

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
        self.arrivals[key] += 1
        if now >= self.seen_us.setdefault(key, now) + self.retention_us:
            self.seen_us[key] = now
        try:
            return self._judge(name, digest, key, now)
        except (errors.RateLimited, errors.AccountRefused):
            self.limited[key] += 1
            raise

    def _judge(self, name: str, digest: str, key: str, now: int) -> Accepted | Finished:
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
        if self.plan.has("keyless") and key in self.accepted_keys:
            self.report(f"{name}: sent again, and the provider takes no key by which it could know it")
        known = None if self.plan.has("keyless") or self.plan.has("drafts") else self.keys.get(key)
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
        if self.credit is not None and self.credit <= 0 and not self.plan.has("drafts"):
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

    def begin(self, job_id: str) -> Accepted:
        """A draft is told to begin, and is billed. Raises what it answers."""
        self._refuse_by_mood()
        if not self.key_is_good:
            raise self.error("submit", errors.Unauthorized, 401)
        if self.meets("rate_limits"):
            raise self.error("submit", errors.RateLimited, 429, retry_after=self.rng.choice((None, 0.0, 1.0, 7.0)))
        if self.credit is not None and self.credit <= 0:
            raise self.error("submit", errors.InsufficientCredit, 402)
        job = self.jobs[job_id]
        if not job.is_draft:
            self.report(f"{job.name}: {job.id} was told to begin a second time")
        made = self._made(job.id, job.name, job.key)
        job.is_draft, job.bills = False, job.bills + made.bills
        for name in ("finishes_us", "file_until_us", "failure", "recovers_us"):
            setattr(job, name, getattr(made, name))
        self._spend(job)
        return Accepted(job.id, "queued", self.exchange("submit", 200))

    def _accept(self, name: str, key: str, digest: str) -> Accepted | Finished:
        now = self.scheduler.now_us
        job = self._made(f"pdf_{len(self.jobs) + 1}", name, key)
        if self.plan.has("drafts"):
            job.is_draft, job.bills = True, 0
        self.jobs[job.id] = job
        self.accepted_keys.setdefault(key, []).append(job)
        busy = int(self.rng.uniform(0.1, 3) * 1e6) if self.meets("slow_network") else 0
        since = self.seen_us[key] if self.plan.has("keys_age_from_sight") else now
        self.keys[key] = KnownKey(digest, job, since, now + busy)
        self.trace("accepted", name, job.id)
        if job.is_draft:
            return Accepted(job.id, "draft", self.exchange("submit", 201), is_draft=True)
        self._spend(job)
        return self._answer(job)

    def _spend(self, job: RemoteJob) -> None:
        """It is paid for and worked on from now on."""
        if self.credit is not None:
            self.credit -= 1
        after = max(0.0, (job.finishes_us - self.scheduler.now_us) / 1e6)
        self.scheduler.spawn(self.scheduler.nobody, lambda: self.on_job(job), after=after)

    def _made(self, job_id: str, name: str, key: str) -> RemoteJob:
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
            id=job_id,
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
        return job

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
        return self._status(job)

    def _status(self, job: RemoteJob) -> JobStatus:
        now = self.scheduler.now_us
        facts = self.exchange("poll", 200)
        if job.is_draft:
            return JobStatus(job.id, JobPhase.DRAFT, "draft", facts)
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

    def found_by(self, key: str) -> LookedUp:
        """Every job that was ever accepted under a key, as it stands."""
        self._refuse_reads("look_up")
        jobs = self.accepted_keys.get(key, ())
        self.trace("was asked for a key", key[:6], len(jobs))
        return LookedUp(tuple(self._status(job) for job in jobs), self.exchange("look_up", 200))

    def has_finished(self, job_id: str) -> bool:
        """Is there a PDF of it, now or soon, as far as the vendor knows?"""
        job = self.jobs[job_id]
        return not job.is_draft and (not job.failure or job.recovers_us is not None)

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
        outage = self.outage_of_reads
        if outage in ("5xx", "429"):
            kind, status = {"5xx": (errors.ServerFault, 502), "429": (errors.RateLimited, 429)}[outage]
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
