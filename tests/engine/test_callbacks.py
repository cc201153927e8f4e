"""Calls to the address that one submission has, as they come over HTTP: proven, kept, and only then answered."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client, RequestFactory
from django.utils import timezone

from batches.engine import accounts, callbacks, inbox, received
from batches.models import Job, ProviderAccount, Submission, WebhookEvent, WebhookRefusal
from batches.providers.base import JobPhase, JobStatus
from batches.storage import StoreFull, open_store
from batches.storage.disk import DiskStore
from batches.views.webhooks import callback
from tests import factories
from tests.engine import racing
from tests.engine.vendor import pdf

pytestmark = pytest.mark.django_db
SECRET = "invented-for-callbacks"
PDF_TYPE, JSON_TYPE = "application/pdf", "application/json; charset=utf-8"


@pytest.fixture(autouse=True)
def store(tmp_path: Path, settings: Any) -> DiskStore:
    settings.STORAGE_URL = f"file://{tmp_path / 'store'}"
    settings.PUBLIC_URL = "https://batches.example.com"
    made = open_store(settings.STORAGE_URL)
    made.ensure()
    assert isinstance(made, DiskStore)
    return made


@pytest.fixture
def account() -> ProviderAccount:
    return factories.make_account(
        slug="own-renderer", kind="gotenberg", api_key="", webhook_secret=SECRET, options={"network": "files"}
    )


@pytest.fixture
def job(account: ProviderAccount) -> Job:
    """Accepted under its key, and not due for long."""
    later = timezone.now() + timedelta(hours=1)
    job = factories.make_accepted_job(batch=factories.make_batch(account=account), due_at=later)
    Submission.objects.update(provider_job_id=key_of(job))
    return job


def key_of(job: Job) -> str:
    return job.submissions.get().idempotency_key


def address(job: Job) -> str:
    url = accounts.callback_url(job.account)
    return f"{url.removeprefix('https://batches.example.com')}/{key_of(job)}"


def call(
    to: str, content: bytes, kind: str = PDF_TYPE, *, method: str = "post", secret: str = SECRET, **more: Any
) -> int:
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    client = Client(enforce_csrf_checks=True)
    answer = getattr(client, method)(to, content, content_type=kind, headers=headers | more)
    assert "Traceback" not in answer.text
    status: int = answer.status_code
    return status


def read(job: Job) -> JobStatus:
    """What a pump learns of it."""
    providers = accounts.Providers()
    try:
        return providers.of(job.account).fetch_status(key_of(job), now=timezone.now())
    finally:
        providers.close()


def event(kind: str = "webhook.success", **more: Any) -> bytes:
    return json.dumps(
        {"event": kind, "correlationId": "of-another", "timestamp": "2026-03-02T09:00:00Z"} | more
    ).encode()


@pytest.mark.parametrize("method", ["post", "put", "patch"])
def test_a_pdf_is_kept_then_its_job_is_read(job: Job, method: str) -> None:
    assert read(job).phase is JobPhase.RUNNING
    assert call(address(job), pdf("INV-1"), method=method) == 204
    assert read(job).phase is JobPhase.SUCCEEDED
    row = WebhookEvent.objects.get()
    assert (row.type, row.provider_job_id, row.outcome) == (callbacks.FILE_TYPE, key_of(job), "woke")
    assert b"%PDF" not in bytes(row.body)
    job.refresh_from_db()
    assert job.state == "accepted", "what it says is read, not believed"
    assert job.due_at <= timezone.now()


def test_it_may_come_twice_and_the_first_stays(job: Job, store: DiskStore) -> None:
    assert [call(address(job), pdf(text)) for text in ("INV-1", "INV-1", "rendered again")] == [204] * 3
    with store.open(received._key(job.account.slug, key_of(job), "pdf")) as stream:
        assert stream.read() == pdf("INV-1")
    assert sorted(WebhookEvent.objects.values_list("repeat_count", flat=True)) == [0, 1]


def test_no_other_address_is_taken(job: Job, account: ProviderAccount) -> None:
    other = factories.make_account(slug="another", kind="gotenberg", options={"network": "files"})
    start, token, key = address(job).rsplit("/", 2)
    wrong = [
        f"{start}/{token}/{'0' * 64}",
        f"{start}/{token[:-1]}/{key}",
        f"{start}/{'0' * 40}/{key}",
        f"/webhooks/{other.slug}/{token}/{key}",
        f"/webhooks/nobody/{token}/{key}",
        f"{start}/{token}/{key}%00",
        f"{start}/{token}/{'x' * 5000}",
        accounts.callback_url(other).removeprefix("https://batches.example.com") + f"/{key}",
    ]
    assert [call(each, pdf("INV-1")) for each in wrong] == [404] * len(wrong)
    assert read(job).phase is JobPhase.RUNNING
    assert not WebhookEvent.objects.exists()
    assert Client().get(address(job)).status_code == 405


def test_an_address_that_was_given_out_under_an_older_key_of_ours_still_leads_here(job: Job, settings: Any) -> None:
    given_out = address(job)
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "a new one", [settings.SECRET_KEY]
    assert address(job) != given_out
    assert call(given_out, pdf("INV-1")) == 204


@pytest.mark.parametrize("secret", ["", "another"])
def test_the_accounts_secret_is_asked_for_before_a_byte_of_the_file_is_read(
    job: Job, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batches.views.webhooks._pour", lambda *_given, **_named: pytest.fail("it was read"))
    assert call(address(job), pdf("INV-1"), secret=secret) == 401
    assert call(address(job), event(), JSON_TYPE, secret=secret) == 401
    assert WebhookRefusal.objects.get().count == 2
    assert not WebhookEvent.objects.exists()


def test_without_a_secret_the_address_is_the_proof(job: Job) -> None:
    ProviderAccount.objects.update(webhook_secret="")
    assert call(address(job), pdf("INV-1"), secret="") == 204


@pytest.mark.parametrize("content", [b"", b"<html>Bad gateway</html>", b"%PD", b"PK\x03\x04"])
def test_what_is_no_pdf_does_not_stand_in_its_way(job: Job, content: bytes) -> None:
    assert call(address(job), content) == 400
    assert read(job).phase is JobPhase.RUNNING
    assert call(address(job), pdf("INV-1")) == 204
    assert read(job).phase is JobPhase.SUCCEEDED


def test_a_pdf_that_is_too_large_is_refused_declared_or_not(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callbacks, "FILE_BYTES_MOST", len(pdf("INV-1")) - 1)
    assert call(address(job), pdf("INV-1")) == 413
    assert straight(job, pdf("INV-1"), chunked=True) == 413
    assert call(address(job), b"{" + bytes(inbox.BODY_BYTES_MOST), JSON_TYPE) == 413
    monkeypatch.undo()
    assert read(job).phase is JobPhase.RUNNING
    assert straight(job, pdf("INV-1"), chunked=True) == 204


def straight(
    job: Job, content: bytes, *, chunked: bool = False, declared: int | None = None, knows: bool = True
) -> int:
    """Past the test client, which frames every body well."""
    request = RequestFactory().put(address(job), content, content_type=PDF_TYPE)
    request.META["HTTP_AUTHORIZATION"] = f"Bearer {SECRET}"
    if chunked:
        request.META.pop("CONTENT_LENGTH", None)
        request.META |= {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": knows}
        request.META["wsgi.input"] = io.BytesIO(content)
    if declared is not None:
        request.META["CONTENT_LENGTH"] = str(declared)
    return callback(request, *address(job).split("/")[2:]).status_code


def test_a_body_that_breaks_off_is_not_kept(job: Job, store: DiskStore) -> None:
    assert straight(job, pdf("INV-1")[:-40], declared=len(pdf("INV-1"))) == 400
    assert straight(job, pdf("INV-1"), chunked=True, knows=False) == 411
    assert read(job).phase is JobPhase.RUNNING
    assert not list(store.root.rglob("*.pdf"))


def test_it_may_come_before_the_answer_to_its_submission(job: Job) -> None:
    Submission.objects.update(provider_job_id=None, accepted_at=None, in_doubt=True)
    Job.objects.update(state="submitting")
    assert call(address(job), pdf("INV-1")) == 204
    assert call(address(job), event(), JSON_TYPE) == 204
    assert set(WebhookEvent.objects.values_list("outcome", flat=True)) == {"unmatched"}
    assert inbox.match_others(now=timezone.now(), most=10) == 0
    assert read(job).phase is JobPhase.SUCCEEDED, "whoever comes to read it finds it"


def test_matching_again_meets_no_fault_in_what_came_by_an_address(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    Submission.objects.update(provider_job_id=None, accepted_at=None, in_doubt=True)
    assert call(address(job), b'{"event": "webhook.progress"}', JSON_TYPE) == 204
    assert call(address(job), b"no JSON at all", JSON_TYPE) == 204
    inbox.match_others(now=timezone.now(), most=10)
    assert "reading webhook event" not in caplog.text


def test_it_may_come_after_its_job_was_saved_and_changes_nothing(account: ProviderAccount) -> None:
    job = factories.make_saved_job(batch=factories.make_batch(account=account))
    Submission.objects.update(provider_job_id=key_of(job))
    assert call(address(job), pdf("INV-1")) == 204
    assert call(address(job), event("webhook.error", error={"status": 500, "message": "x"}), JSON_TYPE) == 204
    assert set(WebhookEvent.objects.values_list("outcome", flat=True)) == {"ignored"}
    job.refresh_from_db()
    assert (job.state, job.events.count()) == ("saved", 0)


def test_an_event_of_success_only_has_the_job_read(job: Job) -> None:
    assert call(address(job), event(), JSON_TYPE) == 204
    row = WebhookEvent.objects.get()
    assert (row.type, row.provider_job_id, row.outcome) == ("webhook.success", key_of(job), "woke")
    assert read(job).phase is JobPhase.RUNNING


def test_an_event_of_a_failure_is_what_its_job_is_read_as_unless_the_file_is_here(job: Job) -> None:
    failed = event("webhook.error", error={"status": 503, "message": f"Too late for {SECRET} https://a.test/x"})
    assert call(address(job), failed, JSON_TYPE) == 204
    status = read(job)
    assert (status.phase, status.error_code, status.unbilled) == (JobPhase.FAILED, "503", True)
    assert SECRET not in status.error_words
    assert "a.test" not in status.error_words
    assert call(address(job), pdf("INV-1")) == 204
    assert read(job).phase is JobPhase.SUCCEEDED


@pytest.mark.parametrize(
    "content",
    [b"{", b"[]", b"[" * 100_000, b'{"event": "\\u0000\\ud83d"}', b'{"event": "webhook.error", "error": 7}', b"\xff"],
)
def test_no_event_is_a_fault_of_ours(job: Job, content: bytes) -> None:
    assert call(address(job), content, JSON_TYPE) == 204
    assert WebhookEvent.objects.get().provider_job_id == key_of(job)


def test_while_it_cannot_be_kept_the_provider_is_asked_to_come_again(
    job: Job, store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_given: Any) -> None:
        raise StoreFull("No space is left in the store.")

    failed = event("webhook.error", error={"status": 409, "message": "x"})
    monkeypatch.setattr(store, "put", full)
    assert [call(address(job), pdf("INV-1")), call(address(job), failed, JSON_TYPE)] == [503, 503]
    monkeypatch.undo()
    assert not WebhookEvent.objects.exists()
    (marker,) = (each for each in store.root.iterdir() if each.is_file())
    aside = marker.rename(store.root.parent / "aside")
    assert call(address(job), pdf("INV-1")) == 503, "the store is not there at all"
    aside.rename(marker)
    assert call(address(job), pdf("INV-1")) == 204


def test_while_the_database_is_away_it_is_kept_and_asked_for_again(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_given: Any, **_named: Any) -> None:
        raise OperationalError("the database is away")

    monkeypatch.setattr(WebhookEvent.objects, "bulk_create", away)
    assert call(address(job), pdf("INV-1")) == 503
    monkeypatch.undo()
    assert read(job).phase is JobPhase.SUCCEEDED, "a read finds it although nobody was told"
    assert call(address(job), pdf("INV-1")) == 204


@pytest.mark.parametrize("part", ["account_of", "brings_file", "take_file"])
def test_a_fault_of_our_own_is_a_503_without_a_trace(job: Job, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_given: Any, **_named: Any) -> None:
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr(callbacks, part, fail)
    assert call(address(job), pdf("INV-1")) == 503


def test_a_store_whose_address_cannot_be_read_is_no_500(job: Job, settings: Any) -> None:
    to = address(job)
    settings.STORAGE_URL = "ftp://nowhere"
    assert call(to, pdf("INV-1")) == 503


@pytest.mark.django_db(transaction=True)
def test_calls_at_the_same_moment_keep_one_file_and_one_event(job: Job) -> None:
    to = address(job)
    assert racing.answers([lambda: call(to, pdf("INV-1")) for _ in range(4)]) == [204] * 4
    assert WebhookEvent.objects.count() == 1
    assert read(job).phase is JobPhase.SUCCEEDED


def test_the_account_wide_address_takes_nothing_that_nobody_signs(job: Job) -> None:
    assert call(f"/webhooks/{job.account.slug}", event(), JSON_TYPE) == 401


def test_accounts_that_are_told_of_by_an_address_count_as_told_of(job: Job, settings: Any) -> None:
    """Else a pump would not look for what came, and find it with its next planned read only."""
    ProviderAccount.objects.update(webhook_secret="")
    account = ProviderAccount.objects.get(pk=job.account_id)
    assert accounts.hears(account)
    assert not accounts.hears(factories.make_account())
    settings.PUBLIC_URL = ""
    assert not accounts.hears(account)
