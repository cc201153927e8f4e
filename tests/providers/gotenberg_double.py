"""A double of Gotenberg v8 as a small program of its own: `python -m tests.providers.gotenberg_double --port 0`.

It keeps the documented contract (multipart form in; the PDF in the answer, or 204 and then a call to the address that
the submission names, followed by an event) and misbehaves on demand. It imports nothing of `batches`. A fault is a JSON
object: `do`, `times` (1), `contains` (text of the document; any), and its own values:

    drop_before_acceptance, drop_after_acceptance, slow_after_acceptance (seconds), error_before_acceptance and
    error_after_acceptance (status, retry_after), html_502_before_acceptance, html_502_after_acceptance, rate_limited
    (retry_after, form), answer_after_acceptance (body, content_type), truncated_answer, wrong_trace
    callback_never, callback_late (seconds), callback_twice, callback_before_answer, callback_garbage, callback_cut
    render_fails (status, message)

Over HTTP: `POST /__double__/faults` (a list), `POST /__double__/hostile`, `GET /__double__/ledger`.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import hashlib
import html
import http.client
import json
import re
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

API_KEY = "renderer:u7Wq-invented"
ROUTE = "/forms/chromium/convert/html"
VERSION = "8.36.0"
TEXT = {"Content-Type": "text/plain; charset=UTF-8"}
#: What each document meets at its first submission, by the hash of its page, in each of the two modes.
HOSTILE_ASYNC: tuple[dict[str, Any], ...] = (
    {"do": "drop_after_acceptance"},
    {"do": "callback_twice"},
    {"do": "callback_before_answer"},
    {"do": "render_fails", "status": 503, "message": "The server does not respond in time."},
    {"do": "rate_limited"},
    {"do": "callback_cut"},
    {"do": "drop_before_acceptance"},
    {"do": "html_502_before_acceptance"},
)
HOSTILE_SYNC: tuple[dict[str, Any], ...] = (
    {"do": "drop_after_acceptance"},
    {"do": "rate_limited"},
    {"do": "error_before_acceptance", "status": 503},
    {"do": "truncated_answer"},
    {"do": "drop_before_acceptance"},
)


def pdf_of(page: str) -> bytes:
    """A small whole PDF that shows the text of an HTML page."""
    without_title = re.sub(r"(?is)<(title|style|script)\b.*?</\1>", " ", page)
    words = " ".join(html.unescape(re.sub(r"<[^>]*>", " ", without_title)).split())
    shown = words.encode("latin-1", "replace").replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")
    content = b"BT /F1 12 Tf 40 780 Td (" + shown + b") Tj ET"
    fonts = b"<< /Font << /F1 3 0 R >> >>"
    objects = (
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [4 0 R] /Count 1 >>",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 5 0 R /Resources %s >>" % fonts,
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
    )
    out, offsets = b"%PDF-1.7\n", []
    for number, each in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    end = b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, len(out))
    return out + b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1) + table + end


class _RefusedError(Exception):
    """An answer in plain text."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status, self.words = status, words


@dataclass
class Form:
    """A multipart body, read: fields by name, files by file name."""

    fields: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)

    @property
    def page(self) -> str:
        return self.files.get("index.html", b"").decode("utf-8-sig", "replace")


def read_form(content_type: str, body: bytes) -> Form:
    found = re.fullmatch(r'multipart/form-data;\s*boundary="?([^";]+)"?', content_type.strip())
    if found is None:
        raise _RefusedError(415, "Invalid 'Content-Type' header value: want 'multipart/form-data'")
    mark = b"--" + found[1].encode()
    pieces = (b"\r\n" + body).split(b"\r\n" + mark)
    if len(pieces) < 3 or pieces[0] or pieces[-1].strip() != b"--":
        raise _RefusedError(400, "Malformed multipart body")
    form = Form()
    for piece in pieces[1:-1]:
        head, _, content = piece.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        names = dict(re.findall(r'(name|filename)="([^"]*)"', head.decode("utf-8")))
        if "filename" in names:
            form.files[names["filename"]] = content
        else:
            form.fields[names["name"]] = content.decode("utf-8")
    return form


@dataclass
class Seen:
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class GotenbergDouble:
    """Use as a context manager; `url` is its base URL.

    `retry_seconds` lies between two tries of a callback, of which there are 4 more after the first; `render_seconds`
    is how long a render takes. `version` is what it calls itself. Without `webhooks` it answers with the PDF, whatever
    the headers say. Without an `api_key` it asks for none.
    """

    def __init__(
        self,
        *,
        api_key: str = API_KEY,
        retry_seconds: float = 0.05,
        render_seconds: float = 0.0,
        version: str = VERSION,
        webhooks: bool = True,
        healthy: bool = True,
        port: int = 0,
    ) -> None:
        self.api_key = api_key
        self.retry_seconds, self.render_seconds = retry_seconds, render_seconds
        self.version, self.webhooks, self.healthy = version, webhooks, healthy
        self.requests: list[Seen] = []
        self.callbacks: list[tuple[str, str, int]] = []  # method, kind, our answer
        self.renders: Counter[str] = Counter()  # by trace
        self.pages: Counter[str] = Counter()  # accepted submissions by the page's hash
        self.stopped = threading.Event()
        self._under_way = 0
        self._idle = threading.Condition()
        self._faults: list[dict[str, Any]] = []
        self._is_hostile = False
        self._met: set[str] = set()
        self._lock = threading.Lock()
        double = self

        class Handler(_Handler):
            owner = double

        self._server = _Server(("127.0.0.1", port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> GotenbergDouble:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stopped.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def misbehave(self, *faults: dict[str, Any]) -> None:
        with self._lock:
            self._faults += [dict(fault) for fault in faults]

    def be_hostile(self) -> None:
        self._is_hostile = True

    def ledger(self) -> dict[str, Any]:
        with self._lock:
            return {"accepted": sum(self.renders.values()), "billed": dict(self.renders), "callbacks": self.callbacks}

    # --- the contract ----------------------------------------------------------------------------------------------

    def fault_for(self, page: str, *, is_async: bool) -> dict[str, Any]:
        """What this submission meets, once: the first fault that fits, else what hostility has for its page."""
        digest = hashlib.sha256(page.encode()).hexdigest()
        with self._lock:
            for fault in self._faults:
                if fault.get("contains", "") in page:
                    fault["times"] = fault.get("times", 1) - 1
                    if fault["times"] <= 0:
                        self._faults.remove(fault)
                    return fault
            if self._is_hostile and digest not in self._met:
                self._met.add(digest)
                faults = HOSTILE_ASYNC if is_async else HOSTILE_SYNC
                return faults[int(digest[:8], 16) % len(faults)]
        return {"do": ""}

    def accept(self, trace: str, page: str) -> None:
        with self._lock:
            self.renders[trace] += 1
            self.pages[hashlib.sha256(page.encode()).hexdigest()] += 1

    def rendered(self, form: Form, fault: dict[str, Any]) -> bytes:
        """The PDF. What it checks here is checked after a 204."""
        if fault["do"] == "render_fails":
            raise _RefusedError(fault["status"], fault.get("message", "Internal Server Error"))
        if "index.html" not in form.files:
            raise _RefusedError(400, "Invalid form data: form file 'index.html' is required")
        for name in ("paperWidth", "paperHeight", "scale"):
            if not re.fullmatch(r"[0-9.]+(in|cm|mm|pt|px|pc)?", form.fields.get(name, "1")):
                raise _RefusedError(400, f"Invalid form data: form field '{name}' is invalid")
        self.stopped.wait(self.render_seconds)
        return pdf_of(form.page)

    def begin_callback(self, *given: Any) -> None:
        """`call_back`, on a thread of its own."""
        with self._idle:
            self._under_way += 1
        threading.Thread(target=self._in_background, args=given, daemon=True).start()

    def _in_background(self, *given: Any) -> None:
        try:
            self.call_back(*given)
        finally:
            with self._idle:
                self._under_way -= 1
                self._idle.notify_all()

    def wait_idle(self, seconds: float = 30) -> bool:
        """Until no callback is under way; for tests whose clock would run on meanwhile."""
        with self._idle:
            return self._idle.wait_for(lambda: not self._under_way, seconds)

    def call_back(self, headers: dict[str, str], trace: str, form: Form, fault: dict[str, Any]) -> None:
        """Render, upload with retries, then say which it was."""
        if fault["do"] == "callback_never":
            return
        if fault["do"] == "callback_late":
            self.stopped.wait(fault["seconds"])
        extra = json.loads(headers.get("gotenberg-webhook-extra-http-headers", "{}"))
        common = {**extra, "Gotenberg-Trace": trace, "User-Agent": "Gotenberg"}
        error = None
        try:
            content = self.rendered(form, fault)
            if fault["do"] == "callback_garbage":
                content = b"<html>Something else</html>"
            upload = {
                **common,
                "Content-Type": "application/pdf" if content.startswith(b"%PDF-") else "text/html",
                "Content-Disposition": f'attachment; filename="{trace}.pdf"',
            }
            method = headers.get("gotenberg-webhook-method", "POST")
            cut = fault["do"] == "callback_cut"
            for _copy in range(2 if fault["do"] == "callback_twice" else 1):
                if not self._delivered(method, headers["gotenberg-webhook-url"], upload, content, "file", cut=cut):
                    error = {"status": 500, "message": "Internal Server Error"}  # and the PDF is gone
        except _RefusedError as refused:
            error = {"status": refused.status, "message": refused.words}
        json_headers = {**common, "Content-Type": "application/json; charset=utf-8"}
        if error and (older := headers.get("gotenberg-webhook-error-url")):
            self._delivered("POST", older, json_headers, json.dumps(error).encode(), "error")
        if newer := headers.get("gotenberg-webhook-events-url"):
            event: dict[str, Any] = {"event": "webhook.error" if error else "webhook.success", "correlationId": trace}
            event |= {"timestamp": "2026-03-02T09:00:00Z"} | ({"error": error} if error else {})
            self._delivered("POST", newer, json_headers, json.dumps(event).encode(), event["event"])

    def _delivered(
        self, method: str, url: str, headers: dict[str, str], body: bytes, kind: str, *, cut: bool = False
    ) -> bool:
        """Whether it was taken in the end: connection errors, 429 and 5xx but 501 are tried again, other 4xx not."""
        for number in range(5):
            status = 0
            part = body[: len(body) // 2] if cut and not number else body
            with contextlib.suppress(OSError, http.client.HTTPException):
                status = _sent(method, url, headers, part, len(body))
            with self._lock:
                self.callbacks.append((method, kind, status))
            if 200 <= status < 300:
                return True
            may_pass = not status or status == 429 or (status >= 500 and status != 501) or (cut and not number)
            if not may_pass or self.stopped.wait(self.retry_seconds):
                return False
        return False


def _sent(method: str, url: str, headers: dict[str, str], body: bytes, declared: int) -> int:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)
    try:
        connection.putrequest(method, parts.path)
        for name, value in {**headers, "Content-Length": str(declared)}.items():
            connection.putheader(name, value)
        connection.endheaders()
        connection.send(body)
        if len(body) < declared and connection.sock:
            connection.sock.shutdown(socket.SHUT_WR)
        return connection.getresponse().status
    finally:
        connection.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is what several tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: GotenbergDouble
    wbufsize = -1

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path.startswith("/__double__/"):
            self._control(self.path.rpartition("/")[2], body)
            return
        self.owner.requests.append(Seen(self.command, self.path, dict(self.headers), body))
        try:
            self._behave(body)
        except _RefusedError as refused:
            self.reply(refused.status, refused.words.encode(), {**TEXT, **self._trace()})

    def _control(self, name: str, body: bytes) -> None:
        if name == "faults":
            self.owner.misbehave(*json.loads(body))
        elif name == "hostile":
            self.owner.be_hostile()
        self.reply(200, json.dumps(self.owner.ledger()).encode(), {"Content-Type": "application/json"})

    def _trace(self) -> dict[str, str]:
        return {"Gotenberg-Trace": self.headers.get("Gotenberg-Trace", "5d1f-made-here")}

    def _behave(self, body: bytes) -> None:
        double = self.owner
        if (self.command, self.path) == ("GET", "/health"):
            word = "up" if double.healthy else "down"
            module = {"status": word, "timestamp": "2026-03-02T09:00:00.000000000Z"}
            told = {"status": word, "details": {"chromium": module, "libreoffice": module}}
            self.reply(200 if double.healthy else 503, json.dumps(told).encode(), {"Content-Type": "application/json"})
            return
        basic = "Basic " + base64.b64encode(double.api_key.encode()).decode()
        if double.api_key and self.headers.get("Authorization") != basic:
            raise _RefusedError(401, "Unauthorized")
        if (self.command, self.path) == ("GET", "/version"):
            self.reply(200, double.version.encode(), TEXT)
        elif (self.command, self.path) == ("POST", ROUTE):
            self._convert(body)
        else:
            raise _RefusedError(404, "Not Found")

    def _convert(self, body: bytes) -> None:
        double = self.owner
        form = read_form(self.headers.get("Content-Type", ""), body)
        headers = {name.lower(): value for name, value in self.headers.items()}
        is_async = double.webhooks and "gotenberg-webhook-url" in headers
        if is_async and not {"gotenberg-webhook-events-url", "gotenberg-webhook-error-url"} & {*headers}:
            raise _RefusedError(400, "Invalid 'Gotenberg-Webhook-Error-Url' header: it is required")
        trace = self._trace()["Gotenberg-Trace"]
        fault = double.fault_for(form.page, is_async=is_async)
        if self._is_refused(fault):
            return
        content = b""
        if not is_async:
            content = double.rendered(form, fault)  # a refusal here has no effect that anybody could see
        double.accept(trace, form.page)
        if is_async:
            given = (headers, trace, form, fault)
            if fault["do"] == "callback_before_answer":
                double.call_back(*given)
            else:
                double.begin_callback(*given)
        self._answer(fault, content, is_async=is_async)

    def _is_refused(self, fault: dict[str, Any]) -> bool:
        """Whether a fault ends it before anything was accepted."""
        match fault["do"]:
            case "drop_before_acceptance":
                self.hang_up()
            case "error_before_acceptance":
                self.reply(fault.get("status", 500), b"Internal Server Error", {**TEXT, **_retry_after(fault)})
            case "html_502_before_acceptance":
                self.reply(502, b"<html>502 Bad Gateway</html>", {"Content-Type": "text/html"})
            case "rate_limited":
                self.reply(429, b"Too Many Requests", {**TEXT, **_retry_after(fault)})
            case _:
                return False
        return True

    def _answer(self, fault: dict[str, Any], content: bytes, *, is_async: bool) -> None:
        """The answer to what was accepted, or what a fault makes of it."""
        match fault["do"]:
            case "drop_after_acceptance":
                self.hang_up(reset=fault.get("reset", False))
            case "slow_after_acceptance":
                self.owner.stopped.wait(fault["seconds"])
                self.hang_up()
            case "error_after_acceptance":
                self.reply(fault.get("status", 500), b"Internal Server Error", {**TEXT, **_retry_after(fault)})
            case "html_502_after_acceptance":
                self.reply(502, b"<html>502 Bad Gateway</html>", {"Content-Type": "text/html"})
            case "answer_after_acceptance":
                self.reply(fault.get("status", 200), fault["body"].encode(), {"Content-Type": fault["content_type"]})
            case "truncated_answer":
                named = {"Content-Type": "application/pdf", "Content-Length": str(len(content))}
                self.reply(200, content[: len(content) // 2], named)
            case "wrong_trace":
                self.reply(204 if is_async else 200, content, {"Gotenberg-Trace": "somebody-elses"})
            case _ if is_async:
                self.reply(204, b"", self._trace())
            case _:
                named = {"Content-Type": "application/pdf", "Content-Disposition": 'attachment; filename="a.pdf"'}
                self.reply(200, content, {**named, **self._trace()})

    def reply(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        if "Content-Length" not in headers and status != 204:
            self.send_header("Content-Length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if status != 204:
            self.wfile.write(content)
        self.wfile.flush()
        if "Content-Length" in headers:
            self.hang_up()

    def hang_up(self, *, reset: bool = False) -> None:
        """Close the connection: in order, or with a reset as a crashed host's."""
        self.close_connection = True
        if reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
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


def _retry_after(fault: dict[str, Any]) -> dict[str, str]:
    """Gotenberg never sends it; a proxy before it may."""
    form = fault.get("form", "seconds" if "retry_after" in fault else "missing")
    if form == "missing":
        return {}
    seconds = fault["retry_after"]
    return {"Retry-After": str(seconds) if form == "seconds" else formatdate(time.time() + seconds, usegmt=True)}


# --- as a program of its own ---------------------------------------------------------------------------------------


class Double:
    """The program, started: what a test through the whole stack needs of it."""

    def __init__(self, process: subprocess.Popen[str], url: str, mode: str) -> None:
        self._process = process
        self.url = url
        self._mode = mode

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(10)

    def account_fields(self) -> dict[str, Any]:
        """The columns of the account to reach it. Async mode also needs the site's `PUBLIC_URL`."""
        return {
            "kind": "gotenberg",
            "base_url": self.url,
            "api_key": API_KEY,
            "webhook_secret": "invented-for-callbacks" if self._mode == "async" else "",
            "options": {"mode": self._mode, "network": "files", "api_timeout": "10"},
        }

    def ledger(self) -> dict[str, Any]:
        """What it accepted. Nothing is billed: the counts by key are renders, and repeats are harmless."""
        found: dict[str, Any] = self._asked("ledger")
        return found

    def hostile(self) -> None:
        """From now on each document meets a fault at its first submission; each can be recovered from."""
        self._asked("hostile", [])

    def misbehave(self, *faults: dict[str, Any]) -> None:
        self._asked("faults", list(faults))

    def _asked(self, name: str, told: list[Any] | None = None) -> Any:
        data = None if told is None else json.dumps(told).encode()
        with urllib.request.urlopen(f"{self.url}/__double__/{name}", data, timeout=10) as answer:
            return json.load(answer)


def start(folder: Path, *, mode: str = "async", **switches: Any) -> Double:
    """The double in a process of its own. `switches` are those of `GotenbergDouble`, without `api_key`."""
    given = [f"--{name.replace('_', '-')}={value}" for name, value in switches.items()]
    command = [sys.executable, "-m", "tests.providers.gotenberg_double", "--port", "0", *given]
    root = Path(__file__).resolve().parents[2]
    with (folder / "gotenberg-double.log").open("w") as log:
        process = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    return Double(process, process.stdout.readline().strip(), mode)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--retry-seconds", type=float, default=0.2)
    parser.add_argument("--render-seconds", type=float, default=0.0)
    parser.add_argument("--version", default=VERSION)
    given = parser.parse_args()
    with GotenbergDouble(**vars(given)) as double:
        sys.stdout.write(f"{double.url}\n")
        sys.stdout.flush()
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
