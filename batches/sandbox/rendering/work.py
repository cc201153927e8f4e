"""What goes into a render and what comes out, and how both cross a socket.

A message is a JSON head and a payload of bytes, each preceded by its length. Both ends are ours; the reading
side still caps what it accepts, because the writing side may be a child that a hostile document took over.
"""

from __future__ import annotations

import json
import socket
import struct
from dataclasses import dataclass, field
from typing import Any, Literal

_LENGTHS = struct.Struct(">IQ")
MAX_HEAD_BYTES = 1 << 20

MIB = 1 << 20


@dataclass(frozen=True)
class RenderLimits:
    """What one document may use up. Seconds, bytes and pages."""

    wall_seconds: float = 60.0
    cpu_seconds: int = 30
    memory_bytes: int = 1536 * MIB
    output_bytes: int = 64 * MIB
    pages: int = 5000


@dataclass(frozen=True)
class Work:
    """One document to render. `options` is the vendor's `options` object, as sent."""

    kind: Literal["html", "markdown"]
    source: str
    options: dict[str, Any] = field(default_factory=dict)
    limits: RenderLimits = field(default_factory=RenderLimits)


@dataclass(frozen=True)
class Rendered:
    """A PDF with the evidence of how it was made."""

    pdf: bytes
    pages: int
    engine: str
    seconds: float


class RenderRefused(Exception):
    """The document could not be rendered. `str()` is a sentence that may be shown; nothing is billed."""


class RendererUnavailable(Exception):
    """The renderer process cannot be started or died twice in a row; the document is not to blame."""


def send_message(channel: socket.socket, head: dict[str, Any], payload: bytes) -> None:
    encoded = json.dumps(head).encode()
    channel.sendall(_LENGTHS.pack(len(encoded), len(payload)) + encoded)
    channel.sendall(payload)


def receive_message(channel: socket.socket, *, max_payload: int) -> tuple[dict[str, Any], bytes]:
    """The next message. Raises EOFError when the other end is gone, ValueError when it sends too much."""
    head_length, payload_length = _LENGTHS.unpack(_exactly(channel, _LENGTHS.size))
    if head_length > MAX_HEAD_BYTES or payload_length > max_payload:
        raise ValueError(f"a message of {head_length} + {payload_length} bytes is over the limit")
    head: dict[str, Any] = json.loads(_exactly(channel, head_length))
    return head, _exactly(channel, payload_length)


def _exactly(channel: socket.socket, count: int) -> bytes:
    buffer = bytearray(count)
    view = memoryview(buffer)
    while view:
        received = channel.recv_into(view)
        if received == 0:
            raise EOFError("the other end closed the socket")
        view = view[received:]
    return bytes(buffer)
