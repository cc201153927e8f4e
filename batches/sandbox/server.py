"""The listening socket and one thread per connection. Reads requests, asks `handle`, writes answers."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable

from batches.sandbox.answers import Answer, ApiError
from batches.sandbox.wire import Connection, Disconnected, Request

logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 512


class Server:
    """Accepts on `host:port` until `stop`. `handle` turns a request into an answer and raises nothing."""

    def __init__(
        self,
        host: str,
        port: int,
        handle: Callable[[Request], Answer],
        *,
        max_body_bytes: Callable[[], int],
    ) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=512)
        self._handle = handle
        self._max_body_bytes = max_body_bytes
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._lock = threading.Lock()
        self._all_closed = threading.Condition(self._lock)
        self._open: set[socket.socket] = set()
        self._stopping = threading.Event()
        address = self._listener.getsockname()
        self.port: int = address[1]
        shown = f"[{address[0]}]" if family == socket.AF_INET6 else address[0]
        self.address = f"{shown}:{self.port}"
        self.url = f"http://{self.address}"

    def serve(self) -> None:
        """Accept connections until `stop` is called from another thread or a signal handler."""
        while not self._stopping.is_set():
            # Beyond the cap, clients wait in the listen queue instead of being turned away.
            if not self._slots.acquire(timeout=0.5):
                continue
            try:
                sock, peer = self._listener.accept()
            except OSError:
                self._slots.release()
                if not self._stopping.is_set():
                    logger.exception("The listening socket failed")
                return
            threading.Thread(target=self._serve_connection, args=(sock, str(peer[0])), daemon=True).start()

    def stop(self) -> None:
        """Accept nothing more and end `serve`. Safe to call from a signal handler."""
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def finish_connections(self, seconds: float) -> None:
        """Let requests that are being answered get their answer, for at most `seconds`; cut the others."""
        with self._lock:
            for sock in self._open:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RD)
            self._all_closed.wait_for(lambda: not self._open, seconds)

    def _serve_connection(self, sock: socket.socket, peer: str) -> None:
        with self._lock:
            self._open.add(sock)
        try:
            with sock:
                self._serve_requests(Connection(sock, peer, self.address))
        except Disconnected:
            pass
        except OSError:
            logger.debug("A connection broke", exc_info=True)
        finally:
            with self._lock:
                self._open.discard(sock)
                self._all_closed.notify_all()
            self._slots.release()

    def _serve_requests(self, connection: Connection) -> None:
        alive = True
        while alive and not self._stopping.is_set():
            try:
                request = connection.next_request(self._max_body_bytes())
            except ApiError as error:
                connection.send(error.answer(), keep_open=False)
                connection.drain()
                return
            answer = self._handle(request)
            if answer.drop:
                connection.cut()
                return
            keep_open = request.headers.get("connection", "").lower() != "close"
            alive = connection.send(answer, keep_open=keep_open, head_only=request.method == "HEAD")
