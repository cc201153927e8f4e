"""A webhook receiver on this machine that keeps every delivery it gets."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Received:
    """One delivery: header names in lower case, the body as it came, and when (seconds since the epoch)."""

    path: str
    headers: dict[str, str]
    body: bytes
    at: float


class Receiver:
    """Answers every POST with the next of `answers` (status codes), or 204 when they are used up."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.answers: list[int] = []
        self._arrived = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                with receiver._arrived:
                    receiver.received.append(Received(self.path, headers, body, time.time()))
                    status = receiver.answers.pop(0) if receiver.answers else 204
                    receiver._arrived.notify_all()
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def wait_for(self, count: int, timeout: float = 20.0) -> list[Received]:
        """All deliveries so far, once there are `count` of them."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.received) >= count, timeout), (
                f"{len(self.received)} deliveries came, not {count}"
            )
            return list(self.received)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
