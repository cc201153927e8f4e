"""A simulated provider with drafts: it takes no key, makes a draft of each submission, and bills each start it gets.

provider.script_start("INV-1", Refuse(errors.AnswerLost), Lose())   # never arrived; arrived, and the answer is lost
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from batches.engine.clock import Clock
from batches.providers import errors
from batches.providers.base import Accepted, Finished, JobPhase, JobStatus, PreparedRequest
from tests.engine.simulated import (
    Answer,
    Lose,
    Refuse,
    SimulatedJob,
    SimulatedProvider,
    assert_no_transaction,
)


@dataclass(frozen=True)
class Start:
    """One call that asked for a draft to begin. `is_billed`: it did begin, once more if it had before."""

    at: datetime
    name: str
    job_id: str
    is_billed: bool


class DraftingProvider(SimulatedProvider):
    """See `providers.base.Provider`. What is not known is read at its worst: each start of a job is a bill."""

    capabilities = replace(SimulatedProvider.capabilities, client_key=False, drafts=True, resend_is_harmless=True)

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.connect_seconds = 0.0
        self.shows_starts_after = timedelta(0)  # a status read goes on saying draft for so long
        self.starts: list[Start] = []
        self._start_scripts: dict[str, Iterator[Answer]] = {}

    def script_start(self, name: str, *answers: Answer) -> None:
        self._start_scripts[name] = iter(answers)

    def starts_of(self, name: str) -> list[Start]:
        return [start for start in self.starts if start.name == name]

    def bills_of(self, name: str) -> int:
        return sum(start.is_billed for start in self.starts_of(name))

    # --- the contract ---

    def submit(
        self, request: PreparedRequest, *, idempotency_key: str, now: datetime, gate: Callable[[], None]
    ) -> Accepted | Finished:
        accepted = super().submit(request, idempotency_key=idempotency_key, now=now, gate=gate)
        return Accepted(accepted.provider_job_id, "draft", accepted.exchange, is_draft=True)

    def start(
        self,
        provider_job_id: str,
        request: PreparedRequest,
        *,
        idempotency_key: str,
        now: datetime,
        gate: Callable[[], None],
    ) -> Accepted:
        assert_no_transaction()
        if self.connect_seconds:
            self.clock.wait(threading.Event(), self.connect_seconds)
        gate()
        assert_no_transaction()
        with self._lock:
            job = self.jobs[provider_job_id]
            answer = next(self._start_scripts.get(job.name, iter(())), None)
            self.starts.append(Start(self.clock.now(), job.name, job.id, not isinstance(answer, Refuse)))
            if isinstance(answer, Refuse):
                raise self._error("submit", answer)
            if not self.has_credit:
                self.starts[-1] = replace(self.starts[-1], is_billed=False)
                raise self._error("submit", Refuse(errors.InsufficientCredit, "No documents are left."))
            if isinstance(answer, Lose):
                raise self._error("submit", Refuse(answer.kind, "The answer was lost."))
            return Accepted(job.id, "pending", self._exchange("submit", 200))

    def fetch_status(self, provider_job_id: str, *, now: datetime) -> JobStatus:
        assert_no_transaction()
        with self._lock:
            job = self.jobs.get(provider_job_id)
            if job is not None and not self._shows_start(job):
                self.reads.append(provider_job_id)
                self._refuse_if_troubled("poll", with_key=True)
                return JobStatus(job.id, JobPhase.DRAFT, "draft", self._exchange("poll", 200))
        return super().fetch_status(provider_job_id, now=now)

    def _shows_start(self, job: SimulatedJob) -> bool:
        seen_from = self.clock.now() - self.shows_starts_after
        return any(start.job_id == job.id and start.is_billed and start.at <= seen_from for start in self.starts)

    def _taken(self, name: str, key: str, digest: str, at: datetime) -> tuple[SimulatedJob, str]:
        self._by_key.pop(key, None)  # no key is known here: one more draft
        has_credit, self.has_credit = self.has_credit, True
        try:
            return super()._taken(name, key, digest, at)
        finally:
            self.has_credit = has_credit
