"""What an answer that is not 2xx means: on a submission, a read or a download. Tables per vendor; decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from batches.providers import reading
from batches.providers.errors import (
    ContractBroken,
    InsufficientCredit,
    InvalidInput,
    KeyConflict,
    NotFound,
    ProviderError,
    RateLimited,
    ServerFault,
    StrangeRefusal,
    Unauthorized,
)
from batches.providers.http import Answer
from batches.providers.retry_after import parse_retry_after

#: So much of a refusal is read.
ERROR_BYTES = 64 * 1024

#: By HTTP's own meaning, where a vendor's code says nothing else.
STATUSES: Mapping[int, type[ProviderError]] = {
    401: Unauthorized,
    402: InsufficientCredit,
    403: Unauthorized,
    404: NotFound,
    409: KeyConflict,
    410: NotFound,
    429: RateLimited,
}
#: Without a code of the vendor, only these statuses speak of the document.
DOCUMENT_STATUSES = (400, 413, 422)


@dataclass(frozen=True)
class Refusals:
    """How one vendor, called `label`, says no: by its own `codes` first, then by `statuses`; any other 4xx is about
    the document."""

    label: str
    codes: Mapping[str, type[ProviderError]]
    statuses: Mapping[int, type[ProviderError]] = field(default_factory=lambda: STATUSES)

    def kind(self, status: int, code: str) -> type[ProviderError]:
        """The error for any status that is not 2xx."""
        if status >= 500 or status in (408, 425):
            # After a 5xx the job may exist. 408 and 425 are as open: the server gave up on a request it had begun.
            return ServerFault
        if status in (301, 302, 307, 308):
            # Nothing was done with the request, and following would hand the key to another address.
            return Unauthorized
        if not 400 <= status < 500:
            return ContractBroken
        if "idempotency" in code.lower():
            return KeyConflict
        return self.codes.get(code) or self.statuses.get(status) or InvalidInput

    def told(self, answer: Answer, now: datetime) -> ProviderError:
        """The error that the answer is. `replayed` stays false: no vendor's mark of a repeated answer is known."""
        value = reading.json_value(answer.read_some(ERROR_BYTES))
        code, message = reading.error_in(value, secrets=answer.call.secrets, sent=answer.call.body)
        said = f"{self.label}: {message}" if message else f"{self.label} answered {answer.status} without words."
        wait = parse_retry_after(answer.headers.get("Retry-After"), now=now, date=answer.headers.get("Date"))
        if 300 <= answer.status < 400:
            said = "The address sends us on to another one, which is not followed. Check the account's base URL."
        return answer.error(self.kind(answer.status, code), said, code=code, retry_after=wait)

    def on_submission(self, answer: Answer, now: datetime) -> ProviderError:
        error = self.told(answer, now)
        if isinstance(error, NotFound) and error.code:
            # What is not found on a submission is something that the document names, such as a template.
            return answer.error(InvalidInput, error.words, code=error.code)
        return self.without_code(error, answer)

    def without_code(self, error: ProviderError, answer: Answer) -> ProviderError:
        """A refusal of a submission, where only a code shows that it is the vendor's own."""
        speaks_of_document = error.code or answer.status in DOCUMENT_STATUSES
        if isinstance(error, (NotFound, InvalidInput)) and not speaks_of_document:
            # Another server's words: taken as the document's fault, a wrong base URL would fail all documents.
            return answer.error(
                StrangeRefusal,
                f"The address answers, but not as {self.label} does ({answer.status}). Check the account's base URL.",
            )
        if isinstance(error, Unauthorized) and answer.status == 403 and not error.code:
            # The vendor's own refusals carry a code. Firewalls answer 403 to one document's HTML.
            return answer.error(StrangeRefusal, error.words)
        return error

    def on_read(self, answer: Answer, now: datetime) -> ProviderError:
        """On a read, only errors that say something about the job or the account are taken at their word."""
        error = self.told(answer, now)
        if isinstance(error, (InvalidInput, KeyConflict)):
            return answer.error(ContractBroken, error.words, code=error.code)
        return error

    def on_download(self, answer: Answer, now: datetime, *, with_key: bool) -> ProviderError:
        """Where no key was sent, 401 and 403 speak of the link: expired links of object storage answer 403. With one,
        a 403 without a code is the storage's as well, where the vendor's own refusals carry a code."""
        error = self.on_read(answer, now)
        is_storage = bool(self.codes) and answer.status == 403 and not error.code
        if isinstance(error, Unauthorized) and (is_storage or not with_key):
            words = "The download link is refused; it has expired or was withdrawn."
            return answer.error(NotFound, words, code=error.code)
        return error
