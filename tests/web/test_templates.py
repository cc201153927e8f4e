"""The pages of templates: upload with all errors by line, versions, preview, sample table, publishing."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from batches import manifests
from batches.engine import templates
from batches.models import AuditEntry, Batch, Job, Role, Template, TemplateVersion, Workspace
from tests.factories import make_saved_job, make_template_version, make_workspace
from tests.web.conftest import make_member, signed_in

SOURCE = "<h1>{{ customer.name }}</h1>\n{{ total | money: 'EUR', 'de' }}{% if note %}{{ note }}{% endif %}"


@pytest.fixture
def manager(workspace: Workspace) -> Client:
    return signed_in(make_member(workspace, "t.berg", Role.MANAGER))


def file(source: str | bytes, name: str = "invoice.html") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, source.encode() if isinstance(source, str) else source)


def words(response: Any) -> str:
    return response.content.decode()


def test_without_templates_the_list_says_what_to_do(manager: Client, viewer: Client) -> None:
    assert "No templates yet" in words(manager.get("/templates/"))
    assert "/templates/new/" in words(manager.get("/templates/"))
    assert "/templates/new/" not in words(viewer.get("/templates/"))
    assert 'href="/templates/" aria-current="page"' in words(viewer.get("/templates/"))


def test_a_template_is_uploaded_looked_at_and_published(manager: Client, workspace: Workspace) -> None:
    sent = {"name": "Invoice <de>", "file": file(SOURCE), "workspace": workspace.slug, "note": "First"}
    page = manager.post("/templates/new/", sent, follow=True)
    version = TemplateVersion.objects.get()
    assert (version.template.slug, version.template.name, version.number) == ("invoice-de", "Invoice <de>", 1)
    text = words(page)
    assert "Invoice &lt;de&gt;, version 1" in text
    toast = page.text.split('<div class="toast ')[1].split("</div>")[0]
    assert ("Version 1 was uploaded." in toast, "#info" in toast, "#moving" in toast) == (True, True, False)
    assert "customer.name" in text
    assert "Optional" in text
    assert f'src="/templates/invoice-de/versions/1/preview/?workspace={workspace.slug}" sandbox' in text
    done = manager.post("/templates/invoice-de/versions/1/publish/", {"reason": "October"}, follow=True)
    assert "Version 1 is published" in words(done)
    assert "Invoice &lt;de&gt;" in words(manager.get("/templates/"))
    told = AuditEntry.objects.order_by("pk").values_list("action", "actor_words", "reason")
    assert list(told) == [("upload_template", "t.berg", "First"), ("publish_template", "t.berg", "October")]
    assert "Uploaded</strong>" in words(manager.get("/audit/"))


def test_everything_that_is_wrong_is_told_at_once_and_what_was_typed_stays(
    manager: Client, workspace: Workspace
) -> None:
    source = '<img src="gone.png">\n{% include "x" %}\n{{ a | safe }}<b>'
    sent = {"name": "Invoice", "file": file(source), "workspace": workspace.slug, "note": "My note"}
    page = manager.post("/templates/new/", sent)
    assert page.status_code == 422
    text = words(page)
    for said in ("3 things to correct", "line 1", "line 2, column", "line 3, column", "gone.png", "My note"):
        assert said in text
    assert not Template.objects.exists()


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({"name": "", "file": "x"}, "has no name"),
        ({"name": "New", "file": "x"}, "cannot be called new"),
        ({"name": "日本", "file": "x"}, "small letters"),
        ({"name": "Invoice", "file": "x"}, "There is a template invoice already"),
        ({"name": "Other"}, "Choose a file"),
    ],
)
def test_a_template_without_a_good_name_or_file_is_refused(
    manager: Client, workspace: Workspace, sent: dict[str, Any], said: str
) -> None:
    make_template_version(workspace=workspace, source="x")
    sent = sent | ({"file": file(sent["file"])} if "file" in sent else {})
    page = manager.post("/templates/new/", sent | {"workspace": workspace.slug})
    assert page.status_code == 422
    assert said in words(page)
    assert TemplateVersion.objects.count() == 1


def test_a_new_version_is_compared_with_the_one_before(manager: Client, workspace: Workspace) -> None:
    make_template_version(workspace=workspace, source=SOURCE)
    page = manager.post("/templates/invoice/", {"what": "upload", "file": file(SOURCE + "<p>new</p>")}, follow=True)
    assert "version 2" in words(page)
    diff = words(manager.get("/templates/invoice/versions/2/?against=1"))
    assert "What differs from version 1" in diff
    assert "&lt;p&gt;new&lt;/p&gt;" in diff
    same = manager.post("/templates/invoice/", {"file": file(SOURCE + "<p>new</p>")}, follow=True)
    assert "nothing was added" in words(same)
    wrong = manager.post("/templates/invoice/", {"file": file("{% debug %}")})
    assert wrong.status_code == 422
    assert "There is no tag debug" in words(wrong)
    assert TemplateVersion.objects.count() == 2


def test_the_preview_is_filled_and_can_do_nothing(operator: Client, workspace: Workspace) -> None:
    make_template_version(workspace=workspace, source=SOURCE)
    page = operator.get("/templates/invoice/versions/1/preview/")
    assert words(page).startswith("<h1>Una Park</h1>\n1.234,50")
    policy = page["Content-Security-Policy"]
    assert policy.startswith("sandbox; default-src 'none'")
    assert "script" not in policy
    assert page["X-Content-Type-Options"] == "nosniff"
    make_template_version(workspace=workspace, source="{% if a < b %}{% endif %}")
    refused = operator.get("/templates/invoice/versions/2/preview/")
    assert refused["Content-Type"].startswith("text/plain")
    assert "cannot be compared" in words(refused)


def test_the_sample_table_is_one_that_the_template_takes(viewer: Client, workspace: Workspace) -> None:
    make_template_version(workspace=workspace, source=SOURCE + "{% for l in lines %}{{ l.sku }}{% endfor %}")
    page = viewer.get("/templates/invoice/sample.csv")
    assert page["Content-Disposition"] == 'attachment; filename="invoice-sample.csv"'
    rows = list(csv.reader(io.StringIO(words(page).removeprefix("\ufeff"))))
    assert rows[0] == ["id", "customer.name", "lines[0].sku", "lines[1].sku", "note", "total"]
    assert len(rows) == 2
    upload = manifests.from_upload(io.BytesIO(page.content), "sample.csv")
    choices = manifests.Choices(template="invoice")
    with manifests.read(upload, choices=choices, templates=templates.of(workspace)) as manifest:
        assert [problem.message for problem in manifest.errors] == []
        assert "1.234,50" in manifest.rows[0].text()


def made_of(version: TemplateVersion, batch: Batch, business_id: str, **data: Any) -> Job:
    text = templates.fillable(version).fill(data)
    job = make_saved_job(batch=batch, business_id=business_id)
    job.version.input_inline, job.version.input_bytes = text.encode(), len(text)
    job.version.input_sha256 = manifests.fingerprint("html", text, {})
    job.version.template_version, job.version.template_data = version, data
    job.version.save()
    return job


def test_publishing_shows_first_what_it_leaves_stale_and_bills_nothing(manager: Client, batch: Batch) -> None:
    first = make_template_version(workspace=batch.workspace, source="{{ name }}")
    make_template_version(workspace=batch.workspace, source="{{ name }}{{ vat }}", is_published=False)
    made_of(first, batch, "A-1", name="a")
    stale = made_of(first, batch, "A-2", name="b", vat="7")
    page = words(manager.get("/templates/invoice/versions/2/publish/"))
    assert "<strong>1</strong> of 2 documents would get another text" in page
    assert "hands the rows over again and chooses “Make new versions”" in page
    assert "The row has no vat" in page
    assert f"/documents/{stale.version.document.public_id}/" in page
    jobs = Job.objects.count()
    assert manager.post("/templates/invoice/versions/2/publish/").status_code == 302
    assert Job.objects.count() == jobs
    page = words(manager.get(f"/documents/{stale.version.document.public_id}/"))
    assert "Made with invoice v1; v2 is published." in page
    back = words(manager.get("/templates/invoice/versions/1/publish/"))
    assert "Roll back to version 1" in back
    assert "No document was made with another version" in back


def test_a_template_is_archived_and_taken_back(manager: Client, workspace: Workspace) -> None:
    make_template_version(workspace=workspace, source="x")
    assert "It is archived" in words(manager.post("/templates/invoice/", {"what": "archive"}, follow=True))
    assert "Invoice" not in words(manager.get("/templates/"))
    assert "Invoice" in words(manager.get("/templates/?view=archived"))
    refused = manager.post("/templates/invoice/versions/1/publish/")
    assert refused.status_code == 422
    assert "Take it back first" in words(refused)
    manager.post("/templates/invoice/", {"what": "restore"})
    assert "Invoice" in words(manager.get("/templates/"))
    assert "Version 1" in words(manager.post("/templates/invoice/", {"what": "unpublish"}, follow=True))
    assert Template.objects.get().published is None


def test_templates_of_other_workspaces_do_not_exist(outsider: Client, manager: Client, workspace: Workspace) -> None:
    make_template_version(workspace=workspace, source="x")
    make_template_version(workspace=make_workspace(), source="y", slug="theirs")
    assert manager.get("/templates/theirs/").status_code == 404
    assert "Theirs" not in words(manager.get("/templates/"))
    assert outsider.get("/templates/invoice/versions/1/preview/").status_code == 404
    assert manager.get("/templates/invoice/?workspace=elsewhere").status_code == 404
    assert manager.get("/templates/invoice/versions/9/").status_code == 404


def test_an_upload_that_is_too_large_is_refused_before_it_is_read(manager: Client) -> None:
    answer = manager.post("/templates/new/", {"name": "x"}, headers={"Content-Length": "30000000"})
    assert answer.status_code == 413
    assert "too large" in words(answer)
