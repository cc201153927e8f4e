"""Files that come to us: the first of a job stays, reads and downloads find it, none goes while it is needed."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from batches.engine import received
from batches.models import Job, Submission
from batches.providers.base import (
    Capabilities,
    Delivery,
    ExchangeFacts,
    Finished,
    JobPhase,
    JobStatus,
    PreparedRequest,
    Provider,
    ProviderEvent,
    ResultRef,
)
from batches.providers.errors import AnswerLost, ContractBroken, NotFound, TooLarge
from batches.storage import StoreFull, received_key
from batches.storage.disk import DiskStore
from tests import factories
from tests.engine.vendor import Vendor, pdf
from tests.factories import NOW

SLUG = "own-renderer"
CALLBACK = Capabilities(
    client_key=False,
    delivery=Delivery.CALLBACK,
    status_poll=False,
    resend_is_harmless=True,
    unbilled_failure_codes=frozenset({"503"}),
)
ANSWER = replace(CALLBACK, delivery=Delivery.ANSWER)


class Scripted(Vendor):
    """A vendor of which only what is asked of it beside what came is seen."""

    def __init__(self, capabilities: Capabilities, answer: Any = None) -> None:
        self.capabilities = capabilities
        self.answer = answer
        self.asked: list[str] = []

    def submit(self, request: PreparedRequest, *, idempotency_key: str, now: datetime, gate: Callable[[], None]) -> Any:
        return self.answer

    def fetch_status(self, provider_job_id: str, *, now: datetime) -> JobStatus:
        self.asked.append("status")
        return JobStatus(provider_job_id, JobPhase.RUNNING, "working", ExchangeFacts("poll", now, 1, 200))

    def download(self, ref: ResultRef, sink: Any, *, max_bytes: int, now: datetime) -> Any:
        self.asked.append("download")
        raise NotFound("It keeps no files.")


@pytest.fixture
def store(tmp_path: Path) -> DiskStore:
    store = DiskStore(tmp_path / "store")
    store.ensure()
    return store


def through(vendor: Scripted, store: DiskStore) -> Provider:
    return received.receiving(cast(Provider, vendor), store, SLUG)


def finished(content: bytes | None) -> Finished:
    exchange = ExchangeFacts("submit", NOW, 5, 200)
    return Finished("key-1", "rendered", ResultRef("key-1"), exchange, content=content)


def submitted(vendor: Scripted, store: DiskStore) -> Any:
    request = PreparedRequest("/", b"x")
    return through(vendor, store).submit(request, idempotency_key="key-1", now=NOW, gate=lambda: None)


def fetched(provider: Provider, job_id: str = "key-1", *, most: int = 10_000) -> bytes:
    sink = io.BytesIO()
    provider.download(ResultRef(job_id), sink, max_bytes=most, now=NOW)
    return sink.getvalue()


# --- in the answer ---


def test_a_file_in_the_answer_is_kept_before_anybody_is_told_and_is_in_no_row(store: DiskStore) -> None:
    vendor = Scripted(ANSWER, finished(pdf("INV-1")))
    answer = submitted(vendor, store)
    assert (answer.content, answer.result.size_bytes) == (None, len(pdf("INV-1")))
    provider = through(vendor, store)
    status = provider.fetch_status("key-1", now=NOW)
    assert (status.phase, status.result) == (JobPhase.SUCCEEDED, ResultRef("key-1", size_bytes=len(pdf("INV-1"))))
    assert fetched(provider) == pdf("INV-1")
    assert vendor.asked == []


def test_an_answer_whose_file_cannot_be_kept_is_a_lost_one(store: DiskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_given: Any) -> None:
        raise StoreFull("No space is left in the store.")

    monkeypatch.setattr(store, "put", full)
    with pytest.raises(AnswerLost, match="No space is left") as caught:
        submitted(Scripted(ANSWER, finished(pdf("INV-1"))), store)
    assert caught.value.exchange is not None
    assert "%PDF" not in repr(caught.value)


def test_an_answer_without_a_file_passes_as_it_is(store: DiskStore) -> None:
    vendor = Scripted(ANSWER, finished(None))
    assert submitted(vendor, store) is vendor.answer


def test_a_file_of_an_answer_that_is_gone_from_here_is_gone(store: DiskStore) -> None:
    """Nobody else has it, so that waiting for it would be for ever."""
    vendor = Scripted(ANSWER)
    provider = through(vendor, store)
    with pytest.raises(NotFound, match="no longer here") as caught:
        provider.fetch_status("key-1", now=NOW)
    assert caught.value.exchange is not None
    with pytest.raises(NotFound):
        fetched(provider)
    assert vendor.asked == ["download"], "an adapter may know another way to its file"


# --- by a call to us ---


def test_until_its_call_comes_a_job_is_waited_for(store: DiskStore) -> None:
    provider = through(Scripted(CALLBACK), store)
    status = provider.fetch_status("key-1", now=NOW)
    assert (status.phase, status.status_word) == (JobPhase.RUNNING, received.WAITING)
    received.keep_file(store, SLUG, "key-1", io.BytesIO(pdf("INV-1")))
    assert provider.fetch_status("key-1", now=NOW).phase is JobPhase.SUCCEEDED
    assert provider.fetch_status("key-2", now=NOW).phase is JobPhase.RUNNING
    assert through(Scripted(CALLBACK), DiskStore(store.root)).fetch_status("key-1", now=NOW).result is not None
    other = received.receiving(cast(Provider, Scripted(CALLBACK)), store, "another-account")
    assert other.fetch_status("key-1", now=NOW).phase is JobPhase.RUNNING, "it is that account's alone"


def test_the_first_file_of_a_job_stays(store: DiskStore) -> None:
    for text in ("first", "second"):
        received.keep_file(store, SLUG, "key-1", io.BytesIO(pdf(text)))
    assert fetched(through(Scripted(CALLBACK), store)) == pdf("first")


@pytest.mark.parametrize("first", ["file", "failure"])
def test_a_failure_that_is_reported_counts_only_where_no_file_came(store: DiskStore, first: str) -> None:
    """A vendor says that it failed, too, when our own answer to its upload was lost."""
    event = ProviderEvent("webhook.error", "key-1", phase=JobPhase.FAILED, error_code="503", error_words="Too late.")
    provider = through(Scripted(CALLBACK), store)
    if first == "failure":
        received.keep_failure(store, SLUG, event)
        failed = provider.fetch_status("key-1", now=NOW)
        assert (failed.phase, failed.error_code, failed.error_words) == (JobPhase.FAILED, "503", "Too late.")
        assert failed.unbilled
    received.keep_file(store, SLUG, "key-1", io.BytesIO(pdf("INV-1")))
    received.keep_failure(store, SLUG, event)
    assert provider.fetch_status("key-1", now=NOW).phase is JobPhase.SUCCEEDED


def test_a_failure_with_another_code_is_not_said_to_be_unbilled(store: DiskStore) -> None:
    received.keep_failure(store, SLUG, ProviderEvent("webhook.error", "key-1", error_code="409"))
    assert not through(Scripted(CALLBACK), store).fetch_status("key-1", now=NOW).unbilled


def test_what_was_called_back_and_is_gone_can_be_asked_of_nobody(store: DiskStore) -> None:
    vendor = Scripted(CALLBACK)
    with pytest.raises(NotFound, match="keeps nothing"):
        fetched(through(vendor, store))
    assert vendor.asked == []


def test_a_vendor_with_a_status_route_is_asked_until_its_file_came(store: DiskStore) -> None:
    vendor = Scripted(replace(CALLBACK, status_poll=True))
    provider = through(vendor, store)
    assert provider.fetch_status("key-1", now=NOW).status_word == "working"
    received.keep_file(store, SLUG, "key-1", io.BytesIO(pdf("INV-1")))
    assert provider.fetch_status("key-1", now=NOW).status_word == received.HERE
    assert vendor.asked == ["status"]


def test_what_came_may_be_no_larger_than_a_download(store: DiskStore) -> None:
    received.keep_file(store, SLUG, "key-1", io.BytesIO(b"%PDF-" + bytes(500)))
    with pytest.raises(TooLarge):
        fetched(through(Scripted(CALLBACK), store), most=504)
    assert len(fetched(through(Scripted(CALLBACK), store), most=505)) == 505


def test_a_store_that_is_away_says_nothing_about_the_job(tmp_path: Path) -> None:
    provider = through(Scripted(CALLBACK), DiskStore(tmp_path / "not there"))
    with pytest.raises(ContractBroken, match="cannot say whether"):
        provider.fetch_status("key-1", now=NOW)


def test_where_files_are_fetched_nothing_stands_between(store: DiskStore) -> None:
    vendor = Scripted(Capabilities(client_key=True))
    assert through(vendor, store) is cast(Provider, vendor)


# --- the sweep ---

OLD = timedelta(days=2)


def kept(store: DiskStore, slug: str, name: str, *, age: timedelta = OLD) -> None:
    received.keep_file(store, slug, name, io.BytesIO(pdf(name)))
    path = store.root / received_key(slug, received._key(slug, name, "pdf").split("/")[2][:64], "pdf")
    at = (NOW - age).timestamp()
    os.utime(path, (at, at))


def is_kept(store: DiskStore, slug: str, name: str) -> bool:
    return store.size(received._key(slug, name, "pdf")) is not None


@pytest.mark.django_db
def test_the_sweep_removes_what_is_old_and_what_no_open_submission_may_ask_for(store: DiskStore) -> None:
    batch = factories.make_batch(account=factories.make_account(slug=SLUG))
    factories.make_accepted_job(batch=batch, provider_job_id="open")
    saved = factories.make_saved_job(batch=batch)
    Submission.objects.filter(job=saved).update(provider_job_id="saved")
    for name in ("open", "saved", "nobody's"):
        kept(store, SLUG, name)
    kept(store, SLUG, "young", age=timedelta(hours=1))
    assert received.sweep(store, now=NOW) == 2
    assert [is_kept(store, SLUG, name) for name in ("open", "saved", "nobody's", "young")] == [True, False, False, True]
    assert received.sweep(store, now=NOW) == 0


@pytest.mark.django_db
def test_the_sweep_leaves_what_came_for_a_submission_whose_answer_was_lost(store: DiskStore) -> None:
    """It has no job id yet, and may wait for a person for days: the file is all that there may ever be."""
    account = factories.make_account(slug=SLUG)
    job: Job = factories.make_job(batch=factories.make_batch(account=account), state="unknown")
    submission = factories.make_submission(job=job, in_doubt=True)
    kept(store, SLUG, submission.idempotency_key)
    assert received.sweep(store, now=NOW) == 0
    assert is_kept(store, SLUG, submission.idempotency_key)
    Submission.objects.update(outcome="refused", closed_at=NOW)
    assert received.sweep(store, now=NOW) == 1
