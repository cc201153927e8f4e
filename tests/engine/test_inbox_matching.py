"""An event finds its job wherever it names it and whenever the job becomes known, and without a name wakes them all."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from batches.conf import ENGINE
from batches.engine import inbox, sweep, wakeups
from batches.models import ProviderAccount, WebhookEvent
from batches.storage import open_store
from tests import factories
from tests.engine.test_inbox import SECRET, body, send

pytestmark = pytest.mark.django_db
LATER = timedelta(hours=1)


@pytest.fixture
def account() -> ProviderAccount:
    return factories.make_account(slug="relaypdf", webhook_secret=SECRET)


def accepted(account: ProviderAccount, *ids: str) -> list[Any]:
    batch = factories.make_batch(account=account)
    due_at = timezone.now() + LATER
    return [factories.make_accepted_job(batch=batch, provider_job_id=each, due_at=due_at) for each in ids]


def is_due(job: Any) -> bool:
    job.refresh_from_db()
    return bool(job.due_at <= timezone.now())


@pytest.mark.parametrize(
    "payload",
    [
        {"data": {"pdf": {"attributes": [{"pdf_id": "pdf_7"}]}}},
        {"id": "evt_1", "payload": {"result": {"url": "https://api.example.com/v1/files/pdf_7?sig=x"}}},
        {"event": "job.completed", "data": {"pollUrl": "https://api.example.com/v1/jobs/pdf_7"}},
        {"id": "evt_1", "resource": ["something", "pdf_7"]},
        {"data": {"id": "evt_1", "object": {"render": {"id": "pdf_7"}}}},
        {"data": {"id": "delivery-1"}, "context": {"DocumentId": "pdf_7"}},
        {"id": "delivery-1", "data": {"job": "unknown", "job_id": "delivery-2", "file": {"id": "pdf_7"}}},
    ],
    ids=json.dumps,
)
def test_the_job_is_found_wherever_the_payload_names_it(account: ProviderAccount, payload: dict[str, Any]) -> None:
    job, other = accepted(account, "pdf_7", "pdf_8")
    assert send(json.dumps({"type": "job.completed"} | payload).encode()) == 204
    assert (is_due(job), is_due(other)) == (True, False)
    assert WebhookEvent.objects.get().provider_job_id == "pdf_7"


def test_an_event_without_any_name_has_the_accounts_accepted_jobs_read_and_the_next_not_again(
    account: ProviderAccount,
) -> None:
    jobs = accepted(account, "pdf_7", "pdf_8")
    (stranger,) = accepted(factories.make_account(), "pdf_9")
    assert send(b'{"type": "job.completed", "data": {}}') == 204
    assert [is_due(job) for job in (*jobs, stranger)] == [True, True, False]
    assert send(b'{"type": "job.completed", "data": {"n": 2}}') == 204
    assert list(WebhookEvent.objects.order_by("pk").values_list("outcome", flat=True)) == ["woke", "ignored"]
    told = wakeups.Wakeups(ENGINE).news(timezone.now(), [account.pk])
    assert told == [(account.pk, "")], "a pump that holds them reads them"


def test_a_wallet_event_wakes_no_job_whatever_ids_it_carries(account: ProviderAccount) -> None:
    (job,) = accepted(account, "pdf_7")
    assert send(b'{"type": "wallet.topup", "data": {"id": "pdf_7"}}') == 204
    assert not is_due(job)
    assert wakeups.Wakeups(ENGINE).news(timezone.now(), [account.pk]) == []


@pytest.mark.parametrize("age", [timedelta(minutes=1), timedelta(days=5)], ids=str)
def test_an_unmatched_event_is_matched_by_the_sweep_once_its_job_is_recorded(
    account: ProviderAccount, age: timedelta, settings: Any
) -> None:
    """However long after: no pump of that time need be alive."""
    assert send(body("pdf_7")) == 204
    WebhookEvent.objects.update(received_at=timezone.now() - age)
    store = open_store(settings.STORAGE_URL)
    assert sweep.sweep(store, now=timezone.now()).events_matched == 0
    (job,) = accepted(account, "pdf_7")
    assert sweep.sweep(store, now=timezone.now()).events_matched == 1
    assert is_due(job)
    assert WebhookEvent.objects.get().outcome == "woke"
    assert sweep.sweep(store, now=timezone.now()).events_matched == 0


def test_an_event_that_came_early_under_a_doubtful_name_is_matched_by_its_other_one(account: ProviderAccount) -> None:
    assert send(b'{"type": "job.completed", "data": {"id": "delivery-1", "file": {"id": "pdf_7"}}}') == 204
    assert WebhookEvent.objects.get().provider_job_id == "delivery-1"
    (job,) = accepted(account, "pdf_7")
    assert inbox.match_others(now=timezone.now(), most=10) == 1
    row = WebhookEvent.objects.get()
    assert (row.provider_job_id, row.outcome, is_due(job)) == ("pdf_7", "woke", True)


def test_an_event_that_says_a_lie_costs_one_read_and_moves_nothing(account: ProviderAccount) -> None:
    (job,) = accepted(account, "pdf_7")
    for kind in ("job.failed", "job.completed", "job.cancelled", "job.deleted"):
        assert send(body("pdf_7", kind)) == 204
    job.refresh_from_db()
    assert (job.state, job.events.count(), job.failure_class) == ("accepted", 0, "")
