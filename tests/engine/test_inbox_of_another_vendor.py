"""The inbox with a vendor that signs as Svix does: nothing in it is RelayPDF's.

Other header names, a base64 HMAC over id, time and body under a base64 secret, several events in one body, other words.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

import batches.engine
from batches import providers
from batches.engine import health
from batches.models import HoldReason, ProviderAccount, WebhookEvent
from batches.providers.base import Capabilities, ProviderConfig, ProviderEvent, SignatureRefused
from batches.views import webhooks
from tests import factories

pytestmark = pytest.mark.django_db
KEY = b"thirty-two bytes of pure nothing"
SECRET = f"whsec_{base64.b64encode(KEY).decode()}"
TOLERANCE = timedelta(minutes=5)


class PaperPlane:
    """The two calls that the inbox may make, and what it may read of the vendor."""

    options = ()
    capabilities = Capabilities(
        client_key=True,
        webhook_signature=True,
        topup_events=frozenset({"balance.credited"}),
        no_credit_events=frozenset({"balance.exhausted"}),
    )

    def __init__(self, config: ProviderConfig) -> None:
        self.config = config

    def verify_webhook(
        self, headers: Mapping[str, str], body: bytes, secrets: Sequence[str], *, now: datetime
    ) -> datetime:
        lower = {name.lower(): value for name, value in headers.items()}
        event_id, at = lower.get("svix-id", ""), lower.get("svix-timestamp", "")
        given = [part.partition(",")[2] for part in lower.get("svix-signature", "").split() if part.startswith("v1,")]
        wanted = [_proof(secret, event_id, at, body) for secret in secrets if secret]
        if not any(hmac.compare_digest(one.encode(), other.encode()) for one in wanted for other in given):
            raise SignatureRefused("The signature does not match.")
        signed_at = datetime.fromtimestamp(int(at), UTC)
        if abs(now - signed_at) > TOLERANCE:
            raise SignatureRefused("The time is too far from ours.", stale=True)
        return signed_at

    def parse_webhook(self, body: bytes) -> list[ProviderEvent]:
        notices = json.loads(body)["notices"]
        return [
            ProviderEvent(each["what"], is_about_account=True)
            if each["what"].startswith("balance.")
            else ProviderEvent(each["what"], each.get("sheet", {}).get("ref", ""))
            for each in notices
        ]

    def close(self) -> None:
        """It holds nothing."""


def _proof(secret: str, event_id: str, at: str, body: bytes) -> str:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    return base64.b64encode(hmac.new(key, f"{event_id}.{at}.".encode() + body, hashlib.sha256).digest()).decode()


@pytest.fixture(autouse=True)
def account(monkeypatch: pytest.MonkeyPatch) -> ProviderAccount:
    monkeypatch.setitem(providers.PROVIDERS, "relaypdf", PaperPlane)  # type: ignore[arg-type]  # as much as is used
    return factories.make_account(slug="paper-plane", webhook_secret=SECRET)


def notices(*each: tuple[str, str]) -> bytes:
    return json.dumps({"notices": [{"what": what, "sheet": {"ref": ref}} for what, ref in each]}).encode()


def send(body: bytes, *, secret: str = SECRET, ago: float = 0, **headers: str) -> int:
    at = str(int((timezone.now() - timedelta(seconds=ago)).timestamp()))
    own = {"svix-id": "msg_1", "svix-timestamp": at, "svix-signature": f"v1,xx v1,{_proof(secret, 'msg_1', at, body)}"}
    answer = Client().post("/webhooks/paper-plane", body, content_type="application/json", headers=own | headers)
    return answer.status_code


def test_its_events_are_proven_stored_and_wake_their_jobs(account: ProviderAccount) -> None:
    batch = factories.make_batch(account=account)
    later = timezone.now() + timedelta(hours=1)
    one, two = (
        factories.make_accepted_job(batch=batch, provider_job_id=ref, due_at=later) for ref in ("sheet/1", "sheet/2")
    )
    body = notices(("sheet.folded", "sheet/1"), ("sheet.folded", "sheet/2"), ("sheet.torn", "sheet/3"))
    assert [send(body), send(body)] == [204, 204]
    rows = WebhookEvent.objects.order_by("pk").values_list("type", "provider_job_id", "outcome")
    assert list(rows) == [
        ("sheet.folded", "sheet/1", "woke"),
        ("sheet.folded", "sheet/2", "woke"),
        ("sheet.torn", "sheet/3", "unmatched"),
    ]
    for job in (one, two):
        job.refresh_from_db()
        assert job.due_at < later


def test_what_is_forged_stale_or_not_readable_is_refused() -> None:
    body = notices(("sheet.folded", "sheet/1"))
    other = f"whsec_{base64.b64encode(b'another').decode()}"
    assert send(body, secret=other) == 401
    assert send(body, ago=900) == 401
    assert send(b"[]") == 503, "a fault in the vendor's adapter is ours: it is asked to come again"
    assert send(b"{") == 400
    relaypdfs = {"RelayPDF-Signature": "t=1,v1=00", "svix-signature": ""}
    assert send(body, **relaypdfs) == 401
    assert not WebhookEvent.objects.exists()


def test_both_secrets_are_taken_while_one_replaces_the_other(account: ProviderAccount) -> None:
    other = f"whsec_{base64.b64encode(b'another').decode()}"
    ProviderAccount.objects.filter(pk=account.pk).update(webhook_secret=other, webhook_secret_previous=SECRET)
    assert send(notices(("sheet.folded", "1"))) == 204
    assert send(notices(("sheet.folded", "2")), secret=other) == 204


def test_its_own_words_for_money_move_the_account(account: ProviderAccount) -> None:
    assert send(notices(("balance.exhausted", ""))) == 204
    account.refresh_from_db()
    assert account.on_probation
    held_at = timezone.now() - timedelta(minutes=1)
    assert health.hold(account.pk, reason=HoldReason.CREDIT, words="Empty.", now=held_at)
    assert send(notices(("wallet.topup", ""))) == 204
    account.refresh_from_db()
    assert account.probe_at is not None
    before = account.probe_at
    assert send(notices(("balance.credited", ""))) == 204
    account.refresh_from_db()
    assert account.probe_at != before


def test_neither_the_door_nor_the_inbox_names_a_vendor() -> None:
    engine = Path(str(batches.engine.__file__)).parent
    modules: list[Any] = [Path(str(webhooks.__file__))]
    modules += [engine / f"{name}.py" for name in ("inbox", "wakeups", "webhook_setup", "webhook_health")]
    for module in modules:
        assert "relaypdf" not in module.read_text("utf-8").lower(), module
