"""How RelayPDF's answers are read: tables of its words, and its JSON. Pure; nothing here asks or decides twice.

Every field may be absent, in another spelling or of another type than documented; what cannot be read is left out,
never guessed. Tags as in `relaypdf.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from batches.providers import redaction
from batches.providers.base import Endpoint, JobPhase, Receipt, ResultRef
from batches.providers.errors import (
    ContractBroken,
    InsufficientCredit,
    InvalidInput,
    KeyConflict,
    NotFound,
    ProviderError,
    RateLimited,
    ServerFault,
    Unauthorized,
)
from batches.providers.http import whole_number

#: What `Submission.provider_job_id` can hold.
MAX_ID_LENGTH = 200
#: What `ProviderAccount.balance_seen` can hold.
MAX_BALANCE = Decimal(10) ** 14
#: Longer is no address that a web server takes, and would be written again with each read: the id finds the file.
MAX_URL_LENGTH = 4096
#: More are not looked at in one answer.
RECEIPTS_MOST = 5000

#: A4: only these two words are final in every client (CONFIRMED P, N, J, H). The aliases of part D1 stay off.
FINAL_STATUSES = {"completed": JobPhase.SUCCEEDED, "failed": JobPhase.FAILED}

#: A9, CONFIRMED M, H. The list is not closed, so a status class decides where a code is not in it.
CODES: dict[str, type[ProviderError]] = {
    "invalid_request": InvalidInput,
    "url_not_allowed": InvalidInput,
    "payload_too_large": InvalidInput,
    "unauthorized": Unauthorized,
    "account_suspended": Unauthorized,
    "payment_required": InsufficientCredit,
    "rate_limited": RateLimited,
    "not_found": NotFound,
}
STATUSES: dict[int, type[ProviderError]] = {
    401: Unauthorized,
    402: InsufficientCredit,
    403: Unauthorized,
    404: NotFound,
    409: KeyConflict,
    410: NotFound,
    429: RateLimited,
}
#: Without a code of the vendor, only these statuses speak of the document (A9: 400, 413; 422 by custom).
DOCUMENT_STATUSES = (400, 413, 422)


def refusal_kind(status: int, code: str) -> type[ProviderError]:
    """The error for any status that is not 2xx: by the vendor's code where it is known, else by status class."""
    if status >= 500 or status in (408, 425):
        # After a 5xx the job may exist (A9). 408 and 425 are as open: the server gave up on a request it had begun.
        return ServerFault
    if status in (301, 302, 307, 308):
        # Nothing was done with the request, and following would hand the key to another address.
        return Unauthorized
    if not 400 <= status < 500:
        return ContractBroken
    if "idempotency" in code.lower():
        # A6: a conflict exists (CONFIRMED S0); its status and code are UNKNOWN, INFERRED 409 with such a code.
        return KeyConflict
    return CODES.get(code) or STATUSES.get(status) or InvalidInput


def json_value(body: bytes) -> Any:
    """The JSON in `body`, or None."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def either(values: Mapping[str, Any], *names: str) -> Any:
    """The first of several spellings that is there (D2: read camelCase and snake_case)."""
    return next((values[name] for name in names if values.get(name) is not None), None)


def job_id_in(value: Any) -> str:
    """An id that can be stored and asked for again; empty for anything else. Ids are opaque (A3)."""
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


def balance_in(account: Mapping[str, Any]) -> Decimal | None:
    """`wallet.balanceMillicents` as it stands (A10: FIXTURE T, H). Its unit is contradictory: only ever compared."""
    wallet = account.get("wallet")
    value = either(wallet, "balanceMillicents", "balance_millicents") if isinstance(wallet, dict) else None
    if isinstance(value, bool) or not isinstance(value, (int, float, str)) or len(str(value)) > 20:
        return None
    try:
        balance = Decimal(str(value))
    except InvalidOperation:
        return None
    return balance if balance.is_finite() and abs(balance) < MAX_BALANCE else None


def result_in(job: Mapping[str, Any], job_id: str) -> ResultRef:
    """A4: `url` and `filename` may be absent (CONFIRMED N); `sizeBytes`, `expiresAt` on a job are UNKNOWN."""
    url = job.get("url")
    if not isinstance(url, str) or not url.isprintable() or len(url) > MAX_URL_LENGTH:
        url = ""  # the id finds the file
    return ResultRef(
        provider_job_id=job_id,
        url=url,
        size_bytes=whole_number(either(job, "sizeBytes", "size_bytes")),
        expires_at=_moment(either(job, "expiresAt", "expires_at")),
        filename=short_text(either(job, "filename", "fileName", "file_name")),
    )


def _moment(value: Any) -> datetime | None:
    """An ISO 8601 time in UTC (A3: FIXTURE H); None for anything else, also for one without a zone."""
    if not isinstance(value, str) or len(value) > 40:
        return None
    try:
        moment = datetime.fromisoformat(value)
        return moment.astimezone(UTC) if moment.tzinfo else None
    except (ValueError, OverflowError):
        return None


def error_in(value: Any, *, secrets: Sequence[str], sent: bytes = b"") -> tuple[str, str]:
    """Code and words of `{"error": {"code", "message"}}` (A9: CONFIRMED P, N); `error` may be a bare string (D11)."""
    error = value.get("error") if isinstance(value, dict) else None
    code, message = (error.get("code"), error.get("message")) if isinstance(error, dict) else ("", error)
    return (
        redaction.vendor_words(code, secrets=secrets)[:100] if isinstance(code, str) else "",
        redaction.vendor_words(message, secrets=secrets, sent=sent) if isinstance(message, str) else "",
    )


def warnings_in(job: Mapping[str, Any], *, secrets: Sequence[str]) -> tuple[str, ...]:
    """Up to 20 warnings; a field no document names, but a renderer's words about an empty page must not be lost."""
    found = job.get("warnings")
    texts = found if isinstance(found, list) else [found]
    words = [text if isinstance(text, str) else json.dumps(text) for text in texts[:20] if text]
    return tuple(redaction.vendor_words(text, secrets=secrets) for text in words)


def endpoint_in(value: Any, *, url: str = "") -> Endpoint | None:
    """One registered address, with its secret where one is shown; None where it has no id that could be asked for.

    It may come inside another object, as entries of a list do elsewhere (A8: `id`, `url`, `secret` FIXTURE T).
    """
    found = value if isinstance(value, dict) else {}
    for name in ("endpoint", "webhook", "data"):
        inner = found.get(name)
        if "id" not in found and isinstance(inner, dict):
            found = inner
    endpoint_id = job_id_in(either(found, "id", "endpointId", "webhookId"))
    if not endpoint_id:
        return None
    address, secret = found.get("url"), either(found, "secret", "signingSecret", "signing_secret")
    usable = isinstance(secret, str) and 0 < len(secret) <= 500 and secret.isascii() and secret.isprintable()
    return Endpoint(
        id=endpoint_id,
        url=redaction.cleaned(address, limit=300) if isinstance(address, str) else url,
        secret=secret.strip() if usable and isinstance(secret, str) else "",
    )


def receipts_in(value: Any) -> tuple[Receipt, ...] | None:
    """The receipts of `GET /v1/billing/usage` (A10: shape UNKNOWN): a list of objects, bare or under any name.

    Which value is the job's id is not known either, so all that may be one are kept. None where there is no list.
    """
    listed = [value] if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else []
    found = next((each for each in listed if isinstance(each, list)), None)
    if found is None:
        return None
    return tuple(filter(None, map(_receipt, found[:RECEIPTS_MOST])))


def _receipt(value: Any) -> Receipt | None:
    if not isinstance(value, dict):
        return None
    job = value.get("job")
    named = [*(value.get(name) for name in ("jobId", "job_id")), job, value.get("resourceId"), value.get("reference")]
    inner = job.get("id") if isinstance(job, dict) else None
    ids = [job_id_in(each) for each in (*named, inner, value.get("id"))]
    at = either(value, "createdAt", "created_at", "chargedAt", "timestamp", "at", "date")
    kept = tuple(dict.fromkeys(each for each in ids if each))
    return Receipt(kept, _moment(at)) if kept else None


def endpoints_in(value: Any) -> tuple[Endpoint, ...] | None:
    """The registered addresses, without secrets: `{"endpoints": […]}` (A8: FIXTURE T), or the list under another name.

    None where no list is found: nothing was said, which is not the same as no address.
    """
    listed = value
    if isinstance(value, dict):
        listed = next((value[name] for name in ("endpoints", "webhooks", "data", "items") if name in value), None)
    if not isinstance(listed, list):
        return None
    found = [endpoint_in(each) for each in listed]
    return tuple(Endpoint(each.id, each.url) for each in found if each is not None)
