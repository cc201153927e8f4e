"""PDFMonkey's adapter against its double: what every adapter must do, and what this vendor cannot, declared so."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from batches.providers import make_provider
from batches.providers.base import DocumentSource, JobPhase, JobStatus, Provider, ProviderConfig, ResultRef
from batches.providers.errors import AnswerLost, InvalidInput, NotFound
from tests.providers.conformance import MAX_BYTES, Peer, ProviderConformance, open_gate, utc_now
from tests.providers.pdfmonkey_double import API_KEY, PDFMonkeyDouble
from tests.providers.pdfmonkey_service import WHOLE_HTML, signed_headers

OPTIONS = {"template": WHOLE_HTML, "variable": "html"}
WEBHOOK_SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3"


class PDFMonkeyPeer:
    webhook_secret = WEBHOOK_SECRET

    def __init__(self, double: PDFMonkeyDouble) -> None:
        self.double = double
        self._config: dict[str, Any] = {"slug": "pdfmonkey", "base_url": double.base_url, "api_key": API_KEY}
        self._config |= {"options": OPTIONS, "read_timeout": 5}
        self.secrets = [API_KEY, "s3cretAuthT0ken"]
        self.provider = self.provider_with()

    def provider_with(self, **config: Any) -> Provider:
        return make_provider("pdfmonkey", ProviderConfig(**self._config | config))

    def misbehave(self, action: str, **parameters: Any) -> None:
        self.double.misbehave(action, **parameters)

    def accepted_count(self) -> int:
        return len(self.double.documents)

    def empty_wallet(self) -> None:
        """As 4xx or as a failure (4.8: UNKNOWN): here HTTP's own word for it."""
        self.misbehave("no_credit")

    def finished(self, provider_job_id: str) -> JobStatus:
        self.secrets.append(provider_job_id)
        deadline = time.monotonic() + 60
        while True:
            status = self.provider.fetch_status(provider_job_id, now=utc_now())
            if status.phase is not JobPhase.RUNNING:
                return status
            assert time.monotonic() < deadline, f"the document is still {status.status_word}"
            threading.Event().wait(0.005)

    def sign(self, body: bytes, at: datetime) -> dict[str, str]:
        return signed_headers(WEBHOOK_SECRET, "msg_1", at.timestamp(), body)


class TestAgainstTheDouble(ProviderConformance):
    @pytest.fixture
    def peer(self) -> Iterator[PDFMonkeyPeer]:
        with PDFMonkeyDouble() as double:
            peer = PDFMonkeyPeer(double)
            yield peer
            peer.provider.close()

    # --- no key protects a submission, and none has to ---

    def test_a_lost_answer_is_found_again_with_the_same_key_and_bytes(self, peer: PDFMonkeyPeer) -> None:
        """It is made again: a draft that is never begun is not billed."""
        capabilities = peer.provider.capabilities
        assert (capabilities.client_key, capabilities.drafts, capabilities.resend_is_harmless) == (False, True, True)
        peer.misbehave("drop_after_acceptance")
        assert self.refused(AnswerLost, peer).failure_class == "unknown_outcome"
        found = self.submit(peer)
        assert peer.finished(found.provider_job_id).phase is JobPhase.SUCCEEDED
        assert peer.double.ledger() == {"accepted": 2, "billed": {"key-1": 1}, "keys_at_files": 0}

    def test_a_replay_gives_the_same_job(self, peer: PDFMonkeyPeer) -> None:
        """It gives another draft, and a bill only for what is begun."""
        request = peer.provider.prepare(self.document())
        first, second = (
            peer.provider.submit(request, idempotency_key="key-1", now=utc_now(), gate=open_gate) for _ in range(2)
        )
        assert first.provider_job_id != second.provider_job_id
        assert peer.double.ledger()["billed"] == {}

    def test_one_key_for_two_documents_is_a_conflict(self, peer: Peer) -> None:
        assert not peer.provider.capabilities.client_key
        self.submit(peer, "key-1", "Invoice for Adaeze Okoye")
        self.submit(peer, "key-1", "Invoice for Nils Lindqvist")
        assert peer.accepted_count() == 2

    # --- what is said otherwise ---

    def test_a_document_is_submitted_rendered_fetched_and_deleted(self, peer: PDFMonkeyPeer) -> None:
        """The record stays, so a second deletion has nothing to say; the card tells that the file is gone."""
        accepted = self.submit(peer)
        status = peer.finished(accepted.provider_job_id)
        assert status.result is not None
        sink = io.BytesIO()
        downloaded = peer.provider.download(status.result, sink, max_bytes=MAX_BYTES, now=utc_now())
        assert sink.getvalue().startswith(b"%PDF-")
        assert b"Invoice for Adaeze Okoye" in sink.getvalue()
        assert set(downloaded.declared_sizes) == {downloaded.byte_count} == {len(sink.getvalue())}
        assert not peer.provider.is_gone(status.result, now=utc_now()).is_gone
        for _ in range(2):
            deleted = peer.provider.delete_remote(status.result, now=utc_now())
            assert (deleted.already_gone, deleted.exchange.status) == (False, 204)
        assert peer.provider.is_gone(status.result, now=utc_now()).is_gone
        with pytest.raises(NotFound):
            peer.provider.download(status.result, io.BytesIO(), max_bytes=MAX_BYTES, now=utc_now())

    def test_a_document_that_is_refused_is_invalid(self, peer: Peer) -> None:
        with pytest.raises(InvalidInput) as caught:
            self.submit(peer, text="forbidden words")
        assert (caught.value.failure_class, caught.value.status) == ("invalid_input", 422)
        assert caught.value.words == 'PDFMonkey: ["Payload is not acceptable"]'

    def test_a_failed_job_tells_its_code_and_whether_it_was_billed(self, peer: Peer) -> None:
        """In words alone; and nothing says that it was not billed."""
        assert not peer.provider.capabilities.unbilled_failure_codes
        peer.misbehave("fail", message="Liquid error: undefined filter")
        status = peer.finished(self.submit(peer).provider_job_id)
        assert (status.phase, status.error_code, status.unbilled) == (JobPhase.FAILED, "", False)
        assert (status.error_words, status.no_credit) == ("Liquid error: undefined filter", False)

    def test_a_cut_file_with_its_own_length_is_told_by_the_declared_sizes(self, peer: Peer) -> None:
        """No size is told elsewhere, so only the missing end of the file tells it."""
        result = self.result(peer)
        assert result.size_bytes is None
        peer.misbehave("truncated_file", share=0.5, content_length="wrong")
        sink = io.BytesIO()
        peer.provider.download(result, sink, max_bytes=MAX_BYTES, now=utc_now())
        assert b"%%EOF" not in sink.getvalue()

    def test_a_finished_job_without_a_link_is_fetched_by_its_id(self, peer: Peer) -> None:
        """An id opens no file: the card names a link again."""
        assert peer.provider.capabilities.link_refresh
        result = self.result(peer)
        with pytest.raises(NotFound):
            peer.provider.download(ResultRef(result.provider_job_id), io.BytesIO(), max_bytes=MAX_BYTES, now=utc_now())
        again = peer.finished(result.provider_job_id).result
        assert again is not None
        peer.provider.download(again, io.BytesIO(), max_bytes=MAX_BYTES, now=utc_now())

    def test_a_webhook_is_proven_by_the_bytes_that_came(self, peer: Peer) -> None:
        body = json.dumps({"document": {"id": "d-1", "status": "success", "meta": '{"job_key": "k"}'}}).encode()
        now = utc_now().replace(microsecond=0)
        headers, secrets = peer.sign(body, now), [peer.webhook_secret]
        assert peer.provider.verify_webhook(headers, body, secrets, now=now) == now
        (event,) = peer.provider.parse_webhook(body)
        assert (event.type, event.provider_job_id) == ("documents.generation.success", "d-1")
        with pytest.raises(Exception, match="does not match"):
            peer.provider.verify_webhook(headers, body.replace(b" ", b"", 1), secrets, now=now)
        with pytest.raises(Exception, match="too far") as caught:
            peer.provider.verify_webhook(headers, body, secrets, now=now + timedelta(minutes=10))
        assert caught.value.stale  # type: ignore[attr-defined]  # a SignatureRefused

    def test_what_cannot_be_rendered_at_all_is_not_even_sent(self, peer: Peer) -> None:
        super().test_what_cannot_be_rendered_at_all_is_not_even_sent(peer)
        with pytest.raises(InvalidInput):
            peer.provider.prepare(DocumentSource("url", "https://example.com"))
