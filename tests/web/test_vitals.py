"""The health page: what is well, what is not and what to do about it, and no more of others than a person may know."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django_q.models import Schedule

from batches import queue
from batches.engine import alerts, pumping, slots
from batches.models import AlertKind, Batch, Job, JobState, PumpSlot, StoreSweep
from tests.factories import make_batch, make_job, make_saved_job


@pytest.fixture(autouse=True)
def installed(db: None) -> None:
    """A cluster that runs: its schedules are moved on, and one pump is at work."""
    now = timezone.now()
    queue.ensure_schedules()
    slots.ensure(2)
    PumpSlot.objects.filter(number=1).update(
        owner="app-1:4711:ab:cd", lease_until=now + timedelta(seconds=10), heartbeat_at=now
    )


def test_when_all_is_well_it_says_so(batch: Batch, operator: Client) -> None:
    make_job(batch=batch, due_at=timezone.now() - timedelta(seconds=2))
    for minutes in (2, 2, 5):
        make_saved_job(batch=batch, state_changed_at=timezone.now() - timedelta(minutes=minutes))
    pumping.sweep()
    with CaptureQueriesContext(connection) as asked:
        page = operator.get("/health/")
    assert len(asked) <= 15, [each["sql"][:90] for each in asked]
    assert "Everything is well." in page.text
    assert page.context["saved_total"] == 3
    assert "app-1, process 4711" in page.text
    assert "It has found nothing to repair so far." in page.text
    assert operator.get("/health/live/").status_code == 200


def test_without_a_cluster_it_says_what_to_start(batch: Batch, operator: Client) -> None:
    Schedule.objects.update(next_run=timezone.now() - timedelta(minutes=5))
    page = operator.get("/health/").text
    assert "No worker cluster is running" in page
    assert "manage.py runcluster" in page


def test_the_oldest_due_document_is_named_to_who_may_see_it(batch: Batch, operator: Client, outsider: Client) -> None:
    now = timezone.now()
    make_job(batch=batch, due_at=now - timedelta(minutes=3), business_id="INV-YOUNG")
    make_job(batch=batch, due_at=now - timedelta(minutes=40), business_id="INV-OLDEST")
    paused = make_batch(workspace=batch.workspace, account=batch.account, paused_at=now)
    make_job(batch=paused, due_at=now - timedelta(days=3), business_id="INV-PAUSED")
    PumpSlot.objects.update(owner=None, lease_until=None)
    page = operator.get("/health/").text
    assert "INV-OLDEST" in page
    assert "A document has been due for 40 min, and no pump is at work." in page
    assert "A document of another workspace" in outsider.get("/health/").text
    assert "INV-OLDEST" not in outsider.get("/health/").text


def test_what_others_save_is_not_told_but_to_who_looks_after_the_installation(
    batch: Batch, outsider: Client, admin_client: Client
) -> None:
    make_saved_job(batch=batch, state_changed_at=timezone.now() - timedelta(minutes=2))
    assert outsider.get("/health/").context["saved_total"] == 0
    assert admin_client.get("/health/").context["saved_total"] == 1


def test_alerts_findings_and_what_the_sweep_repaired_are_told(batch: Batch, operator: Client) -> None:
    now = timezone.now()
    job = make_job(batch=batch, state=JobState.PENDING)
    Job.objects.filter(pk=job.pk).update(lease_owner="gone", lease_until=now - timedelta(hours=1))
    alerts.tell_for_account(batch.account, AlertKind.ACCOUNT_HELD, "It is held: no credit.", now=now)
    StoreSweep.objects.create(kind="objects", started_at=now, facts={"looked_at": 4321})
    pumping.sweep()
    page = operator.get("/health/").text
    assert "It is held: no credit." in page
    assert "leases of dead workers cleared: 1" in page
    assert "4,321 looked at" in page


def test_a_store_that_is_away_is_told_with_what_to_do(batch: Batch, operator: Client, settings: object) -> None:
    settings.STORAGE_URL = "file:///proc/nowhere"  # type: ignore[attr-defined] # pytest-django's
    page = operator.get("/health/").text
    assert "The store cannot be used" in page
    assert "waits at the provider meanwhile" in page
