"""The simulated provider keeps the promises that the engine relies on: about keys, about bills, about PDFs."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import pytest
from django.db import connection, transaction

from batches.engine.pdfcheck import PdfChecker
from batches.providers import errors
from batches.providers.base import Accepted, DocumentSource, Finished, JobPhase, PreparedRequest, ResultRef
from tests.engine.simulated import Complete, Cut, Fail, Finish, Lose, Page, Refuse, SimulatedProvider, Word
from tests.engine.vendor import pdf
from tests.engine.virtual_time import VirtualClock
from tests.factories import NOW


@pytest.fixture
def provider() -> SimulatedProvider:
    return SimulatedProvider(VirtualClock(NOW))


def request(provider: SimulatedProvider, name: str = "INV-1") -> PreparedRequest:
    return provider.prepare(DocumentSource(kind="html", text=f"<h1>{name}</h1>"))


def submit(provider: SimulatedProvider, key: str = "k1", name: str = "INV-1") -> Accepted | Finished:
    return provider.submit(request(provider, name), idempotency_key=key, now=NOW, gate=lambda: None)


def test_the_same_key_and_bytes_are_answered_with_the_same_job_and_billed_once(provider: SimulatedProvider) -> None:
    assert submit(provider).provider_job_id == submit(provider).provider_job_id
    assert [arrival.became for arrival in provider.arrivals] == ["accepted", "replayed"]
    assert len(provider.jobs) == 1


def test_another_key_is_another_job(provider: SimulatedProvider) -> None:
    assert submit(provider).provider_job_id != submit(provider, "k2").provider_job_id


def test_a_known_key_with_other_bytes_is_a_conflict(provider: SimulatedProvider) -> None:
    submit(provider)
    with pytest.raises(errors.KeyConflict):
        submit(provider, name="INV-2")
    assert len(provider.jobs) == 1


def test_a_key_is_forgotten_after_its_retention_and_a_repeat_is_billed_again(provider: SimulatedProvider) -> None:
    submit(provider)
    provider.clock.advance(3600)
    submit(provider)
    assert len(provider.jobs_of("INV-1")) == 2


def test_a_lost_answer_leaves_a_job_that_its_key_finds_again(provider: SimulatedProvider) -> None:
    provider.script("INV-1", submit=[Lose(), Lose(errors.ServerFault)])
    for kind in (errors.AnswerLost, errors.ServerFault):
        with pytest.raises(kind):
            submit(provider)
    assert submit(provider).provider_job_id == "pdf_1"
    assert len(provider.jobs) == 1


def test_a_refusal_leaves_nothing_and_carries_its_facts(provider: SimulatedProvider) -> None:
    provider.script("INV-1", submit=[Refuse(errors.RateLimited, "Slower.", retry_after=3.0)])
    with pytest.raises(errors.RateLimited, match="Slower") as refused:
        submit(provider)
    assert (refused.value.retry_after, provider.jobs) == (3.0, {})
    assert refused.value.exchange is not None
    assert provider.arrivals[0].became == "RateLimited"


def test_without_credit_only_what_is_new_is_refused(provider: SimulatedProvider) -> None:
    submit(provider)
    provider.has_credit = False
    assert submit(provider).provider_job_id == "pdf_1"
    with pytest.raises(errors.InsufficientCredit):
        submit(provider, "k2", "INV-2")


def test_a_bad_key_is_refused_everywhere_but_at_a_download(provider: SimulatedProvider) -> None:
    submit(provider)
    provider.key_is_good = False
    for call in (
        lambda: submit(provider),
        lambda: provider.fetch_status("pdf_1", now=NOW),
        lambda: provider.check_account(now=NOW),
    ):
        with pytest.raises(errors.Unauthorized):
            call()
    assert provider.download(ResultRef("pdf_1"), io.BytesIO(), max_bytes=10**6, now=NOW).byte_count > 0


def test_when_no_connection_stands_the_gate_is_never_reached(provider: SimulatedProvider) -> None:
    provider.trouble = Refuse(errors.NotSent)

    def gate() -> None:
        raise AssertionError("a byte would have left")

    with pytest.raises(errors.NotSent):
        provider.submit(request(provider), idempotency_key="k", now=NOW, gate=gate)
    assert provider.arrivals == []


def test_what_the_gate_raises_passes_through_and_nothing_arrived(provider: SimulatedProvider) -> None:
    def gate() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        provider.submit(request(provider), idempotency_key="k", now=NOW, gate=gate)
    assert provider.arrivals == []


def test_a_job_is_done_at_its_second_read_unless_its_script_says_otherwise(provider: SimulatedProvider) -> None:
    submit(provider)
    phases = [provider.fetch_status("pdf_1", now=NOW).phase for _ in range(3)]
    assert phases == [JobPhase.RUNNING, JobPhase.SUCCEEDED, JobPhase.SUCCEEDED]
    provider.script("INV-2", status=[Word("odd"), Refuse(errors.ServerFault), Fail("E9", "No."), Complete(60)])
    submit(provider, "k2", "INV-2")
    assert provider.fetch_status("pdf_2", now=NOW).status_word == "odd"
    with pytest.raises(errors.ServerFault):
        provider.fetch_status("pdf_2", now=NOW)
    assert provider.fetch_status("pdf_2", now=NOW).error_code == "E9"
    assert provider.fetch_status("pdf_2", now=NOW).result is not None
    with pytest.raises(errors.NotFound):
        provider.fetch_status("pdf_unheard_of", now=NOW)


def test_a_stuck_job_stays_stuck(provider: SimulatedProvider) -> None:
    provider.script("INV-1", status=itertools.repeat(Word("processing")))
    submit(provider)
    assert {provider.fetch_status("pdf_1", now=NOW).status_word for _ in range(20)} == {"processing"}


def test_a_submission_may_be_answered_with_the_result(provider: SimulatedProvider) -> None:
    provider.script("INV-1", submit=[Finish()])
    assert isinstance(submit(provider), Finished)


def test_what_it_delivers_is_a_pdf_with_the_documents_text(tmp_path: Path, checker: PdfChecker) -> None:
    path = tmp_path / "made.pdf"
    path.write_bytes(pdf("INV-1 (v2)", pages=3))
    facts = checker.check(path)
    assert (facts.problem, facts.pages) == ("", 3)
    assert b"INV-1 \\(v2\\)" in path.read_bytes()


@pytest.mark.parametrize(
    ("answer", "declared_is_true", "starts"),
    [(Cut(), False, b"%PDF-"), (Cut(announced=False), True, b"%PDF-"), (Page(), True, b"<html>")],
)
def test_a_download_can_be_spoilt(
    provider: SimulatedProvider, answer: Cut | Page, declared_is_true: bool, starts: bytes
) -> None:
    provider.script("INV-1", download=[answer])
    submit(provider)
    sink = io.BytesIO()
    downloaded = provider.download(ResultRef("pdf_1"), sink, max_bytes=10**6, now=NOW)
    assert sink.getvalue().startswith(starts)
    assert (downloaded.declared_sizes == (downloaded.byte_count,)) is declared_is_true


@pytest.mark.django_db(transaction=True)
def test_a_call_inside_a_transaction_is_a_breach(provider: SimulatedProvider) -> None:
    assert not connection.in_atomic_block
    with transaction.atomic(), pytest.raises(AssertionError, match="inside a transaction"):
        provider.check_account(now=NOW)
    provider.check_account(now=NOW)
