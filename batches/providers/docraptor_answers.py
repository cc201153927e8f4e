"""How DocRaptor's answers are read: its status words, its refusals, the list of attempts. Pure but for the answer at
hand. Tags as in `docraptor.py`.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from batches.providers import reading, redaction
from batches.providers.base import JobPhase
from batches.providers.errors import (
    InsufficientCredit,
    NotFound,
    ProviderError,
    RateLimited,
    TooManyAtOnce,
    Unauthorized,
)
from batches.providers.http import Answer
from batches.providers.refusals import ERROR_BYTES, Refusals
from batches.providers.retry_after import parse_retry_after

#: 3.4: C(D1). `queued` and `working` are the two that go on; any other word does as well.
FINAL_STATUSES = {"completed": JobPhase.SUCCEEDED, "failed": JobPhase.FAILED}
#: 3.8: C(D4), one status for both; which of them it is shows in what is in flight.
TOO_MANY_OR_NOT_ALLOWED = (
    "DocRaptor answered 403, which it does when too many documents are made at once, and when the key may not do this."
)

_ERROR = re.compile(r"<error\b[^>]*>(.*?)</error>", re.DOTALL | re.IGNORECASE)
_MARKUP = re.compile(r"<[^>]*>")


class DocRaptorRefusals(Refusals):
    """Errors come without codes, as XML at least for `/docs` (3.9: C(I2 docraptor-php#9)); JSON is read as well."""

    def told(self, answer: Answer, now: datetime) -> ProviderError:
        kind = self.kind(answer.status, "")
        wait = parse_retry_after(answer.headers.get("Retry-After"), now=now, date=answer.headers.get("Date"))
        message = error_words(answer.read_some(ERROR_BYTES), secrets=answer.call.secrets, sent=answer.call.body)
        said = f"{self.label}: {message}" if message else f"{self.label} answered {answer.status} without words."
        if kind is TooManyAtOnce:
            said = f"{TOO_MANY_OR_NOT_ALLOWED} {said if message else ''}".strip()
        if 300 <= answer.status < 400:
            said = "The address sends us on to another one, which is not followed. Check the account's base URL."
        return answer.error(kind, said, retry_after=wait)

    def on_download(self, answer: Answer, now: datetime, *, with_key: bool) -> ProviderError:
        """400 is an unknown download or an unfinished one (3.5: C(D4)); how a used-up link answers is UNKNOWN. Where no
        key was sent, 401 and 403 speak of the link."""
        error = self.on_read(answer, now)
        if answer.status in ((400,) if with_key else (400, 401, 403)):
            return answer.error(NotFound, f"The file is not handed out any more. {error.words}")
        return error


REFUSALS = DocRaptorRefusals(
    "DocRaptor",
    codes={},
    statuses={
        401: Unauthorized,  # 3.9: C(D4)
        402: InsufficientCredit,  # 3.12: not in the vendor's list; a plan that stops is read by HTTP's own meaning
        403: TooManyAtOnce,
        404: NotFound,
        410: NotFound,
        429: RateLimited,  # 3.8: C2(D11) only
    },
)


def error_words(body: bytes, *, secrets: Sequence[str], sent: bytes = b"") -> str:
    """What an error body says: the texts of its `<error>` elements, or of JSON's `error`, `errors` or `message`."""
    value = reading.json_value(body)
    found: Iterable[Any]
    if isinstance(value, dict):
        found = [value[name] for name in ("error", "errors", "message") if value.get(name)]
    else:
        found = (html.unescape(_MARKUP.sub(" ", text)) for text in _ERROR.findall(body.decode("utf-8", "replace")))
    return redaction.vendor_words(" ".join(map(_text, found)), secrets=secrets, sent=sent)


def failure_words(job: Mapping[str, Any], *, secrets: Sequence[str]) -> str:
    """3.4, 3.9: `message` and `validation_errors` of a failed job: C(D1)."""
    found = [_text(job[name]) for name in ("message", "validation_errors") if job.get(name)]
    return redaction.vendor_words(" ".join(found), secrets=secrets)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def download_id_in(job: Mapping[str, Any]) -> str:
    """3.4: `download_id`: C(D1); old material shows `download_key`: C(D10)."""
    return reading.job_id_in(reading.either(job, "download_id", "download_key"))


# --- the list of attempts ---


@dataclass(frozen=True)
class Attempt:
    """One line of `GET /doc_logs.json`, read as far as a look-up needs it.

    `status_id` is empty where the line shows none: the vendor's own sample has no such field (3.7: C(D7)); a public
    exporter finds its jobs by one in the JSON form. `at` is when it was made.
    """

    line_id: str
    names: tuple[str, ...]
    status_id: str
    at: datetime | None


def attempts_in(value: Any) -> list[Attempt] | None:
    """The attempts on one page, newest first; None where there is no list. A line may lie inside an object of its own,
    and names may have dashes (UNKNOWN; the sample is XML)."""
    listed = value
    if isinstance(value, dict):
        listed = next((each for each in value.values() if isinstance(each, list)), None)
    if not isinstance(listed, list):
        return None
    return [_attempt(line) for line in listed if isinstance(line, dict)]


def _attempt(line: Mapping[str, Any]) -> Attempt:
    inner = next(iter(line.values())) if len(line) == 1 else None
    fields = {name.replace("-", "_"): value for name, value in (inner if isinstance(inner, dict) else line).items()}
    return Attempt(
        line_id=reading.job_id_in(fields.get("id")),
        names=tuple(each for each in (fields.get("tag"), fields.get("name")) if isinstance(each, str)),
        status_id=reading.job_id_in(fields.get("status_id")),
        at=reading.moment(fields.get("created_at")),
    )
