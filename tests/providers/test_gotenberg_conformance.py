"""Gotenberg's adapter in both modes against its double, with what came to us kept in a real store.

It keeps no job, key, file or money, so the cases of those are told by what it declares, and by what it does instead.
"""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from batches.engine import received
from batches.providers import make_provider
from batches.providers.base import Delivery, JobPhase, JobStatus, Provider, ProviderConfig
from batches.providers.errors import (
    AnswerLost,
    ContractBroken,
    InvalidInput,
    KeyConflict,
    NotFound,
)
from batches.storage.disk import DiskStore
from tests.providers.conformance import MAX_BYTES, Peer, ProviderConformance, open_gate, utc_now
from tests.providers.gotenberg_double import API_KEY, GotenbergDouble, pdf_of

WEBHOOK_SECRET = "whsec_invented"
SLUG = "gotenberg"


class Receiver:
    """Stands for our own address: keeps what comes for each key, as `engine/callbacks.py` does with its rows."""

    def __init__(self, store: DiskStore, make: Any) -> None:
        self.refusing = 0  # so many calls are answered 503
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                key = self.path.rpartition("/")[2]
                whole = len(body) == int(self.headers["Content-Length"])
                if receiver.refusing or not whole:
                    receiver.refusing = max(0, receiver.refusing - 1)
                    self.send_response(503)
                    self.end_headers()
                    return
                provider: Provider = make()
                provider.verify_webhook(dict(self.headers), body, [WEBHOOK_SECRET], now=utc_now())
                if "json" in self.headers["Content-Type"]:
                    for event in provider.parse_webhook(body):
                        if event.phase is JobPhase.FAILED:
                            received.keep_failure(store, SLUG, replace(event, provider_job_id=key))
                else:
                    received.keep_file(store, SLUG, key, io.BytesIO(body))
                provider.close()
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/webhooks/{SLUG}/token"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class GotenbergPeer:
    webhook_secret = WEBHOOK_SECRET

    def __init__(self, double: GotenbergDouble, folder: Path, mode: str) -> None:
        self.double = double
        self.store = DiskStore(folder)
        self.store.ensure()
        self.receiver = Receiver(self.store, lambda: self.provider_with())
        self._config: dict[str, Any] = {
            "slug": SLUG,
            "base_url": double.url,
            "api_key": API_KEY,
            "webhook_secrets": (WEBHOOK_SECRET,),
            "callback_url": self.receiver.url,
            "options": {"mode": mode, "network": "files"},
        }
        self.secrets = [API_KEY, API_KEY.partition(":")[2], WEBHOOK_SECRET, self.receiver.url]
        self.provider = self.provider_with()

    def provider_with(self, **config: Any) -> Provider:
        made = make_provider("gotenberg", ProviderConfig(**self._config | config))
        return received.receiving(made, self.store, SLUG)

    def misbehave(self, action: str, **parameters: Any) -> None:
        self.double.misbehave({"do": action, **parameters})

    def accepted_count(self) -> int:
        return len(self.double.renders)

    def empty_wallet(self) -> None:
        raise AssertionError("there is none")

    def finished(self, provider_job_id: str) -> JobStatus:
        self.secrets.append(provider_job_id)
        deadline = time.monotonic() + 30
        while True:
            status = self.provider.fetch_status(provider_job_id, now=utc_now())
            if status.phase is not JobPhase.RUNNING:
                return status
            assert time.monotonic() < deadline, f"the job is still {status.status_word}"
            threading.Event().wait(0.01)

    def sign(self, body: bytes, at: datetime) -> dict[str, str]:
        return {"Authorization": f"Bearer {WEBHOOK_SECRET}"}


class GotenbergConformance(ProviderConformance):
    """What holds in both modes; what it has none of is declared, and where asked for all the same, refused."""

    def test_a_document_is_submitted_rendered_fetched_and_deleted(self, peer: Peer) -> None:
        accepted = self.submit(peer)
        assert accepted.provider_job_id == "key-1", "the key is all the name that it has"
        assert accepted.exchange.kind == "submit"
        status = peer.finished(accepted.provider_job_id)
        assert status.phase is JobPhase.SUCCEEDED
        assert status.result is not None
        sink = io.BytesIO()
        downloaded = peer.provider.download(status.result, sink, max_bytes=MAX_BYTES, now=utc_now())
        assert sink.getvalue().startswith(b"%PDF-")
        assert b"Invoice for Adaeze Okoye" in sink.getvalue()
        assert downloaded.byte_count == len(sink.getvalue()) == status.result.size_bytes
        assert downloaded.content_type == "application/pdf"
        assert not peer.provider.capabilities.remote_delete
        with pytest.raises(NotImplementedError):
            peer.provider.delete_remote(status.result, now=utc_now())
        with pytest.raises(NotImplementedError):
            peer.provider.is_gone(status.result, now=utc_now())

    def test_evidence_of_a_success_keeps_no_secret(self, peer: Peer) -> None:
        accepted = self.submit(peer)
        status = peer.finished(accepted.provider_job_id)
        assert status.result is not None
        downloaded = peer.provider.download(status.result, io.BytesIO(), max_bytes=MAX_BYTES, now=utc_now())
        kept = repr([x.exchange for x in (accepted, status, downloaded)])
        for secret in [*peer.secrets, "Adaeze Okoye"]:
            assert secret not in kept
        assert "%PDF" not in repr(accepted)

    def test_a_lost_answer_is_found_again_with_the_same_key_and_bytes(self, peer: Peer) -> None:
        """A repeat renders once more, which costs nothing, and under the key there is one PDF."""
        peer.misbehave("drop_after_acceptance", reset=True)
        assert self.refused(AnswerLost, peer).failure_class == "unknown_outcome"
        assert peer.provider.capabilities.resend_is_harmless
        found = self.submit(peer)
        assert found.provider_job_id == "key-1"
        assert peer.finished("key-1").phase is JobPhase.SUCCEEDED
        assert peer.accepted_count() == 1

    def test_one_key_for_two_documents_is_a_conflict(self, peer: Peer) -> None:
        """It knows no keys, and its 409 is about the page."""
        assert not peer.provider.capabilities.client_key
        peer.misbehave("error_before_acceptance", status=409)
        error = self.refused(InvalidInput, peer)
        assert not isinstance(error, KeyConflict)
        assert error.code == "409"

    def test_an_empty_wallet_is_the_accounts_fault(self, peer: Peer) -> None:
        assert "nothing" in peer.provider.capabilities.billed_unit
        assert not peer.provider.capabilities.no_credit_events

    def test_a_job_that_nobody_knows_is_not_found(self, peer: Peer) -> None:
        assert not peer.provider.capabilities.status_poll
        own = make_provider("gotenberg", ProviderConfig(SLUG, "http://127.0.0.1:1", ""))
        with pytest.raises(NotFound):
            own.fetch_status("key-1", now=utc_now())

    def test_a_webhook_is_proven_by_the_bytes_that_came(self, peer: Peer) -> None:
        """It signs nothing: the address and the secret that it was given prove a call, whatever its bytes."""
        assert not peer.provider.capabilities.webhook_signature
        now = utc_now()
        for name in ("Authorization", "authorization"):
            headers = {name: f"Bearer {WEBHOOK_SECRET}"}
            assert peer.provider.verify_webhook(headers, b"{}", ["another", WEBHOOK_SECRET], now=now) == now

    @pytest.mark.parametrize("secrets", [[], [""], ["", ""]])
    def test_no_secret_refuses_every_webhook(self, peer: Peer, secrets: list[str]) -> None:
        """Without one the address alone proves it, which only this installation gives out."""
        now = utc_now()
        assert peer.provider.verify_webhook({}, b"{}", secrets, now=now) == now

    def test_a_document_that_is_refused_is_invalid(self, peer: Peer) -> None:
        peer.misbehave("error_before_acceptance", status=400)
        error = self.refused(InvalidInput, peer)
        assert (error.failure_class, error.code) == ("invalid_input", "400")

    def test_a_slow_answer_is_given_up_and_in_doubt(self, peer: Peer) -> None:
        peer.misbehave("slow_after_acceptance", seconds=1)
        hasty = peer.provider_with(read_timeout=0.3)
        with pytest.raises(AnswerLost) as caught:
            hasty.submit(hasty.prepare(self.document()), idempotency_key="key-1", now=utc_now(), gate=open_gate)
        self.keeps_no_secret(peer, caught.value)
        assert peer.accepted_count() == 1
        hasty.close()

    # --- of status reads and downloads: there are none but in our own store ---------------------------------------

    def test_an_unknown_status_is_not_final(self, peer: Peer, word: str = "") -> None:
        """Its words are those of events: only a table makes one final."""
        for body in (b'{"event": "webhook.progress", "correlationId": "key-1"}', b"{}", b'{"event": 7}'):
            (event,) = peer.provider.parse_webhook(body)
            assert event.phase is None
        for body in (b"[]", b"x", b"", b"[" * 100_000):
            with pytest.raises(ValueError, match=r"."):
                peer.provider.parse_webhook(body)

    def test_a_failed_job_tells_its_code_and_whether_it_was_billed(self, peer: Peer) -> None:
        for code, passes in (("503", True), ("429", True), ("500", True), ("409", False), ("400", False)):
            assert (code in peer.provider.capabilities.unbilled_failure_codes) is passes

    def test_a_status_read_that_breaks_off_says_nothing_about_the_job(self, peer: Peer) -> None:
        """There is no way to break off: it is a look into the store, and a store that is away is no answer."""
        self.submit(peer)
        gone = received.receiving(peer.provider_with(), DiskStore(Path("/nowhere/at/all")), SLUG)
        with pytest.raises(ContractBroken):
            gone.fetch_status("key-1", now=utc_now())
        gone.close()

    def test_a_rate_limited_status_read_says_how_long_to_wait(self, peer: Peer) -> None:
        """Nobody is asked, so nobody limits it: what never came is waited for, or known to be nowhere."""
        if peer.provider.capabilities.delivery is Delivery.CALLBACK:
            assert peer.provider.fetch_status("key-1", now=utc_now()).phase is JobPhase.RUNNING
            return
        with pytest.raises(NotFound):
            peer.provider.fetch_status("key-1", now=utc_now())

    def test_an_expired_link_is_not_found(self, peer: Peer, answer: str = "") -> None:
        self.submit(peer)
        result = peer.finished("key-1").result
        assert result is not None
        with pytest.raises(NotFound):
            peer.provider.download(
                replace(result, provider_job_id="key-2"), io.BytesIO(), max_bytes=MAX_BYTES, now=utc_now()
            )

    def test_a_download_that_is_cut_short_is_not_a_download(self, peer: Peer) -> None:
        """Cut on its way to us it is not kept: the answer is lost, the call is made again."""
        if peer.provider.capabilities.delivery is Delivery.ANSWER:
            peer.misbehave("truncated_answer")
            self.refused(AnswerLost, peer)
        else:
            peer.misbehave("callback_cut")
        assert self.result(peer).size_bytes == len(pdf_of("Invoice for Adaeze Okoye"))

    def test_a_cut_file_with_its_own_length_is_told_by_the_declared_sizes(self, peer: Peer) -> None:
        """A copy of what lies here is as long as it lies here; whether it is whole, its own end says."""
        result = self.result(peer)
        downloaded = peer.provider.download(result, io.BytesIO(), max_bytes=MAX_BYTES, now=utc_now())
        assert (downloaded.declared_sizes, downloaded.byte_count) == ((), result.size_bytes)

    def test_an_error_page_with_status_200_is_told_by_its_type(self, peer: Peer) -> None:
        """It is no acceptance, and by a call it is told by its first bytes (`test_callbacks.py`)."""
        peer.misbehave("answer_after_acceptance", body="<html>Something went wrong</html>", content_type="text/html")
        self.refused(ContractBroken, peer)


class TestWithCallbacks(GotenbergConformance):
    @pytest.fixture
    def peer(self, tmp_path: Path) -> Iterator[GotenbergPeer]:
        with GotenbergDouble() as double:
            peer = GotenbergPeer(double, tmp_path / "store", "async")
            yield peer
            peer.provider.close()
            peer.receiver.close()


class TestInTheAnswer(GotenbergConformance):
    @pytest.fixture
    def peer(self, tmp_path: Path) -> Iterator[GotenbergPeer]:
        with GotenbergDouble() as double:
            peer = GotenbergPeer(double, tmp_path / "store", "sync")
            yield peer
            peer.provider.close()
            peer.receiver.close()
