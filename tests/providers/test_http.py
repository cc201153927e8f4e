"""Whether a request can have arrived, and what one exchange may cost in time and memory; all on real sockets."""

from __future__ import annotations

import gzip
import io
import logging
import multiprocessing
import socket
import threading
import traceback
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import urllib3
from urllib3.util import Url

from batches.providers import wire
from batches.providers.errors import AnswerLost, NotSent, ProviderError, TooLarge
from batches.providers.http import Answer, Call, HttpClient, origin_of
from tests.providers.relaypdf_double import RelayPDFDouble
from tests.providers.tls import TLSServer, make_certificate

NOW = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
SECRET = "pdf_Zk81secretid"


@pytest.fixture
def double() -> Iterator[RelayPDFDouble]:
    with RelayPDFDouble() as double:
        yield double


@pytest.fixture
def client() -> Iterator[HttpClient]:
    client = HttpClient(connect_timeout=2, read_timeout=2, pool_size=4)
    yield client
    client.close()


def call(base_url: str, *, seconds: float = 10, body: bytes = b"", **fields: Any) -> Call:
    return Call(
        kind="submit",
        method="POST" if body else "GET",
        url=f"{base_url}/v1/{'pdf' if body else 'account'}?id={SECRET}",
        route="/v1/…",
        seconds=seconds,
        body=body,
        secrets=(SECRET,),
        **fields,
    )


def failed(kind: type[ProviderError], client: HttpClient, the_call: Call, *, max_bytes: int = 1_000_000) -> Any:
    """The error of an exchange that must fail; it must not give the secret id away."""
    with pytest.raises(kind) as caught, client.open(the_call, now=NOW) as answer:
        answer.read(max_bytes)
    error = caught.value
    told = "".join(traceback.format_exception(error)) + repr(error.exchange) + error.words + error.detail
    assert SECRET not in told
    assert error.exchange is not None
    assert error.exchange.error_class == kind.__name__
    return error


class TestNotSent:
    """Only where it is proven that no byte of the request left."""

    def test_a_refused_connection(self, client: HttpClient) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        error = failed(NotSent, client, call(f"http://127.0.0.1:{port}"))
        assert "refused" in error.words

    def test_a_name_that_does_not_resolve(self, client: HttpClient) -> None:
        error = failed(NotSent, client, call("http://no-such-host.invalid"))
        assert "resolved" in error.words

    def test_a_connection_that_is_never_taken(self) -> None:
        client = HttpClient(connect_timeout=0.3, read_timeout=2, pool_size=4)
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = []
        for _ in range(4):  # fill the queue of connections that nobody accepts
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
            waiting.append(filler)
        error = failed(NotSent, client, call(f"http://127.0.0.1:{listener.getsockname()[1]}"))
        assert "too long" in error.words
        for each in [listener, *waiting]:
            each.close()
        client.close()

    def test_a_peer_that_speaks_no_tls(self, client: HttpClient, double: RelayPDFDouble) -> None:
        failed(NotSent, client, call(double.url.replace("http:", "https:")))
        assert double.requests == []

    def test_a_certificate_that_is_not_trusted(self, client: HttpClient, tmp_path: Path) -> None:
        with TLSServer(make_certificate(tmp_path)) as server:
            error = failed(NotSent, client, call(f"https://localhost:{server.port}", body=b"x"))
            assert "certificate" in error.words
            assert server.requests == 0

    def test_an_address_that_is_no_url(self, client: HttpClient) -> None:
        failed(NotSent, client, call("http://[::1"))
        failed(NotSent, client, call("http://" + "a" * 300))


class TestAnswerLost:
    """Everything else may have arrived."""

    @pytest.mark.parametrize("reset", [False, True])
    def test_a_connection_that_ends_without_an_answer(
        self, client: HttpClient, double: RelayPDFDouble, reset: bool
    ) -> None:
        double.drop("submit", reset=reset)
        error = failed(AnswerLost, client, call(double.url, body=b"{}"))
        assert "closed" in error.words
        assert len(double.requests) == 1

    @pytest.mark.parametrize(
        "payload",
        [
            b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\nabc\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Encoding: gzip\r\n\r\nabc",
            b"HTTP/1.1 200 OK\r\nX-Long: " + b"a" * 70_000 + b"\r\n\r\n",
            b"HTTP/1.1 abc\r\n\r\n",
            b"SSH-2.0-OpenSSH_9.2\r\n",
            b"\x00\x01\x02",
        ],
        ids=lambda payload: payload[-20:].decode("latin-1"),
    )
    def test_an_answer_that_breaks_off_or_makes_no_sense(
        self, client: HttpClient, double: RelayPDFDouble, payload: bytes
    ) -> None:
        double.raw("submit", payload)
        failed(AnswerLost, client, call(double.url, body=b"{}"))

    def test_silence(self, double: RelayPDFDouble) -> None:
        client = HttpClient(connect_timeout=2, read_timeout=0.3, pool_size=4)
        double.stall("submit")
        error = failed(AnswerLost, client, call(double.url, body=b"{}"))
        assert "too long" in error.words
        client.close()

    @pytest.mark.parametrize(
        "sent",
        [b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"],
        ids=["in the headers", "in the body"],
    )
    def test_an_answer_that_drips_for_ever_ends_at_the_wall_clock_cap(
        self, client: HttpClient, double: RelayPDFDouble, sent: bytes
    ) -> None:
        double.stall("submit", sent=sent, drip=b"a")
        error = failed(AnswerLost, client, call(double.url, body=b"{}", seconds=0.6))
        assert error.exchange.duration_ms >= 500

    def test_a_body_that_is_never_taken_ends_at_the_wall_clock_cap(self) -> None:
        client = HttpClient(connect_timeout=2, read_timeout=30, pool_size=4)
        with socket.create_server(("127.0.0.1", 0)) as listener:  # the kernel connects; nobody ever reads
            address = f"http://127.0.0.1:{listener.getsockname()[1]}"
            failed(AnswerLost, client, call(address, body=b"x" * 50_000_000, seconds=0.5))
        client.close()

    def test_a_kept_connection_that_dies_under_the_next_request(
        self, client: HttpClient, double: RelayPDFDouble
    ) -> None:
        with client.open(call(double.url), now=NOW) as answer:
            answer.read(10_000)
        double.drop("submit")
        failed(AnswerLost, client, call(double.url, body=b"{}"))
        assert double.connections == 1

    def test_tls_that_breaks_after_the_request_left(self, client: HttpClient, tmp_path: Path) -> None:
        pem = make_certificate(tmp_path)
        client.session.verify = str(pem)
        with TLSServer(pem) as server:
            failed(AnswerLost, client, call(f"https://localhost:{server.port}", body=b"x"))
            assert server.requests == 1

    def test_a_transport_that_does_not_say_whether_bytes_left(self, client: HttpClient) -> None:
        error = urllib3.exceptions.ConnectTimeoutError(None, f"/{SECRET}")
        client.session.mount("http://", StubAdapter(error))
        failed(AnswerLost, client, call("http://127.0.0.1:1"))


class TestGate:
    """Called once, when the connection is open and all is ready, right before the first byte."""

    def test_is_passed_with_an_open_connection_and_no_byte_sent(
        self, client: HttpClient, double: RelayPDFDouble
    ) -> None:
        seen = []

        def gate() -> None:
            assert double.accepted.wait(10)
            seen.append((double.connections, len(double.requests)))

        for _ in range(2):
            with client.open(call(double.url, body=b"{}", gate=gate), now=NOW) as answer:
                answer.read(10_000)
        assert seen == [(1, 0), (1, 1)]

    def test_that_stays_shut_sends_nothing_and_its_reason_passes_through(
        self, client: HttpClient, double: RelayPDFDouble
    ) -> None:
        class ShutError(Exception):
            pass

        def gate() -> None:
            raise ShutError

        with pytest.raises(ShutError), client.open(call(double.url, body=b"{}", gate=gate), now=NOW):
            pass
        assert double.requests == []

    def test_is_not_reached_without_a_connection(self, client: HttpClient) -> None:
        reached: list[int] = []
        failed(NotSent, client, call("http://127.0.0.1:1", body=b"{}", gate=lambda: reached.append(1)))
        assert reached == []

    def test_takes_no_time_from_the_exchange(self, client: HttpClient, double: RelayPDFDouble) -> None:
        slow = threading.Event()
        gated = call(double.url, body=b"{}", seconds=1, gate=lambda: slow.wait(1.2) and None)
        with client.open(gated, now=NOW) as answer:
            assert answer.status == 401


class StubAdapter(wire.WireAdapter):
    """Its pool raises what it is given, says nothing about the wire, and keeps how it was called."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error
        self.calls: list[dict[str, Any]] = []
        self.verify: bool | str | None = None

    def pool_of(self, target: Url, verify: bool | str | None) -> Any:
        self.verify = verify
        return self

    def urlopen(self, method: str, url: str, **kwargs: Any) -> Any:
        self.calls.append(kwargs)
        raise self.error


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


def test_logs_hold_no_address_even_when_everything_is_logged(
    client: HttpClient, double: RelayPDFDouble, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    double.raw("account", b"HTTP/1.1 200 OK\r\nno colon here\r\nContent-Length: 2\r\n\r\nok")
    with client.open(call(double.url), now=NOW) as answer:
        answer.read(100)
    failed(NotSent, client, call("http://127.0.0.1:1"))
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("http://127.0.0.1:8787/v1", ("http", "127.0.0.1", 8787)),
        ("https://API.RelayPDF.com./x", ("https", "api.relaypdf.com", 443)),
        ("http://[::1]:80/x", ("http", "[::1]", 80)),
        ("ftp://example.com/x", None),
        ("file:///etc/passwd", None),
        ("//example.com/x", None),
        ("http://good.test\\@evil.test/", None),
        ("http://good.test@evil.test/", None),
        ("http://good.test /x", None),
        ("http://gööd.test/x", None),
        ("http://good.test:99999/x", None),
        ("", None),
    ],
)
def test_an_address_is_read_as_it_will_be_connected_to(url: str, origin: tuple[str, str, int] | None) -> None:
    assert origin_of(url) == origin
