"""Webhooks through the web server that is shipped: gunicorn with our configuration, on a real socket.

What a proxy makes of a request is sent as it would send it: HTTP/1.0, in chunks, with the scheme in a header.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from batches.engine import inbox
from batches.processes import die_with_parent
from tests.stack_process import REPOSITORY, Stack, eventually

pytestmark = pytest.mark.processes
SECRET = "whsec_invented"
PATIENCE = 30.0
#: As shipped, but for how long a body may take: nobody wants to wait for that.
CONFIGURATION = """
import relaypdf_site.gunicorn_conf as shipped
shipped.WEBHOOK_SECONDS = 1
from relaypdf_site.gunicorn_conf import *
"""


class Server:
    """gunicorn on a free port of this machine, over a database of its own."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        self.stack = stack
        configuration = folder / "shipped_but_hasty.py"
        configuration.write_text(CONFIGURATION)
        self._listener = socket.create_server(("127.0.0.1", 0))
        descriptor = self._listener.fileno()
        self._log = (folder / "web.log").open("wb+")
        command = ["-m", "gunicorn", "--config", str(configuration), "--bind", f"fd://{descriptor}"]
        self._process = subprocess.Popen(
            [sys.executable, *command, "relaypdf_site.wsgi"],
            cwd=REPOSITORY,
            env=stack.env,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            pass_fds=(descriptor,),
            preexec_fn=die_with_parent,
        )

    def connect(self) -> socket.socket:
        return socket.create_connection(self._listener.getsockname(), timeout=PATIENCE)

    def log(self) -> str:
        return Path(self._log.name).read_text(errors="replace")

    def stored(self) -> int:
        return int(self.stack.query("SELECT count(*) FROM batches_webhookevent")[0][0])

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE)
        self._listener.close()
        self._log.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("web")
    env = {
        "RELAYPDF_BASE_URL": "http://127.0.0.1:9",
        "RELAYPDF_API_KEY": "pdf_live_invented",
        "RELAYPDF_WEBHOOK_SECRET": SECRET,
        "ALLOWED_HOSTS": "batches.example.com",
        "BEHIND_HTTPS_PROXY": "1",
    }
    stack = Stack(data_dir=folder / "stack", env=env)
    try:
        stack.bootstrap()
        server = Server(stack, folder)
        try:
            eventually(lambda: "Booting worker" in server.log(), "gunicorn to serve")
            yield server
        finally:
            server.close()
    finally:
        stack.close()


_numbers = iter(range(10**6))


def event(padding: str = "") -> bytes:
    """A body like no other."""
    data = {"jobId": f"pdf_{next(_numbers)}", "words": f"é\u2028{padding}"}
    return json.dumps({"type": "job.completed", "data": data}, ensure_ascii=False).encode()


def head(content: bytes, *further: str, version: str = "1.1", to: str = "relaypdf") -> bytes:
    at = int(time.time())
    proof = hmac.new(SECRET.encode(), b"%d." % at + content, hashlib.sha256).hexdigest()
    lines = [
        f"POST /webhooks/{to} HTTP/{version}",
        "Host: batches.example.com",
        "X-Forwarded-Proto: https",
        "X-Forwarded-For: 203.0.113.9",
        "Content-Type: application/json",
        f"RelayPDF-Signature: t={at},v1={proof}",
        *further,
    ]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


def chunked(content: bytes, size: int = 7) -> bytes:
    pieces = [content[start : start + size] for start in range(0, len(content), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def status_of(connection: socket.socket) -> int:
    """The status of the next final answer; its body is read away. 0 when the connection was closed without one."""
    reader = connection.makefile("rb")
    status = 100
    while status == 100:
        line = reader.readline()
        if not line:
            return 0
        status = int(line.split()[1])
        length = 0
        while (header := reader.readline()) not in (b"\r\n", b""):
            name, _, value = header.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
    answer = reader.read(length)
    assert b"Traceback" not in answer
    return status


def sent(server: Server, *parts: bytes, end: bool = False) -> int:
    with server.connect() as connection:
        for part in parts:
            connection.sendall(part)
        if end:
            connection.shutdown(socket.SHUT_WR)
        return status_of(connection)


Shape = Callable[[bytes], bytes]
SHAPES: dict[str, Shape] = {
    "with its length": lambda content: head(content, f"Content-Length: {len(content)}") + content,
    "as nginx hands it on": lambda content: (
        head(content, f"Content-Length: {len(content)}", "Connection: close", version="1.0") + content
    ),
    "in chunks": lambda content: head(content, "Transfer-Encoding: chunked") + chunked(content),
    "in one chunk": lambda content: head(content, "Transfer-Encoding: chunked") + chunked(content, 10**6),
    "in chunks, with a trailer": lambda content: (
        head(content, "Transfer-Encoding: chunked", "Trailer: X-Sum")
        + chunked(content).removesuffix(b"\r\n")
        + b"X-Sum: 1\r\n\r\n"
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("padding", ["", "x" * 60_000], ids=["small", "large"])
def test_a_body_arrives_whole_however_it_is_framed(server: Server, shape: str, padding: str) -> None:
    before = server.stored()
    assert sent(server, SHAPES[shape](event(padding))) == 204
    assert server.stored() == before + 1


@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_who_asks_whether_to_go_on_is_told_so(server: Server, framing: str) -> None:
    content = event()
    how = f"Content-Length: {len(content)}" if framing == "length" else "Transfer-Encoding: chunked"
    with server.connect() as connection:
        connection.sendall(head(content, how, "Expect: 100-continue"))
        assert connection.recv(12) == b"HTTP/1.1 100"
        while connection.recv(1) != b"\n":
            pass
        assert connection.recv(2) == b"\r\n"
        connection.sendall(content if framing == "length" else chunked(content))
        assert status_of(connection) == 204


def test_one_connection_carries_several_deliveries(server: Server) -> None:
    with server.connect() as connection:
        for shape in ("in chunks", "with its length", "in one chunk", "in chunks"):
            connection.sendall(SHAPES[shape](event()))
            assert status_of(connection) == 204


def test_a_body_that_breaks_off_is_refused_and_not_stored(server: Server) -> None:
    before, content = server.stored(), event()
    cut = content[: len(content) // 2]
    assert sent(server, head(content, f"Content-Length: {len(content)}"), cut, end=True) == 400
    half = chunked(content)[: len(content) // 2]
    assert sent(server, head(content, "Transfer-Encoding: chunked"), half, end=True) in (0, 400)
    assert sent(server, head(content, "Transfer-Encoding: chunked"), b"zz\r\nno chunk\r\n", end=True) in (0, 400)
    assert server.stored() == before


def test_a_body_that_comes_byte_by_byte_is_given_up(server: Server) -> None:
    content = event("x" * 5000)
    before = server.stored()
    with server.connect() as connection:
        connection.sendall(head(content, f"Content-Length: {len(content)}"))
        connection.settimeout(0.05)
        answer = b""
        for number in range(len(content)):
            try:
                connection.sendall(content[number : number + 1])
                answer = connection.recv(12)
            except TimeoutError:
                continue
            except OSError:  # it was closed on us
                break
            break
    assert number < len(content) - 1, "it was not waited for"
    assert answer in (b"", b"HTTP/1.1 400")
    assert server.stored() == before


def test_too_much_is_refused_whether_it_is_declared_or_not(server: Server) -> None:
    content = b"x" * (inbox.BODY_BYTES_MOST + 1)
    assert sent(server, head(content, f"Content-Length: {len(content)}")) == 413, "before a byte of it was sent"
    assert sent(server, head(content, f"Content-Length: {'9' * 30}")) in (400, 413)
    with server.connect() as connection:
        connection.sendall(head(content, "Transfer-Encoding: chunked"))
        connection.sendall(chunked(content, 65536))
        assert status_of(connection) == 413


@pytest.mark.parametrize(
    ("headers", "answers"),
    [
        (["RelayPDF-Signature: t=1,v1=\xe9"], {401}),
        (["X-Odd: \xe9\xff\x80"], {204, 400}),
        (["X-Nul: a\x00b"], {400}),
        (["X-Huge: " + "x" * 9000], {400, 431}),
        ([f"X-{number}: y" for number in range(200)], {400, 431}),
        (["Content-Length: -1"], {400}),
        (["Content-Length: 1", "Transfer-Encoding: chunked"], {400}),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_odd_headers_are_answered_with_4xx(server: Server, headers: list[str], answers: set[int]) -> None:
    content = event()
    own = any(line.startswith("Content-Length") for line in headers)
    request = head(content, *headers, *([] if own else [f"Content-Length: {len(content)}"]))
    if headers[0].startswith("RelayPDF-Signature"):
        lines = request.split(b"\r\n")
        request = b"\r\n".join(line for line in lines if not (line.startswith(b"RelayPDF") and b"v1=\xe9" not in line))
    assert sent(server, request + content) in answers


def test_nothing_of_all_this_was_a_fault_of_ours(server: Server) -> None:
    log = server.log()
    assert "met a fault of ours" not in log
    assert "Internal Server Error" not in log


def test_what_is_loaded_is_taken_out_of_the_garbage_collectors_rounds(tmp_path: Path) -> None:
    """Else one request in twenty waits for a round over all that Django has loaded."""
    told = "import gc; from relaypdf_site import gunicorn_conf, wsgi; gunicorn_conf.post_worker_init(None)"
    told += "; print(gc.get_freeze_count() / (gc.get_freeze_count() + len(gc.get_objects())))"
    env = Stack(data_dir=tmp_path).env
    done = subprocess.run([sys.executable, "-c", told], cwd=REPOSITORY, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) > 0.99
