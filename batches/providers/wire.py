"""Connections that know what has happened on them: nothing, a connection, or bytes that left.

Whether a failed request can have had an effect is not told by the exception's type (a TLS error may come from the
handshake or from the middle of an answer; a reset may hit a fresh or a long-used connection), so it is not guessed from
it. Each exchange has a `Wire`, and the connection marks it right before the first byte of the request is written. The
same place holds the wall-clock cap, which socket timeouts alone do not give (they start again with every byte), and the
check of the connected peer, before TLS and before any byte.

Read with urllib3 2.8 and requests 2.34: `urllib3/connection.py` (`_new_conn`, `request`, `getresponse`),
`urllib3/connectionpool.py` (`urlopen`, `_make_request`), `requests/adapters.py` (`init_poolmanager`, `cert_verify`).
"""

from __future__ import annotations

import contextlib
import io
import ipaddress
import socket
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from http.client import HTTPResponse
from typing import Any, cast

from requests.adapters import HTTPAdapter
from requests.utils import DEFAULT_CA_BUNDLE_PATH
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.util import Url

from batches.providers.errors import TargetRefused

#: A connection idle for longer is not used again: servers close idle ones (common keep-alive limits start at 5 s), and
#: a request written into a connection that is being closed has an unknown outcome for nothing.
MAX_IDLE_SECONDS = 4.0


@dataclass
class Wire:
    """One HTTP request's fate. `tracked` is false where no connection of this module carried it."""

    deadline: float
    read_timeout: float
    public_peer: bool = False
    gate: Callable[[], None] | None = None
    tracked: bool = False
    wrote: bool = False
    began_at: float | None = None
    """Monotonic time at which the first byte left."""

    @property
    def not_sent(self) -> bool:
        """Proven: no byte of the request has left."""
        return self.tracked and not self.wrote

    def next_timeout(self) -> float:
        """Seconds that the next socket operation may take. Raises `TimeoutError` past the wall-clock cap."""
        remaining = self.deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("the call's wall-clock cap is reached")
        return min(self.read_timeout, remaining)

    def check_peer(self, peer: str) -> None:
        """Refuse a peer that is not on the public internet where this exchange asks for that."""
        if self.public_peer and not is_public(peer):
            raise TargetRefused(
                "The download address leads to a private or local network address, so nothing was fetched. "
                "Check the download hosts of the account."
            )


def is_public(address: str) -> bool:
    """Whether an IP address (as `getpeername` gives it) is a public one, also where it wraps an IPv4 address."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        # Addresses that a gateway turns into IPv4 ones: mapped, 6to4, Teredo, NAT64.
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if inner is None and ip in ipaddress.ip_network("64:ff9b::/96"):
            inner = ipaddress.IPv4Address(ip.packed[12:])
        if inner is not None:
            return is_public(str(inner))
    return ip.is_global and not ip.is_multicast


_current: ContextVar[Wire | None] = ContextVar("wire", default=None)


@contextlib.contextmanager
def following(wire: Wire) -> Iterator[None]:
    """Connections used inside belong to `wire`."""
    token = _current.set(wire)
    try:
        yield
    finally:
        _current.reset(token)


class _TimedReader(io.RawIOBase):
    """The reading end of a socket whose every read fits into what is left of the exchange's time."""

    def __init__(self, sock: socket.socket, wire: Wire) -> None:
        super().__init__()
        self._sock = sock
        self._wire = wire
        self._raw = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._wire.next_timeout())
        return self._raw.readinto(buffer)

    def fileno(self) -> int:
        return self._raw.fileno()

    def close(self) -> None:
        try:
            self._raw.close()
        finally:
            super().close()


class _TimedResponse(HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        wire = _current.get()
        if wire is not None:
            self.fp.close()
            self.fp = io.BufferedReader(_TimedReader(sock, wire))


class _WireMarks:
    """Mixed into urllib3's two connection classes."""

    response_class = _TimedResponse
    sock: Any
    timeout: Any
    _last_used: float = 0.0

    def _new_conn(self) -> socket.socket:
        sock = cast(socket.socket, super()._new_conn())  # type: ignore[misc]  # from urllib3's connection
        wire = _current.get()
        if wire is not None:
            try:
                wire.check_peer(sock.getpeername()[0])
            except (TargetRefused, OSError):
                sock.close()
                raise
        return sock

    def request(self, *args: Any, **kwargs: Any) -> None:
        wire = _current.get()
        if self.sock is not None:
            if self._last_used and time.monotonic() - self._last_used > MAX_IDLE_SECONDS:
                self.close()  # type: ignore[attr-defined]  # from urllib3's connection
            elif wire is not None:
                wire.check_peer(self.sock.getpeername()[0])
        super().request(*args, **kwargs)  # type: ignore[misc]  # from urllib3's connection

    def send(self, data: Any) -> None:
        """`http.client` sends all through here; connecting first keeps "connected" and "wrote" apart."""
        wire = _current.get()
        if wire is None:
            super().send(data)  # type: ignore[misc]  # from urllib3's connection
            return
        if self.sock is None:
            self.connect()  # type: ignore[attr-defined]  # from urllib3's connection
        if not wire.wrote:
            if wire.gate is not None:
                reached_at = time.monotonic()
                wire.gate()
                # The caller's own wait is no part of what the provider gets to answer in.
                wire.deadline += time.monotonic() - reached_at
            wire.began_at = time.monotonic()
        # urllib3 leaves the connect timeout on the socket while the body is sent, and `sendall` counts it for the body
        # as a whole: a large document on a slow line would run out of it.
        self.sock.settimeout(wire.next_timeout())
        wire.wrote = True
        super().send(data)  # type: ignore[misc]  # from urllib3's connection

    def getresponse(self) -> Any:
        response = super().getresponse()  # type: ignore[misc]  # from urllib3's connection
        self._last_used = time.monotonic()
        return response


class _Connection(_WireMarks, HTTPConnection):  # type: ignore[misc]  # the mixin's attributes are looser on purpose
    pass


class _TLSConnection(_WireMarks, HTTPSConnection):  # type: ignore[misc]  # as above
    pass


class _PoolMarks:
    """Mixed into urllib3's two pool classes."""

    def urlopen(self, *args: Any, **kwargs: Any) -> Any:
        wire = _current.get()
        if wire is not None:
            wire.tracked = True
        return super().urlopen(*args, **kwargs)  # type: ignore[misc]  # from urllib3's pool


class _Pool(_PoolMarks, HTTPConnectionPool):
    ConnectionCls = _Connection


class _TLSPool(_PoolMarks, HTTPSConnectionPool):
    ConnectionCls = _TLSConnection


class WireAdapter(HTTPAdapter):
    """requests' keeper of pools over the connections above, whose pools can be had without its `send`."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TLSPool}

    def pool_of(self, target: Url, verify: bool | str | None) -> HTTPConnectionPool:
        """The pool for the target's scheme, host and port. TLS trusts requests' bundle, or the file in `verify`."""
        assert target.host is not None
        trusted = verify if isinstance(verify, str) else DEFAULT_CA_BUNDLE_PATH
        tls = {"cert_reqs": "CERT_REQUIRED", "ca_certs": trusted}
        pool = self.poolmanager.connection_from_host(target.host, target.port, target.scheme, pool_kwargs=tls)
        return cast(HTTPConnectionPool, pool)
