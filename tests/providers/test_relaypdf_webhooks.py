"""Proof and reading of RelayPDF's webhooks, and agreement with the vendor's own helper."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from relaypdf import verify_webhook as vendor_verify

from batches.providers import relaypdf_webhooks as webhooks
from batches.providers.base import ProviderEvent, SignatureRefused
from tests.providers.conformance import CASES

SECRET = "whsec_p7Yk3vQe5"
NOW = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
BODY = (CASES / "067-webhook-body.json").read_bytes()


def digest(body: bytes, at: datetime = NOW, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), b"%d." % int(at.timestamp()) + body, hashlib.sha256).hexdigest()


def header(body: bytes = BODY, at: datetime = NOW, secret: str = SECRET) -> dict[str, str]:
    return {"RelayPDF-Signature": f"t={int(at.timestamp())},v1={digest(body, at, secret)}"}


def refused(headers: dict[str, str], body: bytes = BODY, secrets: tuple[str, ...] = (SECRET,)) -> SignatureRefused:
    with pytest.raises(SignatureRefused) as caught:
        webhooks.verify(headers, body, secrets, now=NOW)
    return caught.value


def case_headers() -> list[tuple[str, bool]]:
    """Each header of the case file, and whether it is to be accepted."""
    cases = []
    for line in (CASES / "074-signature-headers.txt").read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        value, _, note = line.partition("   ->")
        value = {"(10,000 characters)": "x" * 10_000, "(header absent)": ""}.get(value, value)
        value = value.replace("NOW", str(int(NOW.timestamp()))).replace("GOOD", digest(BODY))
        cases.append((value, "accept" in note))
    return cases


def test_the_case_file_holds_both_kinds() -> None:
    assert [accepted for _, accepted in case_headers()].count(True) == 3
    assert len(case_headers()) == 10


@pytest.mark.parametrize(("value", "accepted"), case_headers(), ids=lambda value: str(value)[:40])
def test_a_header_seen_in_the_wild_is_judged_and_never_crashes(value: str, accepted: bool) -> None:
    headers = {"RelayPDF-Signature": value} if value else {}
    if accepted:
        assert webhooks.verify(headers, BODY, [SECRET], now=NOW) == NOW
    else:
        assert not refused(headers).stale


def test_the_header_is_found_in_any_spelling() -> None:
    value = header()["RelayPDF-Signature"]
    assert webhooks.verify({"relaypdf-signature": value}, BODY, [SECRET], now=NOW) == NOW


@pytest.mark.parametrize("secrets", [("whsec_new", SECRET), (SECRET, "whsec_new"), ("", SECRET)])
def test_both_secrets_are_good_while_one_is_replaced(secrets: tuple[str, ...]) -> None:
    assert webhooks.verify(header(), BODY, secrets, now=NOW) == NOW


@pytest.mark.parametrize("secrets", [(), ("",), ("whsec_other",)])
def test_without_the_right_secret_nothing_is_proven(secrets: tuple[str, ...]) -> None:
    refused(header(), secrets=secrets)
    refused(header(secret=""), secrets=secrets)


@pytest.mark.parametrize(("seconds", "stale"), [(0, False), (300, False), (-300, False), (301, True), (-301, True)])
def test_a_right_signature_at_the_wrong_time_is_stale(seconds: int, stale: bool) -> None:
    headers = header(at=NOW + timedelta(seconds=seconds))
    if stale:
        assert refused(headers).stale
    else:
        assert webhooks.verify(headers, BODY, [SECRET], now=NOW) == NOW + timedelta(seconds=seconds)


@pytest.mark.parametrize("seconds", ["999999999999", "0", "9999999999999", "-1", "1.5", "", "１"])
def test_an_odd_time_is_refused_even_when_it_is_signed(seconds: str) -> None:
    signature = hmac.new(SECRET.encode(), f"{seconds}.".encode() + BODY, hashlib.sha256).hexdigest()
    refused({"RelayPDF-Signature": f"t={seconds},v1={signature}"})


def test_bytes_that_are_no_text_are_not_passed_over() -> None:
    refused({"RelayPDF-Signature": f"t={int(NOW.timestamp())},v1=\udce9{digest(BODY)}"})


def test_two_times_are_refused() -> None:
    at = int(NOW.timestamp())
    refused({"RelayPDF-Signature": f"t={at},t={at + 1},v1={digest(BODY)}"})


def test_more_signatures_than_a_rotation_needs_are_refused() -> None:
    signatures = ",".join([f"v1={'0' * 10}"] * 11)
    refused({"RelayPDF-Signature": f"t={int(NOW.timestamp())},{signatures}"})


@settings(max_examples=1000, deadline=None)
@given(body=st.text(), cut=st.integers(0, 20))
@example(body="", cut=0)
@example(body='{"type": "job.completed",\r\n "note": "\u2028é 発票 🧾"}\n', cut=3)
def test_the_vendors_helper_and_ours_agree(body: str, cut: int) -> None:
    raw = body.encode("utf-8")
    at = datetime.fromtimestamp(int(time.time()), UTC)  # the vendor's helper knows no other clock
    for signed in (raw, raw[cut:] + b"x"):
        value = header(signed, at)["RelayPDF-Signature"]
        try:
            ours = webhooks.verify({"RelayPDF-Signature": value}, raw, [SECRET], now=at) == at
        except SignatureRefused:
            ours = False
        assert ours == vendor_verify(SECRET, body, value)


# --- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "job_id"),
    [
        ({"data": {"id": "job_1"}}, "job_1"),
        ({"id": "job_1"}, "job_1"),
        ({"jobId": "job_1"}, "job_1"),
        ({"job_id": "job_1"}, "job_1"),
        ({"data": {"jobId": "job_1"}}, "job_1"),
        ({"data": {"job": {"id": "job_1"}}}, "job_1"),
        ({"id": "evt_9", "data": {"id": "job_1"}}, "job_1"),
        ({"id": "evt_9", "jobId": "job_1"}, "job_1"),
        ({"data": {"id": "evt_9", "jobId": "job_1"}}, "job_1"),
        ({"data": {"id": 17}}, "17"),
        ({"data": {"id": None}, "id": ""}, ""),
        ({"data": {"id": True}}, ""),
        ({"data": {"id": ["job_1"]}}, ""),
        ({"data": {"id": "x" * 201}}, ""),
        ({"data": {"id": "job\x001"}}, ""),
        ({"data": "job_1"}, ""),
        ({}, ""),
    ],
)
def test_the_job_id_is_found_where_it_may_stand(payload: dict[str, Any], job_id: str) -> None:
    body = json.dumps({"type": "job.completed", **payload}).encode()
    assert webhooks.parse(body) == [ProviderEvent("job.completed", job_id)]


def test_a_wallet_event_names_no_job() -> None:
    body = b'{"type": "wallet.payment_required", "data": {"id": "pay_1"}}'
    assert webhooks.parse(body) == [ProviderEvent("wallet.payment_required", is_about_account=True)]


@pytest.mark.parametrize("named", ["null", "7", "[]", '"x\\u0000y"'])
def test_an_odd_type_is_no_error(named: str) -> None:
    (event,) = webhooks.parse(b'{"type": %s, "data": {"id": "job_1"}}' % named.encode())
    assert event.provider_job_id == "job_1"
    assert "\x00" not in event.type


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"ok"',
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"a": ' + b"9" * 5000 + b"}",
    ],
    ids=lambda body: repr(body[:8]),
)
def test_a_body_that_is_no_json_object_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError):
        webhooks.parse(body)
