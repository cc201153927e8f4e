"""What the pages and files say of content that retention deleted: all of them the same, and what to do."""

from __future__ import annotations

import io
import json
import zipfile
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from batches import results, storage
from batches.engine import retaining
from batches.manifests import fingerprint
from batches.models import (
    AuditEntry,
    Batch,
    BatchItem,
    Deletion,
    DocumentVersion,
    Draft,
    Job,
    JobState,
    Role,
    Submission,
    Workspace,
)
from tests.engine.carried import Clock
from tests.factories import NOW, make_deletion, make_job, make_saved_job, make_submission
from tests.web.conftest import make_member, signed_in
from tests.web.stored import store_pdf

pytestmark = pytest.mark.django_db
GONE = "Its input was deleted on 2026-04-11 by the rule “inputs are kept for 30 days”; upload it again."
PDF = b"%PDF-1.7 of it"


@pytest.fixture
def manager(workspace: Workspace) -> Client:
    return signed_in(make_member(workspace, "a.manager", Role.MANAGER))


def retain(batch: Batch, **days: int | None) -> None:
    """Run the sweep forty days later; what is saved in `batch` since then is younger."""
    Workspace.objects.filter(pk=batch.workspace_id).update(**{f"keep_{name}_days": each for name, each in days.items()})
    store = storage.open_store(settings.STORAGE_URL)
    retaining.sweep(store, Clock(NOW + timedelta(days=40)), owner="w", seconds=timedelta(hours=1))


def page(job: Job, *more: str) -> str:
    return "/".join(["/documents", job.version.document.public_id, *more, ""])


def failed_job(batch: Batch) -> Job:
    job = make_job(batch=batch, state=JobState.FAILED, failure_class="transient")
    make_submission(job=job, in_doubt=False, outcome="refused", closed_at=NOW)
    return job


def test_what_needs_the_input_is_refused_in_words_and_another_upload_of_it_is_rendered(
    batch: Batch, manager: Client
) -> None:
    job = failed_job(batch)
    item = BatchItem.objects.get()
    text = bytes(job.version.input_inline or b"").decode()
    assert GONE not in manager.get(page(job)).text
    retain(batch, inputs=30)
    assert GONE in manager.get(page(job)).text
    shown = manager.get(page(job, "regenerate")).text
    assert (GONE in shown, 'value="same"' in shown, "Edit" in shown) == (True, False, False)
    form: dict[str, Any] = {"version": "1", "reason": "Sent anew.", "item": item.pk, "options": "{}"}
    again = manager.post(page(job, "regenerate"), form | {"source": "same"})
    assert (again.status_code, GONE in again.text) == (422, True)
    assert DocumentVersion.objects.count() == 1
    file = SimpleUploadedFile("again.html", text.encode())
    assert manager.post(page(job, "regenerate"), form | {"source": "upload", "file": file}).status_code == 302
    second = DocumentVersion.objects.get(number=2)
    assert (bytes(second.input_inline or b"").decode(), second.job.state) == (text, JobState.PENDING)
    compared = manager.get(page(job, "versions", "1", "2"))
    assert (compared.status_code, GONE in compared.text) == (410, True)


def test_the_file_and_the_rows_of_a_batch_are_said_to_be_gone(batch: Batch, operator: Client) -> None:
    failed_job(batch)
    retain(batch, inputs=30)
    for file in ("manifest", "failed.csv"):
        answer = operator.get(f"/batches/{batch.public_id}/{file}{'/' if file == 'manifest' else ''}", follow=True)
        assert answer.status_code == 410, file
        assert "deleted on 2026-04-11" in answer.text
    assert operator.get(f"/batches/{batch.public_id}/").status_code == 200


def test_page_api_results_and_archive_agree_on_what_was_deleted(batch: Batch, operator: Client) -> None:
    old, young = make_saved_job(batch=batch), make_saved_job(batch=batch)
    for job in (old, young):
        store_pdf(job, PDF)
    Job.objects.filter(pk=young.pk).update(state_changed_at=NOW + timedelta(days=39))
    retain(batch, outputs=30)
    assert Deletion.objects.get().state == "confirmed"
    assert "Retention deleted it on" in operator.get(page(old)).text
    refused = operator.get(page(old, "v1.pdf").rstrip("/"))
    assert (refused.status_code, "deleted on 2026-04-11" in refused.text) == (410, True)
    rows = {row["id"]: row for row in results.rows(batch)}
    gone = rows[old.version.document.business_id]
    assert (gone["status"], gone["flags"], gone["output_sha256"]) == ("saved", "file_deleted", None)
    assert gone["reason"] == "The stored file was deleted by retention on 2026-04-11."
    archive = zipfile.ZipFile(io.BytesIO(b"".join(operator.get(f"/batches/{batch.public_id}/archive/"))))
    top = json.loads(archive.read("manifest.json"))
    assert (top["complete"], top["documents"], top["deleted_by_retention"]) == (False, 1, 1)
    lists = archive.read("manifest.csv").decode()
    assert ("deleted by retention on 2026-04-11" in lists, "missing" in lists) == (True, False)
    assert archive.read("failed.csv").decode().count("\n") == 1


def test_the_same_content_of_a_cancelled_document_makes_a_new_version(
    batch: Batch, upload: Any, operator: Client
) -> None:
    """It was never sent, and cannot be any more as it was: reviving it would send nothing."""
    make_job(batch=batch, state=JobState.CANCELLED, business_id="INV-1")
    text = "<h1>Invoice INV-1</h1>"
    DocumentVersion.objects.update(input_sha256=fingerprint("html", text, {}))
    rows = [{"id": "INV-1", "html_content": text}]
    assert "id_content_conflict" not in str(check(upload(rows)))
    retain(batch, inputs=30)
    assert "id_content_conflict" in str(check(upload(rows)))


def check(page: Any) -> Any:
    """What the check of the newest upload said."""
    assert page.status_code == 200
    return Draft.objects.latest("pk").report


def test_a_policy_is_set_on_its_page_after_a_look_at_what_it_would_delete(
    batch: Batch, workspace: Workspace, manager: Client
) -> None:
    make_saved_job(batch=batch)
    make_job(batch=batch, state=JobState.UNKNOWN)
    Job.objects.update(state_changed_at=timezone.now() - timedelta(days=40))
    Batch.objects.update(created_at=timezone.now() - timedelta(days=40))
    address = f"/retention/{workspace.slug}/"
    assert manager.get(address).status_code == 403
    admin = signed_in(make_member(workspace, "an.admin", Role.ADMIN))
    assert admin.get("/retention/", follow=True).redirect_chain == [(address, 302)]
    assert "everything is kept for ever" in admin.get(address).text
    days = {"keep_inputs_days": "30", "keep_outputs_days": "", "keep_evidence_days": ""}
    tried = admin.post(address, days | {"try": "yes"}).text
    assert "1: It is not known whether the provider has it; reconcile it." in tried
    workspace.refresh_from_db()
    assert (workspace.keep_inputs_days, Deletion.objects.count()) == (None, 0)
    assert admin.post(address, days | {"keep_evidence_days": "7"}).status_code == 422
    assert "from now on" in admin.post(address, days | {"reason": "Agreed."}, follow=True).text
    workspace.refresh_from_db()
    entry = AuditEntry.objects.get(action="change_retention")
    assert (workspace.keep_inputs_days, entry.reason) == (30, "Agreed.")
    assert entry.facts["after"]["keep_inputs_days"] == "30 days"
    assert "so already" in admin.post(address, days, follow=True).text


def test_the_certificate_says_what_went_what_is_not_proven_and_what_is_left(batch: Batch, viewer: Client) -> None:
    job = make_saved_job(batch=batch)
    store_pdf(job, PDF)
    sent = job.submissions.get()
    Submission.objects.filter(pk=sent.pk).update(result={"expires_at": "2026-03-03T09:00:00+00:00"})
    assert "Nothing of it was deleted." in viewer.get(page(job, "deletions")).text
    retain(batch, inputs=30, outputs=60)
    address = page(job, "deletions.json").rstrip("/")
    found = viewer.get(address).json()
    gone = {(row["what"], row["where"], row["state"]) for row in found["deletions"]}
    assert gone == {(what, "here", "confirmed") for what in ("input", "request", "manifest")}
    assert {row["sha256"] for row in found["deletions"] if row["what"] == "input"} == {job.version.input_sha256}
    left = {(each["what"], each["where"].split(" (")[0]): (each["until"] or "")[:10] for each in found["still_there"]}
    assert left == {
        ("PDF", "Here"): "2026-05-01",
        ("Facts of requests, bodies of webhooks", "Here"): "",
        ("PDF", "At the provider"): "2026-03-03",
    }
    assert len(found["not_proven"]) == 1, "of backups nothing is said"
    words = "The provider said <something> of Somebody."
    ended = {"state": "failed", "settled_at": NOW, "due_at": None, "words": words}
    make_deletion(submission=sent, what="pdf", where="provider", **ended)
    told = viewer.get(address).json()
    assert "never confirmed" in told["not_proven"][0]
    shown = viewer.get(page(job, "deletions")).text
    assert ("never confirmed" in shown, "Somebody" in shown + str(told)) == (True, False)


def test_the_page_of_a_document_counts_down(batch: Batch, operator: Client) -> None:
    job = make_saved_job(batch=batch)
    Job.objects.update(state_changed_at=timezone.now() - timedelta(days=18))
    Workspace.objects.update(keep_inputs_days=30)
    shown = operator.get(page(job)).text
    assert "<dt>Input is deleted</dt><dd>in 12 days</dd>" in shown
    assert "PDF is deleted" not in shown
    Job.objects.update(state=JobState.PENDING)
    assert "Input is deleted" not in operator.get(page(job)).text
