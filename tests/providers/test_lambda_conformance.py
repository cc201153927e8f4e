"""AWS Lambda's adapter under the suite of every adapter, waiting for the function's answer and by events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from batches.providers.base import DocumentSource, JobPhase, JobStatus
from batches.providers.errors import InvalidInput
from tests.providers.conformance import Peer, ProviderConformance, open_gate, utc_now
from tests.providers.doublepeer import DoublePeer, retry_after_headers
from tests.providers.lambda_double import API_KEY, BAD, SECRET, TOKEN, LambdaDouble, s3_service


@pytest.fixture(scope="module")
def s3_url() -> Iterator[str]:
    with s3_service() as url:
        yield url


class LambdaPeer(DoublePeer):
    double: LambdaDouble

    def __init__(self, double: LambdaDouble, **config: Any) -> None:
        super().__init__(double, **config)
        self.secrets = [API_KEY, SECRET, TOKEN, double.bucket]

    def misbehave(self, action: str, **given: Any) -> None:
        if action == "poll_answer":
            self._mark(given["body"])
        elif action == "rate_limited":
            headers = retry_after_headers(given) | {"x-amzn-ErrorType": "TooManyRequestsException"}
            says = {"Reason": "ReservedFunctionConcurrentInvocationLimitExceeded", "message": "Rate Exceeded."}
            self.double.fault("submit", "answer", status=429, headers=headers, body=says)
        else:
            super().misbehave(action, **given)

    def finished(self, provider_job_id: str) -> JobStatus:
        status = super().finished(provider_job_id)
        self.double.settled()
        return status

    def _mark(self, body: dict[str, Any]) -> None:
        """A status of its own has a job in the marker alone, which counts where there is no PDF."""
        key = body.pop("id")
        self.double.s3.delete_object(Bucket=self.double.bucket, Key=f"jobs/{key}.pdf")
        told = json.dumps({"job_key": key, **body}).encode()
        self.double.s3.put_object(Bucket=self.double.bucket, Key=f"jobs/{key}.err.json", Body=told)


class LambdaConformance(ProviderConformance):
    """What it has none of is declared, and where asked for all the same, refused."""

    def test_one_key_for_two_documents_is_a_conflict(self, peer: Peer) -> None:
        """Lambda takes no key. The function's file has one name, and what lies there is what counts."""
        assert not peer.provider.capabilities.client_key
        first = self.submit(peer, "key-1", "Invoice for Adaeze Okoye")
        assert self.submit(peer, "key-1", "Invoice for Nils Lindqvist").provider_job_id == first.provider_job_id

    def test_an_empty_wallet_is_the_accounts_fault(self, peer: Peer) -> None:
        assert "compute" in peer.provider.capabilities.billed_unit
        assert not peer.provider.capabilities.no_credit_events

    def test_a_document_that_is_refused_is_invalid(self, peer: Peer) -> None:
        request = peer.provider.prepare(DocumentSource("html", f"<p>{BAD}</p>"))
        with pytest.raises(InvalidInput) as caught:
            peer.provider.submit(request, idempotency_key="key-1", now=utc_now(), gate=open_gate)
        assert (caught.value.failure_class, caught.value.code) == ("invalid_input", "render_failed")


class TestWaiting(LambdaConformance):
    @pytest.fixture
    def peer(self, s3_url: str) -> Iterator[LambdaPeer]:
        with LambdaDouble(s3_url=s3_url) as double:
            peer = LambdaPeer(double)
            yield peer
            peer.provider.close()


class TestByEvents(LambdaConformance):
    @pytest.fixture
    def peer(self, s3_url: str) -> Iterator[LambdaPeer]:
        with LambdaDouble(s3_url=s3_url, invocation="Event") as double:
            peer = LambdaPeer(double)
            yield peer
            peer.provider.close()

    def test_a_document_that_is_refused_is_invalid(self, peer: Peer) -> None:
        """An event is taken, whatever it holds; what the function makes of it stands in its marker."""
        request = peer.provider.prepare(DocumentSource("html", f"<p>{BAD}</p>"))
        answer = peer.provider.submit(request, idempotency_key="key-1", now=utc_now(), gate=open_gate)
        status = peer.finished(answer.provider_job_id)
        assert (status.phase, status.error_code) == (JobPhase.FAILED, "render_failed")
        assert status.error_words == "The engine gave up."

    def test_a_look_up_tells_of_every_job_of_a_key_or_says_that_it_cannot_tell(self, peer: Peer) -> None:
        """While an event waits there is nothing to be seen of it, for hours at worst, which is declared."""
        assert (peer.provider.capabilities.look_up_after or 0) > 6 * 3600
        peer.finished(self.submit(peer, "key-1").provider_job_id)
        looked = [
            peer.provider.find_submission(key, first_sent_at=utc_now(), now=utc_now()) for key in ("key-1", "none")
        ]
        assert [[job.provider_job_id for job in each.jobs] for each in looked if each] == [["key-1"], []]
