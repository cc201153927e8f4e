"""What the head of a batch's page says of its progress: a range with its reason, its tail by name, its cost."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

from django.test import Client
from django.utils import timezone

from batches.models import Batch, Job, JobState, ProviderAccount
from tests.factories import make_accepted_job, make_duration, make_job, make_saved_job, make_submission


def page_of(batch: Batch) -> str:
    return f"/batches/{batch.public_id}/"


def begun(batch: Batch, *, minutes: float, saved: int) -> None:
    """So many documents were saved, evenly since the batch was begun."""
    now = timezone.now()
    Batch.objects.filter(pk=batch.pk).update(created_at=now - timedelta(minutes=minutes))
    for number in range(saved):
        at = now - timedelta(minutes=minutes) * number / saved - timedelta(seconds=2)
        make_saved_job(batch=batch, state_changed_at=at)


def test_a_running_batch_says_how_long_the_rest_takes_and_why(
    batch: Batch, account: ProviderAccount, operator: Client
) -> None:
    ProviderAccount.objects.update(submit_interval_ms=3000)
    begun(batch, minutes=4, saved=24)
    for _ in range(15):
        make_job(batch=batch)
    page = operator.get(page_of(batch)).text
    assert "<strong>About 2–3 min left</strong>" in page
    assert "(by its last 4 minutes; the account sends one every 3 s, the only batch that is sent)" in page
    assert re.search(r"Last saved \d+ s ago", page)
    assert "Sum 39." in page
    assert 'id="tail"' not in page
    Batch.objects.filter(pk=batch.pk).update(paused_at=timezone.now(), pause_reason="Month end.")
    page = operator.get(page_of(batch)).text
    assert "min left" not in page
    assert "How long it takes is not said while it is paused." in page


def test_the_last_documents_are_named_with_where_they_are(batch: Batch, operator: Client) -> None:
    begun(batch, minutes=4, saved=24)
    make_duration(job=Job.objects.earliest("pk"), total_seconds=3)
    since = timezone.now() - timedelta(seconds=41)
    deadline = since + timedelta(minutes=10)
    for name in ("SLOW-1", "SLOW-2"):
        make_accepted_job(
            batch=batch, business_id=name, state_changed_at=since, deadline_at=deadline, provider_status="processing"
        )
    page = operator.get(page_of(batch)).text
    assert "Finishing: last 2 rendering, oldest 4" in page
    assert "(usual 3 s, deadline 10 min)" in page
    tail = page[page.index('id="tail"') :]
    assert tail.index("SLOW-1") < tail.index("SLOW-2") < tail.index("</table>")
    assert "processing" in tail


def test_an_ended_batch_says_nothing_of_what_is_left(batch: Batch, operator: Client) -> None:
    begun(batch, minutes=4, saved=3)
    page = operator.get(page_of(batch)).text
    assert "Nothing moves any more." in page
    assert 'class="headway"' not in page


def test_the_cost_is_said_where_the_price_is_known(batch: Batch, operator: Client) -> None:
    make_submission(job=make_job(batch=batch, state=JobState.FAILED), batch=batch)
    for _ in range(3):
        make_job(batch=batch)
    assert "may have cost" not in operator.get(page_of(batch)).text
    ProviderAccount.objects.update(price_per_job=Decimal("0.20"), price_currency="USD")
    page = operator.get(page_of(batch)).text
    assert "It may have cost 0.20 USD so far, and about 0.80 USD when all of it is sent." in page
