"""What one exchange may cost in time, memory and connections; all on real sockets."""

from __future__ import annotations

import gzip
import io
import multiprocessing
import socket
import threading
import zlib
from pathlib import Path
from typing import Any

import pytest

from batches.providers import wire
from batches.providers.errors import AnswerLost, TooLarge
from batches.providers.http import Answer, HttpClient
from tests.providers.exchanges import NOW, StubAdapter, call, failed
from tests.providers.relaypdf_double import RelayPDFDouble


class TestConnections:
    def test_are_kept_and_used_again(self, client: HttpClient, double: RelayPDFDouble) -> None:
        for _ in range(5):
            with client.open(call(double.url), now=NOW) as answer:
                answer.read(10_000)
        assert double.connections == 1

    def test_are_not_used_again_after_an_unread_answer(self, client: HttpClient, double: RelayPDFDouble) -> None:
        for _ in range(2):
            with client.open(call(double.url), now=NOW):
                pass
        assert double.connections == 2

    def test_that_idled_long_are_not_used_again(
        self, client: HttpClient, double: RelayPDFDouble, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(wire, "MAX_IDLE_SECONDS", 0.0)
        for _ in range(2):
            with client.open(call(double.url), now=NOW) as answer:
                answer.read(10_000)
        assert double.connections == 2

    def test_that_the_server_closed_are_replaced_without_doubt(
        self, client: HttpClient, double: RelayPDFDouble
    ) -> None:
        closed = threading.Event()

        def act(handler: Any, behave: Any) -> None:
            handler.connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")  # as if it stayed open
            handler.hang_up()
            closed.set()

        double.fault("submit", act)
        with client.open(call(double.url, body=b"{}"), now=NOW) as answer:
            assert answer.read(10) == b"ok"
        assert closed.wait(10)
        with client.open(call(double.url), now=NOW) as answer:
            assert answer.status == 401
        assert double.connections == 2

    def test_are_not_shared_with_a_forked_process(self, client: HttpClient, double: RelayPDFDouble) -> None:
        with client.open(call(double.url), now=NOW) as answer:
            answer.read(10_000)
        context = multiprocessing.get_context("fork")
        queue = context.SimpleQueue()

        def child() -> None:
            with client.open(call(double.url), now=NOW) as answer:
                queue.put(answer.status)

        process = context.Process(target=child)
        process.start()
        process.join(30)
        assert process.exitcode == 0
        assert queue.get() == 401
        assert double.connections == 2

    def test_take_no_proxy_cookie_or_password_from_around_them(
        self, client: HttpClient, double: RelayPDFDouble, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        (tmp_path / ".netrc").write_text("machine 127.0.0.1 login okoye password secret\n")
        monkeypatch.setenv("HOME", str(tmp_path))
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, "http://127.0.0.1:1")
        double.answer("account", 200, {}, {"Set-Cookie": "visitor=1; Path=/"})
        for _ in range(2):
            with client.open(call(double.url), now=NOW) as answer:
                answer.read(10_000)
        for seen in double.requests:
            assert {"Cookie", "Authorization", "Proxy-Authorization"}.isdisjoint(seen.headers)

    def test_have_both_timeouts_on_every_call_and_verify_certificates(self, client: HttpClient) -> None:
        stub = StubAdapter(TimeoutError())
        client.session.mount("http://", stub)
        failed(AnswerLost, client, call("http://127.0.0.1:1", seconds=1.5))
        (keywords,) = stub.calls
        assert keywords["timeout"].connect_timeout == keywords["timeout"].read_timeout == 1.5
        assert stub.verify is True
        assert keywords["preload_content"] is False
        assert keywords["redirect"] is False
        assert not keywords["retries"].total


class TestBodies:
    def test_may_take_longer_to_send_than_a_connection_may_take_to_open(self) -> None:
        client = HttpClient(connect_timeout=0.3, read_timeout=10, pool_size=4)
        body = b"x" * 30_000_000  # more than the kernel holds for a peer that does not read
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def serve() -> None:
                connection, _ = listener.accept()
                with connection, connection.makefile("rb") as stream:
                    threading.Event().wait(1)
                    while stream.readline().strip():
                        pass
                    stream.read(len(body))
                    connection.sendall(b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\n{}")

            server = threading.Thread(target=serve, daemon=True)
            server.start()
            address = f"http://127.0.0.1:{listener.getsockname()[1]}"
            with client.open(call(address, body=body, seconds=30), now=NOW) as answer:
                assert answer.status == 202
            server.join(30)
        client.close()

    def read(self, client: HttpClient, double: RelayPDFDouble, payload: bytes, max_bytes: int) -> tuple[bytes, Answer]:
        double.raw("account", payload)
        with client.open(call(double.url), now=NOW) as answer:
            return answer.read(max_bytes), answer

    def test_are_unpacked(self, client: HttpClient, double: RelayPDFDouble) -> None:
        packed = gzip.compress(b"%PDF-1.4 whole")
        head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
        body, answer = self.read(client, double, head + packed, 1000)
        assert body == b"%PDF-1.4 whole"
        assert answer.declared_length() is None

    def test_that_announce_too_much_are_not_read(self, client: HttpClient, double: RelayPDFDouble) -> None:
        double.stall("account", sent=b"HTTP/1.1 200 OK\r\nContent-Length: 1000001\r\n\r\n")
        failed(TooLarge, client, call(double.url))

    def test_that_never_end_are_cut_off(self, client: HttpClient, double: RelayPDFDouble) -> None:
        chunk = b"4000\r\n" + b"a" * 0x4000 + b"\r\n"
        double.stall("account", sent=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", drip=chunk)
        failed(TooLarge, client, call(double.url), max_bytes=200_000)

    def test_that_unpack_to_too_much_are_cut_off(self, client: HttpClient, double: RelayPDFDouble) -> None:
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        bomb = b"".join(packer.compress(bytes(1_000_000)) for _ in range(200)) + packer.flush()
        head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
        double.raw("account", head + bomb)
        failed(TooLarge, client, call(double.url))

    def test_of_a_redirect_are_not_read(self, client: HttpClient, double: RelayPDFDouble) -> None:
        double.stall("account", sent=b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 99\r\n\r\n")
        with client.open(call(double.url), now=NOW) as answer:
            assert answer.status == 302
        assert len(double.requests) == 1

    def test_of_an_error_are_read_as_far_as_they_come(self, client: HttpClient, double: RelayPDFDouble) -> None:
        double.raw("account", b"HTTP/1.1 400 Bad\r\nContent-Length: 900\r\n\r\n{")
        with client.open(call(double.url), now=NOW) as answer:
            assert answer.read_some(100) in (b"", b"{")

    def test_a_full_disk_is_not_taken_for_a_lost_answer(self, client: HttpClient, double: RelayPDFDouble) -> None:
        class FullDisk(io.BytesIO):
            def write(self, data: Any) -> int:
                raise OSError(28, "No space left on device")

        with client.open(call(double.url), now=NOW) as answer, pytest.raises(OSError, match="No space"):
            answer.pour(FullDisk(), 10_000)
