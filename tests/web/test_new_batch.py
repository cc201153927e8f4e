"""A new batch by the page: check, report, start once."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from batches.models import AuditEntry, Batch, DocumentVersion, Job, JobState, Membership, ProviderAccount, Workspace
from batches.views import drafts
from tests.factories import make_account, make_submission, make_workspace
from tests.web.conftest import CASES, make_member, signed_in

ROWS = [{"id": f"INV-{n}", "html_content": f"<h1>Invoice {n}</h1>"} for n in (1, 2, 3)]


def draft_of(page: Any) -> str:
    found = re.search(r'name="draft" value="([^"]*)"', page.text)
    assert found is not None, page.text
    return html.unescape(found[1])


def stored_uploads(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("uploads/*") if path.is_file()]


def test_a_good_file_shows_its_plan_and_stores_no_row(upload: Callable[..., Any], artifact_folder: Path) -> None:
    page = upload(ROWS, name="march.json")
    assert page.status_code == 200
    assert "Start 3 documents" in page.text
    assert "Sends 3 documents to" in page.text
    assert not Batch.objects.exists()
    assert not Job.objects.exists()
    assert len(stored_uploads(artifact_folder)) == 1
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.facts["filename"], entry.facts["is_ok"]) == ("check_upload", "march.json", True)


def test_start_makes_the_batch_and_leads_to_it(
    upload: Callable[..., Any], operator: Client, okoye: User, artifact_folder: Path
) -> None:
    draft = draft_of(upload(ROWS, name="march.json", name_="", on_conflict="refuse"))
    answer = operator.post("/new/start/", {"draft": draft})
    batch = Batch.objects.get()
    assert answer.status_code == 302
    assert answer["Location"] == f"/batches/{batch.public_id}/"
    assert (batch.name, batch.created_by) == ("march", okoye)
    assert Job.objects.filter(state=JobState.PENDING).count() == 3
    assert stored_uploads(artifact_folder) == []
    assert AuditEntry.objects.get(action="start_batch").actor == okoye
    assert "3 new" in operator.get(answer["Location"]).text


def test_pressing_start_twice_makes_one_batch(upload: Callable[..., Any], operator: Client) -> None:
    draft = draft_of(upload(ROWS))
    first, second = (operator.post("/new/start/", {"draft": draft}) for _ in range(2))
    assert first["Location"] == second["Location"]
    assert Batch.objects.count() == 1
    assert Job.objects.count() == 3


def test_two_checks_of_one_file_are_two_batches_and_three_jobs(upload: Callable[..., Any], operator: Client) -> None:
    first, second = draft_of(upload(ROWS)), draft_of(upload(ROWS))
    operator.post("/new/start/", {"draft": first})
    answer = operator.post("/new/start/", {"draft": second})
    assert answer.status_code == 302
    assert Batch.objects.count() == 2
    assert Job.objects.count() == 3


def test_a_refused_file_shows_every_kind_of_error_and_keeps_nothing(
    upload: Callable[..., Any], artifact_folder: Path
) -> None:
    rows = [{"id": "A", "html_content": "<p>1</p>"}, {"html_content": "<p>2</p>"}, {"id": "A", "html": "gone.html"}]
    page = upload(
        [*rows, {"id": "B", "html_content": ""}, {"id": "C", "html_content": "<p>3</p>", "options": {"scale": 9}}]
    )
    assert page.status_code == 422
    for code in ("duplicate_id", "missing_id", "missing_file", "empty_html", "bad_option"):
        assert f">{code}<" in page.text
    assert "rows 0 and 2 <code>id</code>" in page.text, "one that repeats another"
    assert "row 1 <code>id</code>" in page.text
    assert ", line" not in page.text, "the whole file is one line"
    assert "this needs a ZIP with the file" in page.text
    assert "Start" not in page.text.split("<dialog")[0]
    assert not Batch.objects.exists()
    assert stored_uploads(artifact_folder) == []
    assert AuditEntry.objects.get().facts["is_ok"] is False


def test_lines_are_named_where_the_file_has_more_than_one(upload: Callable[..., Any]) -> None:
    lines = b'{"id": "A", "html_content": "<p>1</p>"}\n{"html_content": "<p>2</p>"}\n'
    assert "row 1, line 2 <code>id</code>" in upload(lines, name="invoices.jsonl").text


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.json", b"", "is empty"),
        ("photo.json", b"\x89PNG\r\n\x1a\n" + b"\0" * 40, "PNG"),
        ("broken.json", b'[{"id": ', ""),
        ("latin.json", '[{"id": "é", "html_content": "<p>é</p>"}]'.encode("latin-1"), "UTF-8"),
        ("broken.zip", b"PK\x03\x04" + b"x" * 60, "ZIP"),
    ],
)
def test_what_is_no_manifest_is_refused_in_words(
    name: str, content: bytes, words: str, upload: Callable[..., Any]
) -> None:
    page = upload(content, name=name)
    assert page.status_code == 422
    assert "This file cannot be used as it is" in page.text
    assert words in page.text


@pytest.mark.parametrize(
    "case",
    [
        "005-workbook.csv",
        "026-deep.json",
        "031-nul.json",
        "032-lone-surrogate.json",
        "025-encrypted.zip",
        "128-zip-slip.zip",
    ],
)
def test_hostile_uploads_end_in_a_report(case: str, upload: Callable[..., Any]) -> None:
    page = upload((CASES / case).read_bytes(), name=case)
    assert page.status_code == 422
    assert 'class="problem failed"' in page.text


def test_markup_in_file_names_and_ids_is_text(upload: Callable[..., Any], operator: Client) -> None:
    content = (CASES / "125-markup-ids.json").read_bytes()
    page = upload(content, name='"><img src=x onerror=alert(1)>.json')
    assert page.status_code == 200
    assert "<img src=x" not in page.text
    answer = operator.post("/new/start/", {"draft": draft_of(page)})
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


def test_changed_content_is_refused_or_becomes_a_version(upload: Callable[..., Any], operator: Client) -> None:
    operator.post("/new/start/", {"draft": draft_of(upload(ROWS))})
    Job.objects.update(state=JobState.SAVED)
    changed = [ROWS[0], {"id": "INV-2", "html_content": "<h1>Invoice two</h1>"}]
    refused = upload(changed)
    assert refused.status_code == 422
    assert "id_content_conflict" in refused.text
    page = upload(changed, on_conflict="new-version")
    assert "Start 1 document<" in page.text
    assert "Changed" in page.text
    operator.post("/new/start/", {"draft": draft_of(page)})
    assert DocumentVersion.objects.get(document__business_id="INV-2", number=2)


def test_what_may_bill_twice_must_be_confirmed(upload: Callable[..., Any], operator: Client) -> None:
    operator.post("/new/start/", {"draft": draft_of(upload(ROWS))})
    Job.objects.update(state=JobState.UNKNOWN, failure_class="unknown_outcome")
    page = upload([{"id": "INV-2", "html_content": "<h1>Invoice two</h1>"}], on_conflict="new-version")
    assert "may also be billed" in page.text
    draft = draft_of(page)
    again = operator.post("/new/start/", {"draft": draft})
    assert "Confirm the notices first." in again.text
    assert Batch.objects.count() == 1
    answer = operator.post("/new/start/", {"draft": draft_of(again), "confirmed": "yes"})
    assert answer.status_code == 302
    assert Batch.objects.count() == 2


def test_more_documents_than_were_shown_are_not_sent_unasked(upload: Callable[..., Any], operator: Client) -> None:
    operator.post("/new/start/", {"draft": draft_of(upload(ROWS))})
    draft = draft_of(upload(ROWS))  # says that it sends nothing
    Job.objects.update(state=JobState.CANCELLED)  # now the same start would send three
    again = operator.post("/new/start/", {"draft": draft})
    assert "more documents would be sent" in again.text
    assert "Start 3 documents" in again.text
    assert Batch.objects.count() == 1


def test_a_file_that_no_longer_holds_at_the_start_is_reported_again(
    upload: Callable[..., Any], operator: Client
) -> None:
    late = draft_of(upload([{"id": "INV-1", "html_content": "<h1>Another invoice</h1>"}]))
    operator.post("/new/start/", {"draft": draft_of(upload(ROWS))})
    answer = operator.post("/new/start/", {"draft": late})
    assert answer.status_code == 422
    assert "no longer holds" in answer.text
    assert "id_content_conflict" in answer.text
    assert Batch.objects.count() == 1


@pytest.mark.parametrize(
    "damage", [lambda signed: signed[:-2], lambda signed: "", lambda signed: "\0", lambda signed: "x:y:z"]
)
def test_a_changed_form_starts_nothing(damage: Any, upload: Callable[..., Any], operator: Client) -> None:
    draft = draft_of(upload(ROWS))
    answer = operator.post("/new/start/", {"draft": damage(draft)}, follow=True)
    assert "Choose the file again" in answer.text
    assert not Batch.objects.exists()


def test_a_check_of_yesterday_is_too_old(
    upload: Callable[..., Any], operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = draft_of(upload(ROWS))
    monkeypatch.setattr(drafts, "LIFETIME", timedelta(seconds=-1))
    answer = operator.post("/new/start/", {"draft": draft}, follow=True)
    assert "older than a day" in answer.text
    assert not Batch.objects.exists()


def test_somebody_elses_check_cannot_be_started(upload: Callable[..., Any], workspace: Workspace) -> None:
    draft = draft_of(upload(ROWS))
    other = signed_in(make_member(workspace, "b.other", "operator"))
    answer = other.post("/new/start/", {"draft": draft}, follow=True)
    assert "made by somebody else" in answer.text
    assert not Batch.objects.exists()


def test_a_right_that_was_taken_away_after_the_check_counts(
    upload: Callable[..., Any], operator: Client, okoye: User
) -> None:
    draft = draft_of(upload(ROWS))
    Membership.objects.filter(user=okoye).update(role="viewer")
    assert operator.post("/new/start/", {"draft": draft}).status_code == 403
    assert not Batch.objects.exists()


def test_an_upload_that_is_gone_is_told(upload: Callable[..., Any], operator: Client, artifact_folder: Path) -> None:
    draft = draft_of(upload(ROWS))
    for path in stored_uploads(artifact_folder):
        path.unlink()
    answer = operator.post("/new/start/", {"draft": draft}, follow=True)
    assert "The upload is no longer there." in answer.text


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
    operator.post("/new/start/", {"draft": draft_of(upload(ROWS))})
    jobs = list(Job.objects.order_by("pk"))
    for job in jobs:
        make_submission(job=job)
    Job.objects.filter(pk=jobs[0].pk).update(state=JobState.SAVED)
    Job.objects.exclude(pk=jobs[0].pk).update(state=JobState.FAILED, failure_class="render_failed")
    page = upload(ROWS).text
    assert "2 failed before</h2>" in page
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
    assert "Start 2 documents" in page.text


def test_form_and_started_batch_name_the_choice_alike(upload: Callable[..., Any], operator: Client) -> None:
    words = "Refuse the rows and start nothing"
    assert words in operator.get("/new/").text
    started = operator.post("/new/start/", {"draft": draft_of(upload(ROWS))})
    assert words in operator.get(started["Location"]).text


def test_a_repeated_id_is_told_once_with_both_rows(upload: Callable[..., Any]) -> None:
    page = upload([{"id": "A", "html_content": "x"}, {"id": "A", "html_content": "y"}]).text
    assert "rows 0 and 1" in page
    assert "Also row" not in page
