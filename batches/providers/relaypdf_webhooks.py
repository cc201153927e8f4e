"""RelayPDF's webhooks: proof over the raw bytes, and the little that a proven body is asked for.

A proven event is still only a hint: the payload is unknown but for its `type` (A8: FIXTURE T, J, H), events come twice,
late, out of order or not at all (CONFIRMED S0), so polling stays the authority. Tags as in `relaypdf.py`.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import unquote

from batches.providers import redaction, signatures
from batches.providers.base import ProviderEvent

SIGNATURE_HEADER = "RelayPDF-Signature"  # A8: CONFIRMED P, N; 300 s of tolerance too, PROBED

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
    """The signed time, as `signatures.verify_timed` (A8: CONFIRMED P, N, J, H; D15: the vendor's helper only tries the
    last `v1`)."""
    return signatures.verify_timed(headers, body, secrets, header=SIGNATURE_HEADER, now=now)


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
