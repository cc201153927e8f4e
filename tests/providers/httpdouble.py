"""What doubles of vendors share: an HTTP server on loopback that keeps a ledger and misbehaves when it is told to.

It is a program of its own and imports nothing of `batches`. A test either starts it in a thread (`with Double() as it`)
or as a process (`start_process`), which is steered over `/__double__/…`. A fault is an object: `point` (the kind of
request that it strikes), `do` (below), `times` (default 1), and what it needs:

    drop             no answer; with `effect` true the request is carried out before
    answer           `status`, `body`, `headers` instead of the true answer; `effect` as above
    slow             the true answer after `seconds`
    truncate         half of the true body, whose length is declared whole, or with `honest` true as it is

In its hostile hour (`hostile()`) each document meets one fault of `HOSTILE` at each point, once, chosen by its name.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import re
import socket
import struct
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, Self

ROOT = Path(__file__).resolve().parents[2]
Fault = dict[str, Any]


@dataclass
class Seen:
    """One request as it arrived. `name` is the last part of its path."""

    point: str
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def name(self) -> str:
        return self.path.partition("?")[0].rpartition("/")[2]

    def json(self) -> dict[str, Any]:
        value = json.loads(self.body)
        assert isinstance(value, dict)
        return value


@dataclass
class Reply:
    """`body`: bytes as they are, all else as JSON."""

    status: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict)


class Double:
    """A vendor. Subclasses name its `points`, what it does at each (`behave`), and its account (`account_fields`)."""

    #: (method, start of the path, point), the first that fits.
    points: ClassVar[Sequence[tuple[str, str, str]]] = ()
    switches: ClassVar[Mapping[str, Any]] = {}
    #: Of each point, the faults of which a document meets one.
    HOSTILE: ClassVar[Mapping[str, Sequence[Fault | None]]] = {}

    def __init__(self, *, port: int = 0, **switches: Any) -> None:
        assert not set(switches) - set(self.switches), f"no such switch: {set(switches) - set(self.switches)}"
        self.set = {**self.switches, **switches}
        self.requests: list[Seen] = []
        self.faults: list[Fault] = []
        self.jobs: dict[str, Any] = {}
        self.billed: Counter[str] = Counter()
        self.is_hostile = False
        self._struck: set[tuple[str, str]] = set()
        self.lock = threading.RLock()
        self.finished = threading.Event()
        double = self

        class Handler(_Handler):
            owner = double

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients that go away are the point
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def stop(self) -> None:
        self.finished.set()
        self._server.shutdown()
        self._server.server_close()

    def seen(self, point: str) -> list[Seen]:
        return [request for request in self.requests if request.point == point]

    def point_of(self, method: str, path: str) -> str:
        return next((point for m, start, point in self.points if m == method and path.startswith(start)), "other")

    # --- the vendor --------------------------------------------------------------------------------------------------

    def behave(self, request: Seen) -> Reply:
        raise NotImplementedError

    def document_of(self, request: Seen) -> str:
        """What the request is about, as the hostile hour counts: the same for each repeat."""
        return request.name

    def account_fields(self) -> dict[str, Any]:
        """The columns of a `ProviderAccount` that reaches it."""
        raise NotImplementedError

    def ledger(self) -> dict[str, Any]:
        """How many jobs exist, and how often each key, or each document where it knows no keys, was billed."""
        return {"accepted": len(self.jobs), "billed": dict(self.billed)}

    # --- misbehaviour ------------------------------------------------------------------------------------------------

    def fault(self, point: str, do: str, **more: Any) -> None:
        with self.lock:
            self.faults.append({"point": point, "do": do, "times": 1, **more})

    def hostile(self) -> None:
        self.is_hostile = True

    def fault_for(self, request: Seen) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if fault["point"] == request.point and fault["times"] > 0:
                    fault["times"] -= 1
                    return fault
            choices = self.HOSTILE.get(request.point, ()) if self.is_hostile else ()
            name = self.document_of(request)
            if not choices or (request.point, name) in self._struck:
                return None
            self._struck.add((request.point, name))
            digest = hashlib.sha256(f"{request.point}:{name}".encode()).digest()
            return choices[digest[0] % len(choices)]

    def steer(self, request: Seen) -> Reply:
        """`/__double__/<what>`: the same from outside."""
        given = request.json() if request.body else {}
        match request.name:
            case "ledger":
                return Reply(200, self.ledger())
            case "fault":
                self.fault(**given)
            case "switches":
                self.set |= given
            case "hostile":
                self.hostile()
            case "account":
                return Reply(200, self.account_fields())
            case _:
                return Reply(404, {"unknown": request.name})
        return Reply(200, {"ok": True})


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: Double
    # One segment per answer: otherwise the client's delayed acknowledgement holds the body back for 40 ms.
    wbufsize = -1

    def do_GET(self) -> None:
        double = self.owner
        path = self.path
        point = double.point_of(self.command, path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = Seen(point, self.command, path, dict(self.headers), body)
        if path.startswith("/__double__/"):
            self.reply(double.steer(request))
            return
        double.requests.append(request)
        fault = double.fault_for(request)
        if fault is None:
            self.reply(double.behave(request))
        else:
            self.misbehave(fault, request)

    do_POST = do_DELETE = do_HEAD = do_PUT = do_GET

    def misbehave(self, fault: Fault, request: Seen) -> None:
        double, do = self.owner, fault["do"]
        true = double.behave(request) if fault.get("effect") or do in ("slow", "truncate") else None
        if do == "drop":
            self.hang_up(reset=bool(fault.get("reset")))
        elif do == "answer":
            body = fault.get("body", {})
            self.reply(
                Reply(fault["status"], body.encode() if isinstance(body, str) else body, fault.get("headers", {}))
            )
        elif do == "slow":
            assert true is not None
            double.finished.wait(fault["seconds"])
            self.reply(true)
        elif do == "truncate":
            assert true is not None
            half = true.body[: len(true.body) // 2]
            length = len(half) if fault.get("honest") else len(true.body)
            self.reply(Reply(200, half, true.headers | {"Content-Length": str(length)}))
        else:
            raise AssertionError(f"no double knows {do}")

    def reply(self, reply: Reply) -> None:
        payload = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        self.send_response(reply.status)
        given = {name.lower() for name in reply.headers}
        if "content-type" not in given and not isinstance(reply.body, bytes):
            self.send_header("Content-Type", "application/json")
        if "content-length" not in given:
            self.send_header("Content-Length", str(len(payload)))
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            self.wfile.flush()
            return
        self.wfile.write(payload)
        self.wfile.flush()
        if "content-length" in given:
            self.hang_up()

    def hang_up(self, *, reset: bool = False) -> None:
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


def shown_text(html: str) -> str:
    """What a page shows, roughly: enough to tell two documents apart."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


def pdf(text: str) -> bytes:
    """A small valid PDF of one page that shows `text`."""
    shown = text[:200].encode("latin-1", "replace").replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")
    content = b"BT /F1 12 Tf 40 780 Td (" + shown + b") Tj ET"
    fonts = b"/Resources << /Font << /F1 4 0 R >> >>"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 5 0 R %s >>" % fonts,
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
    ]
    out, offsets = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    size = len(objects) + 1
    trailer = b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (size, len(out))
    return out + b"xref\n0 %d\n0000000000 65535 f \n" % size + table + trailer


# --- as a process ----------------------------------------------------------------------------------------------------


class Process:
    """A double that runs as a program of its own."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self._process = process
        self.url = url

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(10)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def steer(self, what: str, **given: Any) -> Any:
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=10)
        try:
            body = json.dumps(given)
            connection.request("POST", f"/__double__/{what}", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            assert answer.status == 200, what
            return json.loads(answer.read())
        finally:
            connection.close()

    def account_fields(self) -> dict[str, Any]:
        return dict(self.steer("account"))

    def ledger(self) -> dict[str, Any]:
        return dict(self.steer("ledger"))

    def hostile(self) -> None:
        self.steer("hostile")


def start_process(module: str, folder: Path, switches: Mapping[str, Any]) -> Process:
    """Run `module` as a program; what it says goes to a file in `folder`."""
    with (folder / f"{module.rpartition('.')[2]}.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module, "--port", "0", "--switches", json.dumps(switches)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdout is not None
    return Process(process, process.stdout.readline().strip())


def run(kind: type[Double]) -> None:
    """The program: says its address in one line, then serves until it is stopped."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--switches", type=json.loads, default={})
    given = parser.parse_args()
    with kind(port=given.port, **given.switches) as double:
        sys.stdout.write(f"{double.url}\n")
        sys.stdout.flush()
        double.finished.wait()
