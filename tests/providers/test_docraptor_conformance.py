"""DocRaptor's adapter against its double: what every adapter must do, and what this vendor cannot, declared so."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from batches.providers import make_provider
from batches.providers.base import DocumentSource, JobPhase, JobStatus, Provider, ProviderConfig, ResultRef
from batches.providers.errors import AnswerLost, InvalidInput, NotFound, TooManyAtOnce
from tests.providers.conformance import MAX_BYTES, Peer, ProviderConformance, open_gate, utc_now
from tests.providers.docraptor_double import API_KEY, DocRaptorDouble

LIVE = {"mode": "live", "hosting": "once", "network": "no"}
CALLBACK_URL = "https://batches.example.com/webhooks/docraptor/7f0c2a"


class DocRaptorPeer:
    webhook_secret = ""

    def __init__(self, double: DocRaptorDouble, **options: str) -> None:
        self.double = double
        self._config: dict[str, Any] = {"slug": "docraptor", "base_url": double.url, "api_key": API_KEY}
        self._config |= {"options": LIVE | options, "read_timeout": 5}
        self.secrets = [API_KEY, "0craptorQ7", CALLBACK_URL]
        self.provider = self.provider_with()

    def provider_with(self, **config: Any) -> Provider:
        return make_provider("docraptor", ProviderConfig(**self._config | config))

    def misbehave(self, action: str, **parameters: Any) -> None:
        self.double.misbehave(action, **parameters)

    def accepted_count(self) -> int:
        return len(self.double.jobs)

    def empty_wallet(self) -> None:
        """No sign of it is documented (3.12): HTTP's own is read, should it come."""
        self.misbehave("no_credit")

    def finished(self, provider_job_id: str) -> JobStatus:
        self.secrets.append(provider_job_id)
        deadline = time.monotonic() + 60
        while True:
            status = self.provider.fetch_status(provider_job_id, now=utc_now())
            if status.phase is not JobPhase.RUNNING:
                return status
            assert time.monotonic() < deadline, f"the job is still {status.status_word}"
            threading.Event().wait(0.01)

    def sign(self, body: bytes, at: datetime) -> dict[str, str]:
        return {}


class TestHosted(ProviderConformance):
    """Files that DocRaptor hosts: they can be deleted, and are open to whoever has their address."""

    options: dict[str, str] = {"hosting": "hosted"}

    @pytest.fixture
    def peer(self) -> Iterator[DocRaptorPeer]:
        with DocRaptorDouble() as double:
            peer = DocRaptorPeer(double, **self.options)
            yield peer
            peer.provider.close()

    def test_an_account_can_be_checked_without_cost(self, peer: Peer) -> None:
        state = peer.provider.check_account(now=utc_now())
        assert (state.plan, state.balance, state.exchange.status) == ("", None, 200)
        assert peer.accepted_count() == 0

    # --- no key protects a submission ---

    def test_a_lost_answer_is_found_again_with_the_same_key_and_bytes(self, peer: Peer) -> None:
        """By tag, in the list of attempts; it is never sent again."""
        capabilities = peer.provider.capabilities
        assert (capabilities.client_key, capabilities.resend_is_harmless) == (False, False)
        peer.misbehave("drop_after_acceptance")
        assert self.refused(AnswerLost, peer).failure_class == "unknown_outcome"
        looked = peer.provider.find_submission("key-1", first_sent_at=utc_now(), now=utc_now())
        assert looked is not None
        assert (looked.jobs, looked.nameless) == ((), 1)

    def test_a_replay_gives_the_same_job(self, peer: Peer) -> None:
        """It gives another one, and another bill: which is why a lost answer may not be repeated."""
        assert not peer.provider.capabilities.client_key
        assert self.submit(peer).provider_job_id != self.submit(peer).provider_job_id
        assert peer.accepted_count() == 2

    def test_one_key_for_two_documents_is_a_conflict(self, peer: Peer) -> None:
        assert not peer.provider.capabilities.client_key
        self.submit(peer, "key-1", "Invoice for Adaeze Okoye")
        self.submit(peer, "key-1", "Invoice for Nils Lindqvist")
        looked = peer.provider.find_submission("key-1", first_sent_at=utc_now(), now=utc_now())
        assert looked is not None
        assert looked.nameless == 2

    def test_a_look_up_tells_of_every_job_of_a_key_or_says_that_it_cannot_tell(self, peer: Peer) -> None:
        capabilities = peer.provider.capabilities
        assert capabilities.look_up
        assert capabilities.look_up_after == 720, "a job may run for 600 s, and be listed only then"
        self.submit(peer, "key-1")
        sent_at = utc_now() - timedelta(seconds=1)
        found, none = (
            peer.provider.find_submission(key, first_sent_at=sent_at, now=utc_now()) for key in ("key-1", "none")
        )
        assert found is not None
        assert none is not None
        assert (found.jobs, found.nameless, found.exchange.kind) == ((), 1, "look_up")
        assert (none.jobs, none.nameless) == ((), 0)

    # --- what is said otherwise ---

    def test_a_document_that_is_refused_is_invalid(self, peer: Peer) -> None:
        loading = peer.provider_with(options={**LIVE, "network": "yes"})
        request = loading.prepare(DocumentSource("url", "http://127.0.0.1/private"))
        with pytest.raises(InvalidInput) as caught:
            loading.submit(request, idempotency_key="key-1", now=utc_now(), gate=open_gate)
        assert (caught.value.failure_class, caught.value.status, caught.value.code) == ("invalid_input", 422, "")
        assert caught.value.words == "DocRaptor: Document URL could not be loaded"
        loading.close()

    def test_a_failed_job_tells_its_code_and_whether_it_was_billed(self, peer: Peer) -> None:
        """In words alone; and nothing says that it was not billed."""
        assert not peer.provider.capabilities.unbilled_failure_codes
        peer.misbehave("fail", message="Line 3: unexpected token")
        status = peer.finished(self.submit(peer).provider_job_id)
        assert (status.phase, status.error_code, status.unbilled) == (JobPhase.FAILED, "", False)
        assert status.error_words == "Line 3: unexpected token Name: Line 3: unexpected token"
        assert status.exchange.status == 200

    def test_a_cut_file_with_its_own_length_is_told_by_the_declared_sizes(self, peer: Peer) -> None:
        """No size is told elsewhere, so only the missing end of the file tells it."""
        result = self.result(peer)
        assert result.size_bytes is None
        peer.misbehave("truncated_file", share=0.5, content_length="wrong")
        sink = io.BytesIO()
        downloaded = peer.provider.download(result, sink, max_bytes=MAX_BYTES, now=utc_now())
        assert set(downloaded.declared_sizes) == {downloaded.byte_count}
        assert b"%%EOF" not in sink.getvalue()

    def test_a_finished_job_without_a_link_is_fetched_by_its_id(self, peer: Peer) -> None:
        """A job's id opens no file: a status read names it again."""
        result = self.result(peer)
        with pytest.raises(NotFound):
            peer.provider.download(ResultRef(result.provider_job_id), io.BytesIO(), max_bytes=MAX_BYTES, now=utc_now())

    # --- callbacks are not signed ---

    def test_a_webhook_is_proven_by_the_bytes_that_came(self, peer: Peer) -> None:
        """By its address: see `engine/callbacks.py`."""
        capabilities = peer.provider.capabilities
        assert (capabilities.webhook_signature, capabilities.webhook_endpoints) == (False, False)
        now = utc_now()
        assert peer.provider.verify_webhook({}, b"{}", [], now=now) == now

    @pytest.mark.parametrize("secrets", [[], ["x"]])
    def test_no_secret_refuses_every_webhook(self, peer: Peer, secrets: list[str]) -> None:
        """Without an address of their own, callbacks are refused for want of a signature (`engine/inbox.py`)."""
        assert not peer.provider.capabilities.webhook_signature
        peer.provider.verify_webhook({}, b"{}", secrets, now=utc_now())


class TestHandedOutAFewTimes(TestHosted):
    """Files that can be fetched with the key, a few times, and not be deleted."""

    options: dict[str, str] = {}

    def test_a_document_is_submitted_rendered_fetched_and_deleted(self, peer: Peer) -> None:
        status = peer.finished(self.submit(peer).provider_job_id)
        assert status.result is not None
        sink = io.BytesIO()
        downloaded = peer.provider.download(status.result, sink, max_bytes=MAX_BYTES, now=utc_now())
        assert sink.getvalue().startswith(b"%PDF-")
        assert set(downloaded.declared_sizes) == {downloaded.byte_count} == {len(sink.getvalue())}
        assert not peer.provider.capabilities.remote_delete
        for refused in (
            lambda: peer.provider.delete_remote(status.result or ResultRef(""), now=utc_now()),
            lambda: peer.provider.is_gone(status.result or ResultRef(""), now=utc_now()),
        ):
            with pytest.raises(NotFound) as caught:
                refused()
            assert caught.value.exchange is None, "a link is never asked for to see whether it works"

    def test_evidence_of_a_success_keeps_no_secret(self, peer: Peer) -> None:
        accepted = self.submit(peer)
        status = peer.finished(accepted.provider_job_id)
        assert status.result is not None
        downloaded = peer.provider.download(status.result, io.BytesIO(), max_bytes=MAX_BYTES, now=utc_now())
        kept = repr([x.exchange for x in (accepted, status, downloaded)])
        download_id = status.result.url.rpartition("/")[2]
        for secret in [*peer.secrets, accepted.provider_job_id, download_id, "Adaeze Okoye"]:
            assert secret not in kept

    @pytest.mark.parametrize(
        ("answer", "kind"), [("404", NotFound), ("410", NotFound), ("400", NotFound), ("403_xml", TooManyAtOnce)]
    )
    def test_an_expired_link_is_not_found(self, peer: Peer, answer: str, kind: type[Exception]) -> None:
        """With the key shown, a 403 may be "too many at once" here too, so it is asked again."""
        result = self.result(peer)
        peer.misbehave("expired_file", answer=answer)
        with pytest.raises(kind):
            peer.provider.download(result, io.BytesIO(), max_bytes=MAX_BYTES, now=utc_now())
