"""What a RelayPDF answer that is not 2xx means: on a submission, on a read, on a download. Decides nothing.

Tags as in `relaypdf.py`.
"""

from __future__ import annotations

from datetime import datetime

from batches.providers import relaypdf_answers as answers
from batches.providers.errors import (
    ContractBroken,
    InvalidInput,
    KeyConflict,
    NotFound,
    ProviderError,
    StrangeRefusal,
    Unauthorized,
)
from batches.providers.http import Answer
from batches.providers.retry_after import parse_retry_after

#: So much of a refusal is read.
ERROR_BYTES = 64 * 1024


def on_submission(answer: Answer, now: datetime) -> ProviderError:
    error = told(answer, now)
    if isinstance(error, NotFound) and error.code:
        # A9: on a submission `not_found` means the template.
        return answer.error(InvalidInput, error.words, code=error.code)
    speaks_of_document = error.code or answer.status in answers.DOCUMENT_STATUSES
    if isinstance(error, (NotFound, InvalidInput)) and not speaks_of_document:
        # Another server's words: taken as the document's fault, a wrong base URL would fail all documents.
        return answer.error(
            StrangeRefusal,
            f"The address answers, but not as RelayPDF does ({answer.status}). Check the account's base URL.",
        )
    if isinstance(error, Unauthorized) and answer.status == 403 and not error.code:
        # A9: RelayPDF's own refusals carry a code (CONFIRMED P, N). Firewalls answer 403 to one document's HTML.
        return answer.error(StrangeRefusal, error.words)
    return error


def on_read(answer: Answer, now: datetime) -> ProviderError:
    """On a read, only errors that say something about the job or the account are taken at their word."""
    error = told(answer, now)
    if isinstance(error, (InvalidInput, KeyConflict)):
        return answer.error(ContractBroken, error.words, code=error.code)
    return error


def on_download(answer: Answer, now: datetime) -> ProviderError:
    """No key was sent, so 401 and 403 speak of the link: expired links of object storage answer 403 (part C)."""
    error = on_read(answer, now)
    if isinstance(error, Unauthorized):
        return answer.error(NotFound, "The download link is refused; it has expired or was withdrawn.", code=error.code)
    return error


def told(answer: Answer, now: datetime) -> ProviderError:
    """The error for any status that is not 2xx: by the vendor's code where it is known, else by status class.

    `replayed` stays false: no mark of a repeated answer is known (A6: UNKNOWN).
    """
    value = answers.json_value(answer.read_some(ERROR_BYTES))
    code, message = answers.error_in(value, secrets=answer.call.secrets, sent=answer.call.body)
    said = f"RelayPDF: {message}" if message else f"RelayPDF answered {answer.status} without words."
    wait = parse_retry_after(answer.headers.get("Retry-After"), now=now, date=answer.headers.get("Date"))
    kind = answers.refusal_kind(answer.status, code)
    if 300 <= answer.status < 400:
        said = "The address sends us on to another one, which is not followed. Check the account's base URL."
    return answer.error(kind, said, code=code, retry_after=wait)
