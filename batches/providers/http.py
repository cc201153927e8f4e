"""The one way out: the connection pools of a `requests.Session`, with timeouts, size caps, no retries and redacted
evidence.

The session keeps the pools and says whom TLS trusts; each call goes straight to the pool, since making requests'
request and response objects costs as much as the exchange itself (`docs/decisions/0009-straight-to-the-pool.md`).

It knows HTTP and no vendor. It raises `NotSent` where no byte of a request left (the connection marks that, see
`wire.py`) and `AnswerLost` for every other transport failure; status codes are the adapter's business. It never
follows a redirect, never sends a header that the caller did not name (no cookies, no netrc, no proxy from the
environment) and never puts a URL, a key or a document into an exception: urllib3's own exceptions name the URL, so none
is chained.
"""

from __future__ import annotations

import http.client
import logging
import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, BinaryIO, TypeVar, cast

import requests
import urllib3
from urllib3.exceptions import LocationParseError
from urllib3.util import Retry, Timeout, parse_url

from batches.providers import redaction, wire
from batches.providers.base import ExchangeFacts
from batches.providers.errors import AnswerLost, NotSent, ProviderError, TargetRefused, TooLarge

USER_AGENT = "relaypdf-batches/0.1"
CHUNK_BYTES = 64 * 1024

# urllib3 names whole URLs in its debug lines and in its warning about odd headers; a RelayPDF URL opens the document.
logging.getLogger("urllib3.connectionpool").setLevel(logging.INFO)
logging.getLogger("urllib3.connection").setLevel(logging.ERROR)

_NOT_IN_URLS = re.compile(r"[^!-~]|\\")
_NEVER_AGAIN = Retry(total=False)
_TRANSPORT_ERRORS = (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError)

E = TypeVar("E", bound=ProviderError)


@dataclass(frozen=True)
class Call:
    """One HTTP request. `route` is its path as evidence shows it, ids masked; `seconds` caps the whole exchange.

    `secrets` are ids and keys that must not appear in evidence. `public_peer` refuses a connection to a private or
    local address. `gate` is called right before the first byte leaves; what it raises passes through.
    """

    kind: str
    method: str
    url: str = field(repr=False)
    route: str
    seconds: float
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    public_peer: bool = False
    gate: Callable[[], None] | None = field(default=None, repr=False)


class Answer:
    """A response whose head is here and whose body may still be on the way. Only valid inside `HttpClient.open`."""

    def __init__(self, call: Call, response: urllib3.BaseHTTPResponse, *, now: datetime, started: float) -> None:
        self.call = call
        self.status: int = response.status
        self.headers: Mapping[str, str] = response.headers
        self.byte_count = 0
        self._response = response
        self._now = now
        self._started = started

    def read(self, max_bytes: int) -> bytes:
        """The whole body, decompressed. Raises `TooLarge` and `AnswerLost`."""
        return b"".join(self._chunks(max_bytes))

    def read_some(self, max_bytes: int) -> bytes:
        """The first `max_bytes` of the body, for error bodies: the rest, also one that never comes, is left unread."""
        parts: list[bytes] = []
        try:
            for chunk in self._response.stream(CHUNK_BYTES, decode_content=True):
                parts.append(chunk)
                self.byte_count += len(chunk)
                if self.byte_count >= max_bytes:
                    break
        except _TRANSPORT_ERRORS:
            # The status line is the answer; words that did not arrive change nothing about it.
            pass
        return b"".join(parts)[:max_bytes]

    def pour(self, sink: BinaryIO, max_bytes: int) -> int:
        """Write the whole body, decompressed, to `sink`; its byte count. Raises `TooLarge` and `AnswerLost`."""
        for chunk in self._chunks(max_bytes):
            sink.write(chunk)
        return self.byte_count

    def _chunks(self, max_bytes: int) -> Iterator[bytes]:
        declared = self.declared_length()
        if declared is not None and declared > max_bytes:
            raise self.error(TooLarge, f"The answer has {declared} bytes, over the limit of {max_bytes}.")
        stream = iter(self._response.stream(CHUNK_BYTES, decode_content=True))
        while True:
            try:
                chunk = next(stream, None)
            except _TRANSPORT_ERRORS as error:
                failure = _reason(error)
                break
            if chunk is None:
                return
            self.byte_count += len(chunk)
            if self.byte_count > max_bytes:
                raise self.error(TooLarge, f"The answer is larger than the limit of {max_bytes} bytes.")
            yield chunk
        raise self.error(AnswerLost, f"The answer broke off: {failure.words}.", detail=failure.detail)

    def declared_length(self) -> int | None:
        """`Content-Length` where it counts the body as we read it, so not for a compressed one."""
        if self.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
            return None
        return whole_number(self.headers.get("Content-Length"))

    def facts(self, *, error_class: str = "", **more: Any) -> ExchangeFacts:
        """This exchange as evidence; `more` goes into the response part and must be redacted already."""
        return ExchangeFacts(
            kind=self.call.kind,
            started_at=self._now,
            duration_ms=_milliseconds_since(self._started),
            status=self.status,
            error_class=error_class,
            request=_request_facts(self.call),
            response={
                "bytes": self.byte_count,
                "headers": redaction.kept_headers(self.headers, self.call.secrets),
                **more,
            },
        )

    def error(self, kind: type[E], words: str, *, code: str = "", detail: str = "", **more: Any) -> E:
        """A provider error that carries this exchange. `retry_after` is an error's field, the rest is evidence."""
        retry_after = more.pop("retry_after", None)
        if code:
            more["code"] = code
        return kind(
            words,
            code=code,
            detail=detail,
            status=self.status,
            retry_after=retry_after,
            exchange=self.facts(error_class=kind.__name__, **more),
        )


class HttpClient:
    """Sessions for one account, one per process: a connection that a fork shares would mix two answers."""

    def __init__(self, *, connect_timeout: float, read_timeout: float, pool_size: int) -> None:
        self.connect_timeout = connect_timeout
        self.read_timeout = read_timeout
        self._pool_size = pool_size
        #: By process id. No lock: one that another thread holds while a process forks stays locked in the child.
        self._sessions: dict[int, requests.Session] = {}

    @property
    def session(self) -> requests.Session:
        """This process's session, made at first use."""
        pid = os.getpid()
        return self._sessions.get(pid) or self._sessions.setdefault(pid, self._make_session())

    def _make_session(self) -> requests.Session:
        session = requests.Session()
        adapter = wire.WireAdapter(pool_connections=8, pool_maxsize=self._pool_size)
        session.mount("http://", adapter)
        session.mount("https://", adapter)
        return session

    def close(self) -> None:
        """Give back this process's connections; the client can be used again."""
        session = self._sessions.pop(os.getpid(), None)
        if session is not None:
            session.close()

    @contextmanager
    def open(self, call: Call, *, now: datetime) -> Iterator[Answer]:
        """Send `call` once and give its answer. Raises `NotSent`, `AnswerLost`, `TargetRefused`."""
        response, started = self._send(call, now)
        try:
            yield Answer(call, response, now=now, started=started)
        finally:
            # A connection whose body was read to the end went back to the pool before; any other is closed here.
            response.close()
            response.release_conn()

    def _send(self, call: Call, now: datetime) -> tuple[urllib3.BaseHTTPResponse, float]:
        started = time.monotonic()
        fate = wire.Wire(
            deadline=started + call.seconds,
            read_timeout=self.read_timeout,
            public_peer=call.public_peer,
            gate=call.gate,
        )
        failure: ProviderError
        try:
            target = parse_url(call.url)
            if target.scheme not in ("http", "https") or not target.host:
                raise LocationParseError("no web address")
            adapter = cast(wire.WireAdapter, self.session.get_adapter(f"{target.scheme}://"))
            pool = adapter.pool_of(target, self.session.verify)
            with wire.following(fate):
                response = pool.urlopen(
                    call.method,
                    target.request_uri,
                    body=call.body or None,
                    headers={"User-Agent": USER_AGENT, **call.headers},
                    timeout=Timeout(
                        connect=min(self.connect_timeout, call.seconds), read=min(self.read_timeout, call.seconds)
                    ),
                    retries=_NEVER_AGAIN,
                    redirect=False,
                    assert_same_host=False,  # the path has no host, and the pool was chosen for this one
                    preload_content=False,
                )
            return response, fate.began_at or started
        except TargetRefused as error:
            failure = TargetRefused(error.words, exchange=_sent_facts(call, now, started, "TargetRefused"))
        except (LocationParseError, requests.exceptions.InvalidURL):
            failure = NotSent(
                "The address cannot be read as a URL.", exchange=_sent_facts(call, now, started, "NotSent")
            )
        except _TRANSPORT_ERRORS as error:
            reason = _reason(error)
            kind, words = (
                (NotSent, f"The provider could not be reached: {reason.words}.")
                if fate.not_sent
                else (AnswerLost, f"No answer came back: {reason.words}.")
            )
            failure = kind(words, detail=reason.detail, exchange=_sent_facts(call, now, started, kind.__name__))
        # Raised out here, so that urllib3's exception, which names the URL, is not even its context.
        raise failure


def _request_facts(call: Call) -> dict[str, Any]:
    return {"method": call.method, "route": call.route, "bytes": len(call.body)}


def _sent_facts(call: Call, now: datetime, started: float, error_class: str) -> ExchangeFacts:
    return ExchangeFacts(
        kind=call.kind,
        started_at=now,
        duration_ms=_milliseconds_since(started),
        status=None,
        error_class=error_class,
        request=_request_facts(call),
    )


def _milliseconds_since(started: float) -> int:
    return round((time.monotonic() - started) * 1000)


def whole_number(value: object) -> int | None:
    """A non-negative whole number in a header or a JSON field; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if value >= 0 else None
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() and len(value) <= 20:
        return int(value)
    return None


def origin_of(url: str) -> tuple[str, str, int] | None:
    """Scheme, host and port as urllib3 will connect to them; None for what is no plain http(s) URL.

    Read with urllib3's own parser: a check made with another one can be told another host than the one that is asked.
    """
    if _NOT_IN_URLS.search(url):
        return None
    try:
        parts = parse_url(url)
    except urllib3.exceptions.LocationParseError:
        return None
    if parts.scheme not in ("http", "https") or not parts.host or parts.auth is not None:
        return None
    return parts.scheme, parts.host.rstrip(".").lower(), parts.port or (443 if parts.scheme == "https" else 80)


@dataclass(frozen=True)
class _Reason:
    words: str
    detail: str


def _reason(error: BaseException) -> _Reason:
    """Why a transport failed, from the types in its chain; never from its text, which names the URL."""
    chain = list(_chain(error))
    detail = " < ".join(dict.fromkeys(type(link).__name__ for link in chain))
    for link in chain:
        if isinstance(link, OSError) and link.errno and not isinstance(link, ssl.SSLError):
            detail += f" ({os.strerror(link.errno) if 0 < link.errno < 4096 else link.errno})"
            break
    return _Reason(_cause_words(chain), detail)


def _cause_words(chain: list[BaseException]) -> str:
    table: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], str], ...] = (
        ((urllib3.exceptions.NameResolutionError, socket.gaierror), "its host name cannot be resolved"),
        (ssl.SSLCertVerificationError, "its TLS certificate is not trusted"),
        ((ssl.SSLError, urllib3.exceptions.SSLError), "the TLS connection failed"),
        (ConnectionRefusedError, "the connection was refused"),
        (urllib3.exceptions.ReadTimeoutError, "the answer took too long"),
        (urllib3.exceptions.NewConnectionError, "no connection could be made"),
        (urllib3.exceptions.ConnectTimeoutError, "connecting took too long"),
        (TimeoutError, "the exchange took too long"),
        (ConnectionError, "the connection was closed by the other side"),
        (http.client.RemoteDisconnected, "the connection was closed by the other side"),
        (http.client.IncompleteRead, "the connection ended too early"),
        (urllib3.exceptions.DecodeError, "its compression cannot be read"),
    )
    for kinds, words in table:
        if any(isinstance(link, kinds) for link in chain):
            return words
    return "the connection failed"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception and everything that it wraps: causes, contexts, urllib3's `reason`, a first argument."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        link = waiting.pop(0)
        if id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        inner = [getattr(link, "reason", None), link.__cause__, link.__context__, *link.args]
        waiting.extend(item for item in inner if isinstance(item, BaseException))
