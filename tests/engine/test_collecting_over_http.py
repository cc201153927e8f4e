"""Collecting over real sockets: the true adapter, a misbehaving service, and a store on disk and in an S3 bucket."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batches.engine import collection
from batches.engine.claims import Claim
from batches.engine.collection import Collected, NotCollected
from batches.engine.keeping import digest_of
from batches.engine.pdfcheck import PdfChecker
from batches.models import JobState
from batches.providers.base import ProviderConfig
from batches.providers.relaypdf import RelayPDF
from batches.storage import ArtifactStore
from tests.engine.collecting import collect
from tests.engine.samples import accepted_submission, claim
from tests.providers.relaypdf_double import API_KEY, Job, RelayPDFDouble
from tests.storage.either_store import either_store, s3_address  # noqa: F401 - fixtures
from tests.storage.listing import keys_in

CASES = Path(__file__).parent.parent / "cases"
WHOLE, CUT = ((CASES / name).read_bytes() for name in ("079-whole.pdf", "079-cut.pdf"))


@pytest.fixture
def double() -> Iterator[RelayPDFDouble]:
    with RelayPDFDouble() as double:
        double.jobs["pdf_7"] = Job("pdf_7", b"", file=WHOLE)
        yield double


@pytest.fixture
def provider(double: RelayPDFDouble) -> Iterator[RelayPDF]:
    provider = RelayPDF(ProviderConfig(slug="relaypdf", base_url=double.url, api_key=API_KEY))
    yield provider
    provider.close()


def of(business_id: str = "INV-7", **result: Any) -> Claim:
    return claim(
        JobState.RENDERED, business_id=business_id, submission=accepted_submission(result={"url": "", **result})
    )


def head(status: str, *lines: str) -> bytes:
    return "\r\n".join(
        [f"HTTP/1.1 {status}", "Content-Type: application/pdf", "Connection: close", *lines, "", ""]
    ).encode()


SPOILT = {
    "its true length, and closed early": head("200 OK", f"Content-Length: {len(WHOLE)}") + CUT,
    "chunks without an end": head("200 OK", "Transfer-Encoding: chunked") + b"%x\r\n%s\r\n" % (len(CUT), CUT),
    "the length of the cut": head("200 OK", f"Content-Length: {len(CUT)}") + CUT,
    "no length at all": head("200 OK") + CUT,
    "a page": head("200 OK", "Content-Length: 20") + b"<html>Sign in</html>",
    "nothing": head("200 OK", "Content-Length: 0"),
    "an error as JSON": head("200 OK", "Content-Length: 19") + b'{"error":"expired"}',
}


@pytest.mark.parametrize("spoilt", SPOILT)
def test_a_spoilt_download_stores_nothing_and_the_next_one_is_whole(
    store: ArtifactStore, provider: RelayPDF, double: RelayPDFDouble, checker: PdfChecker, spoilt: str
) -> None:
    double.raw("download", SPOILT[spoilt])
    missed = collect(of(), provider, store, checker)
    assert isinstance(missed, NotCollected), missed
    assert missed.kind in ("bad_output", "unreached")
    assert keys_in(store) == []
    collected = collect(of(), provider, store, checker)
    assert isinstance(collected, Collected), collected
    assert (collected.byte_count, collected.page_count) == (len(WHOLE), 1)
    assert digest_of(store, collected.storage_key) == collected.sha256 == hashlib.sha256(WHOLE).hexdigest()
    assert double.seen("submit") == [], "fetched again, never rendered again"


def test_a_packed_transfer_is_accepted_and_stored_unpacked(
    store: ArtifactStore, provider: RelayPDF, double: RelayPDFDouble, checker: PdfChecker
) -> None:
    packed = gzip.compress(WHOLE)
    double.raw("download", head("200 OK", "Content-Encoding: gzip", f"Content-Length: {len(packed)}") + packed)
    collected = collect(of(), provider, store, checker)
    assert isinstance(collected, Collected), collected
    with store.open(collected.storage_key) as stream:
        assert stream.read() == WHOLE


@pytest.mark.parametrize(
    "target", ["http://169.254.169.254/latest/meta-data", "http://127.0.0.1:9/x", "ftp://x.test/y"]
)
def test_a_redirect_to_elsewhere_fetches_nothing(
    store: ArtifactStore, provider: RelayPDF, double: RelayPDFDouble, checker: PdfChecker, target: str
) -> None:
    double.raw(
        "download",
        f"HTTP/1.1 302 Found\r\nLocation: {target}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".encode(),
    )
    missed = collect(of(), provider, store, checker)
    assert isinstance(missed, NotCollected)
    assert missed.kind == "bad_output"
    assert keys_in(store) == []


@pytest.mark.parametrize("status", [403, 404, 410])
def test_a_dead_link_costs_one_status_read_and_then_the_fresh_one_is_fetched(
    store: ArtifactStore, provider: RelayPDF, double: RelayPDFDouble, checker: PdfChecker, status: int
) -> None:
    double.answer("download", status, {"error": {"code": "not_found", "message": "gone"}})
    collected = collect(of(), provider, store, checker)
    assert isinstance(collected, Collected), collected
    assert collected.result is not None
    assert len(double.seen("poll")) == 1
    double.answer("download", status, {})
    double.answer("download", status, {})
    missed = collect(of("INV-8"), provider, store, checker)
    assert isinstance(missed, NotCollected)
    assert (missed.kind, len(double.seen("poll"))) == ("gone", 2)
    assert double.seen("submit") == []


def test_documents_with_hostile_ids_keep_their_own_bytes(
    store: ArtifactStore, provider: RelayPDF, double: RelayPDFDouble, checker: PdfChecker
) -> None:
    ids = [row["id"] for row in json.loads((CASES / "089-url-hostile-ids.json").read_text(encoding="utf-8"))]
    found = {}
    for number, business_id in enumerate(ids):
        double.jobs["pdf_7"] = Job("pdf_7", b"", file=WHOLE + b"%% %d\n%%%%EOF\n" % number)
        collected = collect(of(business_id), provider, store, checker)
        assert isinstance(collected, Collected), collected
        found[collected.storage_key] = collected.sha256
    assert len(found) == len(set(found.values())) == len(ids) == 14
    assert {key: digest_of(store, key) for key in keys_in(store)} == found


def test_a_file_beyond_the_cap_is_given_up_on_the_way(
    store: ArtifactStore,
    provider: RelayPDF,
    double: RelayPDFDouble,
    checker: PdfChecker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(collection, "ENGINE", _Capped())
    double.jobs["pdf_7"] = Job("pdf_7", b"", file=WHOLE + os.urandom(20_000))
    missed = collect(of(), provider, store, checker)
    assert isinstance(missed, NotCollected)
    assert missed.kind == "bad_output"
    assert keys_in(store) == []


class _Capped:
    download_bytes_most = 10_000
