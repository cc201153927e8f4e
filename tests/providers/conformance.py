"""What every adapter must do against a real HTTP peer of its vendor, in the engine's words.

A subclass gives a `peer` fixture; the tests speak to its provider through `base.Provider` alone. How a peer is made to
misbehave is its own business: the actions' names are those of the sandbox's fault rules.
"""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import pytest

from batches.providers.base import (
    Accepted,
    DocumentSource,
    Finished,
    JobPhase,
    JobStatus,
    Provider,
    ResultRef,
    SignatureRefused,
)
from batches.providers.errors import (
    AnswerLost,
    ContractBroken,
    InsufficientCredit,
    InvalidInput,
    KeyConflict,
    NotFound,
    NotSent,
    ProviderError,
    RateLimited,
    ServerFault,
    TooLarge,
    Unauthorized,
)

CASES = Path(__file__).resolve().parents[1] / "cases"
MAX_BYTES = 50 * 1024 * 1024


class Peer(Protocol):
    """The vendor's side: a server under the test's control, and the account that speaks to it."""

    provider: Provider
    #: Everything that must never be kept or shown.
    secrets: list[str]
    webhook_secret: str

    def provider_with(self, **config: Any) -> Provider:
        """Another account's adapter at the same server."""
        ...

    def misbehave(self, action: str, **parameters: Any) -> None:
        """The next exchange that `action` is about goes wrong, once."""
        ...

    def accepted_count(self) -> int:
        """How many jobs exist at the vendor."""
        ...

    def empty_wallet(self) -> None: ...

    def finished(self, provider_job_id: str) -> JobStatus:
        """The job's status, once it has ended."""
        ...

    def sign(self, body: bytes, at: datetime) -> dict[str, str]:
        """Headers of a webhook with `body`, signed at `at` with `webhook_secret`."""
        ...


def utc_now() -> datetime:
    return datetime.now(UTC)


def open_gate() -> None:
    """Lets a submission pass at once."""


class ProviderConformance:
    """Subclasses are called Test… and give `peer`. What a vendor cannot do, it has to have declared."""

    #: Whether another document under one key is answered as a conflict; else the first one's job is named again.
    says_conflict = True
    #: Whether the size of a result is told by something beside the length of its own transfer.
    tells_size = True

    def notice(self) -> bytes:
        """The body of a webhook about `job_1`, with spaces that are part of what is signed."""
        return (CASES / "067-webhook-body.json").read_bytes()

    def document(self, text: str = "Invoice for Adaeze Okoye") -> DocumentSource:
        return DocumentSource("html", f"<!doctype html><title>t</title><p>{text}</p>", filename="invoice.pdf")

    def submit(self, peer: Peer, key: str = "key-1", text: str = "Invoice for Adaeze Okoye") -> Accepted | Finished:
        """Have a document rendered; what is only a draft by then is begun as well."""
        request = peer.provider.prepare(self.document(text))
        answer = peer.provider.submit(request, idempotency_key=key, now=utc_now(), gate=open_gate)
        if isinstance(answer, Accepted) and answer.is_draft:
            job_id = answer.provider_job_id
            assert peer.provider.capabilities.drafts
            assert peer.provider.fetch_status(job_id, now=utc_now()).phase is JobPhase.DRAFT
            peer.provider.start(job_id, request, idempotency_key=key, now=utc_now(), gate=open_gate)
        return answer

    def result(self, peer: Peer, key: str = "key-1") -> ResultRef:
        result = peer.finished(self.submit(peer, key).provider_job_id).result
        assert result is not None
        return result

    def refused(self, kind: type[ProviderError], peer: Peer, *args: Any) -> ProviderError:
        with pytest.raises(kind) as caught:
            self.submit(peer, *args)
        self.keeps_no_secret(peer, caught.value)
        return caught.value

    def keeps_no_secret(self, peer: Peer, error: ProviderError) -> None:
        told = f"{error!r} {error} {error.words} {error.detail} {error.code} {error.exchange!r}"
        for secret in peer.secrets:
            assert secret not in told

    # --- the straight road -----------------------------------------------------------------------------------------

    def test_a_document_is_submitted_rendered_fetched_and_deleted(self, peer: Peer) -> None:
        accepted = self.submit(peer)
        assert accepted.provider_job_id
        assert accepted.exchange.kind == "submit"
        status = peer.finished(accepted.provider_job_id)
        assert status.phase is JobPhase.SUCCEEDED
        assert status.result is not None
        sink = io.BytesIO()
        downloaded = peer.provider.download(status.result, sink, max_bytes=MAX_BYTES, now=utc_now())
        assert sink.getvalue().startswith(b"%PDF-")
        assert set(downloaded.declared_sizes) == {downloaded.byte_count} == {len(sink.getvalue())}
        assert downloaded.content_type.startswith("application/pdf")
        if not peer.provider.capabilities.remote_delete:
            with pytest.raises(ProviderError):
                peer.provider.delete_remote(status.result, now=utc_now())
            return
        deleted = peer.provider.delete_remote(status.result, now=utc_now())
        assert not deleted.already_gone
        assert peer.provider.delete_remote(status.result, now=utc_now()).already_gone
        with pytest.raises(NotFound):
            peer.provider.download(status.result, io.BytesIO(), max_bytes=MAX_BYTES, now=utc_now())

    def test_the_same_source_is_prepared_as_the_same_bytes(self, peer: Peer) -> None:
        first = peer.provider.prepare(DocumentSource("html", "<p>é 発票 🧾</p>", options={"scale": 1, "format": "A4"}))
        second = peer.provider.prepare(DocumentSource("html", "<p>é 発票 🧾</p>", options={"format": "A4", "scale": 1}))
        assert first == second

    def test_an_account_can_be_checked_without_cost(self, peer: Peer) -> None:
        state = peer.provider.check_account(now=utc_now())
        assert state.plan
        assert state.exchange.status == 200
        assert peer.accepted_count() == 0

    def test_what_was_billed_is_listed_where_the_vendor_shows_it(self, peer: Peer) -> None:
        accepted = self.submit(peer)
        peer.finished(accepted.provider_job_id)
        receipts = peer.provider.list_receipts(now=utc_now())
        if not peer.provider.capabilities.receipts:
            assert receipts is None
            return
        assert receipts is not None
        assert accepted.provider_job_id in {job_id for each in receipts.entries for job_id in each.job_ids}

    def test_evidence_of_a_success_keeps_no_secret(self, peer: Peer) -> None:
        accepted = self.submit(peer)
        status = peer.finished(accepted.provider_job_id)
        assert status.result is not None
        downloaded = peer.provider.download(status.result, io.BytesIO(), max_bytes=MAX_BYTES, now=utc_now())
        exchanges = [accepted.exchange, status.exchange, downloaded.exchange]
        if peer.provider.capabilities.remote_delete:
            exchanges.append(peer.provider.delete_remote(status.result, now=utc_now()).exchange)
        kept = repr(exchanges)
        for secret in filter(None, [*peer.secrets, accepted.provider_job_id, status.result.url, "Adaeze Okoye"]):
            assert secret not in kept
        json.dumps([dict(exchange.response) for exchange in exchanges])

    # --- webhook addresses -----------------------------------------------------------------------------------------

    def test_an_address_is_registered_listed_without_its_secret_and_deleted(self, peer: Peer) -> None:
        if not peer.provider.capabilities.webhook_endpoints:
            with pytest.raises(ProviderError):
                peer.provider.list_webhooks(now=utc_now())
            return
        first, second = (
            peer.provider.register_webhook(f"https://batches.example.com/webhooks/{name}", now=utc_now())
            for name in ("one", "two")
        )
        assert first.endpoint.id != second.endpoint.id
        assert first.endpoint.secret
        assert second.endpoint.secret not in ("", first.endpoint.secret)
        listed = peer.provider.list_webhooks(now=utc_now())
        addresses = {each.id: each.url for each in listed.endpoints}
        assert addresses[first.endpoint.id] == "https://batches.example.com/webhooks/one"
        assert not any(each.secret for each in listed.endpoints)
        deleted = peer.provider.delete_webhook(first.endpoint.id, now=utc_now())
        again = peer.provider.delete_webhook(first.endpoint.id, now=utc_now())
        assert (deleted.already_gone, again.already_gone) == (False, True)
        left = {each.id for each in peer.provider.list_webhooks(now=utc_now()).endpoints}
        assert first.endpoint.id not in left
        assert second.endpoint.id in left
        kept = repr([each.exchange for each in (first, second, listed, deleted, again)])
        for secret in (*peer.secrets, first.endpoint.secret, second.endpoint.secret):
            assert secret not in kept
        assert first.endpoint.secret not in repr(first)
        assert {each.exchange.kind for each in (first, listed, deleted)} == {"webhook"}
        peer.provider.delete_webhook(second.endpoint.id, now=utc_now())

    # --- doubt -------------------------------------------------------------------------------------------------------

    def test_a_lost_answer_is_found_again_with_the_same_key_and_bytes(self, peer: Peer) -> None:
        peer.misbehave("drop_after_acceptance")
        lost = self.refused(AnswerLost, peer)
        assert lost.failure_class == "unknown_outcome"
        assert peer.accepted_count() == 1
        if not peer.provider.capabilities.client_key:
            return  # nothing is sent again: `decide_submission` leaves it unknown, or a look-up finds it
        found = self.submit(peer)
        assert peer.accepted_count() == 1
        assert peer.finished(found.provider_job_id).phase is JobPhase.SUCCEEDED

    def test_a_replay_gives_the_same_job(self, peer: Peer) -> None:
        first = self.submit(peer)
        if not (peer.provider.capabilities.client_key or peer.provider.capabilities.resend_is_harmless):
            self.submit(peer)
            assert peer.accepted_count() == 2, "so nothing may be sent twice, unless that is declared harmless"
            return
        assert self.submit(peer).provider_job_id == first.provider_job_id
        peer.finished(first.provider_job_id)
        assert self.submit(peer).provider_job_id == first.provider_job_id
        assert peer.accepted_count() == 1

    def test_one_key_for_two_documents_is_a_conflict(self, peer: Peer) -> None:
        first = self.submit(peer, "key-1", "Invoice for Adaeze Okoye")
        if not (self.says_conflict and peer.provider.capabilities.client_key):
            # So a key must never stand for two documents; `engine/keys.py` puts the bytes' hash into it.
            other = self.submit(peer, "key-1", "Invoice for Nils Lindqvist")
            is_same = other.provider_job_id == first.provider_job_id
            assert is_same == peer.provider.capabilities.client_key
            return
        error = self.refused(KeyConflict, peer, "key-1", "Invoice for Nils Lindqvist")
        assert error.failure_class == "idempotency_conflict"
        assert peer.accepted_count() == 1

    def test_a_dropped_submission_is_in_doubt_although_nothing_was_accepted(self, peer: Peer) -> None:
        peer.misbehave("drop_before_acceptance")
        self.refused(AnswerLost, peer)
        assert peer.accepted_count() == 0

    @pytest.mark.parametrize("moment", ["before", "after"])
    def test_a_server_error_leaves_the_outcome_open(self, peer: Peer, moment: str) -> None:
        peer.misbehave(f"error_{moment}_acceptance", status=503, retry_after=7)
        error = self.refused(ServerFault, peer)
        assert error.failure_class == "unknown_outcome"
        assert error.retry_after == 7
        assert error.status == 503
        assert peer.accepted_count() == (moment == "after")

    @pytest.mark.parametrize("moment", ["before", "after"])
    def test_a_proxys_error_page_leaves_the_outcome_open(self, peer: Peer, moment: str) -> None:
        peer.misbehave(f"html_502_{moment}_acceptance")
        assert self.refused(ServerFault, peer).status == 502

    def test_a_slow_answer_is_given_up_and_in_doubt(self, peer: Peer) -> None:
        peer.misbehave("slow_after_acceptance", seconds=3)
        hasty = peer.provider_with(read_timeout=0.3)
        request = hasty.prepare(self.document())
        with pytest.raises(AnswerLost) as caught:
            hasty.submit(request, idempotency_key="key-1", now=utc_now(), gate=open_gate)
        self.keeps_no_secret(peer, caught.value)
        assert peer.accepted_count() == 1
        hasty.close()

    @pytest.mark.parametrize(
        ("body", "content_type"),
        [
            ("<html><body>Welcome</body></html>", "text/html"),
            ("[]", "application/json"),
            ('"ok"', "application/json"),
            ("{", "application/json"),
            ("", "application/json"),
            ('{"status": "processing"}', "application/json"),
            ('{"id": null, "status": "processing"}', "application/json"),
            ('{"id": "", "status": "processing"}', "application/json"),
            ('{"id": true}', "application/json"),
            ("[" * 100_000, "application/json"),
        ],
    )
    def test_an_acceptance_that_cannot_be_read_is_in_doubt(self, peer: Peer, body: str, content_type: str) -> None:
        peer.misbehave("answer_after_acceptance", body=body, content_type=content_type)
        assert self.refused(ContractBroken, peer).failure_class == "unknown_outcome"
        assert peer.accepted_count() == 1

    def test_a_submission_waits_at_its_gate_and_nothing_arrives_when_it_stays_shut(self, peer: Peer) -> None:
        class ShutError(Exception):
            pass

        calls = []

        def shut() -> None:
            calls.append(peer.accepted_count())
            raise ShutError

        request = peer.provider.prepare(self.document())
        with pytest.raises(ShutError):
            peer.provider.submit(request, idempotency_key="key-1", now=utc_now(), gate=shut)
        peer.provider.submit(request, idempotency_key="key-1", now=utc_now(), gate=lambda: calls.append(7))
        assert calls == [0, 7]
        assert peer.accepted_count() == 1

    def test_nothing_is_in_doubt_when_nobody_listens(self, peer: Peer) -> None:
        nobody = peer.provider_with(base_url="http://127.0.0.1:1")
        with pytest.raises(NotSent) as caught:
            nobody.submit(nobody.prepare(self.document()), idempotency_key="key-1", now=utc_now(), gate=open_gate)
        assert "refused" in caught.value.words
        nobody.close()

    # --- definite answers --------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(("form", "least", "most"), [("seconds", 9, 9), ("http_date", 8, 60)])
    def test_a_rate_limit_says_how_long_to_wait(self, peer: Peer, form: str, least: float, most: float) -> None:
        # A date counts from the peer's second and our clock, so a busy machine between the two adds to the wait.
        peer.misbehave("rate_limited", retry_after=9, form=form)
        error = self.refused(RateLimited, peer)
        assert error.retry_after is not None
        assert least <= error.retry_after <= most
        assert error.failure_class == "rate_limited"
        assert peer.accepted_count() == 0

    def test_a_rate_limit_without_a_time_leaves_the_wait_to_us(self, peer: Peer) -> None:
        peer.misbehave("rate_limited", form="missing")
        assert self.refused(RateLimited, peer).retry_after is None

    def test_a_wrong_key_is_the_accounts_fault(self, peer: Peer) -> None:
        stranger = peer.provider_with(api_key="pdf_live_ofsomebodyelse")
        with pytest.raises(Unauthorized) as caught:
            stranger.submit(stranger.prepare(self.document()), idempotency_key="key-1", now=utc_now(), gate=open_gate)
        assert caught.value.failure_class == "auth"
        assert "pdf_live_ofsomebodyelse" not in f"{caught.value!r} {caught.value.exchange!r}"
        with pytest.raises(Unauthorized):
            stranger.check_account(now=utc_now())
        stranger.close()

    def test_an_empty_wallet_is_the_accounts_fault(self, peer: Peer) -> None:
        peer.empty_wallet()
        assert self.refused(InsufficientCredit, peer).failure_class == "insufficient_credit"
        assert peer.accepted_count() == 0

    def test_a_document_that_is_refused_is_invalid(self, peer: Peer) -> None:
        request = peer.provider.prepare(DocumentSource("url", "http://127.0.0.1/private"))
        with pytest.raises(InvalidInput) as caught:
            peer.provider.submit(request, idempotency_key="key-1", now=utc_now(), gate=open_gate)
        assert caught.value.failure_class == "invalid_input"
        assert caught.value.code

    def test_what_cannot_be_rendered_at_all_is_not_even_sent(self, peer: Peer) -> None:
        for source in (
            DocumentSource("html", " \n"),
            DocumentSource("html", "half a character \ud83d"),
            DocumentSource("docx", "x"),
            DocumentSource("html", "<p>x</p>", options={"scale": float("nan")}),
        ):
            with pytest.raises(InvalidInput):
                peer.provider.prepare(source)

    # --- status ------------------------------------------------------------------------------------------------------

    def test_a_job_that_nobody_knows_is_not_found(self, peer: Peer) -> None:
        with pytest.raises(NotFound) as caught:
            peer.provider.fetch_status("pdf_neverseen/../x?y#z", now=utc_now())
        assert caught.value.failure_class == "job_not_found"
        assert "neverseen" not in f"{caught.value!r} {caught.value.exchange!r}"

    @pytest.mark.parametrize("word", ["rendering_fonts", "WAITING", "Completed", "expired", "cancelled", ""])
    def test_an_unknown_status_is_not_final(self, peer: Peer, word: str) -> None:
        job_id = self.submit(peer).provider_job_id
        peer.finished(job_id)
        peer.misbehave("poll_answer", body={"id": job_id, "status": word})
        status = peer.provider.fetch_status(job_id, now=utc_now())
        assert (status.phase, status.status_word) == (JobPhase.RUNNING, word)

    def test_a_failed_job_tells_its_code_and_whether_it_was_billed(self, peer: Peer) -> None:
        job_id = self.submit(peer).provider_job_id
        peer.finished(job_id)
        unbilled_codes = peer.provider.capabilities.unbilled_failure_codes
        assert "something_new" not in unbilled_codes
        for code in ("render_failed", "something_new", *unbilled_codes):
            error = {"code": code, "message": "Chromium crashed."}
            peer.misbehave("poll_answer", body={"id": job_id, "status": "failed", "error": error})
            status = peer.provider.fetch_status(job_id, now=utc_now())
            assert status.phase is JobPhase.FAILED
            assert (status.error_code, status.unbilled) == (code, code in unbilled_codes)
            assert status.error_words == "Chromium crashed."

    def test_a_status_read_that_breaks_off_says_nothing_about_the_job(self, peer: Peer) -> None:
        job_id = self.submit(peer).provider_job_id
        peer.misbehave("poll_drop")
        with pytest.raises(AnswerLost) as caught:
            peer.provider.fetch_status(job_id, now=utc_now())
        self.keeps_no_secret(peer, caught.value)
        assert job_id not in f"{caught.value.detail} {caught.value.exchange!r}"
        assert peer.finished(job_id).phase is JobPhase.SUCCEEDED

    def test_a_rate_limited_status_read_says_how_long_to_wait(self, peer: Peer) -> None:
        job_id = self.submit(peer).provider_job_id
        peer.misbehave("poll_error", status=429, retry_after=4)
        with pytest.raises(RateLimited) as caught:
            peer.provider.fetch_status(job_id, now=utc_now())
        assert caught.value.retry_after == 4

    # --- download ----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("answer", ["404", "410", "403_xml"])
    def test_an_expired_link_is_not_found(self, peer: Peer, answer: str) -> None:
        result = self.result(peer)
        peer.misbehave("expired_file", answer=answer)
        with pytest.raises(NotFound):
            peer.provider.download(result, io.BytesIO(), max_bytes=MAX_BYTES, now=utc_now())

    def test_a_download_that_is_cut_short_is_not_a_download(self, peer: Peer) -> None:
        result = self.result(peer)
        peer.misbehave("truncated_file", share=0.5)
        with pytest.raises(AnswerLost) as caught:
            peer.provider.download(result, io.BytesIO(), max_bytes=MAX_BYTES, now=utc_now())
        assert result.provider_job_id not in f"{caught.value!r} {caught.value.exchange!r}"

    def test_a_cut_file_with_its_own_length_is_told_by_the_declared_sizes(self, peer: Peer) -> None:
        result = self.result(peer)
        peer.misbehave("truncated_file", share=0.5, content_length="wrong")
        downloaded = peer.provider.download(result, io.BytesIO(), max_bytes=MAX_BYTES, now=utc_now())
        # Where nothing else tells its size, the missing end mark does, which `collection.verify` looks for.
        assert any(size != downloaded.byte_count for size in downloaded.declared_sizes) == self.tells_size

    def test_an_error_page_with_status_200_is_told_by_its_type(self, peer: Peer) -> None:
        result = self.result(peer)
        peer.misbehave("error_page")
        sink = io.BytesIO()
        downloaded = peer.provider.download(result, sink, max_bytes=MAX_BYTES, now=utc_now())
        assert downloaded.content_type.startswith("text/html")
        assert not sink.getvalue().startswith(b"%PDF-")

    def test_a_download_over_the_cap_is_refused(self, peer: Peer) -> None:
        result = self.result(peer)
        with pytest.raises(TooLarge):
            peer.provider.download(result, io.BytesIO(), max_bytes=10, now=utc_now())

    def test_a_finished_job_without_a_link_is_fetched_by_its_id(self, peer: Peer) -> None:
        result = self.result(peer)
        sink = io.BytesIO()
        peer.provider.download(ResultRef(result.provider_job_id), sink, max_bytes=MAX_BYTES, now=utc_now())
        assert sink.getvalue().startswith(b"%PDF-")

    def test_a_look_up_tells_of_every_job_of_a_key_or_says_that_it_cannot_tell(self, peer: Peer) -> None:
        sent_at = utc_now()
        accepted = self.submit(peer, "key-1")
        looked = [peer.provider.find_submission(key, first_sent_at=sent_at, now=utc_now()) for key in ("key-1", "none")]
        if not peer.provider.capabilities.look_up:
            assert looked == [None, None]
            return
        found, absent = looked
        assert found is not None
        assert [job.provider_job_id for job in found.jobs] == [accepted.provider_job_id]
        assert absent is not None
        assert (absent.jobs, absent.exchange.kind) == ((), "look_up")

    # --- webhooks ----------------------------------------------------------------------------------------------------

    def test_a_webhook_is_proven_by_the_bytes_that_came(self, peer: Peer) -> None:
        body = self.notice()
        now = utc_now().replace(microsecond=0)
        headers = peer.sign(body, now)
        secrets = [peer.webhook_secret]
        if not peer.provider.capabilities.webhook_signature:
            with pytest.raises(SignatureRefused):
                peer.provider.verify_webhook(headers, body, secrets, now=now)
            return
        assert peer.provider.verify_webhook(headers, body, secrets, now=now) == now
        assert peer.provider.parse_webhook(body)[0].provider_job_id == "job_1"
        with pytest.raises(SignatureRefused) as caught:
            peer.provider.verify_webhook(headers, body.replace(b"  ", b" "), secrets, now=now)
        assert not caught.value.stale
        with pytest.raises(SignatureRefused) as caught:
            peer.provider.verify_webhook(headers, body, secrets, now=now + timedelta(minutes=10))
        assert caught.value.stale

    @pytest.mark.parametrize("secrets", [[], [""], ["", ""]])
    def test_no_secret_refuses_every_webhook(self, peer: Peer, secrets: list[str]) -> None:
        body = b'{"type":"job.completed"}'
        with pytest.raises(SignatureRefused):
            peer.provider.verify_webhook(peer.sign(body, utc_now()), body, secrets, now=utc_now())
