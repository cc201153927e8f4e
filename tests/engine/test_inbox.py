"""Webhooks arrive: proven, stored once, and only then answered; refused ones leave nothing behind."""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client
from django.utils import timezone

from batches.conf import ENGINE
from batches.engine import credit, inbox, wakeups
from batches.models import Duration, Job, ProviderAccount, WebhookEvent
from tests import factories
from tests.engine.deadlocks import end_once_by_deadlock

pytestmark = pytest.mark.django_db
SECRET = "whsec_invented"


@pytest.fixture
def account() -> ProviderAccount:
    return factories.make_account(slug="relaypdf", webhook_secret=SECRET)


def body(job_id: str = "pdf_7", kind: str = "job.completed") -> bytes:
    return json.dumps({"type": kind, "data": {"jobId": job_id}}).encode()


def send(content: bytes, *, secret: str = SECRET, ago: float = 0, to: str = "relaypdf", **headers: Any) -> int:
    at = int((timezone.now() - timedelta(seconds=ago)).timestamp())
    proof = hmac.new(secret.encode(), b"%d." % at + content, hashlib.sha256).hexdigest()
    answer = Client(enforce_csrf_checks=True).post(
        f"/webhooks/{to}",
        content,
        content_type="application/json",
        headers={"RelayPDF-Signature": f"t={at},v1={proof}"} | headers,
    )
    return answer.status_code


def test_a_proven_event_is_stored_and_answered_204(account: ProviderAccount) -> None:
    assert send(body()) == 204
    row = WebhookEvent.objects.get()
    assert (row.type, row.provider_job_id, bytes(row.body)) == ("job.completed", "pdf_7", body())
    assert (row.account, row.outcome) == (account, "unmatched")
    assert "relaypdf-signature" not in {name.lower() for name in row.headers}


def test_our_own_key_is_not_kept_when_a_vendor_repeats_it(account: ProviderAccount) -> None:
    told = json.dumps({"type": "job.completed", "data": {"jobId": "pdf_7", "words": f"key {account.api_key} ok"}})
    assert [send(told.encode()), send(told.encode())] == [204, 204]
    kept = bytes(WebhookEvent.objects.get().body).decode()
    assert account.api_key
    assert kept == told.replace(account.api_key, "[key]")


def test_the_same_bytes_are_stored_once_however_often_they_come(account: ProviderAccount) -> None:
    assert [send(body()), send(body()), send(body("pdf_8"))] == [204, 204, 204]
    assert WebhookEvent.objects.count() == 2


def test_what_is_not_proven_or_not_readable_leaves_nothing(account: ProviderAccount) -> None:
    assert send(body(), secret="whsec_other") == 401
    assert send(body(), ago=900) == 401
    assert send(b"[]") == 400
    assert send(b"not json") == 400
    assert send(b"x" * (inbox.BODY_BYTES_MOST + 1)) == 413
    assert send(body(), to="nobody") == 404
    assert Client().get("/webhooks/relaypdf").status_code == 405
    assert not WebhookEvent.objects.exists()


def test_without_a_secret_nothing_is_taken_not_even_what_an_empty_one_signs(account: ProviderAccount) -> None:
    ProviderAccount.objects.update(webhook_secret="")
    assert send(body(), secret="") == 401
    assert send(body()) == 401


def test_both_secrets_are_taken_while_one_replaces_the_other(account: ProviderAccount) -> None:
    account.webhook_secret, account.webhook_secret_previous = "whsec_new", SECRET
    account.save()
    assert send(body()) == 204
    assert send(body("pdf_8"), secret="whsec_new") == 204


def test_when_it_cannot_be_stored_the_provider_is_asked_to_try_again(
    account: ProviderAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_given: Any, **_named: Any) -> None:
        raise OperationalError("the database is away")

    monkeypatch.setattr(WebhookEvent.objects, "bulk_create", away)
    assert send(body()) == 503
    monkeypatch.undo()
    assert send(body()) == 204


@pytest.mark.parametrize("part", ["settle", "heed_shortage"])
def test_once_stored_a_database_that_is_locked_is_no_reason_to_have_it_sent_again(
    part: str, account: ProviderAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bytes would be nothing new then, and what they say of the account would be heeded by nobody."""

    def locked(*_given: Any, **_named: Any) -> None:
        raise OperationalError("database is locked")

    monkeypatch.setattr(wakeups if part == "settle" else credit, part, locked)
    assert send(body("pdf_7", "wallet.payment_required")) == 204
    assert WebhookEvent.objects.count() == 1


def test_an_event_that_nobody_settled_is_settled_by_the_sweep(account: ProviderAccount) -> None:
    """Whoever stored it died right then, and more events have come since than a pump looks back."""
    now = timezone.now()
    later = now + timedelta(hours=1)
    batch = factories.make_batch(account=account)
    job = factories.make_accepted_job(batch=batch, provider_job_id="pdf_7", due_at=later)
    for ago, job_id in ((120, "pdf_7"), (120, "pdf_8"), (5, "pdf_9")):
        factories.make_event(account=account, at=now - timedelta(seconds=ago), provider_job_id=job_id)
    assert wakeups.settle_left(now=now, most=100) == 2
    job.refresh_from_db()
    assert job.due_at == now
    outcomes = dict(WebhookEvent.objects.values_list("provider_job_id", "outcome"))
    assert outcomes == {"pdf_7": "woke", "pdf_8": "unmatched", "pdf_9": "waiting"}


def test_only_events_that_say_that_a_job_ended_prove_that_webhooks_come(account: ProviderAccount) -> None:
    now = timezone.now()
    batch = factories.make_batch(account=account)
    for kind, number in (("job.created", 1), ("job.completed", 2)):
        job = factories.make_saved_job(batch=batch)
        submission = job.submissions.get()
        factories.make_event(account=account, at=now, provider_job_id=submission.provider_job_id, type=kind)
        Duration.objects.create(
            account=account,
            job=job,
            submission=submission,
            at=now + timedelta(seconds=number),
            total_seconds=1,
            outcome="saved",
        )
    assert wakeups.told_lately(account.pk) == wakeups.Told(told=1, completions=2)


def test_a_wallet_event_is_stored_and_wakes_nobody(account: ProviderAccount) -> None:
    assert send(json.dumps({"type": "wallet.topup", "data": {"id": "pay_1"}}).encode()) == 204
    assert WebhookEvent.objects.get().type == "wallet.topup"


def test_an_event_makes_the_read_of_its_job_due_and_changes_no_state(account: ProviderAccount) -> None:
    batch = factories.make_batch(account=account)
    later = timezone.now() + timedelta(hours=1)
    job = factories.make_accepted_job(batch=batch, provider_job_id="pdf_7", due_at=later)
    saved = factories.make_saved_job(batch=batch)
    done = saved.submissions.get().provider_job_id
    assert send(body("pdf_7", "job.failed")) == 204
    assert send(body(done, "job.failed")) == 204
    job.refresh_from_db()
    assert (job.state, job.due_at < later) == ("accepted", True)
    assert Job.objects.get(pk=saved.pk).state == "saved"
    outcomes = dict(WebhookEvent.objects.values_list("provider_job_id", "outcome"))
    assert outcomes == {"pdf_7": "woke", done: "ignored"}


def test_an_event_that_overtook_the_answer_is_matched_when_the_id_is_known(account: ProviderAccount) -> None:
    assert send(body()) == 204
    row = WebhookEvent.objects.get()
    factories.make_accepted_job(batch=factories.make_batch(account=account), provider_job_id="pdf_7")
    left = wakeups.settle([wakeups.Event(row.pk, account.pk, "pdf_7", False)], now=timezone.now())
    row.refresh_from_db()
    assert (left, row.outcome) == ([], "woke")


@pytest.mark.django_db(transaction=True)
def test_events_that_met_a_deadlock_are_settled_again(
    account: ProviderAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert send(body()) == 204
    row = WebhookEvent.objects.get()
    later = timezone.now() + timedelta(hours=1)
    batch = factories.make_batch(account=account)
    factories.make_accepted_job(batch=batch, provider_job_id="pdf_7", due_at=later)
    end_once_by_deadlock(monkeypatch, type(Job.objects.all()), "update")
    wakeups.settle([wakeups.Event(row.pk, account.pk, "pdf_7", False)], now=timezone.now())
    row.refresh_from_db()
    assert row.outcome == "woke"
    assert Job.objects.get().due_at < later


def test_an_event_that_came_while_no_pump_ran_is_matched_by_the_next_one_while_it_is_young(
    account: ProviderAccount,
) -> None:
    """It overtook the answer that names its job, whose row is committed later, with a read that is far away."""
    now = timezone.now()
    for job_id, ago in (("pdf_7", 60), ("pdf_8", wakeups.UNMATCHED_FOR.total_seconds() + 60)):
        assert send(body(job_id)) == 204
        WebhookEvent.objects.filter(provider_job_id=job_id).update(received_at=now - timedelta(seconds=ago))
    later = now + timedelta(hours=1)
    batch = factories.make_batch(account=account)
    jobs = [factories.make_accepted_job(batch=batch, provider_job_id=each, due_at=later) for each in ("pdf_7", "pdf_8")]
    told = wakeups.Wakeups(ENGINE).news(now, [account.pk])
    assert told == [(account.pk, "pdf_7"), (account.pk, "pdf_8")], "a pump that holds one reads it at once"
    for job in jobs:
        job.refresh_from_db()
    assert [job.due_at for job in jobs] == [now, later], "and one that nobody holds is due, while its event is young"
    outcomes = dict(WebhookEvent.objects.values_list("provider_job_id", "outcome"))
    assert outcomes == {"pdf_7": "woke", "pdf_8": "unmatched"}


def test_an_event_that_stays_unmatched_costs_one_write(account: ProviderAccount) -> None:
    assert send(body()) == 204
    first = WebhookEvent.objects.get().processed_at
    news, now = wakeups.Wakeups(ENGINE), timezone.now() + timedelta(seconds=1)
    for seconds in range(0, 60, 6):
        news.news(now + timedelta(seconds=seconds), [account.pk])
    assert WebhookEvent.objects.get().processed_at == first


def test_an_event_for_a_watched_submission_brings_its_late_read_forward(account: ProviderAccount) -> None:
    later = timezone.now() + timedelta(hours=1)
    job = factories.make_job(batch=factories.make_batch(account=account), state="deadline_exceeded")
    row = factories.make_submission(
        job=job, provider_job_id="pdf_7", accepted_at=timezone.now(), in_doubt=False, watch_at=later, watch_until=later
    )
    assert send(body()) == 204
    row.refresh_from_db()
    assert row.watch_at is not None
    assert row.watch_at < later
