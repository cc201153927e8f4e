"""RelayPDF's webhooks: proof over the raw bytes, and the little that a proven body is asked for.

A proven event is still only a hint: the payload is unknown but for its `type` (A8: FIXTURE T, J, H), events come twice,
late, out of order or not at all (CONFIRMED S0), so polling stays the authority. Tags as in `relaypdf.py`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

from batches.providers import redaction
from batches.providers.base import ProviderEvent, SignatureRefused

SIGNATURE_HEADER = "RelayPDF-Signature"  # A8: CONFIRMED P, N
TOLERANCE_SECONDS = 300  # A8: CONFIRMED P, N; PROBED
MAX_HEADER_LENGTH = 1000
MAX_SIGNATURES = 10

_TIME = re.compile(r"[0-9]{1,12}")

#: Where a job id may stand (UNKNOWN; part C names these), the clearer names first.
ID_PLACES: tuple[tuple[str, ...], ...] = (
    ("data", "jobId"),
    ("data", "job_id"),
    ("jobId",),
    ("job_id",),
    ("data", "job", "id"),
    ("job", "id"),
    ("data", "object", "id"),
    ("data", "id"),
)
#: Names, without case and separators, under which it may stand anywhere else.
ID_NAMES = ("jobid", "pdfid", "renderid", "documentid", "fileid", "taskid", "resourceid", "objectid", "uid", "uuid")
#: Prefixes that RelayPDF's ids have in fixtures (A3: FIXTURE), and one that vendors give to events.
_ID_PREFIXES = ("pdf_", "doc_")
_EVENT_PREFIX = "evt_"
_IN_ADDRESS = re.compile(r"/(?:jobs|files)/([^/?#\s\"'<>]{1,600})")
#: A payload is searched no further than this; a notice has a dozen values.
VALUES_MOST = 2000
CANDIDATES_MOST = 20


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
    if event_type.startswith("wallet."):
        # They speak of the account; an id in them is a payment's.
        return [ProviderEvent(type=event_type, is_about_account=True)]
    job_id, *others = [*_ids(payload), ""]
    return [ProviderEvent(type=event_type, provider_job_id=job_id, other_ids=tuple(filter(None, others)))]


def _ids(payload: Mapping[str, Any]) -> list[str]:
    """What may be the job's id, the likeliest first: where it is documented elsewhere, then by its name, then by an
    address that holds one, by its look, and by any `id`. A top-level `id` may well be the event's own."""
    by_name: list[tuple[int, str]] = []
    in_addresses, by_look, further = [], [], []
    for name, value in _values(payload):
        text = _text(value)
        plain = re.sub(r"[^a-z]", "", name.lower())
        if text and plain in ID_NAMES:
            by_name.append((ID_NAMES.index(plain), text))
        elif text and plain == "id":
            further.append(text)
        if isinstance(value, str):
            in_addresses += [_text(unquote(found)) for found in _IN_ADDRESS.findall(value[:2000])]
            by_look += [text] if text.startswith(_ID_PREFIXES) else []
    placed = [_text(_at(payload, place)) for place in ID_PLACES]
    clear, open_ones = placed[:-1], placed[-1:]
    named = [text for _rank, text in sorted(by_name, key=lambda each: each[0])]
    found = [*clear, *named, *open_ones, *in_addresses, *by_look, *further]
    unique = list(dict.fromkeys(text for text in found if text))
    return sorted(unique, key=lambda text: text.startswith(_EVENT_PREFIX))[:CANDIDATES_MOST]


def _values(payload: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every single value with the name that it has, level by level; values in a list have none."""
    waiting: deque[tuple[str, Any]] = deque([("", payload)])
    for _ in range(VALUES_MOST):
        if not waiting:
            return
        name, value = waiting.popleft()
        if isinstance(value, dict):
            waiting.extend((str(key), each) for key, each in value.items())
        elif isinstance(value, list):
            waiting.extend(("", each) for each in value)
        else:
            yield name, value


def _at(payload: Mapping[str, Any], place: Sequence[str]) -> Any:
    value: Any = payload
    for name in place:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _text(value: Any) -> str:
    """An id that can be stored and asked for; empty for anything else."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return ""
    text = str(value)
    return text if 0 < len(text) <= 200 and text == redaction.cleaned(text) else ""
