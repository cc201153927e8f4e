"""Values of the engine that no row stands behind: claims, submissions, exchanges and accounts for its pure rules."""

from __future__ import annotations

import hashlib
import random
from datetime import datetime, timedelta
from typing import Any

from batches.engine.claims import Claim, OpenSubmission
from batches.engine.preparing import Prepared
from batches.engine.submission import Sending
from batches.models import JobState, ProviderAccount
from batches.providers.base import ExchangeFacts, JobPhase, JobStatus, PreparedRequest, ResultRef
from tests.factories import NOW

BODY = b'{"html":"<h1>INV-7</h1>"}'


class Dice(random.Random):
    """Dice that always fall at the same place of every range: 0 is the low end, 1 the high end."""

    def __init__(self, place: float) -> None:
        super().__init__(0)
        self._place = place

    def uniform(self, a: float, b: float) -> float:
        return a + (b - a) * self._place

    def random(self) -> float:
        return self._place


def account(**fields: Any) -> ProviderAccount:
    """An account that is not stored."""
    defaults = {
        "pk": 3,
        "slug": "relaypdf",
        "name": "RelayPDF",
        "base_url": "http://127.0.0.1:9",
        "submit_interval_ms": 50,
        "poll_initial_ms": 1000,
        "poll_max_ms": 15000,
        "deadline_seconds": 1800,
    }
    return ProviderAccount(**defaults | fields)


def open_submission(**fields: Any) -> OpenSubmission:
    defaults: dict[str, Any] = {
        "id": 71,
        "sequence": 1,
        "idempotency_key": "k" * 64,
        "route": "/v1/pdf",
        "request_sha256": hashlib.sha256(BODY).hexdigest(),
        "body_key": None,
        "try_count": 1,
        "in_doubt": True,
        "first_sent_at": NOW,
        "resend_until": NOW + timedelta(hours=1),
        "provider_job_id": None,
        "result": None,
    }
    return OpenSubmission(**defaults | fields)


def accepted_submission(**fields: Any) -> OpenSubmission:
    return open_submission(**{"provider_job_id": "pdf_7", "in_doubt": False, "try_count": 1} | fields)


def claim(state: JobState = JobState.PENDING, **fields: Any) -> Claim:
    defaults: dict[str, Any] = {
        "job_id": 7,
        "token": 4,
        "state": state,
        "account_id": 3,
        "workspace_id": 1,
        "workspace_slug": "default",
        "document_id": 17,
        "business_id": "INV-7",
        "version_id": 27,
        "version_number": 1,
        "due_at": NOW,
        "deadline_at": None,
        "state_changed_at": NOW,
        "poll_count": 0,
        "fetch_count": 0,
        "next_sequence": 1,
        "submission": None,
    }
    if state in (JobState.ACCEPTED, JobState.RENDERED):
        defaults |= {"deadline_at": NOW + timedelta(seconds=1800), "submission": accepted_submission()}
    if state is JobState.SUBMITTING:
        defaults["submission"] = open_submission()
    return Claim(**defaults | fields)


def sending(*, doubt_before: bool = False, slot: datetime = NOW, **fields: Any) -> Sending:
    """A submission whose intent is committed; `fields` are the submission's."""
    known = open_submission(**fields)
    prepared = Prepared(
        claim=claim(JobState.SUBMITTING, submission=known),
        request=PreparedRequest(route="/v1/pdf", body=BODY),
        request_sha256=known.request_sha256,
        body_key=None,
        doubt_before=doubt_before,
    )
    return Sending(prepared, known, slot)


def exchange(kind: str = "submit", *, status: int | None = 200, at: datetime = NOW, **fields: Any) -> ExchangeFacts:
    return ExchangeFacts(kind=kind, started_at=at, duration_ms=12, status=status, **fields)


def status(phase: JobPhase, word: str, *, at: datetime = NOW, **fields: Any) -> JobStatus:
    """A status read that began `at`."""
    if phase is JobPhase.SUCCEEDED:
        fields.setdefault("result", ResultRef("pdf_7", url="http://127.0.0.1:9/v1/files/7", size_bytes=900))
    return JobStatus(provider_job_id="pdf_7", phase=phase, status_word=word, exchange=exchange("poll", at=at), **fields)
