"""The steps of a draft's page for files that do not speak for themselves: encoding, mapping, template, ZIP, paste."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from batches.models import (
    AuditEntry,
    Batch,
    ColumnMapping,
    DocumentVersion,
    Draft,
    DraftState,
    Template,
    TemplateVersion,
    Workspace,
)
from batches.views import steps
from tests.factories import make_account
from tests.web.conftest import CASES
from tests.web.starting import start

TABLE = "Rechnung;Kunde;Betrag\nR-1;Müller;1,50\nR-2;Größe;2,00\n"


def choose(client: Client, step: str, then: str = "check", **fields: str) -> Any:
    draft = Draft.objects.latest("pk")
    sent = {"step": step, "then": then} | {name.replace("__", "-"): value for name, value in fields.items()}
    return client.post(f"/drafts/{draft.public_id}/choose/", sent, follow=True)


def draft() -> Draft:
    return Draft.objects.latest("pk")


@pytest.fixture
def invoice(workspace: Workspace) -> Template:
    """A published template that reads two fields."""
    template = Template.objects.create(workspace=workspace, slug="invoice", name="Invoice")
    source = "<!doctype html><h1>{{ customer.name }}</h1><p>{{ amount }}</p>"
    template.published = TemplateVersion.objects.create(template=template, number=1, source=source, sha256="a" * 64)
    template.save()
    return template


def test_an_encoding_that_is_a_guess_is_asked_with_lines_to_read(
    upload: Callable[..., Any], operator: Client, invoice: Template
) -> None:
    page = upload(TABLE.encode("cp1252"), name="april.csv")
    assert draft().state == DraftState.OPEN
    assert "Which of these reads right?" in page.text
    assert "R-1;Müller;1,50" in page.text
    assert "Take this" in page.text
    page = choose(operator, "source", then="look", encoding="windows-1252")
    assert "Which of these reads right?" not in page.text
    assert draft().choices["encoding"] == "windows-1252"
    assert "semicolon ;" in page.text


def test_lines_that_read_the_same_in_several_encodings_are_shown_once(upload: Callable[..., Any]) -> None:
    page = upload(TABLE.encode("cp1252"), name="april.csv")
    assert page.text.count("R-2;Größe;2,00") == 1
    assert "Reads these lines as Western European (Windows-1252) does." in page.text
    assert page.text.count("R-1;Müller;1,50") == 2, "an ü is an ü on Arabic systems too, and the rest is not"


def test_what_is_wrong_with_many_rows_alike_is_said_once_with_their_lines(
    upload: Callable[..., Any], operator: Client, invoice: Template
) -> None:
    upload(TABLE.encode(), name="april.csv")
    page = choose(operator, "map", template="invoice", target__0="id", target__1="data.customer.name")
    assert page.text.count("The row has no amount.") == 1
    assert '<li class="place">row 1, line 2</li><li class="place">row 2, line 3</li>' in page.text


def test_the_mapping_offers_a_table_with_the_fields_of_the_template(
    upload: Callable[..., Any], operator: Client, invoice: Template
) -> None:
    page = upload(TABLE.encode(), name="april.csv")
    assert "A table with all its fields" not in page.text
    page = choose(operator, "map", then="look", template="invoice@1", target__0="id")
    address = f"/templates/invoice/sample.csv?workspace={invoice.workspace.slug}&amp;version=1"
    assert f'href="{address}" download' in page.text
    assert operator.get(address.replace("&amp;", "&")).status_code == 200
    page = choose(operator, "map", then="look", template="gone/../x", target__0="id")
    assert "A table with all its fields" not in page.text


def test_nothing_is_checked_before_what_is_asked_was_answered(upload: Callable[..., Any], operator: Client) -> None:
    upload(TABLE.encode("cp1252"), name="april.csv")
    page = operator.post(f"/drafts/{draft().public_id}/check/")
    assert page.status_code == 422
    assert steps.ANSWER_FIRST in page.text
    page = choose(operator, "map", target__0="id")
    assert steps.ANSWER_FIRST in page.text
    assert draft().state == DraftState.OPEN


def test_columns_are_mapped_to_the_fields_of_a_template_and_what_is_missing_is_red(
    upload: Callable[..., Any], operator: Client, invoice: Template
) -> None:
    upload(TABLE.encode(), name="april.csv")
    page = choose(operator, "map", then="look", template="invoice", target__0="id", target__1="data.customer.name")
    assert "Fields of the template that no column gives" in page.text
    assert "<code>amount</code>" in page.text
    assert 'value="data.customer.name"' in page.text
    mapped = {"target__0": "id", "target__1": "data.customer.name", "target__2": "data.amount"}
    page = choose(operator, "map", template="invoice", **mapped)
    assert "Fields of the template" not in page.text
    assert "Start: renders 2," in page.text
    start(operator, page)
    versions = DocumentVersion.objects.order_by("pk")
    texts = [bytes(version.input_inline or b"").decode() for version in versions]
    assert texts == [
        "<!doctype html><h1>Müller</h1><p>1,50</p>",
        "<!doctype html><h1>Größe</h1><p>2,00</p>",
    ]
    assert [version.template_version for version in versions] == [invoice.published] * 2
    assert versions[0].template_data == {"id": "R-1", "customer": {"name": "Müller"}, "amount": "1,50"}


def test_a_mapping_is_filled_in_again_for_the_next_file_and_waits_to_be_looked_over(
    upload: Callable[..., Any], operator: Client, invoice: Template
) -> None:
    mapped = {"target__0": "id", "target__1": "data.customer.name", "target__2": "data.amount"}
    upload(TABLE.encode(), name="april.csv")
    choose(operator, "map", template="invoice", **mapped)
    assert ColumnMapping.objects.count() == 1
    page = upload(TABLE.replace("R-", "M-").encode(), name="may.csv")
    assert draft().state == DraftState.OPEN, "nothing is taken silently"
    assert "as for the last file with these columns" in page.text
    assert page.text.count("as last time") == 3
    assert 'value="data.customer.name"' in page.text


def test_a_name_that_is_taken_for_another_is_said(upload: Callable[..., Any], operator: Client) -> None:
    page = upload(b"invoice_number,html\nA-1,<p>one</p>\n", name="a.csv")
    assert "its name is taken for id" in page.text
    assert draft().state == DraftState.OPEN
    page = choose(operator, "map", target__0="id", target__1="html")
    assert "Start: renders 1," in page.text


def test_a_table_that_speaks_for_itself_is_checked_at_once(upload: Callable[..., Any]) -> None:
    page = upload(b"id,html\nA-1,<p>one</p>\nA-2,<p>two</p>\n", name="a.csv")
    assert "Start: renders 2," in page.text
    assert "comma ," in page.text


def test_a_pasted_table_is_an_upload_like_any_other(operator: Client, workspace: Workspace, account: Any) -> None:
    form = {"workspace": workspace.slug, "account": account.slug, "pasted": "id\thtml\r\nA-1\t<p>one</p>\r\n"}
    page = operator.post("/new/", form, follow=True)
    assert "Start: renders 1," in page.text
    assert (draft().filename, draft().upload_bytes) == ("pasted.txt", len("id html  A-1 <p>one</p>  "))
    start(operator, page)
    assert Batch.objects.get().items.count() == 1


def test_a_file_and_a_pasted_table_together_are_one_too_many(upload: Callable[..., Any]) -> None:
    page = upload(b"id,html\nA-1,<p>one</p>\n", name="a.csv", pasted="id,html")
    assert page.status_code == 422
    assert "Hand over one of the two" in page.text
    assert not Draft.objects.exists()


def test_a_zip_of_html_files_alone_is_asked_about(upload: Callable[..., Any], operator: Client) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in ("a.html", "b.html"):
            archive.writestr(name, f"<!doctype html><p>{name}</p>")
    page = upload(content.getvalue(), name="pages.zip")
    assert "This ZIP has no manifest" in page.text
    assert "each of the 2 HTML files" in page.text
    assert draft().state == DraftState.OPEN
    page = choose(operator, "source", asks_rows="yes", propose_rows="yes")
    assert "Start: renders 2," in page.text


def test_a_provider_s_template_needs_its_version(upload: Callable[..., Any], operator: Client) -> None:
    upload(TABLE.encode(), name="april.csv")
    for version in ("", "0", "-1", "1e3", "²", "1234567890", "9" * 400):
        page = choose(operator, "map", target__0="id", provider_template="tpl_1", provider_version=version)
        assert page.status_code == 422, version
        assert "Give the version" in page.text
    choose(operator, "map", then="look", target__0="id", provider_template="tpl_1", provider_version="3")
    chosen = draft().choices
    assert (chosen["template"], chosen["template_version"], chosen["are_provider_templates"]) == ("tpl_1", 3, True)


def test_another_account_is_checked_for_anew(
    upload: Callable[..., Any], operator: Client, workspace: Workspace
) -> None:
    other = make_account(workspace=workspace)
    upload([{"id": "A", "html_content": "<p>1</p>"}])
    page = choose(operator, "account", account=other.slug)
    assert (draft().account, draft().state) == (other, DraftState.CHECKED)
    assert f"Sends 1 document to {other.name}" in page.text
    page = choose(operator, "account", account="nothing")
    assert "That account is not there any more" in page.text


@pytest.mark.parametrize("step", ["", "x", "run"])
def test_a_form_that_is_none_changes_nothing(step: str, upload: Callable[..., Any], operator: Client) -> None:
    upload([{"id": "A", "html_content": "<p>1</p>"}])
    page = choose(operator, step)
    assert page.status_code == 422
    assert draft().generation == 0


def test_the_list_tells_what_can_be_started_from_what_has_to_be_corrected(
    upload: Callable[..., Any], operator: Client
) -> None:
    upload([{"id": "A", "html_content": "<p>1</p>"}])
    page = operator.get("/drafts/").text
    assert ("Ready to start" in page, "To be corrected" in page) == (True, False)
    upload([{"id": "B", "html_content": ""}])
    page = operator.get("/drafts/").text
    assert ("Ready to start" in page, "To be corrected" in page) == (True, True)


def test_discarding_is_told_and_the_list_is_empty_again(upload: Callable[..., Any], operator: Client) -> None:
    upload([{"id": "A", "html_content": "<p>1</p>"}], name="a.json")
    assert "a.json" in operator.get("/drafts/").text
    address = f"/drafts/{draft().public_id}/discard/"
    assert f'href="{address}"' in operator.get(f"/drafts/{draft().public_id}/").text
    asked = operator.get(address).text
    assert "Lost are the file that was uploaded, a.json (" in asked
    assert draft().state == DraftState.CHECKED, "who only looks loses nothing"
    page = operator.post(address, follow=True)
    assert "The draft and its file were discarded." in page.text
    assert "No drafts" in page.text
    assert "a.json" in operator.get("/drafts/?view=over").text
    page = operator.get(f"/drafts/{draft().public_id}/")
    assert "It was discarded; the file is deleted." in page.text
    assert operator.get(address).status_code == 302, "nothing is left to lose"
    assert AuditEntry.objects.filter(action="discard_upload").count() == 1
    late = operator.post(f"/drafts/{draft().public_id}/check/")
    assert (late.status_code, "It was discarded; the file is deleted." in late.text) == (422, True)
    assert steps.ANSWER_FIRST not in late.text


def test_progress_is_shown_while_the_worker_has_it_and_the_page_comes_anew_when_it_is_done(
    upload: Callable[..., Any], operator: Client
) -> None:
    upload([{"id": "A", "html_content": "<p>1</p>"}])
    Draft.objects.update(state=DraftState.CHECKING, rows_done=1200, report=None)
    page = operator.get(f"/drafts/{draft().public_id}/").text
    assert "Checking: 1,200 rows so far." in page
    live = f"/drafts/{draft().public_id}/live/"
    assert f'hx-get="{live}"' in page
    assert "Checking: 1,200 rows so far." in operator.get(live).text
    Draft.objects.update(state=DraftState.STARTING, rows_done=600, report={"rows": 1200})
    assert 'width="500"' in operator.get(live).text
    Draft.objects.update(state=DraftState.CHECKED)
    assert operator.get(live)["HX-Refresh"] == "true"


def test_where_no_price_is_known_the_spend_cap_leads_to_where_one_is_given(upload: Callable[..., Any]) -> None:
    page = upload([{"id": "A", "html_content": "<p>1</p>"}], name="a.json").text
    field = page.split('id="spend-cap"')[1].split("</div>")[0]
    assert field.split(">")[0].endswith(" disabled")
    assert f'<a href="/accounts/{draft().account.slug}/">its page</a>' in field


@pytest.mark.parametrize("cap", ["NaN", "sNaN", "Infinity", "-1", "1,000.00", "1.000,00", "0.00001", "1e20", "1e-20"])
def test_a_spend_cap_that_is_no_amount_is_refused_by_its_name(
    cap: str, upload: Callable[..., Any], operator: Client
) -> None:
    answer = start(operator, upload([{"id": "A", "html_content": "<p>1</p>"}], name="a.json"), spend_cap=cap)
    assert (answer.status_code, "Spend cap: E" in answer.text) == (422, True)
    assert draft().state == DraftState.CHECKED


@pytest.mark.parametrize("field", ["renders", "generation"])
@pytest.mark.parametrize("value", ["-1", "2147483648", "9" * 30, "1.5", ""])
def test_a_hidden_field_that_no_page_showed_starts_nothing(
    field: str, value: str, upload: Callable[..., Any], operator: Client
) -> None:
    answer = start(operator, upload([{"id": "A", "html_content": "<p>1</p>"}], name="a.json"), **{field: value})
    assert answer.status_code == 422
    assert draft().state == DraftState.CHECKED


def test_a_started_draft_leads_to_its_batch(upload: Callable[..., Any], operator: Client, okoye: User) -> None:
    answer = start(operator, upload([{"id": "A", "html_content": "<p>1</p>"}], name="a.json"))
    assert operator.get(f"/drafts/{draft().public_id}/live/")["HX-Redirect"] == answer["Location"]
    page = operator.get(f"/drafts/{draft().public_id}/").text
    assert f'This was started: <a href="{answer["Location"]}">a</a>' in page
    late = operator.post(f"/drafts/{draft().public_id}/choose/", {"step": "check", "take": "good"})
    assert (late.status_code, "It was started already." in late.text) == (422, True)


@pytest.mark.parametrize("case", sorted(path.name for path in CASES.iterdir()))
def test_no_case_ends_in_a_fault(case: str, upload: Callable[..., Any], operator: Client) -> None:
    """Every input, by its row, those that were made for other parts too: checked, asked about or refused in words."""
    page = upload((CASES / case).read_bytes(), name=case)
    assert page.status_code == 200
    state = draft().state
    assert state in (DraftState.OPEN, DraftState.CHECKED)
    if state == DraftState.OPEN:
        assert steps.open_questions(draft()), "somebody is asked"
        mapped = {f"target__{number}": "" for number in range(5)}
        assert choose(operator, "source", then="look", encoding="windows-1252").status_code in (200, 422)
        assert choose(operator, "map", **mapped).status_code in (200, 422)
        assert draft().state in (DraftState.OPEN, DraftState.CHECKED)
    elif "/start/" not in page.text:
        assert 'class="problem failed"' in page.text
