"""Whether a request can have arrived; all on real sockets."""

from __future__ import annotations

import logging
import socket
import threading
from pathlib import Path

import pytest
import urllib3

from batches.providers.errors import AnswerLost, NotSent
from batches.providers.http import HttpClient, origin_of
from tests.providers.exchanges import NOW, SECRET, StubAdapter, call, failed
from tests.providers.relaypdf_double import RelayPDFDouble
from tests.providers.tls import TLSServer, make_certificate


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
