"""The audit log: who reads it, what it says, that nothing changes it, and that no content or secret is in it."""

from __future__ import annotations

import ast
import csv
import io
import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from batches import audits
from batches.models import (
    AuditEntry,
    Batch,
    BulkAction,
    BulkActionItem,
    ItemResult,
    Job,
    JobState,
    Membership,
    ProviderAccount,
    Role,
    Verb,
    Workspace,
)
from tests.commands.shell import run
from tests.factories import NOW, make_job, make_saved_job, make_workspace
from tests.web.conftest import make_member, signed_in
from tests.web.starting import start
from tests.web.stored import store_pdf

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def manager(workspace: Workspace) -> Client:
    return signed_in(make_member(workspace, "h.brandt", Role.MANAGER))


def entry(workspace: Workspace | None, **fields: Any) -> AuditEntry:
    defaults = {"at": NOW, "actor_words": "m.okoye", "action": "start_batch", "subject": "batch bat_1"}
    return AuditEntry.objects.create(workspace=workspace, **defaults | fields)


def actions(client: Client, **filters: str) -> list[str]:
    return [row.entry.action for row in client.get("/audit/", filters).context["rows"]]


def test_managers_and_admins_read_their_workspaces_part(
    workspace: Workspace, manager: Client, operator: Client, viewer: Client, outsider: Client, admin_client: Client
) -> None:
    elsewhere = make_workspace()
    entry(workspace, action="start_batch")
    entry(elsewhere, action="pause_batch")
    entry(None, action="repair_store")
    assert actions(manager) == ["start_batch"]
    assert actions(outsider) == []
    assert sorted(actions(admin_client)) == ["pause_batch", "repair_store", "start_batch"]
    for client in (operator, viewer):
        for address in ("/audit/", "/audit/entries.csv"):
            answer = client.get(address)
            assert answer.status_code == 403
            assert "read by managers and admins" in answer.text
    assert "Nothing has been written down yet" in outsider.get("/audit/").text


def test_an_entry_says_who_what_when_why_and_from_where(batch: Batch, manager: Client) -> None:
    entry(
        batch.workspace,
        action="pause_batch",
        subject=f"batch {batch.public_id}",
        reason="wrong <prices>",
        from_where="192.0.2.7",
        facts={"items_cancelled": 1200, "formats": ["csv", "jsonl"], "is_ok": True, "empty": ""},
    )
    page = manager.get("/audit/").text
    assert "2026-03-02 09:00:00" in page
    assert "m.okoye" in page
    assert f'<strong>Paused</strong> <a href="/batches/{batch.public_id}/">' in page
    assert "“wrong &lt;prices&gt;”" in page
    assert "192.0.2.7" in page
    assert "formats csv, jsonl, is ok yes, items cancelled 1,200" in page


def test_the_filters_are_in_the_address_and_narrow_the_list(batch: Batch, manager: Client) -> None:
    document = make_saved_job(batch=batch, business_id="INV-7").version.document
    mine = batch.workspace
    entry(mine, action="start_batch", subject=f"batch {batch.public_id}", at=NOW - timedelta(days=2))
    entry(mine, action="view_pdf", subject=f"document {document.public_id} v1", actor_words="nadia")
    entry(mine, action="retry", subject=f"document {document.public_id}", at=NOW + timedelta(days=1))
    assert actions(manager, who="NADIA") == ["view_pdf"]
    assert actions(manager, action="retry") == ["retry"]
    for wanted in ("INV-7", document.public_id, f"document {document.public_id}"):
        assert actions(manager, subject=wanted) == ["retry", "view_pdf"]
    assert actions(manager, subject=batch.public_id) == ["start_batch"]
    assert actions(manager, subject="INV") == []
    assert actions(manager, **{"from": "2026-03-02", "to": "2026-03-02"}) == ["view_pdf"]
    assert actions(manager, **{"from": "2026-03-02"}) == ["retry", "view_pdf"]
    assert actions(manager, to="2026-03-01") == ["start_batch"]
    assert len(actions(manager, workspace=mine.slug)) == 3
    assert actions(manager, workspace="elsewhere") == []
    entry(mine, action="order_export", subject=f"export exp_7 of batch {batch.public_id}")
    assert actions(manager, subject="exp_7") == ["order_export"]
    assert 'href="/exports/exp_7/"' in manager.get("/audit/").text
    page = manager.get("/audit/", {"who": "nobody"}).text
    assert "No entry matches these filters" in page
    assert 'value="nobody"' in page
    assert "INV-7" in manager.get("/audit/").text


@pytest.mark.parametrize(
    "query",
    ["who=%00", "subject=%00", "from=x", "to=0001-01-01", "to=9999-12-31", "after=x", "before=9-9", "action=%ff"],
)
def test_nonsense_in_the_address_breaks_nothing(query: str, workspace: Workspace, manager: Client) -> None:
    entry(workspace)
    assert manager.get(f"/audit/?{query}").status_code == 200
    assert manager.get(f"/audit/entries.csv?{query}").status_code == 200


def test_pages_hold_every_entry_once_in_both_directions(workspace: Workspace, manager: Client) -> None:
    for n in range(123):  # several at one instant
        entry(workspace, at=NOW + timedelta(seconds=n // 10), subject=f"batch bat_{n}")
    seen, address, pages = [], "/audit/", []
    while address:
        answer = manager.get(address)
        pages.append([row.entry.subject for row in answer.context["rows"]])
        seen += pages[-1]
        last, address = answer, answer.context["older"]
    assert seen == [f"batch bat_{n}" for n in reversed(range(123))]
    assert [row.entry.subject for row in manager.get(last.context["newer"]).context["rows"]] == pages[1]


def test_the_number_of_queries_does_not_grow(batch: Batch, manager: Client) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert manager.get("/audit/").status_code == 200
        return len(captured)

    job = make_saved_job(batch=batch)
    entry(batch.workspace, subject=f"document {job.version.document.public_id} v1")
    one = queries()
    for _ in range(60):
        job = make_saved_job(batch=batch)
        entry(batch.workspace, subject=f"document {job.version.document.public_id} v1")
    assert queries() == one


def test_a_documents_part_of_the_log_has_the_bulk_actions_that_settled_it(batch: Batch, manager: Client) -> None:
    mine, other = (make_job(batch=batch, business_id=name, state=JobState.FAILED) for name in ("INV-1", "INV-2"))
    for number, (job, result) in enumerate(
        ((mine, ItemResult.DONE), (mine, ItemResult.SKIPPED), (mine, ItemResult.WAITING), (other, ItemResult.DONE))
    ):
        action = BulkAction.objects.create(
            public_id=f"act_{number}",
            workspace=batch.workspace,
            batch=batch,
            verb=Verb.RETRY,
            actor_words="m.okoye",
            creation_key=str(number),
        )
        item = batch.items.get(version=job.version)
        BulkActionItem.objects.create(
            action=action, position=0, item=item, version=job.version, job_state=job.state, result=result
        )
        facts = {"verb": "retry", "batch": batch.public_id}
        entry(batch.workspace, action="confirm_bulk_action", subject=f"bulk action {action.public_id}", facts=facts)
    document = mine.version.document.public_id
    entry(batch.workspace, action="retry", subject=f"document {document}")
    for wanted in (document, f"document {document}", "INV-1"):
        rows = manager.get("/audit/", {"subject": wanted}).context["rows"]
        assert {row.entry.subject for row in rows} == {f"document {document}", "bulk action act_0", "bulk action act_1"}
    assert f"/batches/{batch.public_id}/actions/act_0/" in manager.get("/audit/", {"subject": document}).text
    csv_text = b"".join(manager.get("/audit/entries.csv", {"subject": document}).streaming_content).decode()
    assert "bulk action act_0" in csv_text


def test_the_csv_holds_what_the_filters_leave_guards_formulas_and_is_an_entry_itself(
    workspace: Workspace, manager: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audits, "_SLICE", 2)
    for n in range(5):
        entry(workspace, subject=f"batch bat_{n}", reason="=1+1")
    entry(workspace, action="view_pdf")
    answer: Any = manager.get("/audit/entries.csv", {"action": "start_batch"})
    text = b"".join(answer.streaming_content).decode()
    rows = list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline="")))
    assert [row["subject"] for row in rows] == [f"batch bat_{n}" for n in reversed(range(5))]
    assert tuple(rows[0]) == audits.COLUMNS
    assert {row["reason"] for row in rows} == {"'=1+1"}
    taken = AuditEntry.objects.get(action="download_audit")
    assert (taken.actor_words, taken.workspace, taken.facts) == (
        "h.brandt",
        workspace,
        {"filters": {"action": "start_batch"}},
    )


def test_nobody_changes_or_deletes_an_entry(workspace: Workspace, admin_client: Client) -> None:
    kept = entry(workspace)
    change, delete = (reverse(f"admin:batches_auditentry_{page}", args=[kept.pk]) for page in ("change", "delete"))
    assert admin_client.post(change, {"action": "other"}).status_code == 403
    assert admin_client.post(delete, {"post": "yes"}).status_code == 403
    listed = reverse("admin:batches_auditentry_changelist")
    admin_client.post(listed, {"action": "delete_selected", "_selected_action": [kept.pk], "post": "yes"})
    assert AuditEntry.objects.get().action == "start_batch"
    for method in ("post", "put", "patch", "delete"):
        assert getattr(admin_client, method)("/audit/").status_code == 405


def test_no_line_of_the_program_changes_or_deletes_what_is_written_once() -> None:
    """`engine/audit.py` and `engine/transitions.py` only add."""
    writes = re.compile(
        r"(AuditEntry|JobEvent)\.objects\b[^\n]*\.(update|delete|bulk_update|update_or_create)\("
        r"|bulk\.guarded_update\(\s*(AuditEntry|JobEvent)"
    )
    for line in ("AuditEntry.objects.filter(pk=1).delete()", "bulk.guarded_update(JobEvent, rows)"):
        assert writes.search(line)
    for path in (ROOT / "batches").rglob("*.py"):
        assert not writes.search(path.read_text("utf-8")), path


SECRETS = ("Confidential-Content", "pdf_live_another", "whsec_another", "pdf_0123456789abcdef", "Correct-horse")


def taken_from_pages(operator: Client, batch: Batch, job: Job) -> None:
    """Each file that a page gives, and a provider job's id."""
    document = job.version.document.public_id
    for name in ("archive/", "results.csv", "results.jsonl", "failed.csv", "manifest/"):
        answer = operator.get(f"/batches/{batch.public_id}/{name}")
        assert answer.status_code == 200, name
        b"".join(answer.streaming_content)  # type: ignore[attr-defined]
    operator.get(f"/documents/{document}/v1.pdf")
    operator.get(f"/documents/{document}/v1.pdf?download=1")
    operator.post(f"/documents/{document}/reveal/", {"submission": job.submissions.get().pk})


def choose_and_discard(operator: Client, page: Any) -> None:
    address = page.redirect_chain[-1][0]
    operator.post(f"{address}choose/", {"step": "check", "on_conflict": "new-version", "take": "good", "then": "look"})
    assert operator.post(f"{address}discard/").status_code == 302


def changed_in_the_admin(admin_client: Client, workspace: Workspace, account: ProviderAccount) -> None:
    """Secrets of an account, a password, a role, and a membership that ends."""
    page = reverse("admin:batches_provideraccount_change", args=[account.pk])
    form = admin_client.get(page).context["adminform"].form
    values = {name: form.initial.get(name) for name in form.fields if form.initial.get(name) is not None}
    secret = {"api_key": "pdf_live_another", "webhook_secret": "whsec_another", "is_same_account": "on"}
    changed = admin_client.post(page, values | secret)
    assert changed.status_code == 302, changed.context["adminform"].form.errors
    okoye = User.objects.get(username="m.okoye")
    password = {"password1": "Correct-horse-88", "password2": "Correct-horse-88", "usable_password": "true"}
    admin_client.post(reverse("admin:auth_user_password_change", args=[okoye.pk]), password)
    member = Membership.objects.get(user=okoye)
    address = reverse("admin:batches_membership_change", args=[member.pk])
    admin_client.post(address, {"user": okoye.pk, "workspace": workspace.pk, "role": Role.MANAGER})
    admin_client.post(reverse("admin:batches_membership_delete", args=[member.pk]), {"post": "yes"})


def done_by_commands(batch: Batch, account: ProviderAccount, workspace: Workspace, folder: Path) -> None:
    for arguments in (
        ("batch", batch.public_id, "--pause", "--reason", "r"),
        ("batch", batch.public_id, "--resume"),
        ("batch", batch.public_id, "--cancel", "--reason", "r"),
        ("results", batch.public_id),
        ("results", batch.public_id, "--failed"),
        ("download", batch.public_id, "--out", str(folder / "x.zip")),
        ("account", account.slug, "--hold", "--reason", "r"),
        ("account", account.slug, "--resume"),
        ("account", account.slug, "--set", "max_in_flight=7"),
        ("api_token", "m.okoye", "--name", "n", "--workspace", workspace.slug),
    ):
        run(*arguments)


#: Actions by who wrote them, in `test_every_flow_is_written_down_without_content_or_secrets`.
WRITTEN = {
    "m.okoye": (
        "upload_file",
        "choose_for_upload",
        "discard_upload",
        "start_upload",
        "start_batch",
        "download_archive",
        "download_results",
        "download_failed_list",
        "download_manifest",
        "view_pdf",
        "download_pdf",
        "reveal_provider_job",
    ),
    "admin": ("change_account", "change_user", "change_membership", "delete_membership"),
    "command": (
        "pause_batch",
        "resume_batch",
        "cancel_batch",
        "download_results",
        "download_failed_list",
        "download_archive",
        "hold_account",
        "resume_account",
        "change_account",
    ),
}


def test_every_flow_is_written_down_without_content_or_secrets(
    upload: Any, operator: Client, admin_client: Client, workspace: Workspace, account: ProviderAccount, tmp_path: Path
) -> None:
    rows = [{"id": "INV-1", "html_content": "<h1>Confidential-Content</h1>", "customer": "Confidential-Content"}]
    choose_and_discard(operator, upload(rows))
    start(operator, upload(rows))
    batch = Batch.objects.get()
    job = make_saved_job(batch=batch)
    store_pdf(job, b"%PDF-1.7 Confidential-Content")
    make_job(batch=batch, state=JobState.FAILED, failure_words="Confidential-Content")
    submission = job.submissions.get()
    submission.provider_job_id = "pdf_0123456789abcdef"
    submission.save()
    taken_from_pages(operator, batch, job)
    changed_in_the_admin(admin_client, workspace, account)
    done_by_commands(batch, account, workspace, tmp_path)
    expected = {(action, who) for who, actions in WRITTEN.items() for action in actions}
    entries = list(AuditEntry.objects.all())
    written = {(each.action, "command" if each.from_where == "command line" else each.actor_words) for each in entries}
    assert expected <= written
    for each in entries:
        text = json.dumps([each.actor_words, each.subject, each.reason, each.from_where, each.facts])
        assert not [secret for secret in SECRETS if secret in text], each


def test_every_action_that_is_written_has_words() -> None:
    """An action is named where it is written, as the first argument of a `record`."""
    named = set()
    for path in (ROOT / "batches").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and _name(node.func) in ("record", "record_each", "_record"):
                for argument in node.args[:2]:
                    named |= {
                        each.value
                        for each in ast.walk(argument)
                        if isinstance(each, ast.Constant)
                        and isinstance(each.value, str)
                        and each.value.islower()
                        and "_" in each.value
                        and each.value.isascii()
                        and " " not in each.value
                    }
    assert "start_batch" in named
    assert named <= set(audits.ACTIONS), named - set(audits.ACTIONS)


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def test_what_can_be_chosen_as_what_was_done_is_told_apart(manager: Client) -> None:
    chosen = re.findall(r'<option value="\w+">([^<]+)</option>', manager.get("/audit/").text)
    assert len(chosen) == len(audits.ACTIONS)
    assert {words for words in chosen if chosen.count(words) > 1 or words.endswith(":")} == set()
