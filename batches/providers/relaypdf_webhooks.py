"""RelayPDF's webhooks: proof over the raw bytes, and the little that a proven body is asked for.

A proven event is still only a hint: the payload is unknown but for its `type` (A8: FIXTURE T, J, H), events come twice,
late, out of order or not at all (CONFIRMED S0), so polling stays the authority. Tags as in `relaypdf.py`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from batches.providers import redaction
from batches.providers.base import ProviderEvent, SignatureRefused

SIGNATURE_HEADER = "RelayPDF-Signature"  # A8: CONFIRMED P, N
TOLERANCE_SECONDS = 300  # A8: CONFIRMED P, N; PROBED
MAX_HEADER_LENGTH = 1000
MAX_SIGNATURES = 10

_TIME = re.compile(r"[0-9]{1,12}")

#: Where a job id may stand (UNKNOWN; part C names these), the clearer names first: a bare top-level `id` may be the
#: event's own.
ID_PLACES: tuple[tuple[str, ...], ...] = (
    ("data", "jobId"),
    ("data", "job_id"),
    ("jobId",),
    ("job_id",),
    ("data", "job", "id"),
    ("job", "id"),
    ("data", "object", "id"),
    ("data", "id"),
    ("id",),
)


def verify(headers: Mapping[str, str], body: bytes, secrets: Sequence[str], *, now: datetime) -> datetime:
    """The signed time. Raises `SignatureRefused`, `stale` when the signature is right and only its time is not.

    `t=<unix seconds>,v1=<lowercase hex>`: HMAC-SHA256 over `<t>.` and the raw body, keyed with the secret's UTF-8 bytes
    as they are (A8: CONFIRMED P, N, J, H). Any `v1` under any secret proves it, so that a secret can be rotated (D15;
    the vendor's helper only tries the last).
    """
    usable = [secret.encode("utf-8", "surrogatepass") for secret in secrets if secret]
    if not usable:
        # An empty secret would accept what anyone can sign.
        raise SignatureRefused("No webhook secret is set for this account.")
    value = next((v for name, v in headers.items() if name.lower() == SIGNATURE_HEADER.lower()), "")
    if not value:
        raise SignatureRefused(f"The {SIGNATURE_HEADER} header is missing.")
    if len(value) > MAX_HEADER_LENGTH:
        raise SignatureRefused(f"The {SIGNATURE_HEADER} header is too long.")
    parts = [(name.strip(), text.strip()) for name, _, text in (item.partition("=") for item in value.split(","))]
    times = {text for name, text in parts if name == "t"}
    given = [text.encode("utf-8", "backslashreplace") for name, text in parts if name == "v1"]
    signed = times.pop() if len(times) == 1 else ""
    if not _TIME.fullmatch(signed) or not given:
        raise SignatureRefused(f"The {SIGNATURE_HEADER} header is not of the form t=…,v1=….")
    if len(given) > MAX_SIGNATURES:
        raise SignatureRefused(f"The {SIGNATURE_HEADER} header holds too many signatures.")
    message = signed.encode("ascii") + b"." + body
    wanted = [hmac.new(secret, message, hashlib.sha256).hexdigest().encode("ascii") for secret in usable]
    # No early end: how long a refusal takes says nothing about which secret or signature came close.
    matches = [hmac.compare_digest(one, other) for one in wanted for other in given]
    if not any(matches):
        raise SignatureRefused("The signature does not match.")
    if abs(now.timestamp() - int(signed)) > TOLERANCE_SECONDS:
        raise SignatureRefused("The signature is right, but its time is too far from ours.", stale=True)
    return datetime.fromtimestamp(int(signed), UTC)


def parse(body: bytes) -> list[ProviderEvent]:
    """The one event in a proven body. Raises `ValueError` when it is no JSON object that can be read."""
    try:
        payload = json.loads(body)
    except RecursionError:
        raise ValueError("The webhook's JSON is nested too deeply.") from None
    if not isinstance(payload, dict):
        raise ValueError("The webhook's body is no JSON object.")
    named = next((name for key in ("type", "event") if isinstance(name := payload.get(key), str)), "")
    event_type = redaction.cleaned(named, limit=100)
    # `wallet.*` events speak of the account; an id in them is a payment's.
    job_id = "" if event_type.startswith("wallet.") else next(_ids(payload), "")
    return [ProviderEvent(type=event_type, provider_job_id=job_id)]


def _ids(payload: Mapping[str, Any]) -> Iterator[str]:
    for place in ID_PLACES:
        value: Any = payload
        for name in place:
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            continue
        text = str(value)
        if 0 < len(text) <= 200 and text == redaction.cleaned(text):
            yield text
