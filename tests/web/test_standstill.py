"""Due work that nobody works on, and what is wrong with an account: said where people look, with what to do."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from batches.engine import alerts, slots, work
from batches.models import AlertKind, Batch, Job, PumpSlot
from tests import factories

pytestmark = pytest.mark.django_db
NO_WORKER = "No worker is running: documents wait, and nothing has moved for"


@pytest.fixture
def okoye(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("okoye", password="invented"))
    return client


@pytest.fixture
def batch() -> Batch:
    batch = factories.make_batch()
    factories.make_job(batch=batch)
    return batch


def waits_for(minutes: float) -> None:
    Job.objects.update(due_at=timezone.now() - timedelta(minutes=minutes))


def faces(client: Client, batch: Batch) -> list[str]:
    urls = (reverse("batches:home"), reverse("batches:batch_detail", args=[batch.public_id]))
    return [client.get(url).content.decode() for url in urls]


def test_without_a_worker_every_face_says_so_and_how_to_start_one(okoye: Client, batch: Batch) -> None:
    waits_for(9.5)
    for text in faces(okoye, batch):
        assert f"{NO_WORKER} 9 min." in text
        assert "manage.py runcluster" in text
    answer = okoye.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (200, "ready"), "uploads and webhooks are still taken"
    assert NO_WORKER in answer.json()["worker"]


def test_while_a_pump_moves_or_the_work_is_fresh_or_none_is_due_nobody_says_it(okoye: Client, batch: Batch) -> None:
    now = timezone.now()
    waits_for(1)
    assert work.standstill(now=now) == ""
    waits_for(9)
    slots.ensure(1)
    assert slots.acquire("pump", now=now - timedelta(minutes=2))
    assert work.standstill(now=now) == ""
    PumpSlot.objects.update(heartbeat_at=now - timedelta(minutes=5))
    assert "nothing has moved for 5 min" in work.standstill(now=now)
    Batch.objects.update(paused_at=now)
    Job.objects.update(lead_batch=None)
    assert work.standstill(now=now) == "", "what waits in a paused batch waits for nobody"


@pytest.mark.parametrize("kind", [AlertKind.DURATIONS, AlertKind.WEBHOOKS_SILENT, AlertKind.LINKS_AGEING])
def test_what_is_wrong_with_an_account_reaches_the_home_page_and_its_batches(
    okoye: Client, batch: Batch, kind: AlertKind
) -> None:
    words = "Durations could not be recorded: look at the table."
    alerts.open_for_account(batch.account, kind, words, now=timezone.now())
    assert all(words in text for text in faces(okoye, batch))
    alerts.close_for_account(batch.account, kind, now=timezone.now())
    assert not any(words in text for text in faces(okoye, batch))
