"""How RelayPDF's answers are read: tables of its words, and its JSON. Pure; nothing here asks or decides twice.

Every field may be absent, in another spelling or of another type than documented; what cannot be read is left out,
never guessed. Tags as in `relaypdf.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from batches.providers import reading, redaction
from batches.providers.base import Endpoint, JobPhase, Receipt, ResultRef
from batches.providers.http import whole_number

#: More are not looked at in one answer.
RECEIPTS_MOST = 5000

#: A4: only these two words are final in every client (CONFIRMED P, N, J, H). The aliases of part D1 stay off.
FINAL_STATUSES = {"completed": JobPhase.SUCCEEDED, "failed": JobPhase.FAILED}


def balance_in(account: Mapping[str, Any]) -> Decimal | None:
    """`wallet.balanceMillicents` as it stands (A10: FIXTURE T, H). Its unit is contradictory: only ever compared."""
    wallet = account.get("wallet")
    value = reading.either(wallet, "balanceMillicents", "balance_millicents") if isinstance(wallet, dict) else None
    return reading.amount(value)


def result_in(job: Mapping[str, Any], job_id: str) -> ResultRef:
    """A4: `url` and `filename` may be absent (CONFIRMED N); `sizeBytes`, `expiresAt` on a job are UNKNOWN."""
    return ResultRef(
        provider_job_id=job_id,
        url=reading.link_in(job.get("url")),  # without one, the id finds the file
        size_bytes=whole_number(reading.either(job, "sizeBytes", "size_bytes")),
        expires_at=reading.moment(reading.either(job, "expiresAt", "expires_at")),
        filename=reading.short_text(reading.either(job, "filename", "fileName", "file_name")),
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
    endpoint_id = reading.job_id_in(reading.either(found, "id", "endpointId", "webhookId"))
    if not endpoint_id:
        return None
    address, secret = found.get("url"), reading.either(found, "secret", "signingSecret", "signing_secret")
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
    ids = [reading.job_id_in(each) for each in (*named, inner, value.get("id"))]
    at = reading.either(value, "createdAt", "created_at", "chargedAt", "timestamp", "at", "date")
    kept = tuple(dict.fromkeys(each for each in ids if each))
    return Receipt(kept, reading.moment(at)) if kept else None


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
