"""`batch`, `results`, `download`: what they print, and their exit codes (docs/architecture.md, "Stable interfaces")."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from batches.engine import audit, running
from batches.models import Artifact, AuditEntry, Batch, JobState, ProviderAccount, Workspace
from batches.wording import resume_command
from tests.commands.shell import run
from tests.factories import NOW, make_accepted_job, make_job, make_saved_job, make_submission
from tests.web.stored import store_pdf

pytestmark = pytest.mark.django_db


def test_batch_shows_counters_and_every_row(batch: Batch) -> None:
    make_saved_job(batch=batch, business_id="INV-1")
    make_job(batch=batch, state=JobState.FAILED, business_id="发票\x1b[31m-2")
    code, out, _ = run("batch", batch.public_id)
    assert code == 0
    assert "Partly complete: 2 documents: 1 saved, 1 failed" in out
    assert "The page would not render." in out
    assert "\x1b" not in out


@pytest.mark.parametrize("change", ["--pause", "--resume", "--cancel"])
def test_a_batch_of_an_archived_workspace_is_shown_and_not_changed(change: str, batch: Batch) -> None:
    make_job(batch=batch)
    Workspace.objects.update(archived_at=NOW)
    assert run("batch", batch.public_id)[0] == 0
    code, _, err = run("batch", batch.public_id, change, "--reason", "x")
    assert (code, "is archived: nothing of it is changed" in err) == (2, True)
    batch.refresh_from_db()
    assert (batch.paused_at, batch.cancelled_at, AuditEntry.objects.count()) == (None, None, 0)


def test_batch_with_json_is_the_batch(batch: Batch) -> None:
    make_accepted_job(batch=batch)
    code, out, _ = run("batch", batch.public_id, "--json")
    assert code == 0
    assert json.loads(out)["counts"]["in_progress"] == 1


def test_a_batch_is_paused_resumed_and_cancelled_with_a_record(batch: Batch) -> None:
    make_job(batch=batch)
    code, out, _ = run("batch", batch.public_id, "--pause", "--reason", "wrong prices")
    assert code == 0
    first, second, *_ = out.splitlines()
    assert first.startswith(
        "Paused: nothing new of it is sent. What the provider has is still saved, and what may have "
    )
    assert first.endswith(f"left is settled under its own key. Let it go on with: {resume_command(batch.public_id)}")
    assert second.startswith(f"{batch.public_id}  ")
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
    code, _, err = run("batch", batch.public_id, "--resume")
    assert (code, "It is cancelled for good; nothing was resumed." in err) == (2, True)
    entries = AuditEntry.objects.order_by("pk")
    assert list(entries.values_list("action", "reason", "from_where")) == [
        ("pause_batch", "wrong prices", "command line"),
        ("resume_batch", "", "command line"),
        ("cancel_batch", "wrong prices", "command line"),
    ]


def test_a_cancelled_batch_that_the_provider_still_works_on_is_not_cancelled_twice(batch: Batch) -> None:
    make_accepted_job(batch=batch)
    make_job(batch=batch)
    _, out, _ = run("batch", batch.public_id, "--cancel", "--reason", "wrong prices")
    assert out.startswith("Cancelled:")
    assert "Running, cancelled: 2 documents: 1 in progress, 1 cancelled" in out
    assert "Cancelled because: wrong prices; 1 is still at the provider and will be saved." in out
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


def test_batch_says_why_it_is_paused_and_which_have_a_notice(batch: Batch) -> None:
    make_saved_job(batch=batch, business_id="INV-1")
    Artifact.objects.update(notice="small", notice_words="Much smaller than the others.")
    make_job(batch=batch)
    running.pause(batch.pk, reason="5 failed", by=audit.ENGINE, now=NOW)
    lines = run("batch", batch.public_id)[1].splitlines()
    assert lines[1] == "Paused: 2 documents: 1 saved, 1 held"
    assert "It was paused because: 5 failed. When it may go on, resume it on its page." in lines[2]
    assert lines[3].startswith("Let it go on with: ")
    assert lines[3].endswith(f"batch {batch.public_id} --resume")
    assert lines[4] == "Worth a look: INV-1: Much smaller than the others."


def test_a_pause_is_told_while_the_provider_still_works_on_something(batch: Batch) -> None:
    make_accepted_job(batch=batch)
    make_job(batch=batch)
    running.pause(batch.pk, reason="month end", by=audit.ENGINE, now=NOW)
    lines = run("batch", batch.public_id)[1].splitlines()
    assert lines[1] == "Running, paused: 2 documents: 1 in progress, 1 held"
    assert lines[2].startswith("Paused because: month end; 1 still at the provider. 1 held. When it may go on, ")


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
    assert table[0].startswith("row  id")
    assert [line.split()[3] for line in table[1:]] == ["Held", "Rendering"]


def test_a_batch_at_its_spend_cap_goes_on_once_that_is_raised(batch: Batch) -> None:
    ProviderAccount.objects.update(price_per_job="0.10", price_currency="USD")
    make_submission(job=make_job(batch=batch), batch=batch)
    make_job(batch=batch)
    Batch.objects.update(spend_cap="0.15", paused_at=NOW)
    code, _, err = run("batch", batch.public_id, "--resume")
    assert (code, "it may have cost 0.20 USD, and its spend cap is 0.15 USD. Raise the cap" in err) == (2, True)
    assert run("batch", batch.public_id, "--spend-cap", "1")[0] == 2
    assert run("batch", batch.public_id, "--resume", "--spend-cap", "1")[1].startswith("Resumed.\n")
    assert Batch.objects.get().spend_cap == 1


@pytest.mark.parametrize("amount", ["-1", "NaN", "inf", "1e12", "0.00001", "five"])
def test_what_is_no_amount_is_refused(batch: Batch, amount: str) -> None:
    code, _, err = run("batch", batch.public_id, "--resume", f"--spend-cap={amount}")
    assert (code, "is no amount" in err) == (1, True)
