"""A small, faithful double of RelayPDF on a real socket, for what a well-behaved service cannot be made to do.

It keeps the documented contract (submit with an idempotency key, status, files without a key, delete, account) and
misbehaves on demand, down to the socket: resets, silence, half an answer, raw bytes. Each misbehaviour strikes once,
at the next request of its kind. Everything that arrives is recorded in `requests`.
"""

from __future__ import annotations

import hashlib
import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

API_KEY = "pdf_live_Q7rT2mVx81LkZp"
PDF = b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog >>\nendobj\ntrailer\n<< /Root 1 0 R >>\n%%EOF\n"


@dataclass
class Seen:
    """One request as it arrived."""

    point: str
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Fault:
    point: str
    act: Callable[[_Handler, Callable[[], None]], None]


@dataclass
class Job:
    id: str
    body: bytes
    status: str = "completed"
    file: bytes | None = PDF
    #: Fields that replace or join those of the documented answer.
    fields: dict[str, Any] = field(default_factory=dict)


class RelayPDFDouble:
    """Use as a context manager; `url` is its base URL."""

    def __init__(self, *, api_key: str = API_KEY) -> None:
        self.api_key = api_key
        self.jobs: dict[str, Job] = {}
        self.keys: dict[str, str] = {}
        #: Webhook addresses by id, in the order of their registration, each with its secret.
        self.endpoints: dict[str, tuple[str, str]] = {}
        self.requests: list[Seen] = []
        self.connections = 0
        self.accepted = threading.Event()
        self.credit = True
        self.suspended = False
        #: Status words of the next jobs, when they are asked for before they end.
        self.next_status = "completed"
        self.finished = threading.Event()
        self._endpoint_count = 0
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        double = self

        class Handler(_Handler):
            owner = double

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.owner = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> RelayPDFDouble:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.finished.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def seen(self, point: str) -> list[Seen]:
        return [request for request in self.requests if request.point == point]

    # --- misbehaviour ----------------------------------------------------------------------------------------------

    def fault(self, point: str, act: Callable[[_Handler, Callable[[], None]], None]) -> None:
        """The next request of `point` (submit, poll, download, delete, account, billing) is `act(handler, behave)`'s.

        `behave()` does what would have been done, without sending its answer.
        """
        with self._lock:
            self._faults.append(Fault(point, act))

    def answer(self, point: str, status: int, body: Any = None, headers: dict[str, str] | None = None) -> None:
        """The next request of `point` is answered so, and has no effect."""
        self.fault(point, lambda handler, behave: handler.reply(status, body, headers or {}))

    def raw(self, point: str, payload: bytes) -> None:
        """The next request of `point` is answered with exactly these bytes, and the connection is closed."""

        def act(handler: _Handler, behave: Callable[[], None]) -> None:
            handler.connection.sendall(payload)
            handler.hang_up()

        self.fault(point, act)

    def drop(self, point: str, *, effect: bool = False, reset: bool = False) -> None:
        """The next request of `point` gets no answer; with `effect` it is carried out before."""

        def act(handler: _Handler, behave: Callable[[], None]) -> None:
            if effect:
                behave()
            handler.hang_up(reset=reset)

        self.fault(point, act)

    def stall(self, point: str, *, effect: bool = False, sent: bytes = b"", drip: bytes = b"") -> None:
        """The next request of `point` is held without an answer until the double ends.

        `sent` goes out first; `drip` is sent again and again, 20 times a second.
        """

        def act(handler: _Handler, behave: Callable[[], None]) -> None:
            if effect:
                behave()
            handler.connection.sendall(sent)
            try:
                while not self.finished.wait(0.05):
                    handler.connection.sendall(drip)
            except OSError:
                pass
            handler.hang_up()

        self.fault(point, act)

    def fault_for(self, point: str) -> Fault | None:
        with self._lock:
            for fault in self._faults:
                if fault.point == point:
                    self._faults.remove(fault)
                    return fault
        return None

    def misbehave(self, action: str, **parameters: Any) -> None:
        """The sandbox's fault rules by name, as far as the conformance suite uses them."""
        text, number = parameters.get("code", ""), int(parameters.get("status", 0))
        retry = _retry_after(parameters)
        if action.startswith("drop_"):
            self.drop("submit", effect=action == "drop_after_acceptance")
        elif action.startswith(("error_", "html_502_")) and action.endswith("_acceptance"):
            page = (
                b"<html>502 Bad Gateway</html>" if action.startswith("html") else _error(text or "internal_error", "")
            )

            def act(handler: _Handler, behave: Callable[[], None]) -> None:
                if "_after_" in action:
                    behave()
                handler.reply(number or 502, page, retry)

            self.fault("submit", act)
        elif action == "rate_limited":
            self.answer("submit", 429, _error("rate_limited", "Slow down."), retry)
        elif action == "poll_error":
            self.answer("poll", number, _error(text or "rate_limited", "Slow down."), retry)
        elif action == "slow_after_acceptance":
            self.stall("submit", effect=True)
        elif action == "answer_after_acceptance":

            def reword(handler: _Handler, behave: Callable[[], None]) -> None:
                behave()
                handler.reply(202, parameters["body"].encode(), {"Content-Type": parameters["content_type"]})

            self.fault("submit", reword)
        elif action == "poll_drop":
            self.drop("poll")
        elif action == "poll_answer":
            self.answer("poll", 200, parameters["body"])
        elif action == "expired_file":
            forms = {
                "404": _error("not_found", "No file."),
                "410": _error("not_found", "Gone."),
                "403_xml": b"<Error/>",
            }
            self.answer("download", int(parameters["answer"][:3]), forms[parameters["answer"]])
        elif action == "truncated_file":
            half = PDF[: len(PDF) // 2]
            promised = len(half) if parameters.get("content_length") == "wrong" else len(PDF)
            names = {"Content-Type": "application/pdf", "X-Relaypdf-Size": str(len(PDF))}
            self.answer("download", 200, half, names | {"Content-Length": str(promised)})
        elif action == "error_page":
            self.answer("download", 200, b"<html>Something went wrong</html>", {"Content-Type": "text/html"})
        else:
            raise AssertionError(f"the double does not know {action}")

    # --- the contract ------------------------------------------------------------------------------------------------

    def submit(self, key: str, body: bytes) -> tuple[int, Any]:
        if self.suspended:
            return 403, _error("account_suspended", "This account is suspended.")
        if not self.credit:
            return 402, _error("payment_required", "Add funds.")
        try:
            content = json.loads(body)
        except ValueError:
            return 400, _error("invalid_request", "The body is no JSON.")
        sources = {"html", "markdown", "url", "templateId"} & set(content)
        if len(sources) != 1 or content.get("response") != "async":
            return 400, _error("invalid_request", "Give exactly one source.")
        if str(content.get("url", "")).startswith("http://127."):
            return 400, _error("url_not_allowed", "That host is not public.")
        with self._lock:
            job_id = self.keys.get(key, "")
            if job_id and self.jobs[job_id].body != body:
                return 409, _error("idempotency_conflict", "This key came with another body.")
            if not job_id:
                job_id = f"pdf_{hashlib.sha256(key.encode()).hexdigest()[:20]}"
                self.keys[key] = job_id
                self.jobs[job_id] = Job(job_id, body, status=self.next_status)
        return 202, {"id": job_id, "status": "processing", "pollUrl": f"{self.url}/v1/jobs/{job_id}"}

    def webhooks(self, method: str, name: str, body: bytes) -> tuple[int, Any]:
        if method == "POST":
            with self._lock:
                self._endpoint_count += 1
                number = self._endpoint_count
                endpoint_id, secret = f"wh_{number}", f"whsec_invented{number}"
                self.endpoints[endpoint_id] = (json.loads(body)["url"], secret)
            url = self.endpoints[endpoint_id][0]
            return 201, {"id": endpoint_id, "url": url, "secret": secret, "secretPrefix": secret[:8]}
        if method == "GET":
            return 200, {"endpoints": [{"id": each, "url": url} for each, (url, _) in self.endpoints.items()]}
        if self.endpoints.pop(name, None) is None:
            return 404, _error("not_found", "There is no such endpoint.")
        return 200, {"ok": True}

    def job_answer(self, job_id: str) -> tuple[int, Any]:
        job = self.jobs.get(job_id)
        if job is None:
            return 404, _error("not_found", "There is no such job.")
        answer: dict[str, Any] = {"id": job.id, "status": job.status}
        if job.status == "completed":
            answer |= {
                "url": f"{self.url}/v1/files/{job.id}",
                "filename": "document.pdf",
                "sizeBytes": len(job.file or b""),
                "expiresAt": "2026-03-03T09:00:00.000Z",
            }
        if job.status == "failed":
            answer["error"] = {"code": "render_failed", "message": "The document could not be rendered."}
        return 200, answer | job.fields


def _error(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


def _retry_after(parameters: dict[str, Any]) -> dict[str, str]:
    form = parameters.get("form", "seconds" if "retry_after" in parameters else "missing")
    if form == "missing":
        return {}
    seconds = parameters["retry_after"]
    value = str(seconds) if form == "seconds" else formatdate(time.time() + seconds, usegmt=True)
    return {"Retry-After": value}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    owner: RelayPDFDouble

    def get_request(self) -> Any:
        connection = super().get_request()
        self.owner.connections += 1
        self.owner.accepted.set()
        return connection

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is what several tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: RelayPDFDouble
    # One segment per answer: otherwise the client's delayed acknowledgement holds the body back for 40 ms.
    wbufsize = -1

    def do_POST(self) -> None:
        self._serve("webhooks" if self.path.startswith("/v1/webhooks") else "submit")

    def do_DELETE(self) -> None:
        self._serve("webhooks" if self.path.startswith("/v1/webhooks") else "delete")

    def do_GET(self) -> None:
        points = {
            "/v1/jobs/": "poll",
            "/v1/files/": "download",
            "/v1/account": "account",
            "/v1/billing/usage": "billing",
            "/v1/webhooks": "webhooks",
        }
        self._serve(next((point for start, point in points.items() if self.path.startswith(start)), "other"))

    def _serve(self, point: str) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.owner.requests.append(Seen(point, self.command, self.path, dict(self.headers), body))
        fault = self.owner.fault_for(point)
        if fault is not None:
            fault.act(self, lambda: self._behave(point, body) and None)
            return
        status, content, headers = self._behave(point, body)
        self.reply(status, content, headers)

    def _behave(self, point: str, body: bytes) -> tuple[int, Any, dict[str, str]]:
        double = self.owner
        known = self.headers.get("Authorization") == f"Bearer {double.api_key}"
        if point != "download" and not known:
            return 401, _error("unauthorized", "The API key is not recognised."), {}
        name = unquote(self.path.rpartition("/")[2])
        if point == "submit":
            return *double.submit(self.headers.get("Idempotency-Key", ""), body), {}
        if point == "poll":
            return *double.job_answer(name), {}
        if point == "account":
            return 200, {"plan": "free", "rateTier": "free", "wallet": {"balanceMillicents": 500000}}, {}
        if point == "billing":
            billed = [{"id": f"rcpt_{number}", "jobId": job_id} for number, job_id in enumerate(double.jobs)]
            return 200, {"receipts": billed}, {}
        if point == "webhooks":
            return *double.webhooks(self.command, name, body), {}
        job = double.jobs.get(name)
        if job is None or job.file is None:
            return 404, _error("not_found", "There is no such file."), {}
        if point == "delete":
            job.file = None
            return 200, {"ok": True}, {}
        return 200, job.file, {"Content-Type": "application/pdf", "X-Relaypdf-Size": str(len(job.file))}

    def reply(self, status: int, content: Any, headers: dict[str, str]) -> None:
        """Send `content`: bytes as they are, None as nothing, all else as JSON."""
        payload = b"" if content is None else content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        lower = {name.lower() for name in headers}
        if "content-type" not in lower and not isinstance(content, bytes):
            self.send_header("Content-Type", "application/json")
        if "content-length" not in lower:
            self.send_header("Content-Length", str(len(payload)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(payload)
        self.wfile.flush()
        if "content-length" in lower:
            self.hang_up()

    def hang_up(self, *, reset: bool = False) -> None:
        """Close the connection: in order, or with a reset as a crashed host's."""
        self.close_connection = True
        if reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            # The two file objects hold the socket open; only the last close sends the reset.
            self.rfile.close()
            self.wfile.close()
            self.connection.close()
        else:
            self.connection.shutdown(socket.SHUT_RDWR)

    def finish(self) -> None:
        try:
            super().finish()
        except (OSError, ValueError):
            return

    def log_message(self, format: str, *args: Any) -> None:
        return
