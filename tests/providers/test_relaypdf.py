"""RelayPDF's contract in detail: what is sent, how odd answers to it are read, what is kept of them."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from batches.providers import PROVIDERS, make_provider
from batches.providers.base import Accepted, DocumentSource, Finished, ProviderConfig, ResultRef
from batches.providers.errors import (
    ContractBroken,
    InsufficientCredit,
    InvalidInput,
    KeyConflict,
    ProviderError,
    RateLimited,
    ServerFault,
    StrangeRefusal,
    Unauthorized,
)
from batches.providers.relaypdf import RelayPDF
from batches.providers.relaypdf_answers import result_in
from tests.providers.conformance import CASES, open_gate
from tests.providers.relaypdf_double import API_KEY, Job, RelayPDFDouble

NOW = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
INVOICE = DocumentSource("html", "<h1>Rechnung für Nils Lindqvist</h1>", filename="Rechnung é.pdf")
WHOLE = (CASES / "079-whole.pdf").read_bytes()


def submit(provider: RelayPDF, key: str = "key-1") -> Accepted | Finished:
    return provider.submit(provider.prepare(INVOICE), idempotency_key=key, now=NOW, gate=open_gate)


def test_the_registry_makes_an_adapter_by_the_accounts_kind() -> None:
    config = ProviderConfig("main", "http://127.0.0.1:1", API_KEY)
    for kind in PROVIDERS:
        provider = make_provider(kind, config)
        assert provider.kind == kind
        provider.close()
    with pytest.raises(ValueError, match="relaypdf"):
        make_provider("pdfrelay", config)
    assert API_KEY not in repr(config)


# --- what is sent ----------------------------------------------------------------------------------------------------


def test_a_request_is_compact_ascii_json_with_sorted_keys() -> None:
    provider = RelayPDF(ProviderConfig("relaypdf", "http://127.0.0.1:1", API_KEY))
    source = DocumentSource("html", "<p>é🧾</p>", filename="ü.pdf", options={"scale": 1.5, "format": "A4"})
    assert provider.prepare(source).body == (
        b'{"filename":"\\u00fc.pdf","html":"<p>\\u00e9\\ud83e\\uddfe</p>",'
        b'"options":{"format":"A4","scale":1.5},"response":"async"}'
    )
    assert provider.prepare(DocumentSource("markdown", "# x")).body == b'{"markdown":"# x","response":"async"}'
    assert (
        provider.prepare(DocumentSource("url", "https://a.test/")).body
        == b'{"response":"async","url":"https://a.test/"}'
    )


def test_a_template_that_the_account_keeps_is_sent_with_its_version_and_strict() -> None:
    provider = RelayPDF(ProviderConfig("relaypdf", "http://127.0.0.1:1", API_KEY))
    text = '{"data":{"b":1.5,"a":"\u00e9"},"template":"invoice","version":3}'
    source = DocumentSource("template", text, filename="a.pdf", options={"format": "A4"})
    assert provider.prepare(source).body == (
        b'{"filename":"a.pdf","options":{"format":"A4"},"response":"async","strict":true,'
        b'"templateData":{"a":"\\u00e9","b":1.5},"templateId":"invoice","templateVersion":3}'
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<p>",
        "[]",
        "{}",
        '{"template":"invoice","data":{}}',
        '{"template":"invoice","version":"latest","data":{}}',
        '{"template":"invoice","version":true,"data":{}}',
        '{"template":"invoice","version":0,"data":{}}',
        '{"template":"","version":1,"data":{}}',
        '{"template":"invoice","version":1,"data":[]}',
        '{"template":"invoice","version":1,"data":{"a":NaN}}',
    ],
)
def test_a_template_that_is_not_named_whole_is_never_sent(text: str) -> None:
    provider = RelayPDF(ProviderConfig("relaypdf", "http://127.0.0.1:1", API_KEY))
    with pytest.raises(InvalidInput):
        provider.prepare(DocumentSource("template", text))


def test_the_bytes_that_were_prepared_are_the_bytes_that_arrive(provider: RelayPDF, double: RelayPDFDouble) -> None:
    request = provider.prepare(INVOICE)
    provider.submit(request, idempotency_key="b2f1-key", now=NOW, gate=open_gate)
    (seen,) = double.requests
    assert seen.body == request.body
    assert (seen.method, seen.path) == ("POST", "/v1/pdf")
    assert seen.headers["Idempotency-Key"] == "b2f1-key"
    assert seen.headers["Authorization"] == f"Bearer {API_KEY}"
    assert seen.headers["Content-Type"] == "application/json"
    assert seen.headers["User-Agent"].startswith("relaypdf-batches/")


def test_a_price_ceiling_goes_with_each_submission_where_the_account_has_one(double: RelayPDFDouble) -> None:
    for ceiling in ("", "5000"):
        provider = RelayPDF(ProviderConfig("relaypdf", double.url, API_KEY, options={"max_charge": ceiling}))
        submit(provider, f"key-{ceiling}")
        provider.close()
    without, capped = ({name.lower(): value for name, value in seen.headers.items()} for seen in double.requests)
    assert "x-relaypdf-max-charge-microdollars" not in without
    assert capped["x-relaypdf-max-charge-microdollars"] == "5000"
    assert double.requests[0].body == double.requests[1].body


@pytest.mark.parametrize("ceiling", ["0", "-1", "0.005", "5 000", "٥", "1" * 13, "5000 USD"])
def test_a_price_ceiling_that_is_no_whole_number_is_refused_in_words(ceiling: str) -> None:
    (words,) = RelayPDF.problems(
        ProviderConfig("relaypdf", "https://a.example", API_KEY, options={"max_charge": ceiling})
    )
    assert "such as 5000" in words


@pytest.mark.parametrize("api_key", ["", "with space", "line\nbreak", "é", "tab\t"])
def test_an_unusable_key_is_refused_before_anything_is_sent(double: RelayPDFDouble, api_key: str) -> None:
    provider = RelayPDF(ProviderConfig("relaypdf", double.url, api_key))
    with pytest.raises(Unauthorized) as caught:
        provider.check_account(now=NOW)
    assert not api_key or api_key not in str(caught.value)
    assert double.requests == []


# --- answers to a submission -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 202])
@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"id": "pdf_1", "status": "processing", "pollUrl": "http://elsewhere.test/x"}, "processing"),
        ({"id": "pdf_1"}, "processing"),
        ({"jobId": "pdf_1", "status": "queued"}, "queued"),
        ({"job_id": "pdf_1", "status": None}, ""),
        ({"id": 4711, "status": "failed"}, "failed"),
    ],
)
def test_an_acceptance_is_read_in_every_form(
    provider: RelayPDF, double: RelayPDFDouble, status: int, body: dict[str, Any], word: str
) -> None:
    double.answer("submit", status, body)
    accepted = submit(provider)
    assert isinstance(accepted, Accepted)
    assert accepted.provider_job_id in ("pdf_1", "4711")
    assert accepted.status_word == word
    assert accepted.exchange.status == status


def test_a_completed_answer_to_a_submission_is_the_finished_result(provider: RelayPDF, double: RelayPDFDouble) -> None:
    body = {
        "id": "pdf_1",
        "status": "completed",
        "url": f"{double.url}/v1/files/pdf_1",
        "filename": "invoice.pdf",
        "sizeBytes": 586,
        "expiresAt": "2026-03-03T09:00:00.000Z",
    }
    double.answer("submit", 200, body)
    finished = submit(provider)
    assert isinstance(finished, Finished)
    assert finished.result == ResultRef(
        "pdf_1", f"{double.url}/v1/files/pdf_1", 586, datetime(2026, 3, 3, 9, tzinfo=UTC), "invoice.pdf"
    )


def test_a_pdf_in_place_of_json_is_finished_when_its_header_names_the_job(
    provider: RelayPDF, double: RelayPDFDouble
) -> None:
    double.answer("submit", 200, WHOLE, {"Content-Type": "application/pdf", "X-Relaypdf-Id": "pdf_1"})
    finished = submit(provider)
    assert isinstance(finished, Finished)
    assert finished.result == ResultRef("pdf_1")
    double.answer("submit", 200, WHOLE, {"Content-Type": "application/pdf"})
    with pytest.raises(ContractBroken):
        submit(provider)


@pytest.mark.parametrize("job_id", ["x" * 201, "a\x00b", "a\nb", "half \ud83d", "", None, True, 1.5, ["pdf_1"], {}])
def test_an_id_that_cannot_be_kept_leaves_the_outcome_open(
    provider: RelayPDF, double: RelayPDFDouble, job_id: Any
) -> None:
    double.answer("submit", 202, {"id": job_id, "status": "processing"})
    with pytest.raises(ContractBroken) as caught:
        submit(provider)
    assert caught.value.failure_class == "unknown_outcome"


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "invalid_request", InvalidInput),
        (400, "url_not_allowed", InvalidInput),
        (413, "payload_too_large", InvalidInput),
        (404, "not_found", InvalidInput),
        (422, "brand_new_code", InvalidInput),
        (418, "brand_new_code", InvalidInput),
        (401, "unauthorized", Unauthorized),
        (403, "account_suspended", Unauthorized),
        (403, "brand_new_code", Unauthorized),
        (402, "payment_required", InsufficientCredit),
        (400, "payment_required", InsufficientCredit),
        (429, "rate_limited", RateLimited),
        (429, "brand_new_code", RateLimited),
        (409, "idempotency_conflict", KeyConflict),
        (409, "brand_new_code", KeyConflict),
        (400, "idempotency_key_reused", KeyConflict),
        (422, "IDEMPOTENCY_MISMATCH", KeyConflict),
        (500, "internal_error", ServerFault),
        (502, "render_failed", ServerFault),
        (502, "processing_failed", ServerFault),
        (503, "convert_unavailable", ServerFault),
        (503, "invalid_request", ServerFault),
        (408, "", ServerFault),
        (425, "", ServerFault),
        (303, "", ContractBroken),
        (304, "", ContractBroken),
        (404, "", StrangeRefusal),
        (403, "", StrangeRefusal),
        (405, "", StrangeRefusal),
        (418, "", StrangeRefusal),
        (451, "", StrangeRefusal),
        (401, "", Unauthorized),
        (410, "", StrangeRefusal),
        (415, "", StrangeRefusal),
        (301, "", Unauthorized),
        (308, "", Unauthorized),
        (400, "", InvalidInput),
        (413, "", InvalidInput),
        (422, "", InvalidInput),
    ],
)
def test_a_refused_submission_carries_the_decision(
    provider: RelayPDF, double: RelayPDFDouble, status: int, code: str, kind: type[ProviderError]
) -> None:
    body = {"error": {"code": code, "message": "It says why.", "details": {"a": 1}}} if code else None
    double.answer("submit", status, body, {"Retry-After": "3"})
    with pytest.raises(ProviderError) as caught:
        submit(provider)
    error = caught.value
    assert type(error) is kind
    assert (error.status, error.code) == (status, code)
    assert error.exchange is not None
    assert error.exchange.error_class == kind.__name__
    if isinstance(error, (RateLimited, ServerFault)):
        assert error.retry_after == 3
    if code:
        assert "It says why." in error.words


@pytest.mark.parametrize(
    "body",
    [
        b"<html><h1>502 Bad Gateway</h1></html>",
        b"",
        b'{"error": "it broke"}',
        b'{"error": null}',
        b'{"error": {"code": 7, "message": ["a"]}}',
        b'["error"]',
        b"[" * 50_000,
        b"\xff\xfe\x00",
    ],
    ids=lambda body: repr(body[:12]),
)
def test_an_error_body_of_any_shape_is_read_by_its_status(
    provider: RelayPDF, double: RelayPDFDouble, body: bytes
) -> None:
    double.answer("submit", 502, body)
    with pytest.raises(ServerFault) as caught:
        submit(provider)
    assert caught.value.code == ""
    assert caught.value.words


def test_a_redirect_never_takes_the_key_elsewhere(provider: RelayPDF, double: RelayPDFDouble) -> None:
    with RelayPDFDouble() as elsewhere:
        double.answer("submit", 307, None, {"Location": f"{elsewhere.url}/v1/pdf"})
        with pytest.raises(Unauthorized) as caught:
            submit(provider)
        assert "base URL" in caught.value.words
        assert elsewhere.requests == []


def test_every_status_has_a_kind_of_error() -> None:
    for status in [*range(100, 200), *range(300, 600)]:
        assert issubclass(RelayPDF.refusals.kind(status, ""), ProviderError)


# --- secrets ---------------------------------------------------------------------------------------------------------


def test_an_answer_that_quotes_everything_back_is_kept_without_secrets(
    provider: RelayPDF, double: RelayPDFDouble
) -> None:
    job_id = "pdf_Zk81secretid"
    double.jobs[job_id] = Job(job_id, b"")
    echo = (
        f"key {API_KEY} asked for {job_id} at {double.url}/v1/files/{job_id}, Authorization: Bearer {API_KEY}, "
        f"document {INVOICE.text}"
    )
    body = json.dumps({"error": {"code": f"code-{job_id}-{API_KEY}", "message": echo}}).encode()
    told = []
    for point, ask in (
        ("submit", lambda: submit(provider)),
        ("poll", lambda: provider.fetch_status(job_id, now=NOW)),
        ("delete", lambda: provider.delete_remote(ResultRef(job_id), now=NOW)),
        ("download", lambda: provider.download(ResultRef(job_id), io.BytesIO(), max_bytes=99, now=NOW)),
        ("account", lambda: provider.check_account(now=NOW)),
    ):
        double.answer(point, 500, body, {"X-Request-Id": f"{job_id} {API_KEY}", "Server": job_id})
        with pytest.raises(ServerFault) as caught:
            ask()
        error = caught.value
        told.append(f"{error!r} {error.words} {error.detail} {error.code} {error.exchange!r}")
    assert API_KEY not in repr(told)
    # Where the id was not part of the call, only its shape can tell: links and routes are masked, a bare word is not.
    assert "Zk81" not in repr(told[1:4])
    assert "/v1/files/pdf_Zk81" not in repr(told)
    assert "Lindqvist" not in told[0]


@pytest.mark.parametrize("url", ["https://files.test/7\0", "https://files.test/\r7", "https://files.test/\ud83d", 7])
def test_what_is_no_address_is_dropped_and_the_id_finds_the_file(url: object) -> None:
    assert result_in({"url": url}, "7").url == ""
