"""The vendor's own SDK (relaypdf 0.1.6), unchanged, against a real sandbox process."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pypdfium2
import pytest
from relaypdf import RelayPDF, RelayPDFError, verify_webhook
from relaypdf.client import AsyncResult, BinaryResult, UrlResult

from tests.sandbox.receiver import Receiver
from tests.sandbox_process import SandboxProcess

pytestmark = pytest.mark.processes

RUNES = "<p>ᚠᚢᚦᚨᚱᚲ</p>"


def text_of(pdf: bytes) -> str:
    with pypdfium2.PdfDocument(pdf) as document:
        return "\n".join(page.get_textpage().get_text_range() for page in document)


def test_async_submission_is_waited_for_downloaded_and_deleted(client: RelayPDF, sandbox: SandboxProcess) -> None:
    accepted = client.pdf.from_html("<h1>Invoice 4711</h1>", response="async", filename="4711.pdf")
    assert isinstance(accepted, AsyncResult)
    assert accepted.poll_url == f"{sandbox.url}/v1/jobs/{accepted.id}"

    job = client.jobs.wait(accepted.id, interval_ms=20)
    assert job["status"] == "completed"
    assert job["url"] == f"{sandbox.url}/v1/files/{accepted.id}"

    pdf = client.files.download(accepted.id)
    assert (pdf.filename, pdf.content_type, pdf.id) == ("4711.pdf", "application/pdf", accepted.id)
    assert pdf.size_bytes == len(pdf.bytes) == job["sizeBytes"]
    assert "Invoice 4711" in text_of(pdf.bytes)

    assert client.files.delete(accepted.id) == {"ok": True}
    with pytest.raises(RelayPDFError) as gone:
        client.files.download(accepted.id)
    assert (gone.value.status, gone.value.code) == (404, "not_found")
    assert client.jobs.get(accepted.id)["status"] == "completed"


def test_delete_may_answer_with_an_empty_body(client: RelayPDF, sandbox: SandboxProcess) -> None:
    sandbox.configure(files={"delete_reply": "204"})
    made = client.pdf.from_html("<p>x</p>", response="url")
    assert client.files.delete(made.id) == {"ok": True}


def test_binary_is_the_default_mode(client: RelayPDF) -> None:
    made = client.pdf.from_html("<p>Zażółć</p>", filename="Rechnung Ä.pdf")
    assert isinstance(made, BinaryResult)
    assert made.bytes.startswith(b"%PDF-")
    assert made.size_bytes == len(made.bytes)
    assert made.filename == "Rechnung _.pdf"
    assert made.id.startswith("pdf_")


def test_url_mode_gives_all_six_fields(client: RelayPDF, sandbox: SandboxProcess) -> None:
    made = client.pdf.from_markdown("# Terms\n\n| a | b |\n|---|---|\n| 1 | 2 |", response="url", filename="t.pdf")
    assert isinstance(made, UrlResult)
    assert (made.status, made.filename) == ("completed", "t.pdf")
    assert made.url == f"{sandbox.url}/v1/files/{made.id}"
    assert made.expires_at.endswith("Z")
    assert "Terms" in text_of(client.files.download(made.id).bytes)


def test_markdown_keeps_raw_html_as_text(client: RelayPDF) -> None:
    made = client.pdf.from_markdown("Total <b>12</b>")
    assert "<b>12</b>" in text_of(made.bytes)


def test_upload_and_delete(client: RelayPDF) -> None:
    stored = client.files.upload(b"\x00raw", filename="logo.bin")
    assert stored["filename"] == "logo.bin"
    assert stored["sizeBytes"] == 4
    assert client.files.download(stored["id"]).bytes == b"\x00raw"
    assert client.files.delete(stored["id"]) == {"ok": True}
    with pytest.raises(RelayPDFError, match="no file"):
        client.files.delete(stored["id"])


def test_account_usage_and_limits(client: RelayPDF) -> None:
    before = client.account()["wallet"]["balanceMillicents"]
    made = client.pdf.from_html("<p>x</p>", response="url")
    assert client.account()["plan"]
    receipt = client.billing_usage()["receipts"][0]
    assert (receipt["jobId"], receipt["amountMicrodollars"]) == (made.id, 400)
    # 400 microdollars are less than one of the README's millicents ($0.001).
    assert client.account()["wallet"]["balanceMillicents"] == before - 1

    assert client.billing_limits() == {"maxJobMicrodollars": None}
    assert client.billing_limits(250) == {"maxJobMicrodollars": 250}
    with pytest.raises(RelayPDFError, match="limit of 250"):
        client.pdf.from_html("<p>x</p>", response="async")
    assert client.billing_limits(None) == {"maxJobMicrodollars": None}


def test_health_needs_no_key(sandbox: SandboxProcess) -> None:
    assert RelayPDF("wrong", base_url=sandbox.url).health()["ok"] is True


def test_webhook_endpoints_show_their_secret_once(client: RelayPDF, receiver: Receiver) -> None:
    made = client.webhooks.create(receiver.url, events=["job.completed"])
    assert made["secret"].startswith(made["secretPrefix"])
    (listed,) = client.webhooks.list()["endpoints"]
    assert (listed["id"], listed["url"]) == (made["id"], receiver.url)
    assert "secret" not in listed
    assert client.webhooks.delete(made["id"]) == {"ok": True}
    assert client.webhooks.list() == {"endpoints": []}
    with pytest.raises(RelayPDFError, match="no webhook endpoint"):
        client.webhooks.delete(made["id"])


def test_a_received_webhook_is_verified_by_the_vendors_function(client: RelayPDF, receiver: Receiver) -> None:
    secret = client.webhooks.create(f"{receiver.url}/hook?a=1")["secret"]
    accepted = client.pdf.from_html("<p>x</p>", response="async")
    (delivery,) = receiver.wait_for(1)
    body = delivery.body.decode()
    assert delivery.path == "/hook?a=1"
    assert delivery.headers["relaypdf-event"] == json.loads(body)["type"] == "job.completed"
    assert json.loads(body)["data"]["id"] == accepted.id
    assert verify_webhook(secret, body, delivery.headers["relaypdf-signature"])
    assert not verify_webhook(secret, body + " ", delivery.headers["relaypdf-signature"])
    assert not verify_webhook("whsec_other", body, delivery.headers["relaypdf-signature"])


def test_at_most_25_endpoints(client: RelayPDF) -> None:
    for number in range(25):
        client.webhooks.create(f"https://example.com/{number}")
    with pytest.raises(RelayPDFError, match="25 webhook endpoints"):
        client.webhooks.create("https://example.com/26")


FAILING: list[tuple[str, dict[str, Any], dict[str, Any], int, str]] = [
    ("two sources clash", {}, {"html": "<p>x</p>", "markdown": "x"}, 400, "invalid_request"),
    ("no source", {}, {"filename": "x.pdf"}, 400, "invalid_request"),
    ("an empty source", {}, {"html": " "}, 400, "invalid_request"),
    ("an unknown mode", {}, {"html": "<p>x</p>", "response": "fax"}, 400, "invalid_request"),
    ("a bad option", {}, {"html": "<p>x</p>", "options": {"scale": 9}}, 400, "invalid_request"),
    ("a private host", {}, {"url": "http://169.254.169.254/latest"}, 400, "url_not_allowed"),
    ("a decimal address", {}, {"url": "http://2130706433/"}, 400, "url_not_allowed"),
    ("a callback without https", {}, {"html": "x", "callbackUrl": "http://example.com/"}, 400, "url_not_allowed"),
    ("an empty wallet", {"fund": 0}, {"html": "<p>x</p>"}, 402, "payment_required"),
    ("a suspended account", {"account": {"suspended": True}}, {"html": "<p>x</p>"}, 403, "account_suspended"),
    ("an unknown template", {}, {"templateId": "invoice", "templateData": {}}, 404, "not_found"),
    ("an unpublished version", {}, {"templateId": "sandbox-table", "templateVersion": 4}, 404, "not_found"),
    ("a large document", {"limits": {"max_source_bytes": 10}}, {"html": "<p>hello</p>"}, 413, "payload_too_large"),
    ("a public page", {}, {"url": "https://example.com/"}, 502, "render_failed"),
    ("a document without its font", {}, {"html": RUNES}, 502, "render_failed"),
    (
        "a failing job",
        {"faults": [{"do": "fail", "code": "processing_failed"}]},
        {"html": "x"},
        502,
        "processing_failed",
    ),
    ("a server fault", {"faults": [{"do": "error_before_acceptance"}]}, {"html": "x"}, 500, "internal_error"),
    *(
        (code, {"faults": [{"do": "error_before_acceptance", "status": 503, "code": code}]}, {"html": "x"}, 503, code)
        for code in ("convert_unavailable", "ai_unavailable", "storage_unavailable")
    ),
]


@pytest.mark.parametrize(
    ("switches", "fields", "status", "code"), [row[1:] for row in FAILING], ids=[r[0] for r in FAILING]
)
def test_error_codes(
    client: RelayPDF, sandbox: SandboxProcess, switches: dict[str, Any], fields: dict[str, Any], status: int, code: str
) -> None:
    if "fund" in switches:
        sandbox.fund(balance_microdollars=switches["fund"])
    sandbox.configure(**{group: value for group, value in switches.items() if group != "fund"})
    with pytest.raises(RelayPDFError) as error:
        client.pdf.create(**fields)
    assert (error.value.status, error.value.code) == (status, code)
    assert str(error.value)
    assert sandbox.ledger()["totals"]["jobs_billed"] == 0


def test_failed_jobs_carry_their_code_when_waited_for(client: RelayPDF) -> None:
    accepted = client.pdf.from_html(RUNES, response="async")
    with pytest.raises(RelayPDFError) as error:
        client.jobs.wait(accepted.id, interval_ms=20)
    assert (error.value.status, error.value.code) == (502, "render_failed")
    assert "U+16A0" in str(error.value)
    assert client.jobs.get(accepted.id)["status"] == "failed"


def test_unknown_jobs_and_files_are_not_found(client: RelayPDF) -> None:
    for read in (client.jobs.get, client.files.download, client.files.delete):
        with pytest.raises(RelayPDFError) as error:
            read("pdf_nowhere")
        assert (error.value.status, error.value.code) == (404, "not_found")


def test_every_route_but_downloads_wants_the_key(sandbox: SandboxProcess, client: RelayPDF) -> None:
    made = client.pdf.from_html("<p>x</p>", response="url")
    stranger = RelayPDF("pdf_live_wrong", base_url=sandbox.url)
    for attempt in (
        stranger.account,
        stranger.billing_usage,
        stranger.billing_limits,
        stranger.webhooks.list,
        lambda: stranger.pdf.from_html("<p>x</p>"),
        lambda: stranger.jobs.get(made.id),
        lambda: stranger.files.delete(made.id),
        lambda: stranger.files.upload(b"x"),
        lambda: stranger.webhooks.create("https://example.com/"),
        lambda: stranger.webhooks.delete("wh_1"),
        lambda: stranger.pdf.merge([]),
    ):
        with pytest.raises(RelayPDFError) as error:
            attempt()
        assert (error.value.status, error.value.code) == (401, "unauthorized")
    assert stranger.files.download(made.id).bytes.startswith(b"%PDF-")


def test_rate_limit_tells_the_sdk_when_to_come_back(client: RelayPDF, sandbox: SandboxProcess) -> None:
    sandbox.configure(limits={"windows": [[20, 60], [1, 10]]})
    client.pdf.from_html("<p>x</p>", response="async")
    with pytest.raises(RelayPDFError) as error:
        client.pdf.from_html("<p>x</p>", response="async")
    assert (error.value.status, error.value.code) == (429, "rate_limited")
    assert error.value.retry_after is not None
    assert 1 <= error.value.retry_after <= 10


def test_idempotency_by_the_sdks_own_header_path(client: RelayPDF, sandbox: SandboxProcess) -> None:
    key = uuid.uuid4().hex
    body = {"html": "<p>once</p>", "response": "async"}
    first = client.generate("/v1/pdf", body, headers={"Idempotency-Key": key})
    again = client.generate("/v1/pdf", body, headers={"Idempotency-Key": key})
    assert first.id == again.id
    with pytest.raises(RelayPDFError) as error:
        client.generate("/v1/pdf", {**body, "html": "<p>twice</p>"}, headers={"Idempotency-Key": key})
    assert (error.value.status, error.value.code) == (409, "idempotency_conflict")
    assert sandbox.wait_for_jobs(1)["billed_by_key"] == {key: 1}


def test_operations_that_the_sandbox_lacks_are_refused_clearly(client: RelayPDF) -> None:
    with pytest.raises(RelayPDFError, match="does not offer POST /v1/pdf/merge") as error:
        client.pdf.merge([{"url": "https://example.com/a.pdf"}])
    assert error.value.code == "not_found"
