"""Receiving webhooks: proven over their raw bytes, stored, and only then answered. What they say is never believed.

The provider's adapter knows how a delivery is proven and where it names a job; what follows from it is `wakeups.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime

from batches.engine import wakeups
from batches.engine.accounts import provider_config
from batches.engine.wakeups import Event
from batches.models import ProviderAccount, UnreadableSecret, WebhookEvent
from batches.providers import make_provider
from batches.providers.base import SignatureRefused
from batches.providers.errors import ProviderError

#: The largest body that is taken. Events are notices of a few hundred bytes; this leaves room for a vendor's growth.
BODY_BYTES_MOST = 256 * 1024
KEPT_HEADERS = ("content-type", "user-agent")


class Refused(Exception):
    """A delivery that is not taken; `status` is the HTTP answer and `words` say why, without a secret."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status
        self.words = words


def account_of(slug: str) -> ProviderAccount:
    """The account that an address names. Raises `Refused`."""
    try:
        account = ProviderAccount.objects.filter(slug=slug, archived_at=None).first()
    except UnreadableSecret:
        raise Refused(503, "The account's secrets cannot be read; nothing is taken until they can.") from None
    if account is None:
        raise Refused(404, "There is no such account.")
    return account


def receive(account: ProviderAccount, headers: Mapping[str, str], body: bytes, *, now: datetime) -> int:
    """Prove and store one delivery. Returns how many events it brought that were not stored before.

    The caller answers 2xx only after this has returned. Raises `Refused`, and database errors, after which the
    provider is to try again.
    """
    if len(body) > BODY_BYTES_MOST:
        raise Refused(413, "The body is too large.")
    try:
        config = provider_config(account)
        provider = make_provider(account.kind, config)
    except (TypeError, ValueError, LookupError, ProviderError):
        raise Refused(503, "The account's settings cannot be used; nothing is taken until they can.") from None
    try:
        signed_at = provider.verify_webhook(headers, body, config.webhook_secrets, now=now)
        found = provider.parse_webhook(body)
    except SignatureRefused as error:
        raise Refused(401, error.words) from error
    except ValueError as error:
        raise Refused(400, "The body is no event that can be read.") from error
    finally:
        provider.close()
    digest = hashlib.sha256(body).hexdigest()
    keys = [digest if not index else f"{digest}:{index}" for index in range(len(found))]
    known = set(WebhookEvent.objects.filter(account=account, dedupe_key__in=keys).values_list("dedupe_key", flat=True))
    rows = [
        WebhookEvent(
            account=account,
            body=body,
            headers={name.lower(): value[:300] for name, value in headers.items() if name.lower() in KEPT_HEADERS},
            body_sha256=digest,
            dedupe_key=key,
            signed_at=signed_at,
            received_at=now,
            type=event.type[:100],
            provider_job_id=event.provider_job_id[:200],
        )
        for key, event in zip(keys, found, strict=True)
        if key not in known
    ]
    WebhookEvent.objects.bulk_create(rows, ignore_conflicts=True)  # two deliveries of the same bytes at once: one row
    stored = WebhookEvent.objects.filter(account=account, dedupe_key__in=[row.dedupe_key for row in rows])
    fresh = stored.filter(processed_at=None).values_list("pk", "provider_job_id")
    # Waking is a convenience: a pump that is running reads the row itself, and one that is not finds the job due.
    wakeups.settle([Event(pk, account.pk, job_id, False) for pk, job_id in fresh if job_id], now=now)
    return len(rows)
