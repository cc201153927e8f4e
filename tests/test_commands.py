"""The commands: what they print, and their exit codes (docs/architecture.md, "Stable interfaces")."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import OperationalError

from batches import tokens
from batches.engine import audit, running
from batches.models import ApiToken, Artifact, AuditEntry, Batch, Job, JobState, Membership, ProviderAccount
from tests.factories import (
    NOW,
    make_accepted_job,
    make_account,
    make_job,
    make_saved_job,
    make_submission,
    make_workspace,
)
from tests.web.stored import store_pdf

pytestmark = pytest.mark.django_db


def run(*arguments: Any) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command, as a shell would see them."""
    out, err = io.StringIO(), io.StringIO()
    try:
        call_command(*arguments, stdout=out, stderr=err, no_color=True)
    except CommandError as error:
        return error.returncode, out.getvalue(), f"{err.getvalue()}{error}"
    except SystemExit as error:
        return int(error.code or 0), out.getvalue(), err.getvalue()
    return 0, out.getvalue(), err.getvalue()


@pytest.fixture
def default_workspace() -> Any:
    return make_workspace(slug="default")


@pytest.fixture
def sandbox() -> ProviderAccount:
    return make_account(slug="sandbox")


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "invoices.json"
    rows = [{"id": f"INV-{n}", "html_content": f"<h1>Invoice {n}</h1>"} for n in (1, 2, 3)]
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


def settle(state: str = JobState.SAVED, **fields: Any) -> None:
    """Move every waiting job to a state, as a worker would have."""
    Job.objects.filter(state=JobState.PENDING).update(state=state, **fields)


# --- submit ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("default_workspace", "sandbox")
def test_submit_prints_the_batch_id_and_stores_the_batch(manifest: Path) -> None:
    code, out, _ = run("submit", str(manifest), "--name", "September")
    batch = Batch.objects.get()
    assert code == 0
    assert out.splitlines() == [batch.public_id, "3 documents to go"]
    assert batch.name == "September"
    assert AuditEntry.objects.get(action="start_batch").from_where == "command line"


@pytest.mark.usefixtures("default_workspace", "sandbox")
def test_submit_with_json_prints_exactly_one_document(manifest: Path) -> None:
    code, out, _ = run("submit", str(manifest), "--json")
    answer = json.loads(out)
    assert code == 0
    assert answer["id"] == Batch.objects.get().public_id
    assert answer["state"] == "running"
    assert [item["business_id"] for item in answer["items"]] == ["INV-1", "INV-2", "INV-3"]


@pytest.mark.usefixtures("default_workspace", "sandbox")
def test_a_second_run_of_the_same_file_says_what_is_saved_already(manifest: Path) -> None:
    run("submit", str(manifest))
    settle()
    code, out, _ = run("submit", str(manifest), "--wait")
    assert code == 0
    assert "3 already saved" in out.splitlines()
    assert "Complete: 3 documents: 3 saved" in out.splitlines()
    assert Job.objects.count() == 3


@pytest.mark.usefixtures("default_workspace", "sandbox")
@pytest.mark.parametrize(
    ("states", "code"),
    [
        (["saved", "saved", "saved"], 0),
        (["saved", "failed", "saved"], 3),
        (["saved", "cancelled", "saved"], 3),
        (["failed", "failed", "failed"], 4),
        (["saved", "saved", "pending"], 5),
    ],
)
def test_the_exit_code_of_a_wait_names_the_end(states: list[str], code: int, manifest: Path) -> None:
    run("submit", str(manifest))
    for job, state in zip(Job.objects.order_by("pk"), states, strict=True):
        failure = "render_failed" if state == "failed" else ""
        Job.objects.filter(pk=job.pk).update(state=state, failure_class=failure)
        make_submission(job=job)  # sent once, so that the same file attaches and revives nothing
    found, out, _ = run("submit", str(manifest), "--wait", "--timeout", "0", "--json")
    assert found == code
    assert len(json.loads(out)["items"]) == 3


@pytest.mark.usefixtures("default_workspace", "sandbox")
def test_a_refused_manifest_is_told_by_row_and_column_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    rows = [{"id": "A", "html_content": "<p>1</p>"}, {"html_content": "<p>2</p>"}, {"id": "A", "html": "gone.html"}]
    path.write_text(json.dumps(rows), encoding="utf-8")
    code, out, err = run("submit", str(path))
    assert (code, out) == (2, "")
    assert "error missing_id, column id, row 1" in err
    assert "missing_file" in err
    assert "rows 0, 2" in err
    assert not Batch.objects.exists()
    assert not Job.objects.exists()


@pytest.mark.usefixtures("default_workspace", "sandbox")
def test_a_refusal_with_json_is_one_document_too(tmp_path: Path) -> None:
    path = tmp_path / "empty.json"
    path.write_bytes(b"")
    code, out, _ = run("submit", str(path), "--json")
    answer = json.loads(out)
    assert code == 2
    assert answer["refused"] is True
    assert answer["errors"][0]["code"] == "empty_file"
    assert answer["errors"][0]["fix"]


@pytest.mark.usefixtures("default_workspace", "sandbox")
def test_changed_content_is_refused_by_row_or_becomes_a_new_version(manifest: Path) -> None:
    run("submit", str(manifest))
    settle()
    manifest.write_text(manifest.read_text(encoding="utf-8").replace("Invoice 2", "Invoice two"), encoding="utf-8")
    code, _, err = run("submit", str(manifest))
    assert code == 2
    assert "id_content_conflict, column id, row 1" in err
    code, out, _ = run("submit", str(manifest), "--on-conflict", "new-version", "--json")
    assert code == 0
    assert [item["version"] for item in json.loads(out)["items"]] == [1, 2, 1]


@pytest.mark.usefixtures("default_workspace", "sandbox")
def test_a_version_that_may_bill_twice_needs_a_confirmation(manifest: Path) -> None:
    run("submit", str(manifest))
    settle(JobState.UNKNOWN, failure_class="unknown_outcome")
    manifest.write_text(manifest.read_text(encoding="utf-8").replace("Invoice 2", "Invoice two"), encoding="utf-8")
    again = ("submit", str(manifest), "--on-conflict", "new-version")
    code, _, err = run(*again)
    assert code == 2
    assert "may also be billed" in err
    assert "--confirm" in err
    assert Batch.objects.count() == 1
    assert run(*again, "--confirm")[0] == 0


@pytest.mark.usefixtures("default_workspace", "sandbox")
def test_the_same_creation_key_makes_one_batch(manifest: Path) -> None:
    first = run("submit", str(manifest), "--creation-key", "nightly-2026-03-02")[1].splitlines()[0]
    second = run("submit", str(manifest), "--creation-key", "nightly-2026-03-02")[1].splitlines()[0]
    assert first == second
    assert Batch.objects.count() == 1


@pytest.mark.usefixtures("default_workspace")
def test_waiting_on_a_held_account_says_why(sandbox: ProviderAccount, manifest: Path) -> None:
    run("account", "sandbox", "--hold", "--reason", "New key ordered.")
    code, out, err = run("submit", str(manifest), "--wait", "--timeout", "0.3")
    assert code == 5
    assert "(account sandbox is held: New key ordered.)" in out
    assert "Account sandbox is held: New key ordered." in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--workspace", "nowhere"], "There is no workspace 'nowhere'. Known: default."),
        (["--account", "nobody"], "has no account 'nobody'. Known: sandbox."),
    ],
)
@pytest.mark.usefixtures("default_workspace", "sandbox")
def test_what_is_not_known_is_refused_with_what_is(arguments: list[str], words: str, manifest: Path) -> None:
    code, _, err = run("submit", str(manifest), *arguments)
    assert code == 2
    assert words in err


@pytest.mark.usefixtures("default_workspace", "sandbox")
def test_submit_takes_a_weight_and_rules_to_stop_by(manifest: Path) -> None:
    code, _, err = run(
        "submit", str(manifest), "--weight", "3", "--stop-after-failures", "5", "--stop-after-percent", "10"
    )
    assert (code, err) == (0, "")
    batch = Batch.objects.get()
    assert (batch.weight, batch.stop_after_failures, batch.stop_after_percent) == (3, 5, 10)


@pytest.mark.usefixtures("default_workspace", "sandbox")
def test_without_them_a_batch_counts_as_one_and_never_stops_by_itself(manifest: Path) -> None:
    run("submit", str(manifest))
    batch = Batch.objects.get()
    assert (batch.weight, batch.stop_after_failures, batch.stop_after_percent) == (1, None, None)


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--weight", "0", "weight: Ensure this value is greater than or equal to 1."),
        ("--weight", "101", "weight: Ensure this value is less than or equal to 100."),
        ("--stop-after-failures", "0", "stop_after_failures: Ensure this value is greater than or equal to 1."),
        ("--stop-after-failures", "-3", "stop_after_failures: Ensure this value is greater than or equal to 1."),
        ("--stop-after-percent", "0", "stop_after_percent: Ensure this value is greater than or equal to 1."),
        ("--stop-after-percent", "101", "stop_after_percent: Ensure this value is less than or equal to 100."),
    ],
)
@pytest.mark.usefixtures("default_workspace", "sandbox")
def test_a_weight_or_rule_out_of_range_is_refused_in_words_and_nothing_is_stored(
    option: str, value: str, words: str, manifest: Path
) -> None:
    code, out, err = run("submit", str(manifest), option, value)
    assert (code, out) == (2, "")
    assert words in err
    assert not Batch.objects.exists()


@pytest.mark.parametrize(("option", "value"), [("--weight", "heavy"), ("--stop-after-percent", "2.5")])
def test_a_weight_or_rule_that_is_no_whole_number_is_refused(option: str, value: str, manifest: Path) -> None:
    code, _, err = run("submit", str(manifest), option, value)
    assert code != 0
    assert f"argument {option}: invalid int value: '{value}'" in err


@pytest.mark.usefixtures("default_workspace", "sandbox")
def test_waiting_on_a_paused_batch_says_why(manifest: Path) -> None:
    run("submit", str(manifest), "--creation-key", "once")
    running.pause(Batch.objects.get().pk, reason="The prices are wrong.", by=audit.ENGINE, now=NOW)
    code, _, err = run("submit", str(manifest), "--creation-key", "once", "--wait", "--timeout", "0.6")
    assert code == 5
    assert "The prices are wrong." in err


def test_without_a_workspace_bootstrap_is_named(manifest: Path) -> None:
    code, _, err = run("submit", str(manifest))
    assert code == 2
    assert "manage.py bootstrap" in err


@pytest.mark.usefixtures("default_workspace", "sandbox")
def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    code, _, err = run("submit", str(tmp_path / "none.json"))
    assert code == 2
    assert "There is no file" in err


# --- batch, results, download ---------------------------------------------------------------------------------------


def test_batch_shows_counters_and_every_row(batch: Batch) -> None:
    make_saved_job(batch=batch, business_id="INV-1")
    make_job(batch=batch, state=JobState.FAILED, business_id="发票\x1b[31m-2")
    code, out, _ = run("batch", batch.public_id)
    assert code == 0
    assert "Partly complete: 2 documents: 1 saved, 1 failed" in out
    assert "The page would not render." in out
    assert "\x1b" not in out


def test_batch_with_json_is_the_batch(batch: Batch) -> None:
    make_accepted_job(batch=batch)
    code, out, _ = run("batch", batch.public_id, "--json")
    assert code == 0
    assert json.loads(out)["counts"]["in_progress"] == 1


def test_a_batch_is_paused_resumed_and_cancelled_with_a_record(batch: Batch) -> None:
    make_job(batch=batch)
    code, out, _ = run("batch", batch.public_id, "--pause", "--reason", "wrong prices")
    assert code == 0
    assert out.startswith(f"Paused. Let it go on with: manage.py batch {batch.public_id} --resume\n{batch.public_id}  ")
    assert "Paused: 1 document: 1 held" in out
    assert Batch.objects.get().pause_reason == "wrong prices"
    again = run("batch", batch.public_id, "--pause", "--reason", "other")
    assert (again[0], again[1].splitlines()[0]) == (0, "It was paused or cancelled already; that stays as it is.")
    assert run("batch", batch.public_id, "--resume")[1].startswith("Resumed.\n")
    assert run("batch", batch.public_id, "--resume")[1].startswith("It was not paused.\n")
    code, out, err = run("batch", batch.public_id, "--cancel", "--reason", "wrong prices", "--json")
    assert (code, json.loads(out)["state"]) == (0, "cancelled")
    assert err.startswith("Cancelled: what was not sent is given up")
    assert "It has ended already" in run("batch", batch.public_id, "--cancel", "--reason", "again")[1]
    assert "It has ended already" in run("batch", batch.public_id, "--pause", "--reason", "again")[1]
    assert "It is cancelled for good" in run("batch", batch.public_id, "--resume")[1]
    entries = AuditEntry.objects.order_by("pk")
    assert list(entries.values_list("action", "reason", "from_where")) == [
        ("pause_batch", "wrong prices", "command line"),
        ("resume_batch", "", "command line"),
        ("cancel_batch", "wrong prices", "command line"),
    ]


def test_a_cancelled_batch_that_the_provider_still_works_on_is_not_cancelled_twice(batch: Batch) -> None:
    make_accepted_job(batch=batch)
    make_job(batch=batch)
    assert run("batch", batch.public_id, "--cancel", "--reason", "a")[1].startswith("Cancelled:")
    assert run("batch", batch.public_id, "--cancel", "--reason", "b")[1].startswith("It was cancelled already.")


@pytest.mark.parametrize("arguments", [("--pause",), ("--cancel", "--reason", " "), ("--reason", "why")])
def test_a_pause_or_cancel_without_a_reason_and_a_reason_for_nothing_are_refused(
    arguments: tuple[str, ...], batch: Batch
) -> None:
    make_job(batch=batch)
    code, _, err = run("batch", batch.public_id, *arguments)
    assert code == 2
    assert "--reason" in err
    assert Batch.objects.filter(paused_at=None, cancelled_at=None).exists()


def test_batch_says_why_it_is_paused_and_how_many_have_a_notice(batch: Batch) -> None:
    make_saved_job(batch=batch)
    Artifact.objects.update(notice="small", notice_words="Much smaller than the others.")
    make_job(batch=batch)
    running.pause(batch.pk, reason="5 failed", by=audit.ENGINE, now=NOW)
    lines = run("batch", batch.public_id)[1].splitlines()
    assert lines[1] == "Paused: 2 documents: 1 saved, 1 held"
    assert "It was paused because: 5 failed. When it may go on, resume it with: " in lines[2]
    assert lines[3] == "1 document saved with a notice; `results` has it."


def test_an_unknown_batch_is_refused() -> None:
    code, _, err = run("batch", "bat_nothing")
    assert code == 2
    assert "There is no batch 'bat_nothing'" in err


def test_results_has_one_line_per_row_and_guards_formulas_in_csv_only(batch: Batch) -> None:
    make_saved_job(batch=batch, business_id="=1+1")
    make_job(batch=batch, state=JobState.FAILED, business_id="-5", failure_words="@SUM(A1)")
    _, table, _ = run("results", batch.public_id, "--format", "csv")
    heading, first, second = table.removesuffix("\r\n").split("\r\n")
    assert heading.startswith("\ufeffbatch_id,row,id,version,status,reason_code,reason,attempts,provider,")
    assert first.startswith(f"{batch.public_id},0,'=1+1,1,saved,")
    assert second.startswith(f"{batch.public_id},1,'-5,1,failed,render_failed,'@SUM(A1),0,")
    _, lines, _ = run("results", batch.public_id, "--format", "jsonl")
    assert [json.loads(line)["id"] for line in lines.splitlines()] == ["=1+1", "-5"]


def test_download_writes_what_is_saved_under_a_name_that_says_so(batch: Batch, tmp_path: Path) -> None:
    store_pdf(make_saved_job(batch=batch, business_id="2024/001"), b"%PDF-1.7 one")
    store_pdf(make_saved_job(batch=batch, business_id="2024_001"), b"%PDF-1.7 two")
    make_job(batch=batch, state=JobState.FAILED)
    out_file = tmp_path / "out.zip"
    code, out, _ = run("download", batch.public_id, "--out", str(out_file))
    assert code == 0
    assert "2 of 3 documents (PARTIAL" in out
    with zipfile.ZipFile(out_file) as archive:
        assert archive.testzip() is None
        assert archive.read("documents/2024_001_v1.pdf") == b"%PDF-1.7 one"
        assert archive.read("documents/2024_001_v1-2.pdf") == b"%PDF-1.7 two"
    assert AuditEntry.objects.get(action="download_archive").facts == {"documents": 2, "rows": 3}
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["out.zip"]


def test_download_of_nothing_leaves_no_file(batch: Batch, tmp_path: Path) -> None:
    make_job(batch=batch)
    code, _, err = run("download", batch.public_id, "--out", str(tmp_path / "out.zip"))
    assert code == 1
    assert "nothing to download" in err
    assert not (tmp_path / "out.zip").exists()


def test_a_changed_object_stops_the_download(batch: Batch, tmp_path: Path) -> None:
    job = make_saved_job(batch=batch)
    store_pdf(job, b"%PDF-1.7 one")
    job.version.artifact.sha256 = "0" * 64
    job.version.artifact.save()
    code, _, err = run("download", batch.public_id, "--out", str(tmp_path / "out.zip"))
    assert code == 1
    assert "has changed since it was verified" in err
    assert not (tmp_path / "out.zip").exists()


# --- account --------------------------------------------------------------------------------------------------------


def test_account_holds_and_resumes_with_a_record(sandbox: ProviderAccount) -> None:
    code, out, _ = run("account", "sandbox", "--hold", "--reason", "Key is being changed.")
    assert code == 0
    assert "held since" in out
    assert "Key is being changed." in out
    answer = json.loads(run("account", "sandbox", "--json")[1])
    assert (answer["health"], answer["hold_reason"]) == ("held", "person")
    assert "Resumed." in run("account", "sandbox", "--resume")[1]
    assert "It was not held." in run("account", "sandbox", "--resume")[1]
    assert list(AuditEntry.objects.order_by("pk").values_list("action", "reason")) == [
        ("hold_account", "Key is being changed."),
        ("resume_account", ""),
    ]


def test_a_hold_without_a_reason_is_refused(sandbox: ProviderAccount) -> None:
    assert run("account", "sandbox", "--hold")[0] == 2
    sandbox.refresh_from_db()
    assert sandbox.health == "open"


@pytest.mark.parametrize("choice", ["off", "suggested", "on"])
def test_account_sets_what_is_done_with_the_learned_deadline(choice: str, sandbox: ProviderAccount) -> None:
    code, out, _ = run("account", "sandbox", "--set", f"learned_deadline={choice}", "--json")
    assert (code, json.loads(out)["learned_deadline"]) == (0, choice)


def test_a_choice_about_the_learned_deadline_that_there_is_not_is_told_what_there_is(sandbox: ProviderAccount) -> None:
    code, _, err = run("account", "sandbox", "--set", "learned_deadline=by heart")
    assert code == 2
    for part in ("learned_deadline", "off", "suggested", "on"):
        assert part in err


def test_account_sets_limits(sandbox: ProviderAccount) -> None:
    code, out, _ = run("account", "sandbox", "--set", "max_in_flight=7", "submit_windows=[[20, 60]]", "--json")
    answer = json.loads(out)
    assert code == 0
    assert (answer["max_in_flight"], answer["submit_windows"]) == (7, [[20, 60]])


@pytest.mark.parametrize(
    "pair",
    [
        "max_in_flight=0",
        "max_in_flight=many",
        "submit_interval_ms=-1",
        "base_url=http://other.example.com",
        "price_per_job=NaN",
        "submit_windows=[[0, 1]]",
        "submit_windows=20",
        "api_key=two words",
        "poll_initial_ms=99999999",
        "poll_initial_ms=0",
        "poll_max_ms=0",
        "deadline_seconds=0",
        "download_hosts=https://files.example.com/x",
        "learned_deadline=by heart",
        "learned_deadline=",
        "health=open",
        "max_in_flight",
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_and_nothing_is_saved(pair: str, sandbox: ProviderAccount) -> None:
    before = ProviderAccount.objects.values().get()
    assert run("account", "sandbox", "--set", "deadline_seconds=60", pair)[0] == 2
    assert ProviderAccount.objects.values().get() == before


def test_a_secret_is_set_and_never_shown(sandbox: ProviderAccount) -> None:
    _, out, _ = run("account", "sandbox", "--set", "api_key=pdf_live_new")
    sandbox.refresh_from_db()
    assert sandbox.api_key == "pdf_live_new"
    assert "pdf_live_new" not in out + run("account", "sandbox", "--json")[1]
    assert "pdf_live_new" not in json.dumps(AuditEntry.objects.get().facts)


def test_a_secret_that_no_key_opens_is_replaced(sandbox: ProviderAccount, settings: Any) -> None:
    settings.FIELD_KEYS = [Fernet.generate_key().decode()]
    code, out, _ = run("account", "sandbox", "--json")
    assert (code, json.loads(out)["has_api_key"]) == (0, True)
    assert run("account", "sandbox", "--set", "api_key=pdf_live_new", "webhook_secret=whsec_new")[0] == 0
    assert ProviderAccount.objects.only("api_key").get().api_key == "pdf_live_new"


# --- api_token ------------------------------------------------------------------------------------------------------


def test_api_token_prints_the_secret_once_and_stores_a_digest(default_workspace: Any) -> None:
    user = User.objects.create_user("m.okoye")
    Membership.objects.create(workspace=default_workspace, user=user, role="viewer")
    code, out, _ = run("api_token", "m.okoye", "--name", "nightly export", "--days", "30")
    secret = out.strip()
    token = ApiToken.objects.get()
    assert code == 0
    assert secret.startswith(token.prefix)
    assert secret not in json.dumps(ApiToken.objects.values().get(), default=str)
    proven = tokens.proven(secret, now=token.created_at)
    assert proven == token


@pytest.mark.usefixtures("default_workspace")
def test_a_token_is_made_only_for_a_member() -> None:
    User.objects.create_user("s.lindqvist")
    code, _, err = run("api_token", "s.lindqvist", "--name", "x")
    assert code == 2
    assert "is not a member" in err
    assert run("api_token", "nobody", "--name", "x")[0] == 2


# --- without a database ---------------------------------------------------------------------------------------------

COMMANDS = [
    ("submit", "x.json"),
    ("batch", "bat_1"),
    ("results", "bat_1"),
    ("download", "bat_1", "--out", "x.zip"),
    ("account", "sandbox"),
    ("api_token", "m.okoye", "--name", "x"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_an_unmigrated_database_is_one_sentence(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "django.db.migrations.executor.MigrationExecutor.migration_plan", lambda *_: ["batches.0001_initial"]
    )
    assert run(*command) == (2, "", "This database is not ready; run `manage.py bootstrap` first.")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_an_absent_database_is_one_sentence(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(connection: Any) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr("batches.management.readiness.MigrationExecutor", refuse)
    code, out, err = run(*command)
    assert (code, out) == (2, "")
    assert err == "The database does not answer; look at DATABASE_URL. It said: connection refused"


# --- what a newcomer typed --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("default_workspace", "sandbox")
def test_a_second_run_says_what_failed_before(manifest: Path) -> None:
    run("submit", str(manifest))
    for job in Job.objects.all():
        make_submission(job=job)
    settle(JobState.FAILED, failure_class="render_failed")
    code, out, _ = run("submit", str(manifest))
    assert code == 0
    assert "3 failed before: nothing is sent for them" in out.splitlines()
    assert Batch.objects.latest("pk").name == "invoices"


@pytest.mark.parametrize("wrong", ["abc", "-5", "nan", "inf", "99999999"])
@pytest.mark.usefixtures("default_workspace", "sandbox")
def test_a_timeout_that_is_no_length_of_time_gets_a_sentence(wrong: str, manifest: Path) -> None:
    with pytest.raises(CommandError, match="is no length of time; give seconds from 0 to"):
        call_command("submit", str(manifest), "--wait", f"--timeout={wrong}")
    assert not Batch.objects.exists()


@pytest.mark.usefixtures("default_workspace", "sandbox")
def test_a_timeout_without_a_wait_is_refused(manifest: Path) -> None:
    code, _, err = run("submit", str(manifest), "--timeout", "5")
    assert code == 2
    assert "give --wait as well" in err
    assert not Batch.objects.exists()


@pytest.mark.parametrize("wrong", ["0", "-1", "x", "3651", "²"])
def test_days_that_make_no_sense_get_a_sentence(wrong: str) -> None:
    with pytest.raises(CommandError, match="is no number of days; give 1 to 3650"):
        call_command("api_token", "m.okoye", "--name", "x", f"--days={wrong}")


def test_a_setting_without_a_value_is_told_how(sandbox: ProviderAccount) -> None:
    code, _, err = run("account", "sandbox", "--set", "max_in_flight")
    assert code == 2
    assert "max_in_flight has no value; write max_in_flight=VALUE, with a whole number." in err


def test_what_does_nothing_yet_cannot_be_set(sandbox: ProviderAccount) -> None:
    code, _, err = run("account", "sandbox", "--set", "delete_remote_after_save=yes")
    assert code == 2
    assert "cannot be set" in err
    assert "delete_remote_after_save" not in json.loads(run("account", "sandbox", "--json")[1])


def test_a_download_to_no_folder_or_onto_one_is_refused(batch: Batch, tmp_path: Path) -> None:
    store_pdf(make_saved_job(batch=batch), b"%PDF-1.7 one")
    code, _, err = run("download", batch.public_id, "--out", str(tmp_path / "none" / "x.zip"))
    assert code == 2
    assert "There is no folder" in err
    code, _, err = run("download", batch.public_id, "--out", str(tmp_path))
    assert code == 2
    assert "is a folder" in err


def test_batch_says_held_for_what_waits_on_a_held_account(batch: Batch) -> None:
    make_job(batch=batch, business_id="INV-1")
    make_accepted_job(batch=batch, business_id="INV-2")
    ProviderAccount.objects.update(health="held", hold_reason="person", held_at=NOW, hold_words="month end")
    lines = run("batch", batch.public_id)[1].splitlines()
    assert lines[2].startswith("Nothing new is sent while ")
    assert lines[2].endswith(" is held; nothing is lost. Rendering: 1 at the provider. 1 held.")
    assert lines[3].endswith(" is held: month end. Resume the account when it may go on.")
    table = lines[lines.index("") + 1 :]
    assert table[0].startswith("row (from 0)  id")
    assert [line.split()[3] for line in table[1:]] == ["Held", "Rendering"]


@pytest.mark.usefixtures("default_workspace", "sandbox")
def test_an_empty_folder_and_a_spreadsheet_are_told_what_to_do(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    code, _, err = run("submit", str(empty))
    assert code == 2
    assert "is empty." in err
    assert "Put a manifest.json (or manifest.jsonl) into it" in err
    book = tmp_path / "Invoices.XLSX"
    with zipfile.ZipFile(book, "w") as archive:
        archive.writestr("xl/workbook.xml", "<x/>")
    code, out, _ = run("submit", str(book), "--json")
    answer = json.loads(out)
    assert (code, answer["errors"][0]["code"]) == (2, "wrong_file_type")
    assert "save it as .json" in answer["errors"][0]["fix"]


def test_a_store_that_is_not_there_refuses_a_submit_in_words_and_leaves_nothing(
    manifest: Path, artifact_folder: Path, default_workspace: Any, sandbox: ProviderAccount
) -> None:
    shutil.rmtree(artifact_folder)
    code, _out, err = run("submit", str(manifest))
    assert code == 2
    assert "The store cannot be used" in err
    assert "Is its volume mounted?" in err
    assert not Batch.objects.exists()
