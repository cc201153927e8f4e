"""A trivial peer with RelayPDF's routes that renders nothing: `python -m benchmarks.peer`.

A raw asyncio protocol on one socket, so that the peer's own CPU (about 0.1 ms a document) stays out of the picture. A
job is finished as soon as its delay has passed; every document is the same 20 KB page. It speaks the part of the
contract that `batches/providers/relaypdf.py` uses, and writes down when each submission arrived, on the clock that all
processes of a Linux machine share (CLOCK_MONOTONIC).

Control, as JSON: `POST /_peer/configure` with `delay` (seconds, or [least, most] spread evenly by job number) and
`webhook` ({"url", "secret"} or null), forgets everything first; `GET /_peer/stats` counts; `GET /_peer/jobs` times.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import hmac
import json
import os
import random
import signal
import sys
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from benchmarks.sample_pdf import one_page_pdf

API_KEY = "pdf_live_benchmark"
WEBHOOK_CONNECTIONS = 8


@dataclass
class Job:
    """Times are CLOCK_MONOTONIC seconds."""

    id: str
    arrived_at: float
    finished_at: float
    polls: int = 0
    downloads: int = 0
    fetched_at: float = 0.0


@dataclass
class State:
    """What the peer knows since it was last configured."""

    delay: tuple[float, float] = (0.0, 0.0)
    #: Part of every job's id, so that an account never meets an id of an earlier run again.
    run: int = 0
    webhook: dict[str, str] | None = None
    jobs: dict[str, Job] = field(default_factory=dict)
    by_key: dict[str, str] = field(default_factory=dict)
    arrivals: list[float] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    webhooks_sent: int = 0
    webhooks_failed: int = 0

    def __post_init__(self) -> None:
        kinds = ("submit", "poll", "download", "account", "other", "double_key", "unfinished_polls")
        self.counts = dict.fromkeys(kinds, 0)
        self._spread = random.Random(7)  # the same durations in every run

    def duration(self) -> float:
        least, most = self.delay
        return least if least == most else self._spread.uniform(least, most)


class Peer:
    """The state and the answers; `Connection` reads the wire."""

    def __init__(self) -> None:
        self.state = State()
        self.url = ""
        self._pdf = one_page_pdf()
        self._download = _answer(b"200 OK", b"application/pdf", self._pdf)
        self._outbox: asyncio.Queue[str] = asyncio.Queue()
        self._senders: list[asyncio.Task[None]] = []

    def answer(self, method: bytes, target: str, headers: bytes, body: bytes, now: float) -> bytes:
        if method == b"POST" and target == "/v1/pdf":
            return self._submit(headers, now)
        if target.startswith("/v1/jobs/"):
            return self._status(target[9:], now)
        if target.startswith("/v1/files/"):
            return self._file(target[10:], now)
        if target == "/v1/account":
            self.state.counts["account"] += 1
            return _json({"plan": "benchmark", "rateTier": "none"})
        if target == "/_peer/configure":
            return self._configure(json.loads(body))
        if target == "/_peer/stats":
            return _json(self._stats(now))
        if target == "/_peer/jobs":
            jobs = self.state.jobs.values()
            return _json({job.id: [job.arrived_at, job.finished_at, job.fetched_at, job.polls] for job in jobs})
        self.state.counts["other"] += 1
        return _json({"error": {"code": "not_found", "message": "no such route"}}, b"404 Not Found")

    # --- the contract ---

    def _submit(self, headers: bytes, now: float) -> bytes:
        state = self.state
        state.counts["submit"] += 1
        state.arrivals.append(now)
        key = _header(headers, b"idempotency-key")
        known = state.by_key.get(key) if key else None
        if known is not None:
            state.counts["double_key"] += 1
            return _accepted(known)
        number = len(state.jobs) + 1
        job = Job(f"job_{state.run}_{number:08d}", now, now + state.duration())
        state.jobs[job.id] = job
        if key:
            state.by_key[key] = job.id
        if state.webhook is not None:
            asyncio.get_running_loop().call_later(job.finished_at - now, self._outbox.put_nowait, job.id)
        return _accepted(job.id)

    def _status(self, job_id: str, now: float) -> bytes:
        self.state.counts["poll"] += 1
        job = self.state.jobs.get(job_id)
        if job is None:
            return _json({"error": {"code": "not_found", "message": "no such job"}}, b"404 Not Found")
        job.polls += 1
        if now < job.finished_at:
            self.state.counts["unfinished_polls"] += 1
            return _answer(b"200 OK", b"application/json", b'{"id":"%s","status":"processing"}' % job_id.encode())
        body = b'{"id":"%s","status":"completed","url":"%s/v1/files/%s","sizeBytes":%d}' % (
            job_id.encode(),
            self.url.encode(),
            job_id.encode(),
            len(self._pdf),
        )
        return _answer(b"200 OK", b"application/json", body)

    def _file(self, job_id: str, now: float) -> bytes:
        self.state.counts["download"] += 1
        job = self.state.jobs.get(job_id)
        if job is None:
            return _json({"error": {"code": "not_found", "message": "no such file"}}, b"404 Not Found")
        job.downloads += 1
        job.fetched_at = now
        return self._download

    # --- control ---

    def _configure(self, wanted: dict[str, Any]) -> bytes:
        delay = wanted.get("delay", 0)
        least, most = delay if isinstance(delay, list) else (delay, delay)
        self.state = State((float(least), float(most)), self.state.run + 1, wanted.get("webhook"))
        self._outbox = asyncio.Queue()
        for sender in self._senders:
            sender.cancel()
        count = WEBHOOK_CONNECTIONS if self.state.webhook else 0
        self._senders = [asyncio.create_task(self._send_webhooks()) for _ in range(count)]
        return _json({})

    def _stats(self, now: float) -> dict[str, Any]:
        state = self.state
        jobs = state.jobs.values()
        return {
            **state.counts,
            "jobs": len(state.jobs),
            "keys": len(state.by_key),
            "first_arrival": state.arrivals[0] if state.arrivals else None,
            "last_arrival": state.arrivals[-1] if state.arrivals else None,
            "arrivals": state.arrivals,
            "finished": sum(1 for job in jobs if job.finished_at <= now),
            "fetched": sum(1 for job in jobs if job.downloads),
            "webhooks_sent": state.webhooks_sent,
            "webhooks_failed": state.webhooks_failed,
            "cpu_seconds": time.process_time(),
        }

    # --- webhooks ---

    async def _send_webhooks(self) -> None:
        """One connection at a time per sender; an event is sent once and never repeated, so each loss is seen."""
        state = self.state
        outbox = self._outbox
        assert state.webhook is not None
        url = urlsplit(state.webhook["url"])
        while True:
            job_id = await outbox.get()
            body = json.dumps({"type": "job.completed", "data": {"jobId": job_id, "status": "completed"}}).encode()
            try:
                status = await _post(url.hostname or "", url.port or 80, url.path, body, state.webhook["secret"])
            except OSError:
                status = 0
            if 200 <= status < 300:
                state.webhooks_sent += 1
            else:
                state.webhooks_failed += 1


async def _post(host: str, port: int, path: str, body: bytes, secret: str) -> int:
    """POST a signed event over a connection of its own, as a sender of webhooks does; the answer's status."""
    stamp = str(int(time.time()))
    signature = hmac.new(secret.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(
            f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
            f"RelayPDF-Signature: t={stamp},v1={signature}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
            + body
        )
        line = await reader.readline()
        await reader.read()
        return int(line.split()[1]) if len(line.split()) > 1 else 0
    finally:
        writer.close()


class Connection(asyncio.Protocol):
    """HTTP/1.1 with keep-alive and Content-Length bodies: all that the clients here send."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        self._buffer += data
        while True:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self._buffer[:end]
            length = int(_header(head, b"content-length") or 0)
            if len(self._buffer) < end + 4 + length:
                return
            body = self._buffer[end + 4 : end + 4 + length]
            self._buffer = self._buffer[end + 4 + length :]
            method, target, _version = head.split(b"\r\n", 1)[0].split(b" ", 2)
            assert self._transport is not None
            self._transport.write(self._peer.answer(method, target.decode("ascii"), head, body, now))


def _header(head: bytes, name: bytes) -> str:
    lower = head.lower()
    at = lower.find(b"\r\n" + name + b":")
    if at < 0:
        return ""
    start = at + len(name) + 3
    end = head.find(b"\r\n", start)
    return (head[start:] if end < 0 else head[start:end]).strip().decode("latin-1")


def _accepted(job_id: str) -> bytes:
    return _answer(b"202 Accepted", b"application/json", b'{"id":"%s","status":"processing"}' % job_id.encode())


def _json(value: Any, status: bytes = b"200 OK") -> bytes:
    return _answer(status, b"application/json", json.dumps(value).encode())


def _answer(status: bytes, content_type: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s" % (status, content_type, len(body), body)


async def serve(port: int) -> None:
    loop = asyncio.get_running_loop()
    peer = Peer()
    server = await loop.create_server(lambda: Connection(peer), "127.0.0.1", port, backlog=1024)
    peer.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    sys.stdout.write(f"peer ready at {peer.url}\n")
    sys.stdout.flush()
    await stop.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--urgent", action="store_true", help="Go before other processes, where that is permitted.")
    options = parser.parse_args()
    if options.urgent:
        with contextlib.suppress(OSError):
            os.nice(-15)
    asyncio.run(serve(options.port))


if __name__ == "__main__":
    main()
