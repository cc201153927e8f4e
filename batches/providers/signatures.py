"""Proof of webhooks that are signed with their time, as several vendors do: `t=<unix seconds>,v1=<lowercase hex>`."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from batches.providers.base import SignatureRefused

TOLERANCE_SECONDS = 300
MAX_HEADER_LENGTH = 1000
MAX_SIGNATURES = 10

_TIME = re.compile(r"[0-9]{1,12}")


def verify_timed(
    headers: Mapping[str, str], body: bytes, secrets: Sequence[str], *, header: str, now: datetime
) -> datetime:
    """The signed time. Raises `SignatureRefused`, `stale` when the signature is right and only its time is not.

    HMAC-SHA256 over `<t>.` and the raw body, keyed with the secret's UTF-8 bytes as they are. Any `v1` under any secret
    proves it, so that a secret can be rotated.
    """
    usable = [secret.encode("utf-8", "surrogatepass") for secret in secrets if secret]
    if not usable:
        # An empty secret would accept what anyone can sign.
        raise SignatureRefused("No webhook secret is set for this account.")
    value = next((v for name, v in headers.items() if name.lower() == header.lower()), "")
    if not value:
        raise SignatureRefused(f"The {header} header is missing.")
    if len(value) > MAX_HEADER_LENGTH:
        raise SignatureRefused(f"The {header} header is too long.")
    parts = [(name.strip(), text.strip()) for name, _, text in (item.partition("=") for item in value.split(","))]
    times = {text for name, text in parts if name == "t"}
    given = [text.encode("utf-8", "backslashreplace") for name, text in parts if name == "v1"]
    signed = times.pop() if len(times) == 1 else ""
    if not _TIME.fullmatch(signed) or not given:
        raise SignatureRefused(f"The {header} header is not of the form t=…,v1=….")
    if len(given) > MAX_SIGNATURES:
        raise SignatureRefused(f"The {header} header holds too many signatures.")
    message = signed.encode("ascii") + b"." + body
    wanted = [hmac.new(secret, message, hashlib.sha256).hexdigest().encode("ascii") for secret in usable]
    # No early end: how long a refusal takes says nothing about which secret or signature came close.
    matches = [hmac.compare_digest(one, other) for one in wanted for other in given]
    if not any(matches):
        raise SignatureRefused("The signature does not match.")
    if abs(now.timestamp() - int(signed)) > TOLERANCE_SECONDS:
        raise SignatureRefused("The signature is right, but its time is too far from ours.", stale=True)
    return datetime.fromtimestamp(int(signed), UTC)
