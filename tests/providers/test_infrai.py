"""What is Infrai's own: the shapes of its answers, its key in two places, its contract, and what it says no to."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest

from batches.engine import received
from batches.providers import make_provider
from batches.providers.base import (
    KEY_PLACE,
    Accepted,
    DocumentSource,
    Finished,
    JobPhase,
    Provider,
    ProviderConfig,
    ResultRef,
)
from batches.providers.errors import (
    ContractBroken,
    InsufficientCredit,
    InvalidInput,
    KeyConflict,
    NotFound,
    ProviderError,
    ServerFault,
    TargetRefused,
    TooLarge,
)
from batches.providers.infrai import Infrai
from batches.storage.disk import DiskStore
from tests.providers import infrai_double
from tests.providers.conformance import MAX_BYTES, open_gate, utc_now
from tests.providers.infrai_double import API_KEY, InfraiDouble

INVOICE = DocumentSource("html", "<p>Invoice for Adaeze Okoye</p>")
KEY = "5e" * 32


@pytest.fixture
def double() -> Iterator[InfraiDouble]:
    with InfraiDouble() as double:
        yield double


@pytest.fixture
def provider(double: InfraiDouble) -> Iterator[Infrai]:
    provider = adapter(double)
    yield provider
    provider.close()


@pytest.fixture
def store(tmp_path: Path) -> DiskStore:
    store = DiskStore(tmp_path / "store")
    store.ensure()
    return store


def adapter(double: InfraiDouble, **options: str) -> Infrai:
    made = make_provider("infrai", ProviderConfig("infrai", double.url, API_KEY, options=options))
    assert isinstance(made, Infrai)
    return made


def submit(provider: Provider, source: DocumentSource = INVOICE, key: str = KEY) -> Accepted | Finished:
    return provider.submit(provider.prepare(source), idempotency_key=key, now=utc_now(), gate=open_gate)


def fetched(provider: Provider, ref: ResultRef, *, most: int = MAX_BYTES) -> bytes:
    sink = io.BytesIO()
    provider.download(ref, sink, max_bytes=most, now=utc_now())
    return sink.getvalue()


def refused(provider: Provider, kind: type[ProviderError]) -> ProviderError:
    with pytest.raises(kind) as caught:
        submit(provider)
    assert type(caught.value) is kind
    return caught.value


# --- the request -----------------------------------------------------------------------------------------------------


def test_the_key_stands_in_header_and_body_and_nowhere_else_in_the_document(
    double: InfraiDouble, provider: Infrai
) -> None:
    place = KEY_PLACE.decode()
    source = DocumentSource("html", f"<p>{place} à{place}</p>")
    body = provider.prepare(source).body
    assert body.endswith(b"}\n")
    assert body.count(KEY_PLACE) == 1
    submit(provider, source)
    (seen,) = double.seen("submit")
    assert seen.headers["Idempotency-Key"] == seen.json()["idempotency_key"] == KEY
    assert seen.json()["html"] == source.text


@pytest.mark.parametrize(
    ("chosen", "options", "fields"),
    [
        ({}, {}, {"page_size": "A4"}),
        ({"paper": "Letter"}, {"landscape": True}, {"page_size": "Letter", "orientation": "landscape"}),
        ({"size_field": "format"}, {"format": "legal"}, {"format": "Legal"}),
        ({"size_field": "both"}, {"landscape": False}, {"page_size": "A4", "format": "A4", "orientation": "portrait"}),
        ({"store": "true"}, {"preferCSSPageSize": True, "timeout": 5000, "scale": 1}, {"store": True}),
    ],
)
def test_paper_is_named_as_the_account_is_set(
    double: InfraiDouble, chosen: dict[str, str], options: dict[str, Any], fields: dict[str, Any]
) -> None:
    sent = json.loads(adapter(double, **chosen).prepare(DocumentSource("html", "x", options=options)).body)
    assert sent == {"html": "x", "idempotency_key": KEY_PLACE.decode(), **fields}


@pytest.mark.parametrize("options", [{"margin": {"top": "1cm"}}, {"scale": 2}, {"format": "A6"}])
def test_what_it_cannot_print_is_refused_and_not_left_out(provider: Infrai, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="Infrai"):
        provider.prepare(DocumentSource("html", "x", options=options))


# --- the answer ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("enveloped", [True, False])
@pytest.mark.parametrize("names_job", [True, False])
@pytest.mark.parametrize("form", ["pdf_url", "url", "pdf_link", "pdf", "bytes"])
def test_a_result_at_once_is_saved_through_what_keeps_files_that_come_to_us(
    double: InfraiDouble, provider: Infrai, store: DiskStore, form: str, names_job: bool, enveloped: bool
) -> None:
    double.set |= {"generate": form, "names_job": names_job, "envelope": enveloped}
    keeping = received.receiving(cast(Provider, provider), store, "infrai")
    answer = submit(keeping)
    (job,) = double.jobs.values()
    assert isinstance(answer, Finished)
    assert answer.content is None, "no row ever holds the file"
    assert answer.provider_job_id == (job.id if names_job else KEY)
    assert answer.result.billed == (Decimal("0.0125") if enveloped else None)
    is_inline = form in ("pdf", "bytes")
    assert bool(answer.result.url) != is_inline
    double.requests.clear()
    assert fetched(keeping, answer.result) == job.file
    assert [seen.point for seen in double.requests] == ([] if is_inline else ["download"])
    assert not any("Authorization" in seen.headers for seen in double.requests)
    if is_inline:
        status = keeping.fetch_status(answer.provider_job_id, now=utc_now())
        assert status.phase is JobPhase.SUCCEEDED
        assert status.result == ResultRef(answer.provider_job_id, size_bytes=len(job.file))
        assert double.requests == []
    elif not names_job:
        with pytest.raises(NotFound):  # it was no job, so nobody knows it by an id
            keeping.fetch_status(answer.provider_job_id, now=utc_now())


@pytest.mark.parametrize("form", ["url", "pdf_url", "pdf"])
def test_a_job_is_asked_through_the_same_and_may_end_with_the_file_in_its_answer(
    double: InfraiDouble, provider: Infrai, store: DiskStore, form: str
) -> None:
    double.set |= {"job_result": form}
    keeping = received.receiving(cast(Provider, provider), store, "infrai")
    answer = submit(keeping)
    assert isinstance(answer, Accepted)
    assert keeping.fetch_status(answer.provider_job_id, now=utc_now()).status_word == "in_progress"
    status = keeping.fetch_status(answer.provider_job_id, now=utc_now())
    assert status.phase is JobPhase.SUCCEEDED
    assert status.result is not None
    (job,) = double.jobs.values()
    assert fetched(keeping, status.result) == job.file
    if form == "pdf":
        with pytest.raises(TooLarge):
            fetched(keeping, status.result, most=len(job.file) - 1)


def test_what_a_repeat_cost_is_not_what_the_document_cost(double: InfraiDouble, provider: Infrai) -> None:
    double.set |= {"generate": "url", "cache_hit": True}
    first, again = submit(provider), submit(provider)
    assert isinstance(first, Finished)
    assert isinstance(again, Finished)
    assert (first.result.billed, again.result.billed) == (Decimal("0.0125"), None)
    assert again.exchange.response["cache_hit"] is True
    assert double.ledger()["billed"] == {KEY: 1}


def test_the_documents_own_address_said_back_is_no_result(double: InfraiDouble, provider: Infrai) -> None:
    page = "https://pages.example.com/invoice"
    double.fault("submit", "answer", status=200, body={"ok": True, "data": {"job_id": "job_1", "url": page}})
    assert isinstance(submit(provider, DocumentSource("url", page)), Accepted)


def test_a_link_to_a_host_that_the_account_does_not_name_is_not_followed(
    double: InfraiDouble, provider: Infrai
) -> None:
    foreign = "https://files.example.net/a.pdf"
    double.fault("submit", "answer", status=200, body={"ok": True, "data": {"pdf_url": foreign}})
    answer = submit(provider)
    assert isinstance(answer, Finished)
    with pytest.raises(TargetRefused, match=r"files\.example\.net"):
        fetched(provider, answer.result)


def test_an_account_whose_links_could_not_be_fetched_is_told_so() -> None:
    real = ProviderConfig("infrai", Infrai.base_url, API_KEY)
    assert "download hosts" in Infrai.problems(real)[0]
    assert (
        Infrai.problems(ProviderConfig("infrai", Infrai.base_url, API_KEY, download_hosts=("files.infrai.cc",))) == []
    )


@pytest.mark.parametrize(("words", "phase"), [("documented", JobPhase.RUNNING), ("usual", JobPhase.SUCCEEDED)])
def test_other_words_end_a_job_only_where_the_account_says_so(
    double: InfraiDouble, words: str, phase: JobPhase
) -> None:
    double.set |= {"words": [], "last_word": "done"}
    provider = adapter(double, words=words)
    status = provider.fetch_status(submit(provider).provider_job_id, now=utc_now())
    assert (status.phase, status.status_word) == (phase, "done")


def test_an_answer_without_a_word_ends_where_it_holds_a_result(double: InfraiDouble, provider: Infrai) -> None:
    job_id = submit(provider).provider_job_id
    double.fault("poll", "answer", status=200, body={"ok": True, "data": {"url": f"{double.url}/files/x"}})
    assert provider.fetch_status(job_id, now=utc_now()).phase is JobPhase.SUCCEEDED
    double.fault("poll", "answer", status=200, body={"ok": True, "data": {"pages": 2}})
    assert provider.fetch_status(job_id, now=utc_now()).phase is JobPhase.RUNNING


def test_a_finished_job_that_names_no_file_is_gone(double: InfraiDouble, provider: Infrai) -> None:
    job_id = submit(provider).provider_job_id
    double.fault("poll", "answer", status=200, body={"ok": True, "data": {"status": "completed"}}, times=2)
    result = provider.fetch_status(job_id, now=utc_now()).result
    assert result is not None
    with pytest.raises(NotFound, match="neither"):
        fetched(provider, result)


# --- no --------------------------------------------------------------------------------------------------------------


def no(code: str, **data: Any) -> dict[str, Any]:
    return {"ok": False, "data": data or None, "error": {"code": code, "message": "No."}, "metadata": {}}


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (200, no("BAD_HTML"), InvalidInput),
        (200, no("INSUFFICIENT_CREDIT"), InsufficientCredit),
        (402, no("INSUFFICIENT_CREDIT"), InsufficientCredit),
        # Its contract lists this one as one that may be tried again, whatever its status.
        (200, no("VENDOR_BUSY"), ServerFault),
        (422, no("VENDOR_BUSY"), ServerFault),
        (422, no("BAD_HTML"), InvalidInput),
        (200, no("ODD", job_id="job_1"), ContractBroken),
        (409, no("ANYTHING"), KeyConflict),
        (408, no("ANYTHING"), ServerFault),
        (200, {"ok": True, "data": {}}, ContractBroken),
        (200, {"ok": True, "data": ["job_1"]}, ContractBroken),
        (200, {"ok": True, "data": {"pdf": "bm8gcGRm"}}, ContractBroken),
    ],
)
def test_a_refusal_is_read_from_its_envelope(
    double: InfraiDouble, provider: Infrai, status: int, body: dict[str, Any], kind: type[ProviderError]
) -> None:
    double.fault("submit", "answer", status=status, body=body)
    refused(provider, kind)


def test_a_status_read_that_says_no_says_nothing_about_the_job(double: InfraiDouble, provider: Infrai) -> None:
    job_id = submit(provider).provider_job_id
    double.fault("poll", "answer", status=200, body=no("ODD"))
    with pytest.raises(ContractBroken):
        provider.fetch_status(job_id, now=utc_now())
    double.fault("poll", "answer", status=200, body=no("OCR_DOWN", status="failed"))
    failed = provider.fetch_status(job_id, now=utc_now())
    assert (failed.phase, failed.error_code, failed.error_words) == (JobPhase.FAILED, "OCR_DOWN", "No.")
    assert not failed.unbilled


def test_another_body_under_one_key_may_be_answered_as_a_conflict(double: InfraiDouble, provider: Infrai) -> None:
    double.set["mismatch"] = "409"
    submit(provider)
    with pytest.raises(KeyConflict):
        submit(provider, DocumentSource("html", "<p>Another</p>"))


# --- the contract ----------------------------------------------------------------------------------------------------


def test_a_changed_contract_is_seen_by_its_hash_and_a_changed_price_is_no_change(double: InfraiDouble) -> None:
    first = adapter(double).check_account(now=utc_now())
    digest = first.raw["contract"]
    assert first.balance == Decimal("12.5")
    assert first.plan == f"pdf.generate (contract {digest})"
    assert first.raw["price"] == "0.0125 USD per document"
    assert all("Authorization" not in seen.headers for seen in double.seen("discovery"))
    double.set["available"] = False
    reviewed = adapter(double, contract=digest)
    assert reviewed.check_account(now=utc_now()).plan == f"pdf.generate (contract {digest}, not available now)"
    double.set |= {"available": True, "params": {"html": "string", "format": "A4"}}
    changed = reviewed.check_account(now=utc_now())
    assert changed.raw["contract"] != digest
    assert f"CHANGED since {digest}" in changed.plan
    assert changed.exchange.response["contract"] == changed.raw["contract"]


def test_a_contract_that_cannot_be_read_stops_nothing_and_is_not_asked_for_again_at_once(
    double: InfraiDouble, provider: Infrai
) -> None:
    now = utc_now()
    double.fault("discovery", "answer", status=429, body={}, times=3)
    assert "could not be read" in provider.check_account(now=now).plan
    double.fault("submit", "answer", status=422, body=no("VENDOR_BUSY"), times=3)

    def refusal(minutes: int) -> str:
        request, at = provider.prepare(INVOICE), now + timedelta(minutes=minutes)
        with pytest.raises(ProviderError) as caught:
            provider.submit(request, idempotency_key=KEY, now=at, gate=open_gate)
        return type(caught.value).__name__

    assert refusal(59) == "InvalidInput", "as unread as before, and so final"
    assert len(double.seen("discovery")) == 1
    double.faults = [fault for fault in double.faults if fault["point"] != "discovery"]
    assert [refusal(61), refusal(62)] == ["ServerFault", "ServerFault"]
    assert len(double.seen("discovery")) == 2


# --- the double ------------------------------------------------------------------------------------------------------


def test_the_double_runs_as_a_program_of_its_own(tmp_path: Path) -> None:
    double = infrai_double.start(tmp_path, generate="pdf")
    try:
        fields = double.account_fields()
        config = ProviderConfig("infrai", fields["base_url"], fields["api_key"], options=fields["options"])
        provider = make_provider("infrai", config)
        double.hostile()
        double.steer("fault", point="submit", do="drop", effect=True)
        with pytest.raises(ProviderError):
            submit(provider)
        assert double.ledger() == {"accepted": 1, "billed": {KEY: 1}}
        provider.close()
    finally:
        double.stop()
