"""The pages of versions: making the next one, comparing two, the marks final and stale."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from batches.models import AuditEntry, Batch, BatchItem, Document, DocumentVersion, Job, JobState, Role, Workspace
from batches.views import versions as pages_of_versions
from tests.factories import make_accepted_job, make_job, make_saved_job
from tests.web.conftest import make_member, signed_in
from tests.web.starting import start
from tests.web.stored import store_pdf

REASON = "The price was wrong."


@pytest.fixture
def manager(workspace: Workspace) -> Client:
    return signed_in(make_member(workspace, "a.manager", Role.MANAGER))


def page_of(job: Job, *more: str) -> str:
    return "/".join(["/documents", job.version.document.public_id, *more, ""])


def regenerate(client: Client, job: Job, **fields: Any) -> Any:
    item = BatchItem.objects.get(document=job.version.document)
    form = {"version": "1", "reason": REASON, "source": "same", "item": item.pk, "options": "{}", **fields}
    return client.post(page_of(job, "regenerate"), form)


def text_of(number: int) -> str:
    version = DocumentVersion.objects.get(number=number)
    return bytes(version.input_inline or b"").decode()


def test_the_page_says_what_it_makes_and_bills(batch: Batch, manager: Client) -> None:
    page = manager.get(page_of(make_saved_job(batch=batch, business_id="INV-1"), "regenerate")).text
    assert "Makes version 2" in page
    assert "bills 1" in page
    assert "&lt;h1&gt;Invoice INV-1&lt;/h1&gt;" in page


def test_that_somebody_looked_at_the_content_is_written_down(
    batch: Batch, manager: Client, operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_saved_job(batch=batch, business_id="INV-1")
    manager.get(page_of(job, "regenerate"))
    operator.get(page_of(job, "regenerate"))
    (entry,) = AuditEntry.objects.filter(action="view_input")
    assert (entry.actor_words, entry.subject) == ("a.manager", f"document {job.version.document.public_id} v1")
    assert "INV-1" not in json.dumps([entry.subject, entry.reason, entry.facts])
    monkeypatch.setattr(pages_of_versions, "EDITABLE_BYTES", 1)
    assert "&lt;h1&gt;" not in manager.get(page_of(job, "regenerate")).text
    assert AuditEntry.objects.filter(action="view_input").count() == 1, "what is too large is not shown"


def test_an_operator_and_a_viewer_may_not_and_an_outsider_sees_nothing(
    batch: Batch, operator: Client, viewer: Client, outsider: Client
) -> None:
    job = make_saved_job(batch=batch)
    for client, status in ((operator, 403), (viewer, 403), (outsider, 404)):
        assert client.get(page_of(job, "regenerate")).status_code == status
        assert regenerate(client, job).status_code == status
        assert client.post(page_of(job, "final")).status_code == status
    assert page_of(job, "regenerate") not in operator.get(page_of(job)).text
    assert DocumentVersion.objects.count() == 1


def test_the_same_again_makes_version_2_once_however_often_it_is_pressed(batch: Batch, manager: Client) -> None:
    job = make_saved_job(batch=batch)
    first, second = regenerate(manager, job), regenerate(manager, job)
    assert first["Location"] == second["Location"] == page_of(job)
    assert DocumentVersion.objects.count() == 2
    version = DocumentVersion.objects.get(number=2)
    assert (version.reason, version.created_by.get_username()) == (REASON, "a.manager")  # type: ignore[union-attr]
    assert "Version 2 was made." in manager.get(page_of(job)).text


def test_whoever_comes_second_is_told_of_the_newer_version(batch: Batch, workspace: Workspace, manager: Client) -> None:
    job = make_saved_job(batch=batch)
    regenerate(manager, job)
    other = signed_in(make_member(workspace, "b.manager", Role.MANAGER))
    answer = regenerate(other, job)
    assert "made by a.manager" in other.get(answer["Location"]).text
    assert DocumentVersion.objects.count() == 2


def test_a_file_is_read_in_its_own_encoding(batch: Batch, manager: Client) -> None:
    job = make_saved_job(batch=batch)
    raw = '<meta charset="windows-1252"><h1>Größe</h1>'.encode("windows-1252")
    answer = regenerate(manager, job, source="upload", file=SimpleUploadedFile("new.html", raw))
    assert answer.status_code == 302
    assert text_of(2) == '<meta charset="utf-8"><h1>Größe</h1>'


def test_an_edited_text_keeps_its_line_ends_and_one_that_is_not_edited_is_the_same(
    batch: Batch, manager: Client
) -> None:
    job = make_saved_job(batch=batch)
    DocumentVersion.objects.update(input_inline=b"<h1>a</h1>\n<p>b</p>\n", input_bytes=20)
    regenerate(manager, job, source="edit", text="<h1>a</h1>\r\n<p>c</p>\r\n", options='{"format": "a4"}')
    assert text_of(2) == "<h1>a</h1>\n<p>c</p>\n"
    assert DocumentVersion.objects.get(number=2).options == {"format": "A4"}


@pytest.mark.parametrize(
    "changed",
    [
        {"text": "<p>corrected</p>"},
        {"options": '{"format": "A4"}'},
        {"filename": "other.pdf"},
        {"file": SimpleUploadedFile("new.html", b"<p>corrected</p>")},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_correction_is_not_dropped_because_the_same_again_is_chosen(
    changed: dict[str, Any], batch: Batch, manager: Client
) -> None:
    job = make_saved_job(batch=batch)
    shown = {"text": text_of(1), "options": "{}", "filename": DocumentVersion.objects.get().filename}
    answer = regenerate(manager, job, source="same", **shown | changed)
    assert (answer.status_code, "Choose which of them is meant" in answer.text) == (422, True)
    assert DocumentVersion.objects.count() == 1
    assert regenerate(manager, job, source="same", **shown).status_code == 302


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"reason": " "}, "Say why"),
        ({"item": ""}, "Choose at least one batch"),
        ({"source": "upload"}, "Choose a file"),
        ({"source": "edit", "text": "  "}, "is empty"),
        ({"source": "edit", "text": "<p>x</p>", "options": "{"}, "no JSON"),
        ({"source": "edit", "text": "<p>x</p>", "options": '{"scale": 9}'}, "options.scale"),
        ({"source": "edit", "text": "<p>x</p>", "filename": "a/b"}, "slash"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_made(
    fields: dict[str, str], words: str, batch: Batch, manager: Client
) -> None:
    answer = regenerate(manager, make_saved_job(batch=batch), **fields)
    assert answer.status_code == 422
    assert words in answer.text
    assert DocumentVersion.objects.count() == 1


def test_a_binary_file_is_refused(batch: Batch, manager: Client) -> None:
    answer = regenerate(
        manager, make_saved_job(batch=batch), source="upload", file=SimpleUploadedFile("x.html", b"%PDF-1.7 \x00")
    )
    assert (answer.status_code, "not HTML" in answer.text) == (422, True)


def test_too_large_a_form_is_refused_before_it_is_read(batch: Batch, manager: Client) -> None:
    job = make_saved_job(batch=batch)
    assert manager.post(page_of(job, "regenerate"), {"version": "x" * 8_000_000}).status_code == 413


def test_what_may_also_bill_is_confirmed_first(batch: Batch, manager: Client) -> None:
    job = make_accepted_job(batch=batch)
    assert "Version 1 may also bill. Go on all the same." in manager.get(page_of(job, "regenerate")).text
    assert regenerate(manager, job).status_code == 422
    assert DocumentVersion.objects.count() == 1
    assert regenerate(manager, job, confirmed="yes").status_code == 302
    assert DocumentVersion.objects.count() == 2


def test_a_final_document_shows_it_and_is_not_regenerated_without_the_right(
    batch: Batch, workspace: Workspace, manager: Client
) -> None:
    job = make_saved_job(batch=batch)
    assert manager.post(page_of(job, "final"), {"is_final": "yes"}).status_code == 302
    assert ">Final</span>" in manager.get(page_of(job)).text.replace("</svg>Final", "</svg>>Final")
    assert "Final" in manager.get(f"/batches/{batch.public_id}/").text
    assert "marked final" in manager.get(page_of(job, "regenerate")).text
    assert regenerate(manager, job).status_code == 422
    admin = signed_in(make_member(workspace, "w.admin", Role.ADMIN))
    assert (
        "It is marked final: it was handed out as it is. Go on all the same."
        in admin.get(page_of(job, "regenerate")).text
    )
    assert regenerate(admin, job).status_code == 422, "the right is no consent"
    assert regenerate(admin, job, confirmed="yes").status_code == 302
    manager.post(page_of(job, "final"), {"is_final": "no"})
    assert not Document.objects.get().is_final
    assert list(AuditEntry.objects.filter(action__contains="final").values_list("action", flat=True)) == [
        "mark_final",
        "take_final_off",
    ]


def test_a_document_without_a_live_row_says_what_to_do(batch: Batch, manager: Client) -> None:
    job = make_job(batch=batch, state=JobState.CANCELLED)
    Batch.objects.update(cancelled_at=batch.created_at)
    page = manager.get(page_of(job, "regenerate")).text
    assert "Hand it over again" in page
    assert "disabled" in page


def test_both_versions_are_listed_with_their_stored_file_and_what_changed(batch: Batch, manager: Client) -> None:
    job = make_saved_job(batch=batch)
    content = b"%PDF-1.7 as it was stored"
    store_pdf(job, content)
    regenerate(manager, job, source="edit", text="<h1>two</h1>", options='{"landscape": true}', filename="two.pdf")
    page = manager.get(page_of(job)).text
    section = page.split('id="versions"')[1].split("</section>")[0]
    assert section.count("<li") == 2
    assert REASON in section
    assert "Stored PDF" in section
    diff = manager.get(page_of(job, "versions", "1", "2")).text
    assert "&lt;h1&gt;two&lt;/h1&gt;" in diff
    assert "landscape" in diff
    assert "two.pdf" in diff
    assert 'class="unseen">Old: ' in diff
    assert AuditEntry.objects.filter(action="compare_versions").count() == 1
    reprint = manager.get(page_of(job) + "v1.pdf", {"download": ""})
    assert b"".join(reprint.streaming_content) == content  # type: ignore[attr-defined] # a file streams
    assert "Version 2 exists." in manager.get(page_of(job), {"version": "1"}).text
    assert manager.get(page_of(job, "versions", "1", "3")).status_code == 404


def test_other_content_that_is_refused_makes_the_document_stale_until_its_own_comes_again(
    upload: Callable[..., Any], operator: Client
) -> None:
    rows = [{"id": "INV-1", "html": "<h1>one</h1>"}]
    start(operator, upload(rows))
    assert "id_content_conflict" in upload([{"id": "INV-1", "html": "<h1>two</h1>"}]).text
    document = Document.objects.get()
    assert document.source_sha256
    assert "Other content was offered for it." in operator.get(f"/documents/{document.public_id}/").text
    assert "Stale" in operator.get(f"/batches/{Batch.objects.get().public_id}/").text
    assert Job.objects.count() == 1
    upload(rows)
    assert Document.objects.get().source_sha256 == ""
    upload([{"id": "INV-1", "html": "<h1>two</h1>"}])
    start(operator, upload([{"id": "INV-1", "html": "<h1>two</h1>"}], on_conflict="new-version"))
    assert Document.objects.get().source_sha256 == ""


def test_an_upload_makes_no_version_of_a_final_document(upload: Callable[..., Any], operator: Client) -> None:
    start(operator, upload([{"id": "INV-1", "html": "<h1>one</h1>"}]))
    Document.objects.update(is_final=True)
    answer = upload([{"id": "INV-1", "html": "<h1>two</h1>"}], on_conflict="new-version")
    assert "document_final" in answer.text
    assert "INV-1" in answer.text


def test_options_are_shown_as_json(batch: Batch, manager: Client) -> None:
    job = make_saved_job(batch=batch)
    DocumentVersion.objects.update(options={"format": "A4"})
    page = manager.get(page_of(job, "regenerate")).text
    assert json.dumps({"format": "A4"}, indent=2).replace('"', "&quot;") in page


def test_a_template_at_the_provider_is_read_and_changed_as_json_line_by_line(batch: Batch, manager: Client) -> None:
    job = make_saved_job(batch=batch, business_id="INV-1")
    stored = '{"data":{"id":"INV-1","total":"12.50"},"template":"invoice","version":3}'
    DocumentVersion.objects.update(kind="template", input_inline=stored.encode(), input_bytes=len(stored))
    page = manager.get(page_of(job, "regenerate")).text
    assert "&quot;total&quot;: &quot;12.50&quot;" in page
    assert "two tries could print two layouts" in page
    changed = json.dumps(json.loads(stored) | {"version": 4}, indent=2).replace("\n", "\r\n")
    regenerate(manager, job, source="edit", text=changed)
    assert DocumentVersion.objects.get(number=2).kind == "template"
    assert text_of(2) == stored.replace('"version":3', '"version":4')
    diff = manager.get(page_of(job, "versions", "1", "2")).text
    assert "&quot;version&quot;: 4" in diff
    assert diff.count('class="added"') == 1
