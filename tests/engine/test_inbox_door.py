"""What strangers send to the webhook's address is answered with a 4xx, and with a 503 while it cannot be stored."""

from __future__ import annotations

import hashlib
import hmac
import io
from datetime import timedelta
from typing import Any

import pytest
from django.db import InterfaceError, OperationalError
from django.test import Client, RequestFactory
from django.utils import timezone

from batches.engine import inbox
from batches.models import ProviderAccount, WebhookEvent
from batches.views.webhooks import webhook
from tests import factories
from tests.engine import racing
from tests.engine.test_inbox import SECRET, body, send
from tests.providers.conformance import CASES

pytestmark = pytest.mark.django_db
ODD_BODY = (CASES / "067-webhook-body.json").read_bytes()


@pytest.fixture(autouse=True)
def account() -> ProviderAccount:
    return factories.make_account(slug="relaypdf", webhook_secret=SECRET)


def case_headers() -> list[tuple[str, bool]]:
    lines = (CASES / "074-signature-headers.txt").read_text(encoding="utf-8").splitlines()
    cases = [line.partition("   ->") for line in lines if line and not line.startswith("#")]
    values = {"(10,000 characters)": "x" * 10_000, "(header absent)": ""}
    return [(values.get(value, value), "accept" in note) for value, _, note in cases]


@pytest.mark.parametrize(("value", "accepted"), case_headers(), ids=lambda value: str(value)[:40])
def test_each_header_of_case_74_is_answered_and_none_is_a_fault(value: str, accepted: bool) -> None:
    at = int(timezone.now().timestamp())
    good = hmac.new(SECRET.encode(), b"%d." % at + ODD_BODY, hashlib.sha256).hexdigest()
    # A web server hands on the bytes of a header as Latin-1.
    value = value.replace("NOW", str(at)).replace("GOOD", good).encode().decode("latin-1")
    headers = {"RelayPDF-Signature": value} if value else {}
    answer = Client().post("/webhooks/relaypdf", ODD_BODY, content_type="application/json", headers=headers)
    assert answer.status_code == (204 if accepted else 401)
    assert WebhookEvent.objects.count() == accepted


@pytest.mark.parametrize(
    ("content", "status"),
    [
        ((CASES / "026-deep.json").read_bytes(), 400),
        (b"[" * 100_000, 400),
        (b'{"a":' * 20_000 + b"1" + b"}" * 20_000, 400),
        (b'{"type": "job.completed", "data": {"id": "\xff\xfe"}}', 400),
        (b"", 400),
        (b"\x00", 400),
        (b'{"type": "x\\u0000y", "data": {"id": "pdf\\u0000"}}', 204),
        (b'{"type": "\\ud83d", "data": {"id": "\\ud83d"}}', 204),
        (b'{"type": "' + b"x" * 5000 + b'"}', 204),
        (b'{"type": "invoice.paid", "data": {"amount": 1e999}}', 204),
        (ODD_BODY, 204),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_no_proven_body_is_a_fault_of_ours(content: bytes, status: int) -> None:
    assert send(content) == status
    assert WebhookEvent.objects.count() == (status == 204)


def test_one_changed_byte_is_refused_and_the_signature_is_over_the_bytes_as_they_came() -> None:
    at = int(timezone.now().timestamp())
    proof = hmac.new(SECRET.encode(), b"%d." % at + ODD_BODY, hashlib.sha256).hexdigest()
    headers = {"RelayPDF-Signature": f"t={at},v1={proof}"}
    changed = ODD_BODY.replace(b"1.0", b"1")
    assert changed != ODD_BODY
    for content, status in ((changed, 401), (ODD_BODY, 204)):
        answer = Client().post("/webhooks/relaypdf", content, content_type="application/json", headers=headers)
        assert answer.status_code == status


def test_an_unknown_type_is_kept() -> None:
    assert send(body(kind="invoice.reminded")) == 204
    assert WebhookEvent.objects.get().type == "invoice.reminded"


def test_odd_headers_of_a_proven_event_are_kept_in_a_form_that_any_database_takes() -> None:
    odd = {"User-Agent": "agent\x00 é " + "x" * 2000, "X-More": "y" * 60_000}
    assert send(body(), **odd) == 204
    kept = WebhookEvent.objects.get().headers
    assert set(kept) == {"content-type", "user-agent"}
    assert "\x00" not in kept["user-agent"]
    assert len(kept["user-agent"]) <= 300


def test_a_body_that_is_declared_too_large_is_refused_unread() -> None:
    class Unreadable(io.BytesIO):
        def read(self, *_size: Any) -> bytes:
            raise AssertionError("it was read")

    request = RequestFactory().post("/webhooks/relaypdf", b"x", content_type="application/json")
    request.META["CONTENT_LENGTH"] = str(inbox.BODY_BYTES_MOST + 1)
    request._stream = Unreadable()  # type: ignore[attr-defined]  # what Django reads a body from
    assert webhook(request, "relaypdf").status_code == 413


def test_chunks_are_read_where_the_server_knows_their_end_and_else_a_length_is_asked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    at = int(timezone.now().timestamp())
    proof = hmac.new(SECRET.encode(), b"%d." % at + body(), hashlib.sha256).hexdigest()
    for knows_the_end, content, status in (
        (False, body(), 411),
        (True, body() + b" ", 401),
        (True, b"x" * (inbox.BODY_BYTES_MOST + 1), 413),
        (True, body(), 204),
    ):
        request = RequestFactory().post("/webhooks/relaypdf", b"", content_type="application/json")
        request.META.pop("CONTENT_LENGTH", None)
        request.META |= {
            "HTTP_TRANSFER_ENCODING": "chunked",
            "HTTP_RELAYPDF_SIGNATURE": f"t={at},v1={proof}",
            "wsgi.input_terminated": knows_the_end,
            "wsgi.input": io.BytesIO(content),
        }
        assert webhook(request, "relaypdf").status_code == status
    assert "came in chunks" in caplog.text, "and the log says why"


@pytest.mark.parametrize("away", [OperationalError("away"), InterfaceError("closed")], ids=str)
@pytest.mark.parametrize(("owner", "call"), [(WebhookEvent, "bulk_create"), (ProviderAccount, "filter")])
def test_while_the_database_is_away_the_provider_is_asked_to_come_again(
    away: Exception, owner: Any, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_given: Any, **_named: Any) -> Any:
        raise away

    at = int(timezone.now().timestamp())
    proof = hmac.new(SECRET.encode(), b"%d." % at + body(), hashlib.sha256).hexdigest()
    monkeypatch.setattr(owner.objects, call, fail)
    headers = {"RelayPDF-Signature": f"t={at},v1={proof}"}
    answer = Client().post("/webhooks/relaypdf", body(), content_type="application/json", headers=headers)
    assert (answer.status_code, answer["Retry-After"]) == (503, "10")
    assert "Traceback" not in answer.text
    monkeypatch.undo()
    assert send(body()) == 204


def test_a_fault_of_our_own_is_a_503_without_a_trace(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.DEBUG = True

    def fail(*_given: Any, **_named: Any) -> None:
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr(inbox, "receive", fail)
    answer = Client().post("/webhooks/relaypdf", body(), content_type="application/json")
    assert (answer.status_code, answer["Retry-After"]) == (503, "10")
    assert "fault of ours" not in answer.text


@pytest.mark.django_db(transaction=True)
def test_the_same_bytes_that_come_at_the_same_moment_are_stored_once(account: ProviderAccount) -> None:
    job = factories.make_accepted_job(batch=factories.make_batch(account=account), provider_job_id="pdf_7")
    assert racing.answers([lambda: send(body()) for _ in range(6)]) == [204] * 6
    row = WebhookEvent.objects.get()
    assert (row.provider_job_id, row.outcome) == ("pdf_7", "woke")
    job.refresh_from_db()
    assert job.state == "accepted"


def test_repeats_after_days_are_known_again_and_change_nothing(account: ProviderAccount) -> None:
    job = factories.make_saved_job(batch=factories.make_batch(account=account))
    job_id = str(job.submissions.get().provider_job_id)
    assert send(body(job_id)) == 204
    then = timezone.now() - timedelta(days=29)
    WebhookEvent.objects.update(received_at=then, signed_at=then)
    assert send(body(job_id)) == 204
    row = WebhookEvent.objects.get()
    assert (row.received_at, row.outcome) == (then, "ignored")
    assert job.events.count() == 0
