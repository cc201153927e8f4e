"""Reading what Gotenberg says: refusals in plain text, events at our address, its version. Decides nothing.

Tags beside facts: README, "Tags of vendor facts".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from batches.providers import redaction
from batches.providers.base import JobPhase, ProviderEvent
from batches.providers.errors import (
    ContractBroken,
    InvalidInput,
    ProviderError,
    RateLimited,
    ServerFault,
    StrangeRefusal,
    Unauthorized,
)
from batches.providers.http import Answer, whole_number
from batches.providers.retry_after import parse_retry_after

#: So much of a refusal is read.
ERROR_BYTES = 64 * 1024
VERSION_BYTES = 200
#: 2.9: C(G1-G3). 409 is no conflict here: the page, or something that it loads, answered with a status that was to
#: fail, or its script failed. What is in no table goes by its class.
REFUSALS: Mapping[int, type[ProviderError]] = {
    400: InvalidInput,
    401: Unauthorized,
    403: StrangeRefusal,  # a filter of the server's refuses our callback's address: every document's, so its settings
    404: StrangeRefusal,  # INFERRED: its base path, or the module is off
    405: StrangeRefusal,
    408: ServerFault,
    409: InvalidInput,
    413: InvalidInput,
    415: InvalidInput,
    425: ServerFault,
    429: RateLimited,  # without a time to wait (2.8: C(G1))
}
SETTINGS_WORDS: Mapping[type[ProviderError], str] = {
    Unauthorized: "Gotenberg refuses the user and password. Correct the account's key: user:password.",
    StrangeRefusal: (
        "Gotenberg does not take it ({status}). Check the account's base URL and, of the server, its root path, that "
        "Chromium's routes are on, and that its webhook filters let our address through."
    ),
}
#: The codes of a failure that a further render may not meet: queue full, anything else, deadline (2.9: C(G1)). A 500
#: may also say that our own receiver refused a good PDF (2.10: C(G2)). None of it is billed (2.7).
MAY_PASS = frozenset({"429", "499", "500", "502", "503", "504"})
#: 2.10: C(G2, G5). `webhook.success` only says that our receiver has answered, which it knows itself.
PHASES: Mapping[str, JobPhase] = {"webhook.error": JobPhase.FAILED}
_VERSION = re.compile(r"v?(\d{1,5})\.(\d{1,5})[\w.+-]{0,40}", re.ASCII)


def refusal(answer: Answer, now: datetime) -> ProviderError:
    """The error for any status that brings no result."""
    status = answer.status
    kind = REFUSALS.get(status)
    if kind is None:
        kind = ServerFault if status >= 500 else StrangeRefusal if 300 <= status < 500 else ContractBroken
    message = said(answer)
    words = f"Gotenberg: {message}" if message else f"Gotenberg answered {status} without words."
    if kind in SETTINGS_WORDS:
        words = SETTINGS_WORDS[kind].format(status=status)
    if status == 503:
        words += " It is busy, or this page did not settle within the server's time limit."
    wait = parse_retry_after(answer.headers.get("Retry-After"), now=now, date=answer.headers.get("Date"))
    return answer.error(kind, words, code=str(status), retry_after=wait)


def said(answer: Answer) -> str:
    """The words of a refusal, which are plain text (2.9: C(G1)). A page of something before the service is none."""
    text = answer.read_some(ERROR_BYTES).decode("utf-8", "replace")
    if "html" in answer.headers.get("Content-Type", "").lower():
        return ""
    return redaction.vendor_words(text, secrets=answer.call.secrets, sent=answer.call.body)


def version_in(text: str) -> tuple[str, tuple[int, int]] | None:
    """The version as it names itself, and its first two numbers; None for what is none."""
    found = _VERSION.fullmatch(text.strip())
    return (found[0], (int(found[1]), int(found[2]))) if found else None


def events_in(body: bytes, *, secrets: Iterable[str] = ()) -> list[ProviderEvent]:
    """The one event of a body (2.10: C(G2, G5)). Raises `ValueError` when it is no JSON object."""
    try:
        told = json.loads(body)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(told, dict):
        raise ValueError("no JSON object")
    kind = redaction.cleaned(told["event"], limit=100) if isinstance(told.get("event"), str) else ""
    phase = PHASES.get(kind)
    error: Any = told.get("error")
    error = error if phase is JobPhase.FAILED and isinstance(error, dict) else {}
    status, message = whole_number(error.get("status")), error.get("message")
    named = told.get("correlationId")
    return [
        ProviderEvent(
            type=kind,
            provider_job_id=redaction.cleaned(named, limit=200) if isinstance(named, str) else "",
            phase=phase,
            error_code="" if status is None else str(status)[:20],
            error_words=redaction.vendor_words(message, secrets=secrets) if isinstance(message, str) else "",
        )
    ]
