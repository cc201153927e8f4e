"""How Infrai's answers are read: by their shape, since its documentation and its samples name three (B3). Pure.

Tags as in `infrai.py`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from batches.providers import reading, redaction
from batches.providers.base import JobPhase
from batches.providers.http import whole_number

#: B4: in one client (INFERRED 67101897649); the full set is UNKNOWN, so no other word is final.
FINAL_WORDS: Mapping[str, JobPhase] = {"completed": JobPhase.SUCCEEDED, "failed": JobPhase.FAILED}
#: D1: what services commonly say, for accounts that are set to believe it.
USUAL_WORDS: Mapping[str, JobPhase] = {
    **FINAL_WORDS,
    **dict.fromkeys(("complete", "succeeded", "success", "done"), JobPhase.SUCCEEDED),
    **dict.fromkeys(("error", "cancelled", "expired"), JobPhase.FAILED),
}
#: B3: where a link or the PDF itself may stand, the documented name first. Any of them may hold either.
RESULT_NAMES = ("pdf_url", "pdfUrl", "url", "pdf", "bytes")
#: B3, B4: where the job's id may stand.
ID_NAMES = ("job_id", "jobId", "pdf_id", "pdfId", "id")
_DATA_URL = "data:application/pdf;base64,"


@dataclass(frozen=True)
class Envelope:
    """`{ok, data, error, metadata}` (B1: CONFIRMED IC); what comes without it is all `data` (INFERRED 61262710958).

    `said_no` is only true where `ok` is false in so many words.
    """

    said_no: bool
    data: Mapping[str, Any]
    metadata: Mapping[str, Any]

    def evidence(self) -> dict[str, Any]:
        """What of the metadata is kept (B1: CONFIRMED IC): what it cost and the number by which support finds it."""
        told = {"request_id": self.metadata.get("request_id"), "vendor": self.metadata.get("vendor")}
        kept = {name: reading.short_text(value) for name, value in told.items() if reading.short_text(value)}
        cost = reading.amount(self.metadata.get("cost_usd"))
        hit = self.metadata.get("cache_hit")
        return {
            **kept,
            **({} if cost is None else {"cost_usd": str(cost)}),
            **({"cache_hit": hit} if isinstance(hit, bool) else {}),
        }


@dataclass(frozen=True)
class Shape:
    """What `data` holds of a result: a link, or the PDF itself, or neither. `size_bytes` is what it says of it."""

    job_id: str
    status_word: str
    link: str = field(default="", repr=False)
    content: bytes | None = field(default=None, repr=False)
    size_bytes: int | None = None

    @property
    def has_result(self) -> bool:
        return bool(self.link) or self.content is not None


def envelope(value: Mapping[str, Any]) -> Envelope:
    if not ("ok" in value or "data" in value):
        return Envelope(False, value, {})
    data, metadata = value.get("data"), value.get("metadata")
    return Envelope(
        value.get("ok") is False,
        data if isinstance(data, dict) else {},
        metadata if isinstance(metadata, dict) else {},
    )


def shape(data: Mapping[str, Any], *, sent: bytes = b"") -> Shape:
    """`sent` is the request: an address that stands in it is the document's, said back to us, and no result."""
    link, content = "", None
    for name in RESULT_NAMES:
        value = data.get(name)
        if not isinstance(value, str):
            continue
        if value.lower().startswith(("http://", "https://")):
            is_ours = bool(sent) and value.encode("utf-8", "replace") in sent
            link = link or ("" if is_ours else reading.link_in(value))
        elif content is None:
            content = _pdf_in(value)
    size = len(content) if content is not None else whole_number(data.get("bytes"))
    job_id = reading.job_id_in(reading.either(data, *ID_NAMES))
    return Shape(job_id, reading.status_word(data.get("status")), link if content is None else "", content, size)


def phase(found: Shape, words: Mapping[str, JobPhase]) -> JobPhase:
    """Samples wait for a link and look at no word (B4), so an answer without a word ends where it holds a result."""
    if not found.status_word:
        return JobPhase.SUCCEEDED if found.has_result else JobPhase.RUNNING
    return words.get(found.status_word, JobPhase.RUNNING)


def failure(value: Mapping[str, Any], secrets: tuple[str, ...]) -> tuple[str, str]:
    """Code and words of a failed job (B4: UNKNOWN): in `data` or beside it, as an object or as mere words."""
    data = envelope(value).data
    code, words = reading.error_in(data, secrets=secrets)
    if not (code or words):
        code, words = reading.error_in(value, secrets=secrets)
    if not words and isinstance(message := reading.either(data, "message", "reason"), str):
        words = redaction.vendor_words(message, secrets=secrets)
    return code, words


def _pdf_in(text: str) -> bytes | None:
    """The PDF that a text is in base64; None for any other text."""
    try:
        content = base64.b64decode("".join(text.removeprefix(_DATA_URL).split()), validate=True)
    except (binascii.Error, ValueError):
        return None
    return content if content.startswith(b"%PDF-") else None
