"""The error tree that every provider speaks. Each error carries the decision; callers never look at a status code.

    ProviderError                    base; never raised itself
      NotSent                        no byte of the request can have had an effect (refused connection, DNS, TLS)
      OutcomeUnknown                 the request may have arrived: proves neither success nor failure
        AnswerLost                   bytes were written and no complete answer came back (reset, read timeout)
        ServerFault                  5xx; on a submission it may follow acceptance
        ContractBroken               an answer that cannot be read (2xx without an id, HTML where JSON was promised)
      Refused                        a complete, readable "no": this try had no effect
        InvalidInput                 400, 413, 422: never resent unchanged
        AccountRefused               the account, not the document, is at fault
          Unauthorized               401, 403
            StrangeRefusal           a "no" without the vendor's code, as of another server or a firewall before it
          InsufficientCredit         402
        RateLimited                  429, carries retry_after; costs no try
          TooManyAtOnce              as many jobs as the account may have at once; or, with none in flight, a bad key
        KeyConflict                  409 or the vendor's code: other bytes, or the first request is still in flight
        NotFound                     404 / 410 on a status read or a download
      TargetRefused                  we refused to go there (foreign host, private address, plain redirect)
      TooLarge                       the answer passed our size cap

`words` are for staff, `detail` is for the log. Neither ever holds a key or a document.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from batches.providers.base import ExchangeFacts


class ProviderError(Exception):
    """Base of all. `code` is the vendor's own code where it gave one, `retry_after` is in seconds, bounded and >= 0.

    `replayed` is true only where the vendor's answer says that it repeats what it had stored for the key.
    """

    failure_class: ClassVar[str] = "transient"

    def __init__(
        self,
        words: str,
        *,
        code: str = "",
        detail: str = "",
        status: int | None = None,
        retry_after: float | None = None,
        replayed: bool = False,
        exchange: ExchangeFacts | None = None,
    ) -> None:
        super().__init__(words)
        self.words = words
        self.code = code
        self.detail = detail
        self.status = status
        self.retry_after = retry_after
        self.replayed = replayed
        self.exchange = exchange


class NotSent(ProviderError):
    """The connection never stood, so the provider has seen nothing."""


class OutcomeUnknown(ProviderError):
    """The request may have arrived."""

    failure_class = "unknown_outcome"


class AnswerLost(OutcomeUnknown):
    """Bytes left and no complete answer came back."""


class ServerFault(OutcomeUnknown):
    """The provider answered 5xx."""


class ContractBroken(OutcomeUnknown):
    """The provider answered something that its contract does not name."""


class Refused(ProviderError):
    """A complete answer that says no: this try had no effect."""


class InvalidInput(Refused):
    """The document or its options are refused; the same bytes would be refused again."""

    failure_class = "invalid_input"


class AccountRefused(Refused):
    """The account is at fault, not the document: the account is held and no try is spent."""


class Unauthorized(AccountRefused):
    """401 or 403."""

    failure_class = "auth"


class StrangeRefusal(Unauthorized):
    """A 4xx without a code of the vendor: a wrong address, or something before the service that minds one document."""


class InsufficientCredit(AccountRefused):
    """402: no funds."""

    failure_class = "insufficient_credit"


class RateLimited(Refused):
    """429: moves the account's shared slot, costs no try."""

    failure_class = "rate_limited"


class TooManyAtOnce(RateLimited):
    """A vendor says with one and the same code that too many jobs are in flight, or that the key may not do this.

    Which of the two it is only shows in what is in flight: with nothing there, it is the key.
    """

    def as_refused_key(self) -> Unauthorized:
        """The same answer, read as the other of its two meanings, also in its evidence."""
        exchange = self.exchange and replace(self.exchange, error_class=Unauthorized.__name__)
        return Unauthorized(self.words, code=self.code, detail=self.detail, status=self.status, exchange=exchange)


class KeyConflict(Refused):
    """The idempotency key is known with other bytes, or its first request is still in flight."""

    failure_class = "idempotency_conflict"


class NotFound(Refused):
    """The provider does not know the job, or the file is gone."""

    failure_class = "job_not_found"


class TargetRefused(ProviderError):
    """An address that the account does not allow; nothing was fetched."""

    failure_class = "bad_output"


class TooLarge(ProviderError):
    """The answer is larger than the cap that the caller set."""

    failure_class = "bad_output"
