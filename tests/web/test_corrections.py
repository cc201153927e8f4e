"""Corrected rows on the pages: the list of failed rows goes out, comes back, and is replaced after a look."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from batches import results
from batches.engine import storeorphans
from batches.models import AuditEntry, Batch, Draft, DraftState, Job, JobState, Role, Workspace
from batches.storage import StoreUnavailable
from batches.storage.disk import DiskStore
from tests.factories import make_draft, make_template_version
from tests.web.conftest import make_member, signed_in
from tests.web.starting import start

ROWS = [{"id": name, "html": f"<h1>{name}</h1>"} for name in ("=1+1", "A-2", "A-3")]


@pytest.fixture
def manager(workspace: Workspace) -> Client:
    return signed_in(make_member(workspace, "h.brandt", Role.MANAGER))


@pytest.fixture
def failed(upload: Any, operator: Client, artifact_folder: Path) -> Batch:
    """Three documents, all failed."""
    upload(ROWS)
    batch = started(operator)
    Job.objects.update(state=JobState.FAILED, failure_class="render_failed", failure_words="It would not render.")
    return batch


def started(client: Client) -> Batch:
    """The batch of the only draft, once Start was pressed."""
    draft = Draft.objects.get()
    start(client, client.get(reverse("batches:draft_detail", args=[draft.public_id])))
    return Batch.objects.get(draft=draft)


def page(batch: Batch) -> str:
    return reverse("batches:batch_correct", args=[batch.public_id])


def listed(client: Client, batch: Batch) -> bytes:
    answer = client.get(reverse("batches:batch_failed", args=[batch.public_id]))
    return b"".join(answer.streaming_content)  # type: ignore[attr-defined] # it streams


def edited(content: bytes, **html: str) -> bytes:
    """The list with other documents in some rows, by id as it stands in the list."""
    rows = list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline="")))
    for row in rows:
        row["html"] = html.get(row["id"], row["html"])
    written = io.StringIO(newline="")
    writer = csv.DictWriter(written, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return b"\xef\xbb\xbf" + written.getvalue().encode()


def hand_over(client: Client, batch: Batch, content: bytes, *, reason: str = "Prices corrected.") -> Any:
    form = {"file": SimpleUploadedFile("failed.csv", content), "reason": reason}
    return client.post(page(batch), form, follow=True)


def replace(client: Client, draft: Draft, **more: str) -> Any:
    assert draft.report is not None
    sent = {"generation": str(draft.generation), "renders": str(draft.report["renders"]), **more}
    return client.post(reverse("batches:draft_start", args=[draft.public_id]), sent, follow=True)


def test_the_list_goes_out_comes_back_and_is_replaced(failed: Batch, manager: Client) -> None:
    detail = reverse("batches:batch_detail", args=[failed.public_id])
    assert page(failed) in manager.get(detail).text
    assert "Download the failed rows" in manager.get(page(failed)).text
    answer = hand_over(manager, failed, edited(listed(manager, failed), **{"'=1+1": "<p>one</p>", "A-2": "<p>two</p>"}))
    draft = Draft.objects.get(target=failed)
    assert (draft.state, draft.reason) == (DraftState.CHECKED, "Prices corrected.")
    assert "Replace 2 rows (bills 2 at most)" in answer.text
    assert "Failed, and its content differs: a new version, sent." in answer.text
    answer = replace(manager, draft)
    assert answer.redirect_chain[-1][0] == detail
    assert "2 rows by h.brandt" in answer.text
    versions = dict(failed.items.values_list("document__business_id", "version__number"))
    assert versions == {"=1+1": 2, "A-2": 2, "A-3": 1}
    assert AuditEntry.objects.get(action="replace_rows").reason == "Prices corrected."
    assert "These rows were replaced in" in manager.get(reverse("batches:draft_detail", args=[draft.public_id])).text


def test_the_list_comes_as_the_table_came_and_is_read_as_that_was(
    upload: Any, operator: Client, manager: Client, artifact_folder: Path
) -> None:
    """With the semicolons and the encoding that somebody declared for the table: they are declared for the list."""
    table = "id;html;ort\r\nA-1;<p>alt</p>;Köln\r\nA-2;<p>alt</p>;Bonn\r\n".encode("cp1252")
    upload(table, name="april.csv")
    chosen = {"step": "source", "then": "check", "encoding": "windows-1252", "delimiter": ";"}
    operator.post(f"/drafts/{Draft.objects.get().public_id}/choose/", chosen)
    batch = started(operator)
    Job.objects.update(state=JobState.FAILED, failure_class="render_failed", failure_words="It would not render: →")
    content = listed(manager, batch)
    assert content.startswith(b"id;html;ort;_row;")
    assert b";K\xf6ln;" in content
    assert rb"render: \u2192" in content, "what the encoding lacks stands in our remarks alone"
    hand_over(manager, batch, content.replace(b"(document, 10 characters);K", b"<p>neu</p>;K"))
    draft = Draft.objects.get(target=batch)
    assert draft.report is not None
    assert (draft.report["ok"], draft.report["summary"]["corrected"]) == (True, 1), draft.report


def test_a_row_that_leaves_its_document_is_shown_with_the_one_that_failed(failed: Batch, manager: Client) -> None:
    rows = list(csv.DictReader(io.StringIO(listed(manager, failed).decode("utf-8-sig"), newline="")))
    table = io.StringIO(newline="")
    writer = csv.writer(table)
    writer.writerows(
        [["id", "html", "option.format", "_row", "_code"], [rows[0]["id"], rows[0]["html"], "A5", "0", "x"]]
    )
    hand_over(manager, failed, table.getvalue().encode())
    draft = Draft.objects.get(target=failed)
    assert draft.report is not None
    assert draft.report["summary"]["corrected"] == 1, draft.report
    address = reverse("batches:draft_row", args=[draft.public_id, 0])
    assert "The document of the version that failed, which this row leaves as it is" in manager.get(address).text
    document = failed.items.get(position=0).version
    assert manager.get(f"{address}?frame").content == bytes(document.input_inline or b"")
    replace(manager, draft)
    made = failed.items.get(position=0).version
    assert (made.number, made.options, made.input_inline) == (2, {"format": "A5"}, document.input_inline)


def test_what_would_be_refused_is_named_with_words_and_no_button(failed: Batch, manager: Client) -> None:
    answer = hand_over(manager, failed, b"id,html\r\nB-9,<p>x</p>\r\nA-2,<p>two</p>\r\n")
    assert "The batch has no row with this id." in answer.text
    assert "Nothing is replaced while a row is refused." in answer.text
    assert "Replace 1 row" not in answer.text
    draft = Draft.objects.get(target=failed)
    assert "The check found errors" in replace(manager, draft).text
    assert set(failed.items.values_list("version__number", flat=True)) == {1}


def test_an_untouched_list_says_that_there_is_nothing_to_replace(failed: Batch, manager: Client) -> None:
    answer = hand_over(manager, failed, listed(manager, failed))
    assert "There is nothing to replace" in answer.text


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({"reason": "x"}, "Choose the corrected file first."),
        ({"file": SimpleUploadedFile("a.csv", b"id,html\r\n"), "reason": " "}, "Say why"),
    ],
)
def test_what_is_missing_is_said(failed: Batch, manager: Client, sent: dict[str, Any], words: str) -> None:
    answer = manager.post(page(failed), sent)
    assert answer.status_code == 422
    assert words in answer.text
    assert not Draft.objects.filter(target=failed).exists()


def test_only_who_may_regenerate_corrects_rows(
    failed: Batch, operator: Client, viewer: Client, outsider: Client
) -> None:
    assert page(failed) not in operator.get(reverse("batches:batch_detail", args=[failed.public_id])).text
    for client, status in ((operator, 403), (viewer, 403), (outsider, 404)):
        assert client.get(page(failed)).status_code == status
        assert client.post(page(failed), {"reason": "x"}).status_code == status


# --- left-out rows ---


def test_rows_that_were_left_out_are_listed_with_what_was_wrong(
    upload: Any, operator: Client, artifact_folder: Path
) -> None:
    upload([{"id": "A-1", "html": "<p>x</p>"}, {"id": "=B", "html": ""}, {"html": "<p>y</p>"}])
    draft = Draft.objects.get()
    choose = reverse("batches:draft_choose", args=[draft.public_id])
    operator.post(choose, {"step": "check", "take": "good", "on_conflict": "refuse", "then": "check"})
    batch = started(operator)
    detail = operator.get(reverse("batches:batch_detail", args=[batch.public_id])).text
    address = reverse("batches:batch_left_out", args=[batch.public_id])
    assert "2 rows of the file are no part of this batch" in detail
    assert address in detail
    content = b"".join(operator.get(address).streaming_content)  # type: ignore[attr-defined] # it streams
    lines = list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline="")))
    assert list(lines[0]) == ["id", "html", *results.LEFT_OUT_COLUMNS]
    assert [line["_row"] for line in lines] == ["1", "2"]
    assert lines[0]["id"] == "'=B", "guarded like every cell that we write"
    assert lines[1]["html"] == "(document, 8 characters)"
    assert all(line["_reason"] and line["_fix"] and line["_code"] for line in lines)


def test_rows_that_were_left_out_come_back_with_their_cells_and_make_a_batch_once_they_are_corrected(
    upload: Any, operator: Client, artifact_folder: Path, workspace: Workspace
) -> None:
    make_template_version(workspace=workspace, source="<p>{{ name }}, {{ town }}</p>", slug="letter")
    table = "id,template,name,town\n0041,letter,Ada,London\n0042,letter,=Grace,\n0043,,,\n"
    upload(table.encode(), name="letters.csv")
    choose = reverse("batches:draft_choose", args=[Draft.objects.get().public_id])
    operator.post(choose, {"step": "check", "take": "good", "on_conflict": "refuse", "then": "check"})
    batch = started(operator)
    address = reverse("batches:batch_left_out", args=[batch.public_id])
    content = b"".join(operator.get(address).streaming_content)  # type: ignore[attr-defined] # it streams
    lines = list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline="")))
    assert [(line["id"], line["name"], line["_line"]) for line in lines] == [
        ("0042", "'=Grace", "3"),
        ("0043", "", "4"),
    ]
    lines[0]["town"] = "New York"
    written = io.StringIO(newline="")
    writer = csv.DictWriter(written, list(lines[0]))
    writer.writeheader()
    writer.writerow(lines[0])
    upload(written.getvalue().encode(), name="left-out.csv")
    again = Draft.objects.latest("pk")
    start(operator, operator.get(reverse("batches:draft_detail", args=[again.public_id])))
    version = Batch.objects.get(draft=again).items.get().version
    assert version.template_data == {"id": "0042", "name": "=Grace", "town": "New York"}
    assert storeorphans.named([batch.left_out_key, batch.manifest_key]) == {batch.left_out_key, batch.manifest_key}


def test_a_store_that_is_away_is_told_as_such(
    upload: Any, operator: Client, artifact_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload([{"id": "A-1", "html": "<p>x</p>"}, {"html": "<p>y</p>"}])
    choose = reverse("batches:draft_choose", args=[Draft.objects.get().public_id])
    operator.post(choose, {"step": "check", "take": "good", "on_conflict": "refuse", "then": "check"})
    batch = started(operator)

    def away(*_given: Any) -> None:
        raise StoreUnavailable("It does not answer.")

    monkeypatch.setattr(DiskStore, "open", away)
    assert operator.get(reverse("batches:batch_left_out", args=[batch.public_id])).status_code == 503


def test_a_row_that_another_one_blames_is_listed_with_its_own_line_and_id(
    upload: Any, operator: Client, artifact_folder: Path
) -> None:
    upload([{"id": "A-1", "html": "<p>x</p>"}, {"id": "B", "html": "<p>1</p>"}, {"id": "B", "html": "<p>2</p>"}])
    choose = reverse("batches:draft_choose", args=[Draft.objects.get().public_id])
    operator.post(choose, {"step": "check", "take": "good", "on_conflict": "refuse", "then": "check"})
    address = reverse("batches:batch_left_out", args=[started(operator).public_id])
    content = b"".join(operator.get(address).streaming_content)  # type: ignore[attr-defined] # it streams
    lines = list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline="")))
    assert [(line["_row"], line["_line"], line["id"]) for line in lines] == [("1", "1", "B"), ("2", "1", "B")]


def test_a_batch_without_left_out_rows_has_no_line_for_them(failed: Batch, operator: Client) -> None:
    assert "left-out.csv" not in operator.get(reverse("batches:batch_detail", args=[failed.public_id])).text


def test_a_file_that_came_from_the_command_line_is_listed_as_such(failed: Batch, operator: Client) -> None:
    draft = make_draft(batch=failed, target=failed, filename="failed.csv", state=DraftState.STARTED, created_by=None)
    over = operator.get(reverse("batches:draft_list") + "?view=over")
    detail = operator.get(reverse("batches:draft_detail", args=[draft.public_id]))
    assert (over.status_code, "the command line" in over.text) == (200, True)
    assert (detail.status_code, "uploaded by the command line" in detail.text) == (200, True)
