"""Where a finished PDF may be fetched from: the rule, and the connected peer."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from batches.providers.base import ProviderConfig, ResultRef
from batches.providers.errors import NotFound, TargetRefused
from batches.providers.relaypdf import RelayPDF
from batches.providers.targets import allowed_target
from batches.providers.wire import is_public
from tests.providers.conformance import utc_now
from tests.providers.relaypdf_double import API_KEY, PDF, Job, RelayPDFDouble
from tests.providers.tls import TLSServer, make_certificate

BASE = "https://api.relaypdf.com"
HOSTS = ["files.example.com", "cdn.example.com:8443", " Spaced.Example.com "]


@pytest.mark.parametrize(
    ("url", "public_peer"),
    [
        ("https://api.relaypdf.com/v1/files/pdf_1", False),
        ("https://API.relaypdf.com:443/v1/files/pdf_1", False),
        ("/v1/files/pdf_1", False),
        ("https://files.example.com/x?sig=1", True),
        ("https://FILES.example.com./x", True),
        ("https://cdn.example.com:8443/x", True),
        ("https://spaced.example.com/x", True),
        ("//files.example.com/x", True),
    ],
)
def test_the_accounts_own_addresses_are_allowed(url: str, public_peer: bool) -> None:
    assert allowed_target(url, base_url=BASE, download_hosts=HOSTS).public_peer is public_peer


@pytest.mark.parametrize(
    "url",
    [
        "http://api.relaypdf.com/v1/files/pdf_1",
        "https://api.relaypdf.com:8443/x",
        "https://api.relaypdf.com.evil.test/x",
        "https://evil.test/api.relaypdf.com",
        "https://user@api.relaypdf.com/x",
        "https://api.relaypdf.com@evil.test/x",
        "https://api.relaypdf.com\\@evil.test/x",
        "https://api.relaypdf.com\t.evil.test/x",
        "http://files.example.com/x",
        "https://files.example.com:444/x",
        "https://cdn.example.com/x",
        "https://169.254.169.254/latest/meta-data",
        "http://127.0.0.1/x",
        "ftp://files.example.com/x",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "data:application/pdf,x",
        "https://",
        "https://[::1",
    ],
)
def test_every_other_address_is_refused(url: str) -> None:
    with pytest.raises(TargetRefused) as caught:
        allowed_target(url, base_url=BASE, download_hosts=HOSTS)
    assert caught.value.failure_class == "bad_output"


def test_loopback_is_allowed_when_the_account_itself_is_there() -> None:
    target = allowed_target("http://127.0.0.1:8787/v1/files/x", base_url="http://127.0.0.1:8787", download_hosts=[])
    assert not target.public_peer
    with pytest.raises(TargetRefused):
        allowed_target("http://localhost:8787/v1/files/x", base_url="http://127.0.0.1:8787", download_hosts=[])


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1:248:1893:25c8:1946", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("fe80::1%eth0", False),
        ("fc00::1", False),
        ("ff0e::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:93.184.216.34", True),
        ("2002:7f00:1::", False),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b::5db8:d822", True),
        ("/run/socket", False),
        ("", False),
    ],
)
def test_a_public_address_is_told_from_a_private_one(address: str, public: bool) -> None:
    assert is_public(address) is public


# --- over sockets ----------------------------------------------------------------------------------------------------


@pytest.fixture
def double() -> Iterator[RelayPDFDouble]:
    with RelayPDFDouble() as double:
        double.jobs["pdf_1"] = Job("pdf_1", b"")
        yield double


@pytest.fixture
def config(double: RelayPDFDouble) -> ProviderConfig:
    return ProviderConfig("relaypdf", double.url, API_KEY)


def fetch(config: ProviderConfig, url: str = "") -> bytes:
    provider, sink = RelayPDF(config), io.BytesIO()
    try:
        provider.download(ResultRef("pdf_1", url), sink, max_bytes=10_000, now=utc_now())
    finally:
        provider.close()
    return sink.getvalue()


def test_the_api_key_is_never_sent_for_a_file(double: RelayPDFDouble, config: ProviderConfig) -> None:
    double.answer("download", 302, None, {"Location": "/v1/files/pdf_1"})
    assert fetch(config) == PDF
    assert len(double.seen("download")) == 2
    for seen in double.seen("download"):
        assert "Authorization" not in seen.headers
        assert API_KEY not in repr(seen)


def test_a_listed_host_that_leads_to_a_private_address_gets_no_byte(config: ProviderConfig, tmp_path: Path) -> None:
    with TLSServer(make_certificate(tmp_path)) as server:
        listed = replace(config, download_hosts=(f"localhost:{server.port}",))
        with pytest.raises(TargetRefused) as caught:
            fetch(listed, f"https://localhost:{server.port}/pdf_1")
        assert caught.value.exchange is not None
        assert server.handshakes == 0


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest/meta-data/",
        "https://evil.test/pdf_1",
        "http://localhost:1/pdf_1",
        "file:///etc/passwd",
        "//evil.test/pdf_1",
        "\\\\evil.test\\x",
    ],
)
def test_a_redirect_to_another_place_is_refused(double: RelayPDFDouble, config: ProviderConfig, location: str) -> None:
    double.answer("download", 302, None, {"Location": location})
    with pytest.raises(TargetRefused):
        fetch(config)
    assert len(double.requests) == 1


def test_three_redirects_are_followed_and_not_a_fourth(double: RelayPDFDouble, config: ProviderConfig) -> None:
    for _ in range(3):
        double.answer("download", 307, None, {"Location": f"{double.url}/v1/files/pdf_1"})
    assert fetch(config) == PDF
    for _ in range(4):
        double.answer("download", 307, None, {"Location": f"{double.url}/v1/files/pdf_1"})
    with pytest.raises(TargetRefused):
        fetch(config)


def test_an_id_cannot_lead_out_of_the_files_route(double: RelayPDFDouble, config: ProviderConfig) -> None:
    provider = RelayPDF(config)
    for hostile in ("../account", "..%2Faccount", "a?b#c", "a b", "ü/é", "."):
        with pytest.raises(NotFound):
            provider.download(ResultRef(hostile), io.BytesIO(), max_bytes=10, now=utc_now())
        with pytest.raises(NotFound):
            provider.fetch_status(hostile, now=utc_now())
    assert {seen.point for seen in double.requests} == {"download", "poll"}
    provider.close()
