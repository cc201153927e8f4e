"""`submit`: what it prints, and its exit codes (docs/architecture.md, "Stable interfaces")."""

from __future__ import annotations

import json
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError

from batches.engine import audit, running
from batches.models import (
    AuditEntry,
    Batch,
    Job,
    JobState,
    Membership,
    ProviderAccount,
)
from tests.commands.shell import run
from tests.factories import NOW, make_submission

pytestmark = pytest.mark.django_db


def settle(state: str = JobState.SAVED, **fields: Any) -> None:
    """Move every waiting job to a state, as a worker would have."""
    Job.objects.filter(state=JobState.PENDING).update(state=state, **fields)


@pytest.mark.usefixtures("default_workspace", "sandbox")
def test_submit_prints_the_batch_id_and_stores_the_batch(manifest: Path) -> None:
    code, out, _ = run("submit", str(manifest), "--name", "September")
    batch = Batch.objects.get()
    assert code == 0
    assert out.splitlines() == [batch.public_id, "3 documents to go"]
    assert batch.name == "September"
    assert AuditEntry.objects.get(action="start_batch").from_where == "command line"


@pytest.mark.usefixtures("sandbox")
def test_submit_tells_those_who_are_named_and_refuses_whoever_may_not_see_it(
    manifest: Path, default_workspace: Any
) -> None:
    nadia = User.objects.create_user("nadia", email="nadia@example.com")
    code, _, err = run("submit", str(manifest), "--notify", "nadia")
    assert (code, "'nadia'" in err, Batch.objects.exists()) == (2, True, False)
    Membership.objects.create(workspace=default_workspace, user=nadia, role="viewer")
    code, _, _ = run("submit", str(manifest), "--notify", "nadia")
    batch = Batch.objects.get()
    assert (code, batch.notify, batch.notice_watch.due_at is None) == (0, {"users": [nadia.pk]}, False)


@pytest.mark.usefixtures("default_workspace", "sandbox")
def test_submit_with_json_prints_exactly_one_document(manifest: Path) -> None:
    code, out, _ = run("submit", str(manifest), "--json")
    answer = json.loads(out)
    assert code == 0
    assert answer["id"] == Batch.objects.get().public_id
    assert answer["state"] == "running"
    assert [item["business_id"] for item in answer["items"]] == ["INV-1", "INV-2", "INV-3"]


@pytest.mark.usefixtures("default_workspace")
def test_a_dry_run_says_what_starting_would_do_take_and_cost_and_starts_nothing(
    manifest: Path, sandbox: ProviderAccount
) -> None:
    sandbox.price_per_job, sandbox.price_currency = Decimal("0.01"), "USD"
    sandbox.save()
    code, out, _ = run("submit", str(manifest), "--dry-run")
    assert (code, Batch.objects.count()) == (0, 0)
    assert out.splitlines()[:2] == ["Nothing was started. Starting it:", "    3 new"]
    assert "Sends 3 documents" in out
    assert "costs about 0.0300 USD" in out
    code, out, _ = run("submit", str(manifest), "--dry-run", "--json")
    answer = json.loads(out)
    assert (code, answer["ok"], answer["renders"], answer["summary"]["new"]) == (0, True, 3, 3)
    assert {name: answer["estimate"][name] for name in ("renders", "cost", "currency")} == {
        "renders": 3,
        "cost": "0.03",
        "currency": "USD",
    }
    code, _, err = run("submit", str(manifest), "--dry-run", "--spend-cap", "0.02")
    assert (code, "spend cap is 0.0200 USD" in err) == (2, True)
    assert not Batch.objects.exists()


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
    assert "error missing_id, column id, row 2" in err
    assert "missing_file" in err
    assert "rows 1, 3" in err
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
    assert "id_content_conflict, column id, row 2" in err
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


@pytest.mark.usefixtures("default_workspace", "sandbox")
def test_an_empty_folder_is_told_what_to_do(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    code, _, err = run("submit", str(empty))
    assert code == 2
    assert "is empty." in err
    assert "Put a manifest (manifest.json, manifest.csv or manifest.xlsx) into it" in err


def test_a_store_that_is_not_there_refuses_a_submit_in_words_and_leaves_nothing(
    manifest: Path, artifact_folder: Path, default_workspace: Any, sandbox: ProviderAccount
) -> None:
    shutil.rmtree(artifact_folder)
    code, _out, err = run("submit", str(manifest))
    assert code == 2
    assert "The store cannot be used" in err
    assert "Is its volume mounted?" in err
    assert not Batch.objects.exists()


@pytest.mark.usefixtures("default_workspace", "sandbox")
def test_a_sample_is_rendered_first_and_the_batch_is_released_by_its_command(manifest: Path) -> None:
    code, out, _ = run("submit", str(manifest), "--sample", "1")
    batch, sample = Batch.objects.get(sample_of=None), Batch.objects.exclude(sample_of=None).get()
    assert code == 0
    assert out.splitlines()[2].startswith(f"1 document of them rendered first, as batch {sample.public_id}; release")
    assert run("batch", batch.public_id, "--resume")[1].startswith("Released: the rest of it is sent.\n")
    assert run("submit", str(manifest), "--sample", "21")[0] == 2


@pytest.mark.usefixtures("default_workspace", "sandbox")
def test_a_sample_that_is_not_needed_is_said(manifest: Path) -> None:
    out = run("submit", str(manifest), "--sample", "3")[1]
    assert "it sends only 3 documents, no more than the sample would be; it started at once." in out


@pytest.mark.usefixtures("default_workspace", "sandbox")
def test_more_than_the_spend_cap_is_refused_with_both_figures(manifest: Path) -> None:
    ProviderAccount.objects.update(price_per_job="0.10", price_currency="USD")
    code, _, err = run("submit", str(manifest), "--spend-cap", "0.29")
    assert (code, "cost 0.30 USD, and the spend cap is 0.29 USD" in err) == (2, True)
    assert run("submit", str(manifest), "--spend-cap", "0.30")[0] == 0
    assert Batch.objects.get().spend_cap is not None
