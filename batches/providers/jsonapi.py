"""What adapters of JSON-over-HTTP vendors share: one authenticated call, its JSON object, a download, and how to say
that a vendor has no such thing. An adapter overrides what its vendor offers; tables and readings stay its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, BinaryIO, ClassVar, NoReturn
from urllib.parse import quote

from batches.providers import reading, redaction
from batches.providers.base import (
    KEY_PLACE,
    Accepted,
    Capabilities,
    Deleted,
    DocumentSource,
    Downloaded,
    Endpoints,
    Gone,
    LookedUp,
    Option,
    PreparedRequest,
    ProviderConfig,
    ProviderEvent,
    Receipts,
    Registered,
    ResultRef,
    SignatureRefused,
)
from batches.providers.errors import ContractBroken, InvalidInput, NotFound, TargetRefused, TooLarge, Unauthorized
from batches.providers.http import Answer, Call, HttpClient, origin_of, whole_number
from batches.providers.refusals import Refusals
from batches.providers.targets import allowed_target

JSON_BYTES = 4 * 1024 * 1024
MAX_REDIRECTS = 3
_REDIRECTS = (301, 302, 303, 307, 308)
_PLACE = KEY_PLACE.decode("ascii")
#: The same text to whoever reads the JSON, and not the place of a key.
_NO_PLACE = _PLACE.replace("k", "\\u006b", 1)


def json_body(source: DocumentSource, fields: Mapping[str, Any], *, keyed: Mapping[str, Any] | None = None) -> bytes:
    """Compact JSON with sorted names in ASCII. Only a value of `keyed` may hold `KEY_PLACE`: a document that happens to
    is written in another way. Raises `InvalidInput` for what JSON or a PDF cannot carry."""
    try:
        parts = {name: _json(value).replace(_PLACE, _NO_PLACE) for name, value in fields.items()}
        parts |= {name: _json(value) for name, value in (keyed or {}).items()}
        source.text.encode("utf-8")
        source.filename.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidInput(
            "The document holds half of a character (a lone surrogate), which no PDF can show."
        ) from None
    except (TypeError, ValueError, RecursionError):
        raise InvalidInput("The options hold something that JSON cannot carry.") from None
    return ("{" + ",".join(f"{_json(name)}:{parts[name]}" for name in sorted(parts)) + "}").encode("ascii")


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


class JsonApi:
    """The part of `base.Provider` that is the same for each; see there for what each call promises."""

    kind: str
    label: str
    base_url: str
    options: tuple[Option, ...] = ()
    capabilities: Capabilities
    #: How this vendor says no.
    refusals: ClassVar[Refusals]
    #: A header beside `Content-Length` in which a file's size may be told.
    size_headers: ClassVar[tuple[str, ...]] = ()
    #: Whether a file at the vendor's own address is only given to whoever shows the key. It never goes elsewhere.
    files_want_key: bool = False

    @classmethod
    def problems(cls, config: ProviderConfig) -> list[str]:
        return []

    def __init__(self, config: ProviderConfig) -> None:
        self.config = config
        #: Longest time, in seconds, that one API call can take: for "does a resend still fit into the key's retention".
        self.call_seconds = config.connect_timeout + config.read_timeout
        self.client = HttpClient(
            connect_timeout=config.connect_timeout, read_timeout=config.read_timeout, pool_size=config.pool_size
        )

    def close(self) -> None:
        self.client.close()

    # --- what not every vendor offers --------------------------------------------------------------------------------

    def start(
        self,
        provider_job_id: str,
        request: PreparedRequest,
        *,
        idempotency_key: str,
        now: datetime,
        gate: Callable[[], None],
    ) -> Accepted:
        self._not_offered("drafts")

    def find_submission(self, idempotency_key: str, *, first_sent_at: datetime, now: datetime) -> LookedUp | None:
        return None  # nothing can be told

    def list_receipts(self, *, now: datetime) -> Receipts | None:
        return None

    def delete_remote(self, ref: ResultRef, *, now: datetime) -> Deleted:
        self._not_offered("deletion")

    def is_gone(self, ref: ResultRef, *, now: datetime) -> Gone:
        self._not_offered("deletion")

    def verify_webhook(
        self, headers: Mapping[str, str], body: bytes, secrets: Sequence[str], *, now: datetime
    ) -> datetime:
        raise SignatureRefused(f"{self.label} signs nothing.")

    def parse_webhook(self, body: bytes) -> list[ProviderEvent]:
        return []

    def register_webhook(self, url: str, *, now: datetime) -> Registered:
        self._not_offered("webhook addresses")

    def list_webhooks(self, *, now: datetime) -> Endpoints:
        self._not_offered("webhook addresses")

    def delete_webhook(self, endpoint_id: str, *, now: datetime) -> Deleted:
        self._not_offered("webhook addresses")

    def _not_offered(self, what: str) -> NoReturn:
        """No exchange is made. Whoever asks the capabilities first never comes here."""
        raise NotFound(f"{self.label} has no call for that ({what}).")

    # --- files -------------------------------------------------------------------------------------------------------

    def download(self, ref: ResultRef, sink: BinaryIO, *, max_bytes: int, now: datetime) -> Downloaded:
        """A broken download leaves what had arrived in `sink`; the caller throws it away.

        The API key never leaves the account's own address, and stays here wherever files are open.
        """
        link, found_at = self.file_link(ref), ""
        for hop in range(MAX_REDIRECTS + 1):
            target = allowed_target(
                link, found_at=found_at, base_url=self.config.base_url, download_hosts=self.config.download_hosts
            )
            with_key = self.files_want_key and origin_of(target.url) == origin_of(self.config.base_url)
            call = Call(
                kind="download",
                method="GET",
                url=target.url,
                route=self.file_route if not hop else "[redirect]",
                # Compressed, the length that the answer declares would not be that of the PDF.
                headers={
                    "Accept": "application/pdf, */*",
                    "Accept-Encoding": "identity",
                    **(self.authorization(self._key()) if with_key else {}),
                },
                secrets=(self.config.api_key, ref.provider_job_id, target.url),
                seconds=self.config.download_timeout,
                public_peer=target.public_peer,
            )
            with self.client.open(call, now=now) as answer:
                if answer.status in _REDIRECTS and answer.headers.get("Location"):
                    link, found_at = answer.headers["Location"], target.url
                    continue
                if answer.status != 200:
                    raise self.refusals.on_download(answer, now, with_key=with_key)
                return self._poured(answer, ref, sink, max_bytes)
        raise TargetRefused(f"The download link leads on more than {MAX_REDIRECTS} times, so nothing was fetched.")

    #: The path of a file as evidence shows it.
    file_route: ClassVar[str] = "[link]"

    def file_link(self, ref: ResultRef) -> str:
        """Where a file is fetched first: the job's own link, unless the vendor is better asked by id."""
        if not ref.url:
            raise NotFound(f"{self.label} named no link to the file.")
        return ref.url

    def _poured(self, answer: Answer, ref: ResultRef, sink: BinaryIO, max_bytes: int) -> Downloaded:
        byte_count = answer.pour(sink, max_bytes)
        told = [whole_number(answer.headers.get(name)) for name in self.size_headers]
        declared = (answer.declared_length(), *told, ref.size_bytes)
        return Downloaded(
            byte_count=byte_count,
            content_type=redaction.cleaned(answer.headers.get("Content-Type", ""), limit=100),
            declared_sizes=tuple(size for size in declared if size is not None),
            exchange=answer.facts(),
        )

    # --- requests ----------------------------------------------------------------------------------------------------

    def authorization(self, key: str) -> Mapping[str, str]:
        """The headers that show the account's key."""
        return {"Authorization": f"Bearer {key}"}

    def _key(self) -> str:
        key = self.config.api_key
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            # The HTTP library would name the key in its own refusal of such a header.
            raise Unauthorized("The account has no usable API key: it is empty or holds spaces or special characters.")
        return key

    def _call(
        self,
        kind: str,
        method: str,
        route: str,
        *,
        job_id: str = "",
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        secrets: Sequence[str] = (),
        gate: Callable[[], None] | None = None,
    ) -> Call:
        """An authenticated API call; `{id}` in the route is `job_id`, percent-encoded."""
        key = self._key()
        encoded_id = quote(job_id, safe="")
        content = {"Content-Type": "application/json"} if body else {}
        return Call(
            kind=kind,
            method=method,
            url=self.config.base_url + route.replace("{id}", encoded_id),
            route=route.replace("{id}", redaction.masked(job_id)),
            headers={"Accept": "application/json", **self.authorization(key), **content, **(headers or {})},
            body=body,
            secrets=(key, job_id, encoded_id, *secrets),
            seconds=self.call_seconds,
            gate=gate,
        )

    def _read(self, call: Call, now: datetime, *, max_bytes: int = JSON_BYTES) -> tuple[Answer, dict[str, Any]]:
        """Make a call that changes nothing. Its answer, which is closed by then, and the JSON object in it."""
        with self.client.open(call, now=now) as answer:
            if not 200 <= answer.status < 300:
                raise self.refusals.on_read(answer, now)
            return answer, self._object(answer, max_bytes=max_bytes)

    def _deleted(self, call: Call, now: datetime) -> Deleted:
        with self.client.open(call, now=now) as answer:
            if 200 <= answer.status < 300:
                return Deleted(already_gone=False, exchange=answer.facts())
            if answer.status in (404, 410):
                return Deleted(already_gone=True, exchange=answer.facts())
            raise self.refusals.on_read(answer, now)

    def _object(self, answer: Answer, *, max_bytes: int = JSON_BYTES) -> dict[str, Any]:
        """The JSON object of a 2xx answer. A list, a word, HTML or too much of anything breaks the contract."""
        try:
            body = answer.read(max_bytes)
        except TooLarge as error:
            raise answer.error(ContractBroken, error.words) from None
        value = reading.json_value(body)
        if not isinstance(value, dict):
            kind = redaction.cleaned(answer.headers.get("Content-Type", "no content type"), limit=80)
            raise answer.error(ContractBroken, f"{self.label} answered with something that is no JSON object ({kind}).")
        return value
