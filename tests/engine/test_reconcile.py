"""What a person may paste, one id for two documents at once, and what counts as a text of its own in a PDF."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import BinaryIO

import pytest
from django.conf import settings

from batches.engine import adoption
from batches.engine.audit import By
from batches.engine.orders import Order
from batches.engine.pdfcheck import PdfChecker
from batches.models import AuditEntry, Batch, JobState, Submission
from batches.providers.base import Downloaded, ExchangeFacts, JobPhase, JobStatus, ResultRef
from batches.storage import open_store
from tests import factories
from tests.engine import racing
from tests.engine.vendor import Vendor, pdf

CONFIRMED = Order(By(None, "m.okoye", "a test"), is_confirmed=True)


class OnlyReads(Vendor):
    """Every job is finished, and its PDF shows INV-1."""

    def fetch_status(self, provider_job_id: str, *, now: datetime) -> JobStatus:
        ref = ResultRef(provider_job_id, url="https://files.test/1")
        return JobStatus(provider_job_id, JobPhase.SUCCEEDED, "completed", self._facts("poll", now), result=ref)

    def download(self, ref: ResultRef, sink: BinaryIO, *, max_bytes: int, now: datetime) -> Downloaded:
        content = pdf("INV-1")
        sink.write(content)
        return Downloaded(len(content), "application/pdf", (len(content),), self._facts("download", now))

    def _facts(self, kind: str, now: datetime) -> ExchangeFacts:
        return ExchangeFacts(kind, now, 1, 200)


@pytest.mark.parametrize(
    ("pasted", "found"),
    [
        ("pdf_k7", "pdf_k7"),
        ("  pdf_k7\n", "pdf_k7"),
        ('"pdf_k7"', "pdf_k7"),
        ("https://api.relaypdf.com/v1/jobs/pdf_k7", "pdf_k7"),
        ("https://api.relaypdf.com/v1/files/pdf_k7/?download=1#x", "pdf_k7"),
        ("<https://api.relaypdf.com/v1/jobs/pdf_k7>", "pdf_k7"),
        ("a.b:c~d", "a.b:c~d"),
    ],
)
def test_an_id_is_found_in_what_was_pasted(pasted: str, found: str) -> None:
    assert adoption.sanitised(pasted) == found


@pytest.mark.parametrize(
    "pasted",
    [
        "",
        "   ",
        "pdf\x00k7",
        "pdf k7",
        "..",
        "../account",
        "jobs/pdf_k7",
        "pdf_k7?x",
        "pdf%2fk7",
        "pdf\\k7",
        "p" * 201,
        "https://api.relaypdf.com/",
        "https://api.relaypdf.com/v1/jobs/%2e%2e",
        "https://api.relaypdf.com/v1/jobs/a%2fb",
        "https://[broken/v1",
        "pdf\u202ek7",
    ],
)
def test_what_is_no_id_is_refused_with_a_sentence(pasted: str) -> None:
    with pytest.raises(ValueError, match=r"\.$"):
        adoption.sanitised(pasted)


@pytest.mark.django_db(transaction=True)
def test_one_id_that_two_people_adopt_at_once_goes_to_one_document(batch: Batch, checker: PdfChecker) -> None:
    jobs = [factories.make_job(batch=batch, state=JobState.UNKNOWN, business_id=f"INV-{n}") for n in (1, 2)]
    for job in jobs:
        factories.make_submission(job=job)
    store = open_store(settings.STORAGE_URL)

    def adopting(job_id: int) -> adoption.Adoption:
        return adoption.adopt(
            job_id, "pdf_k7", order=CONFIRMED, provider=provider, store=store, checker=checker, now=factories.NOW
        )

    provider = OnlyReads()
    came_of = racing.answers([lambda job=job: adopting(job.pk) for job in jobs])  # type: ignore[misc]
    assert sorted(each.result.is_done for each in came_of) == [False, True]
    (refused,) = [each.result.words for each in came_of if not each.result.is_done]
    assert "belongs to document INV-" in refused
    assert Submission.objects.filter(provider_job_id="pdf_k7").count() == 1
    assert AuditEntry.objects.filter(action="adopt").count() == 1
    states = {job.pk: type(job).objects.get(pk=job.pk).state for job in jobs}
    assert sorted(states.values()) == ["rendered", "unknown"]


@pytest.mark.parametrize(
    ("find", "is_found"), [("INV-1", True), ("inv-1", True), ("INV-10", False), ("NV-1", False), ("", None)]
)
def test_a_text_is_found_in_a_pdf_only_as_a_word_of_its_own(
    find: str, is_found: bool | None, tmp_path: Path, checker: PdfChecker
) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(pdf("Invoice INV-1, due"))
    assert checker.check(path, find=find).found is is_found
