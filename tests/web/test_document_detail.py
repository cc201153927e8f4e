"""The document page: timeline, versions, evidence, preview; and its PDF."""

from __future__ import annotations

import html
import io
import re
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from batches import storage
from batches.engine import audit, running
from batches.models import (
    Artifact,
    AuditEntry,
    Batch,
    BatchItem,
    DocumentVersion,
    Exchange,
    FailureClass,
    Job,
    JobEvent,
    JobState,
    ProviderAccount,
)
from tests.factories import NOW, make_accepted_job, make_job, make_saved_job, make_submission, make_version
from tests.web.stored import store_pdf


def page_of(job: Job) -> str:
    return f"/documents/{job.version.document.public_id}/"


def event(job: Job, seconds: float, start: str, end: str, **fields: Any) -> None:
    at = NOW + timedelta(seconds=seconds)
    JobEvent.objects.create(job=job, at=at, from_state=start, to_state=end, **{"reason": "x", **fields})


def exchange(job: Job, seconds: float, kind: str, status: int | None, **fields: Any) -> None:
    at = NOW + timedelta(seconds=seconds)
    Exchange.objects.create(account=job.account, job=job, kind=kind, at=at, duration_ms=120, status=status, **fields)


def test_the_timeline_merges_states_and_requests_with_offsets(batch: Batch, operator: Client) -> None:
    job = make_accepted_job(batch=batch)
    event(job, 2, "pending", "submitting")
    exchange(job, 2.1, "submit", 202)
    event(job, 2.5, "submitting", "accepted")
    for n in range(4):
        exchange(job, 3 + n, "poll", 200)
    exchange(job, 8, "poll", None, error_class="connection_lost")
    event(job, 9, "accepted", "accepted", reason="late_answer", words="A webhook came late.")
    section = operator.get(page_of(job)).text.split('<ol class="timeline">')[1].split("</ol>")[0]
    words = [
        "Taken in",
        "Submitting",
        "Submission",
        "HTTP 202 in 120 ms",
        "Rendering",
        "Status read",
        "×4",
        "Status read",
    ]
    words += ["connection lost", "Noted", "A webhook came late."]
    places = [section.index(word) for word in words[:-5]]
    assert places == sorted(places)
    assert all(word in section for word in words)
    assert "+2.0 s" in section
    assert section.count("<li") == 7


def test_a_failure_is_told_with_what_to_do(batch: Batch, operator: Client) -> None:
    job = make_job(batch=batch, state=JobState.FAILED, failure_words="Line 3 is too wide.", failure_code="E422")
    page = operator.get(page_of(job)).text
    assert "Line 3 is too wide." in page
    assert "Retry (bills 0 or 1) once it has said twice that it was not billed" in page


def test_a_held_account_is_told(batch: Batch, operator: Client) -> None:
    job = make_job(batch=batch)
    ProviderAccount.objects.update(health="held", hold_reason="insufficient_credit", held_at=NOW, hold_words="402.")
    page = operator.get(page_of(job)).text
    assert "Top the account up" in page
    assert page.split("</h1>")[0].rstrip().endswith("Held</span>")


def test_a_document_that_may_have_been_sent_is_not_held(batch: Batch, operator: Client) -> None:
    job = make_job(batch=batch)
    make_submission(job=job)
    ProviderAccount.objects.update(health="held", hold_reason="auth", held_at=NOW, hold_words="401.")
    page = operator.get(page_of(job)).text
    assert page.split("</h1>")[0].rstrip().endswith("Waiting</span>")
    assert "is held" not in page


DUE = NOW + timedelta(seconds=72)
FAILED_ONCE = {"outcome": "render_failed", "closed_at": NOW, "provider_job_id": "pdf_1", "accepted_at": NOW}
WORDS = {"failure_words": "No font has these letters.", "failure_code": "font_missing"}
DEADLINE = {"deadline_at": NOW + timedelta(hours=1)}


@pytest.mark.parametrize(
    ("state", "fields", "submission", "words"),
    [
        ("pending", {}, None, "It waits for its turn to be sent."),
        (
            "pending",
            WORDS,
            {**FAILED_ONCE, "in_doubt": False},
            (
                "Failed once at the provider, not billed (No font has these letters, font_missing). "
                "It will be sent again in its turn, from 09:01:12 UTC on."
            ),
        ),
        (
            "pending",
            {**WORDS, "lead_batch": None},
            {**FAILED_ONCE, "in_doubt": False},
            "(No font has these letters, font_missing). It is not sent: no batch needs it any more.",
        ),
        (
            "pending",
            {},
            {"in_doubt": False, "try_count": 1},
            "The try before came to nothing. It will be sent again in its turn, from 09:01:12 UTC on.",
        ),
        (
            "submitting",
            {},
            {"try_count": 1},
            "No clear answer came, so it may have arrived. It is sent again with the same key from 09:01:12 UTC on.",
        ),
        ("submitting", {"lease_owner": "a", "lease_until": DUE}, {"try_count": 1}, "Being handed to the provider."),
        (
            "accepted",
            DEADLINE,
            {"provider_job_id": "pdf_1", "accepted_at": NOW, "in_doubt": False, "failed_at": NOW},
            (
                "The provider says it failed and was not billed; it is read once more at 09:01:12 UTC "
                "before it is sent again."
            ),
        ),
        (
            "accepted",
            DEADLINE,
            {"provider_job_id": "pdf_1", "accepted_at": NOW, "in_doubt": False},
            "The provider accepted it and works on it.",
        ),
        (
            "rendered",
            {},
            {"provider_job_id": "pdf_1", "accepted_at": NOW, "in_doubt": False},
            "The finished file could not be fetched yet; the next try is at 09:01:12 UTC.",
        ),
    ],
)
def test_the_page_says_why_a_document_waits_and_until_when(
    state: str,
    fields: dict[str, Any],
    submission: dict[str, Any] | None,
    words: str,
    batch: Batch,
    operator: Client,
) -> None:
    job = make_job(batch=batch, state=state, **{"due_at": DUE, **fields})
    if submission is not None:
        make_submission(job=job, **submission)
    assert f"{words} The PDF appears here when it is saved." in operator.get(page_of(job)).text


def test_the_page_says_that_a_document_waits_for_a_paused_batch(batch: Batch, operator: Client) -> None:
    job = make_job(batch=batch)
    running.pause(batch.pk, reason="month end", by=audit.ENGINE, now=NOW)
    assert "It is not sent while its batch is paused." in operator.get(page_of(job)).text


def test_a_held_account_leads_to_its_page_where_it_is_resumed(batch: Batch, operator: Client) -> None:
    job = make_job(batch=batch)
    ProviderAccount.objects.update(health="held", hold_reason="auth", held_at=NOW, hold_words="401.")
    assert f'href="/accounts/{job.account.slug}/"' in operator.get(page_of(job)).text


@pytest.mark.parametrize(
    ("state", "submission", "words", "may_be_resent"),
    [
        (JobState.SUBMITTING, {}, "Being sent", True),
        (JobState.UNKNOWN, {}, "Not known if it arrived", False),
        (JobState.PENDING, {"in_doubt": False}, "Did not arrive", False),
        (JobState.EXPIRED, {"provider_job_id": "p", "accepted_at": NOW}, "Accepted; no PDF came of it", False),
        (JobState.RENDERED, {"provider_job_id": "p", "accepted_at": NOW}, "Accepted", False),
        (JobState.FAILED, {"outcome": "render_failed", "closed_at": NOW}, "Rendering failed", False),
    ],
)
def test_a_submission_tells_what_it_came_to(
    state: str, submission: dict[str, Any], words: str, may_be_resent: bool, batch: Batch, operator: Client
) -> None:
    job = make_job(batch=batch, state=state)
    make_submission(job=job, **submission)
    section = operator.get(page_of(job)).text.split('id="evidence"')[1].split("</section>")[0]
    assert f"<dd>{words}</dd>" in section
    assert ("safe to resend until" in section) is may_be_resent


def test_the_timeline_speaks_plainly_and_stores_before_it_saves(batch: Batch, operator: Client) -> None:
    job = make_saved_job(batch=batch)
    event(job, -2, "pending", "submitting", reason="intent_committed")
    exchange(job, -1, "submit", None, error_class="AnswerLost")
    event(job, 0, "rendered", "saved", reason="stored")
    job.version.artifact.stored_at = NOW + timedelta(milliseconds=3)
    job.version.artifact.save()
    section = operator.get(page_of(job)).text.split('<ol class="timeline">')[1].split("</ol>")[0]
    assert "About to be sent." in section
    assert "no answer came back" in section
    assert "AnswerLost" not in section
    assert section.index("Stored and checked") < section.index("<strong>Saved</strong>")


def test_an_expired_file_has_one_name(batch: Batch, operator: Client) -> None:
    page = operator.get(page_of(make_job(batch=batch, state=JobState.EXPIRED))).text
    assert (
        page.count("Expired at the provider</strong>")
        + page.count("Expired at the provider</span>")
        + page.count("Expired at the provider.")
        == 2
    )
    assert "Link expired" not in page


def test_versions_are_listed_and_each_opens(batch: Batch, operator: Client) -> None:
    job = make_saved_job(batch=batch, business_id="INV-1")
    second = make_version(workspace=batch.workspace, business_id="INV-1", html="<p>new</p>", reason="New price")
    Job.objects.create(version=second, account=batch.account)
    current = operator.get(page_of(job)).text
    assert "Version 2" in current
    assert "New price" in current
    assert "not the current one" not in current
    assert "not the current one" in operator.get(page_of(job), {"version": "1"}).text
    for wrong in ("3", "0", "x", "-1", "\0", "9" * 30):
        assert operator.get(page_of(job), {"version": wrong}).status_code in (200, 404)
    assert operator.get(page_of(job), {"version": "3"}).status_code == 404


def test_the_number_of_queries_is_fixed(batch: Batch, operator: Client, django_assert_max_num_queries: Any) -> None:
    job = make_saved_job(batch=batch)
    for n in range(60):
        exchange(job, n, "poll", 200)
        event(job, n, "accepted", "accepted")
    with django_assert_max_num_queries(15):
        operator.get(page_of(job))


def test_live_is_silent_until_something_happens(batch: Batch, operator: Client) -> None:
    job = make_accepted_job(batch=batch)
    page = operator.get(page_of(job))
    revision = page.context["summary_revision"]
    assert 'data-live="2"' in page.text
    address = f"{page_of(job)}live/?version=1&summary={revision}"
    assert operator.get(address).status_code == 204
    job.state, job.deadline_at = JobState.CANCELLED, None
    job.save()
    answer = operator.get(address).text
    for part in ("head", "notices", "facts", "timeline", "evidence", "preview", "live"):
        assert f'id="{part}"' in answer
    assert "data-live=" not in answer


# --- the PDF --------------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(batch: Batch) -> Job:
    job = make_saved_job(batch=batch, business_id='Čapek "2024"; v1')
    store_pdf(job, b"%PDF-1.7 hello")
    return job


def pdf_of(job: Job) -> str:
    return f"{page_of(job)}v1.pdf"


def test_the_pdf_is_shown_in_a_sandbox_without_our_origin(saved: Job, operator: Client) -> None:
    answer = operator.get(pdf_of(saved))
    assert b"".join(answer.streaming_content) == b"%PDF-1.7 hello"
    assert answer["Content-Type"] == "application/pdf"
    assert answer["Content-Length"] == "14"
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["X-Frame-Options"] == "SAMEORIGIN"
    assert answer["Content-Security-Policy"].startswith("sandbox;")
    assert answer["Cache-Control"] == "private, no-store"
    assert answer["Content-Disposition"].startswith("inline;")


def test_a_download_has_a_readable_name_and_leaves_a_record(saved: Job, operator: Client) -> None:
    answer = operator.get(f"{pdf_of(saved)}?download")
    assert answer["Content-Disposition"] == (
        "attachment; filename=\"Capek _2024_; v1_v1.pdf\"; filename*=UTF-8''%C4%8Capek%20_2024_%3B%20v1_v1.pdf"
    )
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.actor_words) == ("download_pdf", "m.okoye")
    assert entry.subject == f"document {saved.version.document.public_id} v1"


def test_a_phone_gets_a_button_instead_of_a_preview_that_it_cannot_draw(saved: Job, operator: Client) -> None:
    page = operator.get(page_of(saved)).text
    assert f'<a class="btn" id="view" href="{page_of(saved)}v1.pdf" target="_blank"' in page
    rules = (Path(settings.BASE_DIR) / "batches/static/batches/pages.css").read_text()
    rules = rules.split("/* --- document ")[1].split("/* --- ")[0]
    narrow = rules.split("@media (max-width: 640px)")[1].split("@media")[0]
    assert ".preview, .preview-note { display: none; }" in narrow


def test_a_version_without_a_pdf_has_none(batch: Batch, operator: Client) -> None:
    job = make_accepted_job(batch=batch)
    assert operator.get(pdf_of(job)).status_code == 404
    assert "The PDF appears here when it is saved." in operator.get(page_of(job)).text
    assert not AuditEntry.objects.exists()


def test_a_file_deleted_by_retention_is_said_to_be(saved: Job, operator: Client) -> None:
    saved.version.artifact.local_deleted_at = NOW
    saved.version.artifact.save()
    assert operator.get(pdf_of(saved)).status_code == 410
    assert "Retention deleted it" in operator.get(page_of(saved)).text


def test_an_object_that_is_missing_is_not_found(batch: Batch, operator: Client, saved: Job) -> None:
    job = make_saved_job(batch=batch)
    assert operator.get(pdf_of(job)).status_code == 404


@pytest.mark.parametrize("content", [b"", b"%PDF-1.7", b"%PDF-1.7 hello and more"])
def test_an_object_of_another_length_is_not_given_out(content: bytes, saved: Job, operator: Client) -> None:
    key = saved.version.artifact.storage_key
    storage.open_store(settings.STORAGE_URL).put(key, io.BytesIO(content))
    assert operator.get(pdf_of(saved)).status_code == 404


def test_a_store_that_is_away_is_not_a_missing_file(saved: Job, operator: Client, artifact_folder: Path) -> None:
    (artifact_folder / ".artifact-store").unlink()
    (artifact_folder / saved.version.artifact.storage_key).unlink()
    answer = operator.get(pdf_of(saved))
    assert answer.status_code == 503
    assert "The file is kept" in answer.text


def test_what_carries_one_instant_stands_in_the_order_in_which_it_came_about(batch: Batch, operator: Client) -> None:
    """The intent before what it let leave; the stored file after "finished there" and before "saved"."""
    job = make_saved_job(batch=batch)
    later = NOW + timedelta(seconds=1)
    Artifact.objects.update(stored_at=later)
    for at, before, after in (
        (NOW, "pending", "submitting"),
        (later, "accepted", "rendered"),
        (later, "rendered", "saved"),
    ):
        JobEvent.objects.create(job=job, at=at, from_state=before, to_state=after, reason="stored")
    exchange(job, 0, "submit", 202)
    Exchange.objects.update(at=NOW)
    titles = [entry.title for entry in operator.get(page_of(job)).context["history"].timeline]
    assert titles == ["Taken in", "Submitting", "Submission", "Fetching", "Stored and checked", "Saved"]


def test_a_dismissed_document_says_where_and_why(batch: Batch, operator: Client) -> None:
    job = make_job(batch=batch, state=JobState.FAILED, failure_class=FailureClass.RENDER_FAILED)
    item = BatchItem.objects.get(document=job.version.document)
    page = f"/documents/{job.version.document.public_id}/"
    assert "Dismissed in" not in operator.get(page).text
    BatchItem.objects.filter(pk=item.pk).update(dismissed_at=NOW, dismissed_note="Paid by <hand>")
    text = operator.get(page).text
    assert f"Dismissed in {batch.name}." in text
    assert "Paid by &lt;hand&gt;." in text


def test_the_time_that_is_over_is_told_apart(batch: Batch, operator: Client) -> None:
    job = make_saved_job(batch=batch)
    DocumentVersion.objects.filter(pk=job.version_id).update(created_at=NOW)
    event(job, 10, "pending", "submitting")
    event(job, 12, "submitting", "accepted")
    event(job, 15.1, "accepted", "rendered")
    event(job, 15.5, "rendered", "saved")
    text = re.sub(r"<[^>]+>", "", operator.get(page_of(job)).text)
    for words in ("12 s waiting for its turn", "3.1 s at the provider", "0.4 s download and storage"):
        assert words in text


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"outcome": "delivered", "closed_at": NOW, "billed_amount": Decimal("0.0013")}, "Yes, 0.0013 USD, as the"),
        ({"outcome": "delivered", "closed_at": NOW}, "Yes: the provider finished it"),
        ({"outcome": "refused", "closed_at": NOW}, "No: the provider never took it"),
        ({"outcome": "render_failed", "closed_at": NOW, "failed_at": NOW}, "No: the provider says that it failed"),
        ({"in_doubt": True}, "Not known"),
        ({"in_doubt": False}, "No: the provider never took it"),
        ({"in_doubt": False, "provider_job_id": "pdf_x", "accepted_at": NOW}, "Not known"),
    ],
)
def test_each_submission_says_whether_it_is_billed(
    fields: dict[str, Any], words: str, batch: Batch, operator: Client
) -> None:
    job = make_job(batch=batch, state=JobState.FAILED)
    make_submission(job=job, **fields)
    assert f"<dt>Billed</dt><dd>{words}" in operator.get(page_of(job)).text


def test_a_document_leads_to_its_neighbours_in_the_list_it_was_opened_from(
    batch: Batch, operator: Client, viewer: Client, outsider: Client
) -> None:
    jobs = [make_job(batch=batch, state=JobState.FAILED, business_id=f"F-{n}") for n in range(3)]
    make_saved_job(batch=batch, business_id="S-3")
    page = operator.get(f"/batches/{batch.public_id}/", {"state": "failed"}).text
    address = html.unescape(re.search(r'id="open-1" href="([^"]+)"', page)[1])  # type: ignore[index]
    page = operator.get(address).text
    before = html.unescape(re.search(r'rel="prev" href="([^"]+)"', page)[1])  # type: ignore[index]
    after = html.unescape(re.search(r'rel="next" href="([^"]+)"', page)[1])  # type: ignore[index]
    assert before.startswith(page_of(jobs[0]))
    assert after.startswith(page_of(jobs[2]))
    last = operator.get(after).text
    assert 'rel="next"' not in last, "what is saved is not in that list"
    assert f'href="/batches/{batch.public_id}/?state=failed#documents"' in last
    assert outsider.get(after).status_code == 404
    assert 'rel="prev"' in viewer.get(after).text
    for elsewhere in ("?in=bat_other&row=1", f"?in={batch.public_id}&row=2", f"?in={batch.public_id}&row=x"):
        assert 'rel="prev"' not in operator.get(page_of(jobs[1]) + elsewhere).text
