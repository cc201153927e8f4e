"""HTTP on the socket itself: connections that stay, requests that are malformed, too large, or in pieces."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.sandbox.calls import call, submit
from tests.sandbox_process import SandboxProcess

pytestmark = pytest.mark.processes

HEALTH = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def connected(sandbox: SandboxProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(sandbox.url.rpartition(":")[2])), timeout=20)


def answer_to(sandbox: SandboxProcess, data: bytes) -> bytes:
    """Everything that comes back until the sandbox closes."""
    with connected(sandbox) as sock:
        sock.sendall(data)
        received = b""
        while chunk := sock.recv(65536):
            received += chunk
        return received


def read_one(sock: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += sock.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    while len(body) < length:
        body += sock.recv(65536)
    return head + b"\r\n\r\n" + body


def test_one_connection_serves_many_requests(sandbox: SandboxProcess) -> None:
    with connected(sandbox) as sock:
        for _ in range(3):
            sock.sendall(HEALTH)
            assert read_one(sock).startswith(b"HTTP/1.1 200 OK\r\n")


def test_requests_in_one_packet_are_answered_in_order(sandbox: SandboxProcess) -> None:
    last = HEALTH.replace(b"/health", b"/nowhere").replace(b"Host", b"Connection: close\r\nHost")
    received = answer_to(sandbox, HEALTH + HEALTH + last)
    assert received.count(b"HTTP/1.1 200") == 2
    assert received.rindex(b"HTTP/1.1 404") > received.rindex(b"HTTP/1.1 200")


def test_a_request_may_come_in_pieces(sandbox: SandboxProcess) -> None:
    body = json.dumps({"html": "<p>x</p>", "response": "async"}).encode()
    head = (
        f"POST /v1/pdf HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {sandbox.api_key}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()
    with connected(sandbox) as sock:
        for start in range(0, len(head + body), 7):
            sock.sendall((head + body)[start : start + 7])
        assert read_one(sock).startswith(b"HTTP/1.1 202")


def test_a_client_that_waits_for_100_continue_gets_it(sandbox: SandboxProcess) -> None:
    body = b'{"html": "<p>x</p>", "response": "async"}'
    head = (
        f"POST /v1/pdf HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {sandbox.api_key}\r\n"
        f"Expect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    with connected(sandbox) as sock:
        sock.sendall(head)
        assert sock.recv(100).startswith(b"HTTP/1.1 100 Continue")
        sock.sendall(body)
        assert read_one(sock).startswith(b"HTTP/1.1 202")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET http://example.com/ HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nSpace : x\r\n\r\n", 400),
        (b"POST /v1/pdf HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /v1/pdf HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
        (b"POST /v1/pdf HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"POST /v1/pdf HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"GET /health HTTP/1.1\r\nX: " + b"y" * 70_000, 431),
    ],
)
def test_malformed_requests_get_an_error_and_the_connection_ends(
    sandbox: SandboxProcess, data: bytes, status: int
) -> None:
    received = answer_to(sandbox, data)
    assert received.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"Connection: close" in received
    error = json.loads(received.partition(b"\r\n\r\n")[2])["error"]
    assert error["code"] == ("payload_too_large" if status == 413 else "invalid_request")


def test_a_body_over_the_limit_is_refused_before_it_is_read(sandbox: SandboxProcess) -> None:
    sandbox.configure(limits={"max_body_bytes": 1000})
    reply = submit(sandbox, "x" * 100_000)
    assert (reply.status, reply.code) == (413, "payload_too_large")


def test_clients_that_go_away_leave_the_service_alone(sandbox: SandboxProcess) -> None:
    for data in (b"", b"GET /hea", b"POST /v1/pdf HTTP/1.1\r\nContent-Length: 100\r\n\r\nabc"):
        with connected(sandbox) as sock:
            sock.sendall(data)
    assert call(sandbox, "GET", "/health", key=None).json()["ok"] is True
    assert "Traceback" not in sandbox.log()


def test_http_1_0_and_head_are_served(sandbox: SandboxProcess) -> None:
    assert b"Connection: close" in answer_to(sandbox, b"GET /health HTTP/1.0\r\n\r\n")
    reply = call(sandbox, "HEAD", "/health", key=None)
    assert (reply.status, reply.body) == (200, b"")


def test_bodies_that_are_not_json_objects_are_refused(sandbox: SandboxProcess) -> None:
    for body in (b"", b"[]", b"{", b'"x"', b"\xff\xfe", b"[" * 100_000):
        reply = call(sandbox, "POST", "/v1/pdf", body)
        assert (reply.status, reply.code) == (400, "invalid_request")


def test_addresses_in_answers_are_those_that_the_client_used(sandbox: SandboxProcess) -> None:
    port = sandbox.url.rpartition(":")[2]
    reply = submit(sandbox, headers={"Host": f"localhost:{port}"}).json()
    assert reply["pollUrl"].startswith(f"http://localhost:{port}/v1/jobs/")
    reply = submit(sandbox, headers={"Host": "evil.example/<script>"}).json()
    assert reply["pollUrl"].startswith(f"http://127.0.0.1:{port}/v1/jobs/")


def test_many_connections_at_once(sandbox: SandboxProcess) -> None:
    with ThreadPoolExecutor(40) as pool:
        replies = list(pool.map(lambda n: submit(sandbox, f"<p>{n}</p>", idempotency_key=f"k{n}"), range(200)))
    assert {reply.status for reply in replies} == {202}
    assert len({reply.json()["id"] for reply in replies}) == 200
    assert sandbox.wait_for_jobs(200)["totals"]["jobs_billed"] == 200
