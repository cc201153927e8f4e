"""HTTP/1.1 on one socket: requests in, answers out, with the control of the socket that faults need.

Reads requests under caps for size and time, stamps each as its first byte arrives, writes answers in one send.
Knows no routes. Bodies need a Content-Length; chunked requests are refused with 411, which no client of this
contract sends.
"""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass, field
from http import HTTPStatus

from batches.sandbox.answers import Answer, ApiError

MAX_HEAD_BYTES = 64 << 10
IDLE_SECONDS = 75.0
READ_SECONDS = 30.0
BODY_SECONDS = 120.0
_CHUNK = 256 << 10


@dataclass(frozen=True)
class Arrival:
    """When the first byte of a request was read, on the steady and on the wall clock, in seconds."""

    monotonic: float
    wall: float


@dataclass(frozen=True)
class Request:
    """One request as it came in; header names are lower case."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes
    arrival: Arrival
    peer: str
    own_address: str = field(default="")

    @property
    def base_url(self) -> str:
        """The address the client used, for absolute URLs in answers."""
        host = self.headers.get("host", "")
        plain = host.replace("[", "").replace("]", "").replace(":", "").replace(".", "").replace("-", "")
        return f"http://{host if plain.isalnum() and host.isascii() else self.own_address}"


class Disconnected(Exception):
    """The client has gone, or was idle for too long; there is nobody to answer."""


class Connection:
    """One client's socket. Not thread-safe: it belongs to the thread that serves it."""

    def __init__(self, sock: socket.socket, peer: str, own_address: str) -> None:
        self._socket = sock
        self._peer = peer
        self._own_address = own_address
        self._buffer = bytearray()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def next_request(self, max_body_bytes: int) -> Request:
        """The next request. Raises Disconnected, or ApiError for one that can't be taken (then close)."""
        arrival = self._first_byte()
        head = self._read_head()
        method, target, headers = _parse_head(head)
        path, _, query = target.partition("?")
        body = self._read_body(headers, max_body_bytes)
        return Request(method, path, query, headers, body, arrival, self._peer, self._own_address)

    def send(self, answer: Answer, *, keep_open: bool, head_only: bool = False) -> bool:
        """Send `answer`; False when the connection can't be used any more."""
        length = len(answer.body) if answer.promised_length is None else answer.promised_length
        keep_open = keep_open and length == len(answer.body)
        lines = [f"HTTP/1.1 {answer.status} {_phrase(answer.status)}"]
        if answer.status != 204:
            lines += [f"Content-Type: {answer.content_type}", f"Content-Length: {length}"]
        lines += [f"{name}: {value}" for name, value in answer.headers]
        lines += [f"Connection: {'keep-alive' if keep_open else 'close'}", "", ""]
        data = "\r\n".join(lines).encode("latin-1", "replace")
        body = b"" if head_only or answer.status == 204 else answer.body
        try:
            self._socket.settimeout(READ_SECONDS)
            self._socket.sendall(data + body)
        except OSError:
            return False
        return keep_open

    def cut(self) -> None:
        """End the connection as a crash would: with a reset and without an answer."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def drain(self) -> None:
        """Read on a little after a refusal, so that the client gets to see it instead of a reset."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
            self._socket.settimeout(1.0)
            for _ in range(256):
                if not self._socket.recv(_CHUNK):
                    return
        except OSError:
            return

    def _first_byte(self) -> Arrival:
        if not self._buffer:
            self._receive(IDLE_SECONDS)
        return Arrival(time.monotonic(), time.time())

    def _read_head(self) -> bytes:
        deadline = time.monotonic() + READ_SECONDS
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if len(self._buffer) > MAX_HEAD_BYTES:
                raise ApiError(431, "invalid_request", "The request's header fields are too large.")
            self._receive(deadline - time.monotonic())
        head = bytes(self._buffer[:end])
        del self._buffer[: end + 4]
        return head

    def _read_body(self, headers: dict[str, str], max_bytes: int) -> bytes:
        if "transfer-encoding" in headers:
            raise ApiError(411, "invalid_request", "Send the body with a Content-Length.")
        raw_length = headers.get("content-length", "0")
        if not (raw_length.isascii() and raw_length.isdigit()):
            raise ApiError(400, "invalid_request", "Content-Length must be a number.")
        length = int(raw_length)
        if length > max_bytes:
            raise ApiError(413, "payload_too_large", f"The request body is over {max_bytes} bytes.")
        if length and headers.get("expect", "").lower() == "100-continue":
            self._socket.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        deadline = time.monotonic() + BODY_SECONDS
        while len(self._buffer) < length:
            self._receive(min(READ_SECONDS, deadline - time.monotonic()))
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        return body

    def _receive(self, timeout: float) -> None:
        try:
            self._socket.settimeout(max(timeout, 0.001))
            data = self._socket.recv(_CHUNK)
        except OSError as error:
            raise Disconnected from error
        if not data:
            raise Disconnected
        self._buffer += data


def _parse_head(head: bytes) -> tuple[str, str, dict[str, str]]:
    request_line, *lines = head.decode("latin-1").split("\r\n")
    parts = request_line.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1.") or not parts[1].startswith("/"):
        raise ApiError(400, "invalid_request", "This is not an HTTP/1.1 request.")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise ApiError(400, "invalid_request", "A header line is malformed.")
        name, value = name.lower(), value.strip()
        if name == "content-length" and headers.get(name, value) != value:
            raise ApiError(400, "invalid_request", "Content-Length is given twice.")
        headers[name] = value
    if parts[2] == "HTTP/1.0":
        headers.setdefault("connection", "close")
    return parts[0], parts[1], headers


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Status"
