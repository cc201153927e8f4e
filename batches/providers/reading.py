"""Reading what vendors answer: their JSON, ids, words, times and amounts. Pure, and no vendor's own.

Every field may be absent, in another spelling or of another type than documented; what cannot be read is left out,
never guessed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from batches.providers import redaction

#: What `Submission.provider_job_id` can hold.
MAX_ID_LENGTH = 200
#: What `ProviderAccount.balance_seen` can hold.
MAX_AMOUNT = Decimal(10) ** 14
#: Longer is no address that a web server takes, and would be written again with each read.
MAX_URL_LENGTH = 4096


def json_value(body: bytes) -> Any:
    """The JSON in `body`, or None."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def either(values: Mapping[str, Any], *names: str) -> Any:
    """The first of several spellings that is there, such as camelCase and snake_case."""
    return next((values[name] for name in names if values.get(name) is not None), None)


def job_id_in(value: Any) -> str:
    """An id that can be stored and asked for again; empty for anything else. Ids are opaque."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return ""
    text = str(value)
    return text if 0 < len(text) <= MAX_ID_LENGTH and text.isprintable() and text == redaction.cleaned(text) else ""


def status_word(value: Any) -> str:
    """The vendor's word as it is shown: null, numbers and lists in their JSON form, "" where it is missing."""
    if isinstance(value, str):
        return redaction.cleaned(value, limit=100)
    return redaction.cleaned(json.dumps(value), limit=100) if value is not None else ""


def short_text(value: Any) -> str:
    return redaction.cleaned(value, limit=100) if isinstance(value, str) else ""


def link_in(value: Any) -> str:
    """An address as it was given, of whatever form; empty for what is none."""
    return value if isinstance(value, str) and value.isprintable() and len(value) <= MAX_URL_LENGTH else ""


def amount(value: Any) -> Decimal | None:
    """A number, or a text that is one, exactly as it stands; None for anything else and for what no row can hold."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)) or len(str(value)) > 20:
        return None
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() and abs(number) < MAX_AMOUNT else None


def moment(value: Any) -> datetime | None:
    """An ISO 8601 time in UTC; None for anything else, also for one without a zone."""
    if not isinstance(value, str) or len(value) > 40:
        return None
    try:
        moment = datetime.fromisoformat(value)
        return moment.astimezone(UTC) if moment.tzinfo else None
    except (ValueError, OverflowError):
        return None


def error_in(value: Any, *, secrets: Sequence[str], sent: bytes = b"") -> tuple[str, str]:
    """Code and words of `{"error": {"code", "message"}}`; `error` may be a bare string."""
    error = value.get("error") if isinstance(value, dict) else None
    code, message = (error.get("code"), error.get("message")) if isinstance(error, dict) else ("", error)
    return (
        redaction.vendor_words(code, secrets=secrets)[:100] if isinstance(code, str) else "",
        redaction.vendor_words(message, secrets=secrets, sent=sent) if isinstance(message, str) else "",
    )
