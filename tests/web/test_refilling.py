"""Regenerate a document that a template made: its data edited, filled with the same or the published version."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from batches.models import Batch, Document, Job, Role
from tests.factories import make_template_version
from tests.web.conftest import make_member, signed_in
from tests.web.test_templates import made_of


@pytest.fixture
def manager(batch: Batch) -> Client:
    return signed_in(make_member(batch.workspace, "t.berg", Role.MANAGER))


@pytest.fixture
def job(batch: Batch) -> Job:
    first = make_template_version(workspace=batch.workspace, source="<p>{{ name }}</p>")
    made = made_of(first, batch, "A-1", name="Una")
    make_template_version(workspace=batch.workspace, source="<p>Dear {{ name }}</p>")
    return made


def send(client: Client, job: Job, **fields: str) -> Any:
    address = f"/documents/{job.version.document.public_id}/regenerate/"
    form = {"reason": "Wrong name", "source": "data", "version": "1", "options": "{}", "filename": ""}
    item = str(job.version.document.items.get().pk)
    return client.post(address, form | {"item": item} | fields)


def current(job: Job) -> tuple[int, str, int | None, Any]:
    version = Document.objects.get(pk=job.version.document_id).current_version
    assert version is not None
    made = version.template_version.number if version.template_version else None
    return version.number, bytes(version.input_inline or b"").decode(), made, version.template_data


def test_the_page_offers_the_data_and_both_versions(manager: Client, job: Job) -> None:
    page = manager.get(f"/documents/{job.version.document.public_id}/regenerate/").content.decode()
    assert "Its template invoice again, with the data below" in page
    assert "&quot;name&quot;: &quot;Una&quot;" in page
    assert "that made it" in page
    assert "which is published" in page


def test_the_same_again_with_edited_data_or_another_version_is_asked_about(manager: Client, job: Job) -> None:
    shown = json.dumps({"name": "Una"}, indent=2).replace("\n", "\r\n")  # as a browser sends it
    for changed in ({"data": shown.replace("Una", "Ada"), "template": "1"}, {"data": shown, "template": "2"}):
        answer = send(manager, job, source="same", **changed)
        assert "Choose which of them is meant: nothing was made." in answer.content.decode()
        assert current(job)[0] == 1
    assert send(manager, job, source="same", data=shown, template="1").status_code == 302
    assert current(job) == (2, "<p>Una</p>", 1, {"name": "Una"})


@pytest.mark.parametrize(("number", "text"), [("1", "<p>Ada &amp; Co</p>"), ("2", "<p>Dear Ada &amp; Co</p>")])
def test_edited_data_fills_the_version_that_was_chosen_and_is_pinned(
    manager: Client, job: Job, number: str, text: str
) -> None:
    assert send(manager, job, template=number, data=json.dumps({"name": "Ada & Co"})).status_code == 302
    assert current(job) == (2, text, int(number), {"name": "Ada & Co"})


@pytest.mark.parametrize(
    ("number", "data", "words"),
    [
        ("1", "{}", "The row has no name."),
        ("1", "{", "no JSON object"),
        ("1", "[]", "begin with a brace"),
        ("1", "[" * 100_000, "no JSON object"),
        ("1", '{"name": "\\u0000"}', "NUL"),
        ("9", "{}", "Choose a version"),
        ("1", '{"name": ["a"]}', "This is a list"),
    ],
)
def test_data_that_does_not_fill_it_is_refused_and_stays_on_the_page(
    manager: Client, job: Job, number: str, data: str, words: str
) -> None:
    answer = send(manager, job, template=number, data=data)
    assert answer.status_code == 422
    assert words in answer.content.decode()
    assert current(job)[0] == 1


def test_the_document_says_what_made_it_and_what_is_published(manager: Client, job: Job) -> None:
    page = manager.get(f"/documents/{job.version.document.public_id}/").content.decode()
    assert "Made with invoice v1; v2 is published." in page
    assert "It would give another text" in page
    assert f"/templates/invoice/versions/1/?workspace={job.version.document.workspace.slug}" in page


def test_data_that_leads_into_our_network_is_refused_where_the_renderer_stands_in_it(
    manager: Client, batch: Batch
) -> None:
    version = make_template_version(workspace=batch.workspace, slug="letter", source='<img src="{{ logo }}">')
    made = made_of(version, batch, "A-2", logo="https://example.com/a.png")
    inside = json.dumps({"logo": "http://10.0.0.1/a.png"})
    type(made.account).objects.filter(pk=made.account_id).update(renders_inside=True)
    answer = send(manager, made, template="1", data=inside)
    assert (answer.status_code, current(made)[0]) == (422, 1)
    assert "an address inside a private network" in answer.content.decode()
    type(made.account).objects.filter(pk=made.account_id).update(renders_inside=False)
    assert send(manager, made, template="1", data=inside).status_code == 302
