"""Who gets what: every address by role. What belongs to another workspace does not exist."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from batches.models import AuditEntry, Batch, Job, Role, Workspace
from tests.factories import make_job, make_saved_job, make_submission, make_workspace
from tests.web.conftest import make_member, signed_in
from tests.web.stored import store_pdf


@pytest.fixture
def saved(batch: Batch) -> Job:
    job = make_saved_job(batch=batch)
    store_pdf(job, b"%PDF-1.7 one")
    return job


def of_the_batch(saved: Job) -> list[str]:
    document, batch = saved.version.document, Batch.objects.get()
    return [
        reverse("batches:batch_detail", args=[batch.public_id]),
        reverse("batches:batch_live", args=[batch.public_id]),
        reverse("batches:batch_archive", args=[batch.public_id]),
        reverse("batches:batch_results", args=[batch.public_id, "csv"]),
        reverse("batches:batch_manifest", args=[batch.public_id]),
        reverse("batches:document_detail", args=[document.public_id]),
        reverse("batches:document_live", args=[document.public_id]),
        reverse("batches:document_pdf", args=[document.public_id, 1]),
    ]


def test_what_belongs_to_another_workspace_does_not_exist(saved: Job, outsider: Client) -> None:
    for address in of_the_batch(saved):
        assert outsider.get(address).status_code == 404, address
    address = reverse("batches:document_reveal", args=[saved.version.document.public_id])
    assert outsider.post(address, {"submission": saved.submissions.get().pk}).status_code == 404
    batch = Batch.objects.get()
    assert batch.name not in outsider.get("/batches/").text
    assert batch.name not in outsider.get("/batches/live/", {"rows": f"{batch.public_id}.00"}).text


def test_an_operator_may_look_at_everything(saved: Job, operator: Client) -> None:
    for address in of_the_batch(saved):
        if not address.endswith("/manifest/"):  # the factory stores no manifest
            assert operator.get(address).status_code == 200, address


def test_who_is_not_signed_in_is_asked_to(saved: Job, client: Client) -> None:
    for address in [*of_the_batch(saved), "/", "/new/", "/live/", "/batches/", "/failed/", "/actions/"]:
        answer = client.get(address)
        assert answer.status_code == 302, address
        assert answer["Location"].startswith("/sign-in/?next=")


def test_a_viewer_may_not_start_a_batch(viewer: Client) -> None:
    answer = viewer.get("/new/")
    assert answer.status_code == 403
    assert "Ask an administrator for the role Operator" in answer.text
    assert viewer.post("/new/").status_code == 403
    assert "New batch" not in viewer.get("/").text.split("<dialog")[0]


def test_a_superuser_without_a_workspace_is_led_to_make_one_first(admin_client: Client) -> None:
    home = admin_client.get("/").text
    assert 'href="/admin/batches/workspace/add/"' in home
    assert 'href="/new/"' not in home
    answer = admin_client.get("/new/")
    assert (answer.status_code, "Make one in the admin, under Workspaces, first." in answer.text) == (403, True)
    make_workspace()
    assert 'href="/new/"' in admin_client.get("/").text


def test_a_superuser_sees_every_workspace(saved: Job, admin_client: Client) -> None:
    assert admin_client.get(of_the_batch(saved)[0]).status_code == 200


def test_a_viewer_may_not_see_a_provider_job_id_and_an_operator_leaves_a_record(
    saved: Job, viewer: Client, operator: Client
) -> None:
    submission = saved.submissions.get()
    submission.provider_job_id = "pdf_0123456789abcdef"
    submission.save()
    page = reverse("batches:document_detail", args=[saved.version.document.public_id])
    address = reverse("batches:document_reveal", args=[saved.version.document.public_id])
    for client in (viewer, operator):
        assert "pdf_0123456789abcdef" not in client.get(page).text
    assert viewer.post(address, {"submission": submission.pk}).status_code == 403
    assert not AuditEntry.objects.exists()
    assert "pdf_0123456789abcdef" in operator.post(address, {"submission": submission.pk}).text
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.actor_words, entry.from_where) == ("reveal_provider_job", "m.okoye", "127.0.0.1")


@pytest.mark.parametrize("submission", ["", "0", "x", "99999999999999999999", "1\x00"])
def test_a_reveal_of_nonsense_is_not_found(submission: str, saved: Job, operator: Client) -> None:
    address = reverse("batches:document_reveal", args=[saved.version.document.public_id])
    assert operator.post(address, {"submission": submission}).status_code == 404


@pytest.mark.parametrize(
    "address",
    [
        "/batches/bat_%00/",
        "/batches/nope/",
        "/documents/doc_%00/",
        "/documents/x/v0.pdf",
        "/documents/x/v99999999999.pdf",
    ],
)
def test_an_address_of_nothing_is_not_found(address: str, operator: Client) -> None:
    answer = operator.get(address)
    assert answer.status_code == 404
    assert "There is nothing here" in answer.text


def test_changing_addresses_take_no_get(operator: Client, saved: Job) -> None:
    document = saved.version.document.public_id
    for address in ("/drafts/dft_1/start/", reverse("batches:document_reveal", args=[document]), "/sign-out/"):
        assert operator.get(address).status_code == 405


def test_every_answer_forbids_inline_scripts_and_foreign_sources(saved: Job, operator: Client) -> None:
    for address in ("/", "/new/", *of_the_batch(saved)[:1]):
        answer: Any = operator.get(address)
        policy = answer["Content-Security-Policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        assert "<script>" not in answer.text
        assert " style=" not in answer.text
        assert " onclick=" not in answer.text


def test_no_nul_of_a_form_or_an_address_reaches_a_row(batch: Batch, workspace: Workspace) -> None:
    manager = signed_in(make_member(workspace, "h.brandt", Role.ADMIN))
    job = make_job(batch=batch, state="failed", failure_class="transient")
    make_submission(job=job)
    page = f"/documents/{job.version.document.public_id}/"
    for name in ("who", "subject", "from", "to"):
        assert b"".join(manager.get("/audit/entries.csv", {name: "a\0b"}).streaming_content)
    assert manager.post(f"{page}actions/dismiss/?batch=%00", {"reason": "r"}).status_code == 404
    assert manager.post(f"{page}actions/dismiss/", {"reason": "a\0b"}).status_code == 302
    assert manager.post(f"{page}reconcile/", {"step": "ask", "reason": "a\0b"}).status_code == 200
    planned = manager.post(
        f"/batches/{batch.public_id}/actions/plan/", {"verb": "reopen", "key": "1", "everything": "1"}
    )
    assert manager.post(f"{planned['Location']}confirm/", {"reason": "a\0b"}).status_code == 302
    kept = list(AuditEntry.objects.values_list("reason", "facts"))
    assert [reason for reason, _facts in kept if reason]
    assert not [each for each in kept if "\0" in str(each) or "\\x00" in str(each)]
