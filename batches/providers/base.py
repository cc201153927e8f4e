"""The contract that every provider adapter keeps: our words on this side, one vendor's HTTP on the other.

An adapter translates and decides nothing: no retries, no sleeping, no models, no clock of its own (`now` comes in).
What a vendor can and cannot do stands in its `Capabilities`; the engine asks those, never the vendor's name.
Every call returns, or raises with, the `ExchangeFacts` of its HTTP exchange, already redacted, for the evidence.

Three things that vendors differ in have one form here. A key that has to stand inside the body: the prepared bytes hold
`KEY_PLACE`, which `keyed` fills when they leave, so that the bytes stay a function of what was hashed and of the key. A
result that comes in the answer itself, or by a callback to our address: `Finished.content` and `ProviderEvent`, kept by
`engine/received.py` before anybody is told; the job id of a vendor that only calls back is the submission's key. A
document that is made first and begun by a second call: `Accepted.is_draft` and `Provider.start`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, BinaryIO, Protocol

#: Where the idempotency key goes into a prepared body: as long as a key, and nothing that a document would hold.
KEY_PLACE = b"0key0place0key0place0key0place0key0place0key0place0key0place0key"


class Delivery(enum.Enum):
    """How a finished PDF reaches us."""

    DOWNLOAD = "download"  # by a link or an id, as often as the link allows
    ANSWER = "answer"  # in the answer to the submission
    CALLBACK = "callback"  # sent once to our address; nothing can be fetched later


@dataclass(frozen=True)
class Capabilities:
    """What a vendor offers, as this account uses it. `None` means that the vendor is silent, which callers treat as the
    worse reading.

    Durations are seconds. `sources` are the kinds of `DocumentSource` that it takes. `resend_is_harmless`: a second
    render under the same key leaves no second result, and costs no bill or, as for a function of one's own, no more
    than a run; so a lost answer may simply be repeated.
    `drafts`: a submission makes a draft, which `start` begins. `billed_unit` is what one job costs, in words; not
    `bills`: none costs anything.
    `most_at_once` is the vendor's own limit of jobs in flight. `look_up_after` is how long after a lost answer a
    look-up that finds nothing is still no proof. `ceiling`: a submission can say what it may cost at most.
    `test_mode`: jobs that are not billed can be asked for.
    """

    client_key: bool
    sources: frozenset[str] = frozenset({"html"})
    delivery: Delivery = Delivery.DOWNLOAD
    drafts: bool = False
    billed_unit: str = "document"
    bills: bool = True
    most_at_once: int | None = None
    look_up_after: int | None = None
    key_retention_seconds: int | None = None
    status_poll: bool = True
    webhook_success: bool = False
    webhook_failure: bool = False
    webhook_signature: bool = False
    webhook_endpoints: bool = False
    link_lifetime_seconds: int | None = None
    link_refresh: bool = False
    remote_delete: bool = False
    cancel: bool = False
    look_up: bool = False
    ceiling: bool = False
    receipts: bool = False
    test_mode: bool = False
    data_region: str | None = None
    resend_is_harmless: bool = False
    unbilled_failure_codes: frozenset[str] = frozenset()
    finished_events: frozenset[str] = frozenset()
    topup_events: frozenset[str] = frozenset()
    no_credit_events: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ProviderConfig:
    """One account's settings as an adapter needs them.

    `base_url` has no trailing slash. `download_hosts` are hosts, beside the base URL's own scheme, host and port, from
    which a result may be fetched. Timeouts are seconds; `read_timeout` bounds one silence, and together with
    `connect_timeout` one whole API call; `download_timeout` bounds one whole download. `options` holds a value for each
    of the adapter's `options`. `callback_url` is where the vendor reaches us about this account's jobs, without a
    trailing slash and secret, since who knows it may call; a job's own address is `/<its key>` under it. It is empty
    where nobody reaches us.
    """

    slug: str
    base_url: str
    api_key: str = field(repr=False)
    webhook_secrets: tuple[str, ...] = field(default=(), repr=False)
    download_hosts: tuple[str, ...] = ()
    connect_timeout: float = 5.0
    read_timeout: float = 30.0
    download_timeout: float = 60.0
    pool_size: int = 32
    options: Mapping[str, str] = field(default_factory=dict)
    callback_url: str = field(default="", repr=False)


@dataclass(frozen=True)
class Option:
    """One setting that only this vendor's accounts have, as a form asks for it and `ProviderConfig.options` holds it.

    `choices` are (value, words) pairs; empty: any text. `default` holds where nothing was said. `is_fixed`: changing it
    would lead to other jobs or files, so it may not change while documents are under way.
    """

    name: str
    label: str
    help: str
    choices: tuple[tuple[str, str], ...] = ()
    default: str = ""
    required: bool = False
    is_fixed: bool = False


@dataclass(frozen=True)
class DocumentSource:
    """The exact input of one document version. `text` is HTML, Markdown, a URL or, for a template that the provider
    keeps, JSON of `template`, `version` and `data`, by `kind`."""

    kind: str
    text: str = field(repr=False)
    filename: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PreparedRequest:
    """The exact bytes of a submission; they are hashed, committed, and sent the same each time."""

    route: str
    body: bytes = field(repr=False)

    def keyed(self, idempotency_key: str) -> bytes:
        """The bytes that leave: with the key in each of its places, where the vendor wants it inside the body."""
        return self.body.replace(KEY_PLACE, idempotency_key.encode("ascii"))


@dataclass(frozen=True)
class ExchangeFacts:
    """One HTTP request and its answer without keys, documents or links. `started_at` is UTC, `duration_ms` whole.

    `request` and `response` are small JSON objects (sizes, chosen headers, a redacted excerpt of an error body).
    """

    kind: str
    started_at: datetime
    duration_ms: int
    status: int | None
    error_class: str = ""
    request: Mapping[str, Any] = field(default_factory=dict)
    response: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ResultRef:
    """Where a finished PDF can be fetched. `url` may be empty where the id alone is enough.

    `billed` is what the provider says that it billed for it, in the account's currency; None where it does not say.
    `file_id` is the provider's own name of the file, where its deletion is asked for by that and not by the job's.
    """

    provider_job_id: str
    url: str = field(default="", repr=False)
    size_bytes: int | None = None
    expires_at: datetime | None = None
    filename: str = ""
    billed: Decimal | None = None
    file_id: str = field(default="", repr=False)


@dataclass(frozen=True)
class Accepted:
    """The provider took the job and will work on it; or, `is_draft`, has it and begins with `Provider.start`."""

    provider_job_id: str
    status_word: str
    exchange: ExchangeFacts
    is_draft: bool = False


@dataclass(frozen=True)
class Finished:
    """The provider answered a submission with the finished result at once (a replay may do so).

    `content` is the file itself, where the answer held it and no link leads to it.
    """

    provider_job_id: str
    status_word: str
    result: ResultRef
    exchange: ExchangeFacts
    content: bytes | None = field(default=None, repr=False)


class JobPhase(enum.Enum):
    """What a provider's status word means to us. Only two words of any vendor are ever final."""

    DRAFT = "draft"  # it is there, and nothing happens until it is started
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True)
class JobStatus:
    """One status read. `status_word` is the vendor's own, kept and shown; unknown words are RUNNING, never final.

    `unbilled` is true only where the adapter's table lists the error code as final and not billed. `no_credit`: it
    failed because the account has nothing left to spend, so the account is held. `created_at` is when the vendor says
    that the job was made; None where it does not say.
    """

    provider_job_id: str
    phase: JobPhase
    status_word: str
    exchange: ExchangeFacts
    result: ResultRef | None = None
    error_code: str = ""
    error_words: str = ""
    unbilled: bool = False
    no_credit: bool = False
    warnings: tuple[str, ...] = ()
    created_at: datetime | None = None


@dataclass(frozen=True)
class LookedUp:
    """Every job that the vendor has under one idempotency key; none means that nothing under it was ever accepted.

    `nameless` counts further ones that it shows without an id: they exist, may be billed, and cannot be fetched.
    """

    jobs: tuple[JobStatus, ...]
    exchange: ExchangeFacts
    nameless: int = 0


@dataclass(frozen=True)
class Receipt:
    """One thing that was billed. `job_ids` are the values that may be its job's id, the likeliest first; no other field
    of a receipt is relied on. `at` is None where the vendor does not say when."""

    job_ids: tuple[str, ...]
    at: datetime | None


@dataclass(frozen=True)
class Receipts:
    """The newest receipts of an account, in no order and as many as the vendor shows."""

    entries: tuple[Receipt, ...]
    exchange: ExchangeFacts


@dataclass(frozen=True)
class Downloaded:
    """A body that was written to the caller's sink whole. `declared_sizes` are what headers and the job promised."""

    byte_count: int
    content_type: str
    declared_sizes: tuple[int, ...]
    exchange: ExchangeFacts


@dataclass(frozen=True)
class AccountState:
    """What a connectivity check showed: `plan` and `rate_tier` are the vendor's words, `raw` its answer.

    `balance` is in the vendor's own unit, to be compared with another one and never counted as money; None where the
    vendor names none.
    """

    plan: str
    rate_tier: str
    exchange: ExchangeFacts
    raw: Mapping[str, Any] = field(default_factory=dict)
    balance: Decimal | None = None


@dataclass(frozen=True)
class Deleted:
    """The provider's answer to a deletion; `already_gone` when it no longer knew the file."""

    already_gone: bool
    exchange: ExchangeFacts


@dataclass(frozen=True)
class Gone:
    """Whether the provider still hands out a file after its deletion, by asking for it."""

    is_gone: bool
    exchange: ExchangeFacts


@dataclass(frozen=True)
class ProviderEvent:
    """One webhook event in our words; `provider_job_id` is empty where the payload names none.

    `other_ids` are further values that may be the job's id, where the payload leaves that open. An event that is about
    the account names no job and wakes none. `phase` is read only of vendors without a status route, whose word at their
    callback is the only one there is.
    """

    type: str
    provider_job_id: str = ""
    is_about_account: bool = False
    phase: JobPhase | None = None
    error_code: str = ""
    error_words: str = ""
    other_ids: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Endpoint:
    """An address that the provider sends webhooks to. `secret` is there only in the answer to its registration."""

    id: str
    url: str
    secret: str = field(default="", repr=False)


@dataclass(frozen=True)
class Registered:
    """The provider took an address for webhooks. `endpoint.secret` is empty where it showed none."""

    endpoint: Endpoint
    exchange: ExchangeFacts


@dataclass(frozen=True)
class Endpoints:
    """Every address that the provider sends this account's webhooks to."""

    endpoints: tuple[Endpoint, ...]
    exchange: ExchangeFacts


class SignatureRefused(Exception):
    """A webhook that is not proven: `stale` when only its time is wrong."""

    def __init__(self, words: str, *, stale: bool = False) -> None:
        super().__init__(words)
        self.words = words
        self.stale = stale


class Provider(Protocol):
    """One vendor account. Every call makes exactly one logical HTTP exchange and raises `errors.ProviderError`.

    `capabilities` of the class are those of its default options. `base_url` is where the vendor is usually reached.
    """

    kind: str
    label: str
    base_url: str
    options: tuple[Option, ...]
    capabilities: Capabilities

    @classmethod
    def problems(cls, config: ProviderConfig) -> list[str]:
        """What of these settings cannot be used safely, as sentences that say what to do; none when all is well."""
        ...

    def prepare(self, source: DocumentSource) -> PreparedRequest:
        """The exact request for a document. Pure. Raises `InvalidInput` for what this vendor cannot render."""
        ...

    def submit(
        self, request: PreparedRequest, *, idempotency_key: str, now: datetime, gate: Callable[[], None]
    ) -> Accepted | Finished:
        """Send the exact bytes of `request` once.

        `gate` is called once, with the connection open and the request ready, right before the first byte leaves. It
        may wait for its slot. What it raises passes through, and then no byte has left.
        """
        ...

    def start(
        self,
        provider_job_id: str,
        request: PreparedRequest,
        *,
        idempotency_key: str,
        now: datetime,
        gate: Callable[[], None],
    ) -> Accepted:
        """Begin a draft that was made of `request`; only where `Capabilities.drafts`. This is the call that bills.

        `gate` as for `submit`. Only for one that a status read has just called `JobPhase.DRAFT`.
        """
        ...

    def fetch_status(self, provider_job_id: str, *, now: datetime) -> JobStatus:
        """Read one job."""
        ...

    def find_submission(self, idempotency_key: str, *, first_sent_at: datetime, now: datetime) -> LookedUp | None:
        """The jobs of a key that was first sent then. None: this vendor, or what it keeps of that time, cannot tell.

        Only where `Capabilities.look_up` is set does it make an exchange.
        """
        ...

    def list_receipts(self, *, now: datetime) -> Receipts | None:
        """What was billed lately. None, with no exchange, where `Capabilities.receipts` is not set."""
        ...

    def download(self, ref: ResultRef, sink: BinaryIO, *, max_bytes: int, now: datetime) -> Downloaded:
        """Stream the result into `sink`. Raises `TargetRefused`, `TooLarge`, `NotFound` and transport errors."""
        ...

    def delete_remote(self, ref: ResultRef, *, now: datetime) -> Deleted:
        """Delete the provider's copy of a result; only where `Capabilities.remote_delete`."""
        ...

    def is_gone(self, ref: ResultRef, *, now: datetime) -> Gone:
        """Ask for a result that was deleted; only where `Capabilities.remote_delete`. Reads no more than its head."""
        ...

    def check_account(self, *, now: datetime) -> AccountState:
        """A free, authenticated call that proves address and key."""
        ...

    def verify_webhook(
        self, headers: Mapping[str, str], body: bytes, secrets: Sequence[str], *, now: datetime
    ) -> datetime:
        """The signed time of a proven webhook. Raises `SignatureRefused`."""
        ...

    def parse_webhook(self, body: bytes) -> list[ProviderEvent]:
        """The events in a proven body. Raises `ValueError` when it is no JSON object."""
        ...

    def register_webhook(self, url: str, *, now: datetime) -> Registered:
        """Have webhooks sent to `url`. Only where `capabilities.webhook_endpoints`, like the next two."""
        ...

    def list_webhooks(self, *, now: datetime) -> Endpoints:
        """The addresses that are registered, never with their secrets."""
        ...

    def delete_webhook(self, endpoint_id: str, *, now: datetime) -> Deleted:
        """Have no more webhooks sent to that address."""
        ...

    def close(self) -> None:
        """Give back connections."""
        ...
