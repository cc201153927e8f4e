"""What is PDFMonkey's own: drafts and their start, templates, links that are renewed, its account and its webhooks."""

from __future__ import annotations

import base64
import hashlib
import hmac
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from batches.providers import make_provider
from batches.providers.base import (
    KEY_PLACE,
    Accepted,
    DocumentSource,
    JobPhase,
    PreparedRequest,
    ProviderConfig,
    SignatureRefused,
)
from batches.providers.errors import (
    AnswerLost,
    ContractBroken,
    InsufficientCredit,
    InvalidInput,
    NotFound,
    RateLimited,
    ServerFault,
    StrangeRefusal,
    TargetRefused,
    Unauthorized,
)
from batches.providers.pdfmonkey import PDFMonkey
from tests.providers import pdfmonkey_double
from tests.providers.conformance import MAX_BYTES, open_gate, utc_now
from tests.providers.pdfmonkey_double import PDFMonkeyDouble
from tests.providers.pdfmonkey_service import INVOICE, WHOLE_HTML, signed_headers
from tests.providers.test_pdfmonkey_conformance import OPTIONS, WEBHOOK_SECRET, PDFMonkeyPeer

NOW = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
KEY = "ab" * 32
HTML = DocumentSource("html", "<h1>INV-1</h1>", filename="INV-1.pdf")


@pytest.fixture
def double() -> Iterator[PDFMonkeyDouble]:
    with PDFMonkeyDouble() as double:
        yield double


@pytest.fixture
def peer(double: PDFMonkeyDouble) -> Iterator[PDFMonkeyPeer]:
    peer = PDFMonkeyPeer(double)
    yield peer
    peer.provider.close()


def drafted(peer: PDFMonkeyPeer, source: DocumentSource = HTML) -> tuple[Accepted, PreparedRequest]:
    request = peer.provider.prepare(source)
    answer = peer.provider.submit(request, idempotency_key=KEY, now=NOW, gate=open_gate)
    assert isinstance(answer, Accepted)
    return answer, request


def started(peer: PDFMonkeyPeer, source: DocumentSource = HTML) -> str:
    answer, request = drafted(peer, source)
    peer.provider.start(answer.provider_job_id, request, idempotency_key=KEY, now=NOW, gate=open_gate)
    return answer.provider_job_id


def config(**fields: Any) -> ProviderConfig:
    return ProviderConfig(
        **{"slug": "m", "base_url": "https://pdf.example.com", "api_key": "k", "options": {}} | fields
    )


# --- drafts ---


def test_a_submission_makes_a_draft_that_waits_and_costs_nothing(peer: PDFMonkeyPeer) -> None:
    answer, _request = drafted(peer)
    assert (answer.is_draft, answer.status_word) == (True, "draft")
    status = peer.provider.fetch_status(answer.provider_job_id, now=NOW)
    assert (status.phase, status.created_at is not None) == (JobPhase.DRAFT, True)
    assert peer.double.ledger()["billed"] == {}


def test_the_start_replaces_the_draft_by_all_of_its_fields_and_pending(peer: PDFMonkeyPeer) -> None:
    job_id = started(peer)
    (made,), (put,) = peer.double.seen("submit"), peer.double.seen("start")
    assert json.loads(made.body)["document"] == {
        "document_template_id": WHOLE_HTML,
        "payload": {"html": "<h1>INV-1</h1>"},
        "meta": {"job_key": KEY, "_filename": "INV-1.pdf"},
    }
    assert json.loads(put.body)["document"] == json.loads(made.body)["document"] | {"status": "pending"}
    assert put.path == f"/api/v1/documents/{job_id}"
    status = peer.finished(job_id)
    assert status.result is not None
    assert status.result.filename == "INV-1.pdf"
    assert peer.double.ledger()["billed"] == {KEY: 1}


def test_a_start_waits_at_its_gate_and_nothing_arrives_when_it_stays_shut(peer: PDFMonkeyPeer) -> None:
    answer, request = drafted(peer)

    class ShutError(Exception):
        pass

    def shut() -> None:
        assert not peer.double.seen("start")
        raise ShutError

    with pytest.raises(ShutError):
        peer.provider.start(answer.provider_job_id, request, idempotency_key=KEY, now=NOW, gate=shut)
    assert not peer.double.seen("start")


@pytest.mark.parametrize(
    ("action", "told", "kind", "bills"),
    [
        ("drop_after_start", {}, AnswerLost, 1),
        ("drop_before_start", {}, AnswerLost, 0),
        ("error_after_start", {"status": 503}, ServerFault, 1),
        ("html_502_before_start", {}, ServerFault, 0),
        ("rate_limited", {"retry_after": 4, "point": "start"}, RateLimited, 0),
        ("error_before_start", {"status": 402}, InsufficientCredit, 0),
        ("error_before_start", {"status": 404}, NotFound, 0),
        ("error_before_start", {"status": 422}, InvalidInput, 0),
        ("error_before_start", {"status": 403}, Unauthorized, 0),
    ],
)
def test_what_comes_of_a_start_is_told_by_its_error_and_by_the_next_read(
    peer: PDFMonkeyPeer, action: str, told: dict[str, Any], kind: type[Exception], bills: int
) -> None:
    answer, request = drafted(peer)
    peer.misbehave(action, **told)
    with pytest.raises(kind) as caught:
        peer.provider.start(answer.provider_job_id, request, idempotency_key=KEY, now=NOW, gate=open_gate)
    for secret in (*peer.secrets, answer.provider_job_id, KEY, "INV-1"):
        assert secret not in f"{caught.value!r} {caught.value.exchange!r}"  # type: ignore[attr-defined]
    phase = peer.provider.fetch_status(answer.provider_job_id, now=NOW).phase
    assert (phase is JobPhase.DRAFT) is (bills == 0)
    assert sum(peer.double.ledger()["billed"].values()) == bills


def test_a_start_without_a_body_in_its_answer_is_a_start(peer: PDFMonkeyPeer) -> None:
    peer.double.switches.start_status = 204
    assert peer.finished(started(peer)).phase is JobPhase.SUCCEEDED


def test_a_service_that_begins_at_once_is_taken_at_its_word(peer: PDFMonkeyPeer) -> None:
    peer.double.switches.created_status = "pending"
    answer, _request = drafted(peer)
    assert not answer.is_draft


# --- what may be asked for ---


def test_a_template_of_the_account_is_filled_with_the_rows_data(peer: PDFMonkeyPeer) -> None:
    stored = {"template": INVOICE, "version": 3, "data": {"customer": "Adaeze Okoye"}}
    job_id = started(peer, DocumentSource("template", json.dumps(stored)))
    assert json.loads(peer.double.seen("submit")[0].body)["document"]["payload"] == {"customer": "Adaeze Okoye"}
    result = peer.finished(job_id).result
    assert result is not None
    sink = io.BytesIO()
    peer.provider.download(result, sink, max_bytes=MAX_BYTES, now=NOW)
    assert b"Adaeze Okoye" in sink.getvalue()


@pytest.mark.parametrize(
    "text", ["[]", "{}", '{"template": "", "data": {}}', '{"template": "t", "data": []}', "[" * 100_000]
)
def test_a_template_that_is_not_named_with_its_data_is_not_sent(peer: PDFMonkeyPeer, text: str) -> None:
    with pytest.raises(InvalidInput):
        peer.provider.prepare(DocumentSource("template", text))


def test_a_documents_options_go_beside_its_html_and_never_into_a_template_of_theirs(peer: PDFMonkeyPeer) -> None:
    request = peer.provider.prepare(replace(HTML, options={"format": "A4"}))
    assert json.loads(request.body)["document"]["payload"]["options"] == {"format": "A4"}
    with pytest.raises(InvalidInput, match="page options"):
        peer.provider.prepare(DocumentSource("template", '{"template": "t", "data": {}}', options={"format": "A4"}))


def test_a_document_that_holds_the_place_of_a_key_keeps_its_text(peer: PDFMonkeyPeer) -> None:
    text = f"<p>{KEY_PLACE.decode()}</p>"
    request = peer.provider.prepare(DocumentSource("html", text))
    document = json.loads(request.keyed(KEY))["document"]
    assert (document["payload"]["html"], document["meta"]["job_key"]) == (text, KEY)


def test_without_a_template_for_whole_html_only_templates_are_taken() -> None:
    provider = make_provider("pdfmonkey", config())
    assert provider.capabilities.sources == {"template"}
    with pytest.raises(InvalidInput, match="no template for whole HTML"):
        provider.prepare(HTML)
    assert make_provider("pdfmonkey", config(options=OPTIONS)).capabilities.sources == {"template", "html"}


def test_an_unknown_template_is_the_accounts_fault_where_the_account_names_it(peer: PDFMonkeyPeer) -> None:
    wrong = peer.provider_with(options={"template": "gone", "variable": "html"})
    with pytest.raises(Unauthorized, match="template for whole HTML"):
        wrong.submit(wrong.prepare(HTML), idempotency_key=KEY, now=NOW, gate=open_gate)
    theirs = wrong.prepare(DocumentSource("template", '{"template": "other", "data": {}}'))
    with pytest.raises(InvalidInput, match="not found"):
        wrong.submit(theirs, idempotency_key=KEY, now=NOW, gate=open_gate)
    wrong.close()


@pytest.mark.parametrize("path", ["", "/api/v2"])
def test_a_wrong_address_fails_no_document(peer: PDFMonkeyPeer, path: str) -> None:
    lost = peer.provider_with(base_url=f"{peer.double.url}{path}")
    with pytest.raises(StrangeRefusal):
        lost.submit(lost.prepare(HTML), idempotency_key=KEY, now=NOW, gate=open_gate)
    lost.close()


def test_settings_that_cannot_be_used_are_named() -> None:
    hosts = ("files.example.com",)
    assert PDFMonkey.problems(config(options=OPTIONS)) == []
    assert PDFMonkey.problems(config(base_url=PDFMonkey.base_url, download_hosts=hosts, options=OPTIONS)) == []
    (missing,) = PDFMonkey.problems(config(base_url=PDFMonkey.base_url, options=OPTIONS))
    assert "download hosts" in missing
    for variable in ("", "a b", "options", "{{x}}"):
        (unusable,) = PDFMonkey.problems(config(options={"template": "t", "variable": variable}))
        assert "variable" in unusable


# --- cards, links, the quota ---


def test_an_expired_link_is_renewed_by_reading_the_card_and_the_key_never_goes_to_a_file(peer: PDFMonkeyPeer) -> None:
    peer.double.switches.link_seconds = -1
    job_id = started(peer)
    old = peer.finished(job_id).result
    assert old is not None
    assert old.expires_at is None, "the link ends, not the file"
    with pytest.raises(NotFound, match="expired"):
        peer.provider.download(old, io.BytesIO(), max_bytes=MAX_BYTES, now=NOW)
    peer.double.switches.link_seconds = 60
    fresh = peer.finished(job_id).result
    assert fresh is not None
    assert fresh.url != old.url
    peer.provider.download(fresh, io.BytesIO(), max_bytes=MAX_BYTES, now=NOW)
    assert peer.double.keys_at_files == 0
    assert not any("Authorization" in seen.headers for seen in peer.double.seen("download"))


def test_a_link_to_a_host_that_the_account_does_not_name_is_not_followed(peer: PDFMonkeyPeer) -> None:
    job_id = started(peer)
    card = {"id": job_id, "status": "success", "download_url": "https://bucket.s3.example.com/x.pdf?X-Amz-Signature=1"}
    peer.misbehave("poll_answer", body=card)
    status = peer.provider.fetch_status(job_id, now=NOW)
    assert status.result is not None
    with pytest.raises(TargetRefused, match=r"bucket\.s3\.example\.com"):
        peer.provider.download(status.result, io.BytesIO(), max_bytes=MAX_BYTES, now=NOW)


def test_a_success_without_a_link_is_read_again(peer: PDFMonkeyPeer) -> None:
    job_id = started(peer)
    peer.finished(job_id)
    peer.misbehave("poll_answer", body={"id": job_id, "status": "success", "download_url": None})
    status = peer.provider.fetch_status(job_id, now=NOW)
    assert (status.phase, status.status_word, status.result) == (JobPhase.RUNNING, "success", None)
    assert peer.finished(job_id).phase is JobPhase.SUCCEEDED


def test_a_card_of_another_document_proves_nothing(peer: PDFMonkeyPeer) -> None:
    job_id = started(peer)
    peer.misbehave("poll_answer", body={"id": "another", "status": "success"})
    with pytest.raises(ContractBroken):
        peer.provider.fetch_status(job_id, now=NOW)


@pytest.mark.parametrize("is_text", [True, False])
def test_meta_is_read_as_text_and_as_an_object(peer: PDFMonkeyPeer, is_text: bool) -> None:
    job_id = started(peer)
    peer.finished(job_id)
    meta: Any = {"_filename": "INV-9.pdf"}
    card = {"id": job_id, "status": "success", "download_url": "https://x.example/1"}
    peer.misbehave("poll_answer", body=card | {"meta": json.dumps(meta) if is_text else meta})
    result = peer.provider.fetch_status(job_id, now=NOW).result
    assert result is not None
    assert result.filename == "INV-9.pdf"


def test_a_failure_while_no_documents_are_left_is_told_as_missing_credit(peer: PDFMonkeyPeer) -> None:
    peer.double.switches.quota = 0
    status = peer.finished(started(peer))
    assert (status.phase, status.no_credit) == (JobPhase.FAILED, True)
    assert status.error_words.startswith("PDFMonkey has no documents left")
    assert status.error_words.endswith("Document generation failed")
    assert peer.double.ledger()["billed"] == {}


def test_a_failure_whose_quota_cannot_be_read_is_the_documents(peer: PDFMonkeyPeer) -> None:
    peer.double.switches.quota = 0
    answer, request = drafted(peer)
    peer.misbehave("account_error", status=500)
    peer.provider.start(answer.provider_job_id, request, idempotency_key=KEY, now=NOW, gate=open_gate)
    assert not peer.finished(answer.provider_job_id).no_credit


def test_the_account_is_checked_by_its_quota_and_its_token_is_not_kept(peer: PDFMonkeyPeer) -> None:
    state = peer.provider.check_account(now=NOW)
    assert (state.plan, state.balance) == ("premium", 5000)
    assert state.raw == {"available_documents": 5000, "current_plan": "premium"}
    assert "s3cretAuthT0ken" not in repr(state)


def test_a_card_that_still_names_a_link_is_not_believed_to_be_gone(peer: PDFMonkeyPeer) -> None:
    peer.double.switches.deleted_shows_link = True
    result = peer.finished(started(peer)).result
    assert result is not None
    peer.provider.delete_remote(result, now=NOW)
    assert not peer.provider.is_gone(result, now=NOW).is_gone
    peer.double.switches.delete_forgets = True
    peer.provider.delete_remote(result, now=NOW)
    assert peer.provider.is_gone(result, now=NOW).is_gone
    assert peer.provider.delete_remote(result, now=NOW).already_gone


# --- webhooks ---

BODY = b'{"document": {"id": "d-1", "status": "success"}}'


def verify(headers: dict[str, str], *secrets: str, at: datetime = NOW) -> datetime:
    return make_provider("pdfmonkey", config()).verify_webhook(headers, BODY, secrets, now=at)


def test_one_right_signature_among_several_proves_it_under_any_secret() -> None:
    headers = signed_headers(WEBHOOK_SECRET, "msg_1", NOW.timestamp(), BODY)
    assert len(headers["svix-signature"].split()) == 3
    other = "whsec_" + base64.b64encode(b"another secret").decode()
    assert verify(headers, WEBHOOK_SECRET) == NOW
    assert verify({name.upper(): value for name, value in headers.items()}, other, WEBHOOK_SECRET) == NOW
    with pytest.raises(SignatureRefused):
        verify(headers, other)


@pytest.mark.parametrize("seconds", [-301, -300, 300, 301])
def test_its_time_may_be_five_minutes_off(seconds: int) -> None:
    headers = signed_headers(WEBHOOK_SECRET, "msg_1", NOW.timestamp(), BODY)
    at = NOW + timedelta(seconds=seconds)
    if abs(seconds) <= 300:
        assert verify(headers, WEBHOOK_SECRET, at=at) == NOW
        return
    with pytest.raises(SignatureRefused) as caught:
        verify(headers, WEBHOOK_SECRET, at=at)
    assert caught.value.stale


@pytest.mark.parametrize(
    "changed",
    [
        {"svix-id": "msg_2"},
        {"svix-id": ""},
        {"svix-timestamp": ""},
        {"svix-timestamp": "soon"},
        {"svix-timestamp": "9" * 30},
        {"svix-signature": ""},
        {"svix-signature": "v1,"},
        {"svix-signature": "é,½ v1,½"},
        {"svix-signature": "v1," * 30 + "x"},
        {"svix-signature": "v1,x " * 11},
        {"svix-signature": "v1,x" * 1000},
    ],
)
def test_a_header_that_is_not_right_proves_nothing(changed: dict[str, str]) -> None:
    headers = signed_headers(WEBHOOK_SECRET, "msg_1", NOW.timestamp(), BODY) | changed
    with pytest.raises(SignatureRefused) as caught:
        verify(headers, WEBHOOK_SECRET)
    assert not caught.value.stale


@pytest.mark.parametrize("secret", ["whsec_", "whsec_not base64!", "é"])
def test_a_secret_that_is_no_base64_opens_no_door(secret: str) -> None:
    message = b"msg_1.%d." % NOW.timestamp() + BODY
    forged = base64.b64encode(hmac.new(b"", message, hashlib.sha256).digest()).decode()
    headers = {"svix-id": "msg_1", "svix-timestamp": f"{NOW.timestamp():.0f}", "svix-signature": f"v1,{forged}"}
    with pytest.raises(SignatureRefused, match="No webhook secret"):
        verify(headers, secret)


@pytest.mark.parametrize(
    ("payload", "events"),
    [
        ({"document": {"id": "d-1", "status": "success"}}, [("documents.generation.success", "d-1", False)]),
        ({"document": {"id": "d-1", "status": "failure"}}, [("documents.generation.failure", "d-1", False)]),
        ({"document_card": {"id": "d-1", "status": "success"}}, [("documents.generation.success", "d-1", False)]),
        ({"document": {"id": "d-1", "status": "warming"}}, [("", "d-1", False)]),
        ({"document": {"id": "d-1", "meta": '{"job_key": "k"}'}}, [("", "d-1", False)]),
        ({"document": {"id": "d-1", "meta": {"job_key": "k"}}}, [("", "d-1", False)]),
        ({"document": {"id": "d-1", "meta": "{"}}, [("", "d-1", False)]),
        ({"document": {"id": "d-1", "meta": '{"order": 7}'}}, []),
        ({"document": {"id": "d-1", "meta": {"order": 7}}}, []),
        ({"available_documents": 12}, [("quota.warning", "", True)]),
        ({"quota": {"available_documents": 0}}, [("quota.exhausted", "", True)]),
        ({"something": "new"}, [("", "", False)]),
    ],
)
def test_an_event_is_told_by_its_shape(payload: dict[str, Any], events: list[tuple[str, str, bool]]) -> None:
    found = make_provider("pdfmonkey", config()).parse_webhook(json.dumps(payload).encode())
    assert [(each.type, each.provider_job_id, each.is_about_account) for each in found] == events


@pytest.mark.parametrize("body", [b"", b"[]", b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_object_is_no_event(body: bytes) -> None:
    with pytest.raises(ValueError):
        make_provider("pdfmonkey", config()).parse_webhook(body)


# --- the double as a program of its own ---


def test_the_double_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    double = pdfmonkey_double.start(tmp_path, quota=7)
    try:
        fields = double.account_fields()
        kind = fields.pop("kind")
        provider = make_provider(kind, ProviderConfig(slug="m", **fields))
        assert provider.check_account(now=utc_now()).balance == 7
        double.misbehave("drop_after_acceptance")
        with pytest.raises(AnswerLost):
            provider.submit(provider.prepare(HTML), idempotency_key=KEY, now=NOW, gate=open_gate)
        assert double.ledger() == {"accepted": 1, "billed": {}, "keys_at_files": 0}
        provider.close()
    finally:
        double.stop()
