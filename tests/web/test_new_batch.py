"""A new batch by the page: check, report, start once."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from batches.models import (
    AuditEntry,
    Batch,
    DocumentVersion,
    Draft,
    DraftState,
    Job,
    JobState,
    Membership,
    ProviderAccount,
    Workspace,
)
from tests.factories import make_account, make_submission, make_workspace
from tests.web.conftest import CASES, make_member, signed_in
from tests.web.starting import start, start_form

ROWS = [{"id": f"INV-{n}", "html_content": f"<h1>Invoice {n}</h1>"} for n in (1, 2, 3)]


def stored_uploads(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("uploads/*") if path.is_file()]


def test_a_good_file_shows_its_plan_and_stores_no_row(upload: Callable[..., Any], artifact_folder: Path) -> None:
    page = upload(ROWS, name="march.json")
    assert page.status_code == 200
    assert "Start: renders 3, less than a minute at" in page.text
    assert "Sends 3 documents to" in page.text
    assert not Batch.objects.exists()
    assert not Job.objects.exists()
    assert len(stored_uploads(artifact_folder)) == 1
    entry, draft = AuditEntry.objects.get(), Draft.objects.get()
    assert (entry.action, entry.facts["filename"]) == ("upload_file", "march.json")
    assert entry.subject == f"draft {draft.public_id}"
    assert (draft.state, page.redirect_chain) == (DraftState.CHECKED, [(f"/drafts/{draft.public_id}/", 302)])


def test_start_makes_the_batch_and_leads_to_it(
    upload: Callable[..., Any], operator: Client, okoye: User, artifact_folder: Path
) -> None:
    answer = start(operator, upload(ROWS, name="march.json"))
    batch = Batch.objects.get()
    assert answer.status_code == 302
    assert answer["Location"] == f"/batches/{batch.public_id}/"
    assert (batch.name, batch.created_by) == ("march", okoye)
    assert Job.objects.filter(state=JobState.PENDING).count() == 3
    assert stored_uploads(artifact_folder) == []
    assert AuditEntry.objects.get(action="start_batch").actor == okoye
    assert "3 new" in operator.get(answer["Location"]).text


def test_pressing_start_twice_makes_one_batch(upload: Callable[..., Any], operator: Client) -> None:
    page = upload(ROWS)
    first, second = (start(operator, page) for _ in range(2))
    assert first["Location"] == second["Location"]
    assert Batch.objects.count() == 1
    assert Job.objects.count() == 3


def test_two_checks_of_one_file_are_two_batches_and_three_jobs(upload: Callable[..., Any], operator: Client) -> None:
    first, second = upload(ROWS), upload(ROWS)
    start(operator, first)
    answer = start(operator, second)
    assert answer.status_code == 302
    assert Batch.objects.count() == 2
    assert Job.objects.count() == 3


def test_a_refused_file_shows_every_kind_of_error_and_cannot_be_started(upload: Callable[..., Any]) -> None:
    rows = [{"id": "A", "html_content": "<p>1</p>"}, {"html_content": "<p>2</p>"}, {"id": "A", "html": "gone.html"}]
    page = upload(
        [*rows, {"id": "B", "html_content": ""}, {"id": "C", "html_content": "<p>3</p>", "options": {"scale": 9}}]
    )
    assert page.status_code == 200
    for code in ("duplicate_id", "missing_id", "missing_file", "empty_html", "bad_option"):
        assert f">{code}<" in page.text
    assert "rows 1 and 3 <code>id</code>" in page.text, "one that repeats another"
    assert "row 2 <code>id</code>" in page.text
    assert ", line" not in page.text, "the whole file is one line"
    assert "this needs a ZIP with the file" in page.text
    assert "Start" not in page.text.split("<dialog")[0]
    assert "The good rows; the others are listed" not in page.text, "there is none"
    assert not Batch.objects.exists()


def test_the_good_rows_can_be_taken_and_the_others_are_said_to_be_left_out(
    upload: Callable[..., Any], operator: Client
) -> None:
    page = upload([*ROWS, {"html_content": "<p>no id</p>"}])
    assert "1 of 4 rows cannot be used" in page.text
    choice = {"step": "check", "take": "good", "on_conflict": "refuse", "then": "check"}
    page = operator.post(f"/drafts/{Draft.objects.get().public_id}/choose/", choice, follow=True)
    assert "1 row is left out." in page.text
    start(operator, page)
    assert Batch.objects.get().items.count() == 3


def test_lines_are_named_where_the_file_has_more_than_one(upload: Callable[..., Any]) -> None:
    lines = b'{"id": "A", "html_content": "<p>1</p>"}\n{"html_content": "<p>2</p>"}\n'
    assert "row 2, line 2 <code>id</code>" in upload(lines, name="invoices.jsonl").text


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.json", b"", "is empty"),
        ("photo.json", b"\x89PNG\r\n\x1a\n" + b"\0" * 40, "PNG"),
        ("broken.json", b'[{"id": ', ""),
        ("broken.zip", b"PK\x03\x04" + b"x" * 60, "ZIP"),
    ],
)
def test_what_is_no_manifest_is_refused_in_words(
    name: str, content: bytes, words: str, upload: Callable[..., Any]
) -> None:
    page = upload(content, name=name)
    assert page.status_code == 200
    assert "This file cannot be used as it is" in page.text
    assert words in page.text


def test_json_in_an_encoding_that_is_a_guess_is_asked_about(upload: Callable[..., Any]) -> None:
    page = upload('[{"id": "é", "html_content": "<p>é</p>"}]'.encode("latin-1"), name="latin.json")
    assert "Which of these reads right?" in page.text
    assert Draft.objects.get().state == DraftState.OPEN


@pytest.mark.parametrize(
    "case",
    [
        "026-deep.json",
        "031-nul.json",
        "032-lone-surrogate.json",
        "025-encrypted.zip",
        "128-zip-slip.zip",
    ],
)
def test_hostile_uploads_end_in_a_report(case: str, upload: Callable[..., Any]) -> None:
    page = upload((CASES / case).read_bytes(), name=case)
    assert page.status_code == 200
    assert 'class="problem failed"' in page.text


def test_markup_in_file_names_and_ids_is_text(upload: Callable[..., Any], operator: Client) -> None:
    content = (CASES / "125-markup-ids.json").read_bytes()
    page = upload(content, name='"><img src=x onerror=alert(1)>.json')
    assert page.status_code == 200
    assert "<img src=x" not in page.text
    answer = start(operator, page)
    text = operator.get(answer["Location"]).text
    assert "<img src=x" not in text
    assert "<svg onload" not in text
    assert "&lt;img src=x onerror=alert(1)&gt;" in text
    broken = upload(b'[{"id": "<script>alert(1)</script>"}]').text
    assert "<script>alert" not in broken


def test_no_file_is_told_beside_the_field(operator: Client, workspace: Workspace, account: ProviderAccount) -> None:
    page = operator.post("/new/", {"workspace": workspace.slug, "account": account.slug, "on_conflict": "refuse"})
    assert page.status_code == 422
    assert "Choose a file first" in page.text
    assert not Draft.objects.exists()


def test_changed_content_is_refused_or_becomes_a_version(upload: Callable[..., Any], operator: Client) -> None:
    start(operator, upload(ROWS))
    Job.objects.update(state=JobState.SAVED)
    changed = [ROWS[0], {"id": "INV-2", "html_content": "<h1>Invoice two</h1>"}]
    refused = upload(changed)
    assert "id_content_conflict" in refused.text
    choice = {"step": "check", "on_conflict": "new-version", "then": "check"}
    page = operator.post(f"/drafts/{Draft.objects.latest('pk').public_id}/choose/", choice, follow=True)
    assert "Start: renders 1," in page.text
    assert "Changed" in page.text
    start(operator, page)
    assert DocumentVersion.objects.get(document__business_id="INV-2", number=2)


def test_what_may_bill_twice_must_be_confirmed(upload: Callable[..., Any], operator: Client) -> None:
    start(operator, upload(ROWS))
    Job.objects.update(state=JobState.UNKNOWN, failure_class="unknown_outcome")
    page = upload([{"id": "INV-2", "html_content": "<h1>Invoice two</h1>"}], on_conflict="new-version")
    assert "may also be billed" in page.text
    again = start(operator, page)
    assert "Confirm the notices first." in again.text
    assert Batch.objects.count() == 1
    answer = start(operator, again, confirmed="yes")
    assert answer.status_code == 302
    assert Batch.objects.count() == 2


def test_more_documents_than_were_shown_are_not_sent_unasked(upload: Callable[..., Any], operator: Client) -> None:
    start(operator, upload(ROWS))
    page = upload(ROWS)  # says that it sends nothing
    Job.objects.update(state=JobState.CANCELLED)  # now the same start would send three
    again = operator.get(start(operator, page)["Location"])
    assert "more documents would be sent" in again.text
    assert "Start: renders 3," in again.text
    assert Batch.objects.count() == 1


def test_a_file_that_no_longer_holds_at_the_start_is_reported_again(
    upload: Callable[..., Any], operator: Client
) -> None:
    late = upload([{"id": "INV-1", "html_content": "<h1>Another invoice</h1>"}])
    start(operator, upload(ROWS))
    answer = operator.get(start(operator, late)["Location"])
    assert "The manifest has errors; nothing was started." in answer.text
    assert "id_content_conflict" in answer.text
    assert Batch.objects.count() == 1


@pytest.mark.parametrize(
    "damage", [{"generation": "7"}, {"generation": ""}, {"renders": "many"}, {"renders": "-1"}, {"sample_size": "99"}]
)
def test_a_changed_form_starts_nothing(damage: dict[str, str], upload: Callable[..., Any], operator: Client) -> None:
    answer = start(operator, upload(ROWS), **damage)
    assert answer.status_code == 422
    assert 'role="alert"' in answer.text
    assert not Batch.objects.exists()


def test_somebody_else_s_draft_may_be_looked_at_and_not_started(
    upload: Callable[..., Any], workspace: Workspace
) -> None:
    page = upload(ROWS)
    address, fields = start_form(page)
    other = signed_in(make_member(workspace, "b.other", "operator"))
    seen = other.get(address.removesuffix("start/"))
    assert "Only m.okoye, who uploaded the file, may change or start it." in seen.text
    assert "/start/" not in seen.text
    refused = other.post(address, fields)
    assert refused.status_code == 403
    assert "Upload it yourself" in refused.text
    assert not Batch.objects.exists()


def test_a_right_that_was_taken_away_after_the_check_counts(
    upload: Callable[..., Any], operator: Client, okoye: User
) -> None:
    page = upload(ROWS)
    Membership.objects.filter(user=okoye).update(role="viewer")
    answer = start(operator, page)
    assert answer.status_code == 403
    assert "You may no longer start a batch in this workspace" in answer.text
    assert not Batch.objects.exists()


def test_an_upload_that_is_gone_is_told(upload: Callable[..., Any], operator: Client, artifact_folder: Path) -> None:
    page = upload(ROWS)
    for path in stored_uploads(artifact_folder):
        path.unlink()
    answer = operator.get(start(operator, page)["Location"])
    assert "The file is no longer in the store. Upload it again." in answer.text


def test_only_accounts_and_workspaces_of_ones_own_can_be_chosen(
    upload: Callable[..., Any], workspace: Workspace
) -> None:
    foreign = make_workspace()
    assert upload(ROWS, workspace=foreign.slug).status_code == 422
    assert upload(ROWS, account=make_account(workspace=foreign).slug).status_code == 422
    assert upload(ROWS, account="\0").status_code == 422
    assert not AuditEntry.objects.exists()


def test_an_account_of_another_own_workspace_does_not_fit(upload: Callable[..., Any], okoye: User) -> None:
    second = make_workspace()
    Membership.objects.create(workspace=second, user=okoye, role="operator")
    page = upload(ROWS, account=make_account(workspace=second).slug)
    assert page.status_code == 422
    assert "cannot be used by" in page.text


def test_cost_and_time_are_told_before_the_start(upload: Callable[..., Any], account: ProviderAccount) -> None:
    ProviderAccount.objects.filter(pk=account.pk).update(price_per_job="0.25", submit_interval_ms=60_000)
    page = upload(ROWS).text
    assert "that takes about 2 min at one every 60 s and costs about 0.75 USD" in page
    assert "Start: renders 3, about 2 min at one every 60 s, estimated 0.75 USD" in page


def test_an_upload_over_the_limit_is_refused_before_it_is_read(operator: Client, settings: Any) -> None:
    settings.MAX_UPLOAD_BYTES = 1000
    answer = operator.post("/new/", {"file": SimpleUploadedFile("big.json", b" " * 200_000)})
    assert answer.status_code == 413
    assert "1.0 kB are allowed" in answer.text


def test_a_form_without_its_token_is_refused_with_an_explanation(okoye: User) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(okoye)
    answer = strict.post("/new/", {"file": SimpleUploadedFile("a.json", json.dumps(ROWS).encode())})
    assert answer.status_code == 403
    assert "This form is too old" in answer.text


def test_a_store_that_is_away_is_told_and_nothing_is_lost(
    upload: Callable[..., Any], settings: Any, tmp_path: Path
) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_bytes(b"")
    settings.STORAGE_URL = f"file://{in_the_way}/store"
    page = upload(ROWS)
    assert page.status_code == 503
    assert "could not be stored" in page.text


def test_what_failed_before_is_said_loudly_and_starting_is_no_cure(
    upload: Callable[..., Any], operator: Client
) -> None:
    start(operator, upload(ROWS))
    jobs = list(Job.objects.order_by("pk"))
    for job in jobs:
        make_submission(job=job)
    Job.objects.filter(pk=jobs[0].pk).update(state=JobState.SAVED)
    Job.objects.exclude(pk=jobs[0].pk).update(state=JobState.FAILED, failure_class="render_failed")
    page = upload(ROWS).text
    assert "2 failed before</h3>" in page
    assert "Nothing is sent for them" in page
    button = page.split('data-busy="Starting…"')
    assert button[0].endswith('<button type="submit" class="btn big" ')
    assert button[1].startswith(">List them without sending: 1 saved or under way, 2 failed before<")


def test_the_sample_manifest_of_the_page_is_one(upload: Callable[..., Any], operator: Client) -> None:
    sample = re.search(r"<pre><code>(.*?)</code></pre>", operator.get("/new/").text, re.S)
    assert sample is not None
    page = upload(html.unescape(sample[1]).encode(), name="manifest.json")
    assert page.status_code == 200
    assert page.text.count("manifest.json</span>") == 1
    assert "Start: renders 2," in page.text


def test_form_and_started_batch_name_the_choice_alike(upload: Callable[..., Any], operator: Client) -> None:
    words = "Refuse the rows and start nothing"
    start(operator, upload(ROWS))
    page = upload([{"id": "INV-1", "html_content": "<h1>other</h1>"}, {"id": "INV-9", "html_content": "<h1>9</h1>"}])
    assert words in page.text
    started = start(operator, upload([{"id": "INV-9", "html_content": "<h1>9</h1>"}]))
    assert words in operator.get(started["Location"]).text


def test_a_repeated_id_is_told_once_with_both_rows(upload: Callable[..., Any]) -> None:
    page = upload([{"id": "A", "html_content": "x"}, {"id": "A", "html_content": "y"}]).text
    assert "rows 1 and 2" in page
    assert "Also row" not in page
