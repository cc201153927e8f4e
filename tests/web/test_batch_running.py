"""Pausing, resuming and cancelling a batch from its page."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from batches.models import AuditEntry, Batch, JobState
from tests.factories import make_accepted_job, make_job, make_saved_job


def address(batch: Batch) -> str:
    return reverse("batches:batch_running", args=[batch.public_id])


def page(batch: Batch) -> str:
    return reverse("batches:batch_detail", args=[batch.public_id])


def test_it_is_paused_with_a_reason_and_goes_on_without_one(batch: Batch, operator: Client) -> None:
    make_job(batch=batch)
    make_accepted_job(batch=batch)
    assert address(batch) in operator.get(page(batch)).text
    shown = operator.get(address(batch)).text
    assert "1 document not sent yet; 1 document at the provider" in shown
    answer = operator.post(address(batch), {"verb": "pause", "reason": "Wrong prices"}, follow=True)
    assert "Paused: nothing new of it is sent" in answer.text
    batch.refresh_from_db()
    assert batch.pause_reason == "Wrong prices"
    assert "It was paused because: Wrong prices" in operator.get(address(batch)).text
    operator.post(address(batch), {"verb": "resume"})
    batch.refresh_from_db()
    assert batch.paused_at is None
    entries = list(AuditEntry.objects.order_by("pk").values_list("action", "actor_words", "reason"))
    assert entries[-2:] == [("pause_batch", "m.okoye", "Wrong prices"), ("resume_batch", "m.okoye", "")]


def test_it_is_cancelled_for_good_and_what_the_provider_has_stays(batch: Batch, operator: Client) -> None:
    waiting, accepted = make_job(batch=batch), make_accepted_job(batch=batch)
    operator.post(address(batch), {"verb": "cancel", "reason": "Sent twice"})
    for job in (waiting, accepted):
        job.refresh_from_db()
    assert (waiting.state, accepted.state) == (JobState.CANCELLED, JobState.ACCEPTED)
    assert address(batch) not in operator.get(page(batch)).text, "there is nothing left to choose"
    answer = operator.post(address(batch), {"verb": "resume"}, follow=True)
    assert "nothing was changed" in answer.text


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({"verb": "pause", "reason": "  "}, "Say why"),
        ({"verb": "cancel"}, "Say why"),
        ({"verb": "stop", "reason": "x"}, "Choose what to do"),
        ({}, "Choose what to do"),
    ],
)
def test_what_is_missing_is_said_and_nothing_changes(
    sent: dict[str, str], words: str, batch: Batch, operator: Client
) -> None:
    make_job(batch=batch)
    answer = operator.post(address(batch), sent)
    assert answer.status_code == 422
    assert words in answer.text
    batch.refresh_from_db()
    assert batch.paused_at is None
    assert batch.cancelled_at is None


def test_what_is_over_cannot_be_paused(batch: Batch, operator: Client) -> None:
    make_saved_job(batch=batch)
    assert "This batch is over" in operator.get(address(batch)).text
    answer = operator.post(address(batch), {"verb": "pause", "reason": "Late"}, follow=True)
    assert "that stays as it is" in answer.text
    batch.refresh_from_db()
    assert batch.paused_at is None


def test_a_viewer_is_refused_and_an_outsider_finds_nothing(batch: Batch, viewer: Client, outsider: Client) -> None:
    make_job(batch=batch)
    assert address(batch) not in viewer.get(page(batch)).text
    assert viewer.get(address(batch)).status_code == 403
    assert viewer.post(address(batch), {"verb": "pause", "reason": "x"}).status_code == 403
    assert outsider.post(address(batch), {"verb": "pause", "reason": "x"}).status_code == 404
    batch.refresh_from_db()
    assert batch.paused_at is None
