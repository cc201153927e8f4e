"""The sample on the page of its batch, with its PDFs: released or cancelled there, no row of its own in the list."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.test import Client
from django.urls import reverse

from batches.engine import samples
from batches.models import AuditEntry, Batch, BatchItem, Job, JobState, ProviderAccount
from tests.factories import NOW, make_accepted_job, make_batch, make_job, make_saved_job, make_submission


def page(batch: Batch) -> str:
    return reverse("batches:batch_detail", args=[batch.public_id])


def release_of(batch: Batch) -> str:
    return reverse("batches:batch_release", args=[batch.public_id])


def waiting(batch: Batch, *jobs: Job) -> Batch:
    """Make `batch` wait for its release, with these of its jobs as its sample."""
    Batch.objects.filter(pk=batch.pk).update(waits_for_release=True, paused_at=NOW, pause_reason=samples.WAITS)
    batch.refresh_from_db()
    sample = make_batch(
        workspace=batch.workspace, account=batch.account, name=f"Sample of {batch.name}", sample_of=batch
    )
    for job in jobs:
        item = job.version.items.get(batch=batch)
        BatchItem.objects.create(
            batch=sample, position=item.position, document=item.document, version=item.version, intake_outcome="new"
        )
    return sample


@pytest.fixture
def sampled(batch: Batch) -> Batch:
    """A batch of four, of which two are its sample and rendered."""
    first, second = make_saved_job(batch=batch), make_saved_job(batch=batch)
    make_job(batch=batch)
    make_job(batch=batch)
    return waiting(batch, first, second)


def test_the_page_shows_the_sample_with_its_pdfs_and_what_to_do(batch: Batch, sampled: Batch, operator: Client) -> None:
    answer = operator.get(page(batch)).text
    assert "2 documents wait until somebody has looked at the sample and releases the batch." in answer
    assert "The sample is rendered: look at it, then release the batch or cancel it." in answer
    for item in sampled.items.all():
        assert reverse("batches:document_pdf", args=[item.document.public_id, 1]) in answer
    assert release_of(batch) in answer
    assert "?verb=cancel" in answer


def test_what_is_sent_for_the_sample_is_not_counted_as_waiting_for_the_release(batch: Batch, operator: Client) -> None:
    first, _second = make_job(batch=batch), make_job(batch=batch)
    sample = waiting(batch, first)
    Job.objects.filter(pk=first.pk).update(lead_batch=sample)
    answer = operator.get(page(batch))
    assert answer.context["progress"].counts.held == 1
    assert "1 waiting for its turn" in answer.text
    assert "2 documents wait" not in answer.text


def test_it_is_released_once_and_says_who_did_it(batch: Batch, sampled: Batch, operator: Client) -> None:
    answer = operator.post(release_of(batch), follow=True).text
    assert "Released: the rest of it is sent." in answer
    assert "It was released; 2 of 2 documents are rendered." in answer
    assert release_of(batch) not in answer
    assert "It does not wait for its release" in operator.post(release_of(batch), follow=True).text
    (entry,) = AuditEntry.objects.filter(action="release_batch")
    assert entry.actor_words == "m.okoye"


def test_a_viewer_sees_the_sample_and_no_button(batch: Batch, sampled: Batch, viewer: Client, outsider: Client) -> None:
    assert release_of(batch) not in viewer.get(page(batch)).text
    assert viewer.post(release_of(batch)).status_code == 403
    assert outsider.post(release_of(batch)).status_code == 404
    batch.refresh_from_db()
    assert batch.waits_for_release


def test_cancel_is_asked_for_with_a_reason_and_takes_both(batch: Batch, sampled: Batch, operator: Client) -> None:
    running = reverse("batches:batch_running", args=[batch.public_id])
    form = operator.get(f"{running}?verb=cancel").text
    assert 'value="cancel" checked' in form
    assert "Release</strong>" in form
    operator.post(running, {"verb": "cancel", "reason": "The logo is gone."})
    sampled.refresh_from_db()
    assert sampled.cancelled_at
    assert "It was cancelled; 2 of 2 documents are rendered." in operator.get(page(batch)).text


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (JobState.FAILED, "1 of the 2 documents failed. See why before you release the batch"),
        (
            JobState.ACCEPTED,
            "2 documents of it are rendered first; the other 1 waits until somebody has looked at them",
        ),
    ],
)
def test_what_became_of_the_sample_is_said(batch: Batch, operator: Client, state: str, words: str) -> None:
    first = make_saved_job(batch=batch)
    second = make_accepted_job(batch=batch) if state == JobState.ACCEPTED else make_job(batch=batch, state=state)
    make_job(batch=batch)
    waiting(batch, first, second)
    assert words in operator.get(page(batch)).text


def test_a_sample_that_failed_altogether_is_told_as_that(batch: Batch, operator: Client) -> None:
    failed = [make_job(batch=batch, state=JobState.FAILED) for _ in range(2)]
    make_job(batch=batch)
    waiting(batch, *failed)
    assert "All 2 documents failed. See why before you release the batch" in operator.get(page(batch)).text


def test_the_live_fragment_brings_the_sample_when_it_changed(batch: Batch, sampled: Batch, operator: Client) -> None:
    live = reverse("batches:batch_live", args=[batch.public_id])
    fragment = operator.get(live).text
    assert 'id="sample"' in fragment
    revision = operator.get(page(batch)).context["sample_revision"]
    assert 'id="sample"' not in operator.get(live, {"sample": revision, "summary": "old"}).text


def test_the_list_shows_the_sample_beside_its_batch_and_counts_nothing_twice(
    batch: Batch, sampled: Batch, operator: Client
) -> None:
    answer = operator.get(reverse("batches:batch_list")).text
    assert answer.count(batch.name) == 1
    assert "Sample of" not in answer
    assert "Sample: 2 of 2 rendered, to be looked at" in answer
    attention = operator.get(reverse("batches:batch_list"), {"view": "attention"}).text
    assert batch.name in attention, "it waits for a person"
    found = operator.get(reverse("batches:batch_list"), {"q": sampled.public_id}).text
    assert batch.name in found


def test_the_page_of_the_sample_leads_to_its_batch(batch: Batch, sampled: Batch, operator: Client) -> None:
    answer = operator.get(page(sampled)).text
    assert "These are documents, rendered first, of" in answer
    assert page(batch) in answer


def test_a_batch_that_needed_no_sample_says_so(batch: Batch, operator: Client) -> None:
    Batch.objects.update(report={"sample_words": "No sample was rendered first, since nothing of it is sent."})
    make_saved_job(batch=batch)
    assert "No sample was rendered first" in operator.get(page(batch)).text


# --- the spend cap ---


@pytest.fixture
def at_cap(batch: Batch) -> Batch:
    ProviderAccount.objects.update(price_per_job=Decimal("0.10"), price_currency="USD")
    job = make_accepted_job(batch=batch)
    job.submissions.update(batch=batch)
    make_submission(job=make_job(batch=batch), batch=batch)
    make_job(batch=batch)
    Batch.objects.filter(pk=batch.pk).update(spend_cap=Decimal("0.20"), paused_at=NOW, pause_reason="At its cap.")
    batch.refresh_from_db()
    return batch


def test_the_page_says_what_it_may_have_cost_and_what_the_cap_is(at_cap: Batch, operator: Client) -> None:
    assert "It may have cost 0.20 USD so far; its spend cap is 0.20 USD." in operator.get(page(at_cap)).text


@pytest.mark.parametrize(
    ("cap", "words"),
    [
        ("", "Raise the cap to let it go on."),
        ("0.25", "With one more document it may have cost 0.30 USD, and its spend cap is 0.25 USD."),
        ("0.10", "A spend cap can only be raised: give at least 0.20 USD."),
        ("many", "The new spend cap cannot be taken"),
        ("NaN", "The new spend cap cannot be taken"),
        ("-5", "The new spend cap cannot be taken"),
        ("1e30", "The new spend cap cannot be taken"),
    ],
)
def test_going_on_without_raising_it_is_refused_with_the_figures(
    at_cap: Batch, operator: Client, cap: str, words: str
) -> None:
    running = reverse("batches:batch_running", args=[at_cap.public_id])
    answer = operator.post(running, {"verb": "resume", "spend_cap": cap})
    assert answer.status_code == 422
    assert words in answer.text
    at_cap.refresh_from_db()
    assert (at_cap.paused_at, at_cap.spend_cap) == (NOW, Decimal("0.2"))


def test_raised_it_goes_on(at_cap: Batch, operator: Client) -> None:
    running = reverse("batches:batch_running", args=[at_cap.public_id])
    assert "New spend cap in USD" in operator.get(running).text
    operator.post(running, {"verb": "resume", "spend_cap": "0.30"})
    at_cap.refresh_from_db()
    assert (at_cap.paused_at, at_cap.spend_cap) == (None, Decimal("0.3"))


def test_a_batch_without_a_cap_has_no_field_for_it(batch: Batch, operator: Client) -> None:
    make_job(batch=batch)
    Batch.objects.filter(pk=batch.pk).update(paused_at=NOW)
    assert "spend cap" not in operator.get(reverse("batches:batch_running", args=[batch.public_id])).text.lower()
