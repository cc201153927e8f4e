"""PDFMonkey's webhooks, delivered and signed by Svix: proof over the raw bytes, and what a proven body tells.

Tags as in `pdfmonkey.py`. A proven event is still only a hint: what it says is read again, and its link, which a late
delivery brings dead, is never followed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from batches.providers import pdfmonkey_answers as answers
from batches.providers import reading
from batches.providers.base import JobPhase, ProviderEvent, SignatureRefused

#: 4.10: C(P4, P8). The body does not name them, so they are told by its shape.
SUCCESS, FAILURE = "documents.generation.success", "documents.generation.failure"
QUOTA_WARNING = "quota.warning"
#: Our word for a warning that says that nothing is left.
QUOTA_EXHAUSTED = "quota.exhausted"
#: Where our key stands in a document's `meta`.
KEY_FIELD = "job_key"

TOLERANCE_SECONDS = 300  # 4.10: C(P8)
MAX_HEADER_LENGTH = 2000
MAX_SIGNATURES = 10
_TIME = re.compile(r"[0-9]{1,12}")


def verify(headers: Mapping[str, str], body: bytes, secrets: Sequence[str], *, now: datetime) -> datetime:
    """The signed time. Raises `SignatureRefused`, `stale` when the signature is right and only its time is not.

    HMAC-SHA256 over `<svix-id>.<svix-timestamp>.` and the raw body, keyed with the base64 part of a `whsec_…` secret;
    any `v1,<base64>` of the header under any secret proves it (4.10: C(P8)).
    """
    keys = [key for secret in secrets if (key := _key_of(secret))]
    if not keys:
        # An empty secret would accept what anyone can sign.
        raise SignatureRefused("No webhook secret that can be used is set for this account: it begins with whsec_.")
    lower = {name.lower(): value for name, value in headers.items()}
    event_id, signed, given = (lower.get(f"svix-{name}", "") for name in ("id", "timestamp", "signature"))
    if not event_id or not signed or not given:
        raise SignatureRefused("The svix-id, svix-timestamp or svix-signature header is missing.")
    if max(len(event_id), len(given)) > MAX_HEADER_LENGTH:
        raise SignatureRefused("A svix header is too long.")
    signatures = [text for version, _, text in (part.partition(",") for part in given.split()) if version == "v1"]
    if not _TIME.fullmatch(signed) or not signatures:
        raise SignatureRefused("The svix headers are not of the form that they should have.")
    if len(signatures) > MAX_SIGNATURES:
        raise SignatureRefused("The svix-signature header holds too many signatures.")
    message = f"{event_id}.{signed}.".encode("utf-8", "backslashreplace") + body
    wanted = [base64.b64encode(hmac.new(key, message, hashlib.sha256).digest()) for key in keys]
    # No early end: how long a refusal takes says nothing about which secret or signature came close.
    shown = [text.encode("utf-8", "backslashreplace") for text in signatures]
    matches = [hmac.compare_digest(one, other) for one in wanted for other in shown]
    if not any(matches):
        raise SignatureRefused("The signature does not match.")
    if abs(now.timestamp() - int(signed)) > TOLERANCE_SECONDS:
        raise SignatureRefused("The signature is right, but its time is too far from ours.", stale=True)
    return datetime.fromtimestamp(int(signed), UTC)


def _key_of(secret: str) -> bytes:
    try:
        return base64.b64decode(secret.strip().removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        return b""


def parse(body: bytes) -> list[ProviderEvent]:
    """The one event in a proven body. Raises `ValueError` when it is no JSON object that can be read.

    None for a document that was not made by us: a workspace's address is told of every document in it.
    """
    try:
        payload = json.loads(body)
    except RecursionError:
        raise ValueError("The webhook's JSON is nested too deeply.") from None
    if not isinstance(payload, dict):
        raise ValueError("The webhook's body is no JSON object.")
    card = answers.card_in(payload)
    job_id = reading.job_id_in(card.get("id"))
    if card is payload and "status" not in card:
        left = _documents_left(payload)
        if left is not None:
            word = QUOTA_EXHAUSTED if left <= 0 else QUOTA_WARNING
            return [ProviderEvent(type=word, is_about_account=True)]
    meta = answers.meta_in(card)
    if meta and KEY_FIELD not in meta:
        return []
    phase = answers.phase_of(reading.status_word(card.get("status")))
    word = {JobPhase.SUCCEEDED: SUCCESS, JobPhase.FAILED: FAILURE}.get(phase, "")
    return [ProviderEvent(type=word, provider_job_id=job_id)]


def _documents_left(payload: Mapping[str, Any]) -> float | None:
    """4.10: a quota warning is told by `available_documents`, C(P8); which object holds it is UNKNOWN."""
    inner = [value for value in payload.values() if isinstance(value, dict)]
    found = [answers.documents_left(each) for each in (payload, *inner)]
    return next((float(left) for left in found if left is not None), None)
