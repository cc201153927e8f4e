"""Stored PDFs that are worth a look, and the provider's warnings: on the pages and in the result files."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from batches import results
from batches.models import Artifact, Batch, Submission
from tests.factories import make_batch, make_saved_job

pytestmark = pytest.mark.django_db

WORDS = "590 bytes: much smaller than the others of its batch."


@pytest.fixture
def admin_client_(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("okoye", password="invented"))
    return client


@pytest.fixture
def batch() -> Batch:
    batch = make_batch()
    for number in range(8):
        job = make_saved_job(batch=batch, business_id=f"INV-{number}")
        if number < 7:
            Artifact.objects.filter(version=job.version).update(notice="small", notice_words=f"{number}: {WORDS}")
    return batch


def test_the_batch_page_counts_and_names_them_and_lists_them_alone(admin_client_: Client, batch: Batch) -> None:
    url = reverse("batches:batch_detail", args=[batch.public_id])
    text = admin_client_.get(url).content.decode()
    assert "Worth a look" in text
    assert "and 2 more" in text
    assert f"0: {WORDS}" in text
    alone = admin_client_.get(url, {"notice": "1"}).context["page"].rows
    assert [row.business_id for row in alone] == [f"INV-{number}" for number in range(7)]


def test_a_batch_without_any_says_nothing(admin_client_: Client, batch: Batch) -> None:
    Artifact.objects.update(notice="", notice_words="")
    url = reverse("batches:batch_detail", args=[batch.public_id])
    assert "Worth a look" not in admin_client_.get(url).content.decode()


def test_the_document_page_shows_the_notice_and_the_providers_warnings(admin_client_: Client, batch: Batch) -> None:
    artifact = Artifact.objects.get(version__document__business_id="INV-3")
    warnings = ["<b>The page</b> asked for a sign-in"]
    Submission.objects.filter(pk=artifact.submission_id).update(result={"url": "http://secret", "warnings": warnings})
    url = reverse("batches:document_detail", args=[artifact.version.document.public_id])
    text = admin_client_.get(url).content.decode()
    assert f"3: {WORDS}" in text
    assert "&lt;b&gt;The page&lt;/b&gt; asked for a sign-in." in text
    assert "http://secret" not in text
    Artifact.objects.filter(pk=artifact.pk).update(missing_at=artifact.stored_at)
    text = admin_client_.get(url).content.decode()
    assert f"3: {WORDS}" not in text
    assert artifact.sha256 not in text, "no digest of what is not there"


def test_results_have_a_column_for_it(batch: Batch) -> None:
    rows = list(results.rows(batch))
    assert [row["notice"] for row in rows] == [*(f"{n}: {WORDS}" for n in range(7)), None]
    assert results.COLUMNS[-1] == "notice"
