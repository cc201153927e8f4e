"""`regenerate`: versions of a batch's documents or of named ones, other content from a file, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from batches.engine.versions import finalise
from batches.management import auditing
from batches.models import (
    AuditEntry,
    Batch,
    BatchItem,
    BulkAction,
    Document,
    DocumentVersion,
    FailureClass,
    Job,
    JobState,
)
from tests.commands.shell import run
from tests.factories import NOW, make_account, make_batch, make_job, make_saved_job, make_submission

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def batch(default_workspace: Any) -> Batch:
    """One saved, one refused for its content, one that waits."""
    batch = make_batch(workspace=default_workspace)
    make_saved_job(batch=batch, business_id="INV-1")
    make_job(batch=batch, business_id="INV-2", state=JobState.FAILED, failure_class=FailureClass.INVALID_INPUT)
    make_job(batch=batch, business_id="INV-3")
    return batch


def numbers() -> dict[str, int]:
    return dict(Document.objects.values_list("business_id", "current_version__number"))


def test_a_dry_run_prices_it_and_makes_nothing(batch: Batch) -> None:
    code, out, _ = run("regenerate", "--batch", batch.public_id, "--dry-run", "--json")
    report = json.loads(out)
    assert (code, report["eligible"], report["skipped"], report["price"]) == (0, 2, 1, "bills 2")
    assert (set(numbers().values()), AuditEntry.objects.count()) == ({1}, 0)


def test_the_documents_of_a_batch_get_another_version_where_the_table_allows_it(batch: Batch) -> None:
    code, out, _ = run("regenerate", "--batch", batch.public_id, "--reason", "new letterhead")
    assert (code, out.splitlines()[0]) == (0, "Regenerate is done for 2 documents: bills 2.")
    assert numbers() == {"INV-1": 2, "INV-2": 2, "INV-3": 1}
    entries = AuditEntry.objects.values_list("action", "reason", "from_where")
    assert list(entries) == [("regenerate", "new letterhead", "command line")] * 2


def test_a_state_keeps_what_is_saved_from_being_billed_again(batch: Batch) -> None:
    code, out, _ = run("regenerate", "--batch", batch.public_id, "--dry-run")
    assert (code, out.splitlines()[1]) == (0, "Of these are 1 saved, 1 failed.")
    code, out, _ = run("regenerate", "--batch", batch.public_id, "--state", "failed", "--reason", "x", "--json")
    assert (code, json.loads(out)["states"], json.loads(out)["price"]) == (0, {"failed": 1}, "bills 1")
    assert numbers() == {"INV-1": 1, "INV-2": 2, "INV-3": 1}
    assert BulkAction.objects.get().filter == {"state": "failed"}, "its page says which were meant"


def test_a_state_is_a_counter_of_a_batch(batch: Batch) -> None:
    code, _, err = run("regenerate", "--document", "INV-1", "--state", "failed", "--reason", "x")
    assert (code, "--state goes with --batch" in err) == (2, True)


def test_other_content_comes_from_a_file_with_the_options_of_the_version_before(batch: Batch, tmp_path: Path) -> None:
    DocumentVersion.objects.filter(document__business_id="INV-3").update(options={"format": "A4"})
    file = tmp_path / "corrected.html"
    file.write_bytes("<meta charset=windows-1252><h1>Größe</h1>".encode("windows-1252"))
    code, out, err = run(
        "regenerate", "--document", "INV-3", "--html", str(file), "--reason", "corrected", "--confirm", "--json"
    )
    assert (code, json.loads(out)["done"]) == (0, 1), err
    version = DocumentVersion.objects.get(document__business_id="INV-3", number=2)
    assert ("Größe" in bytes(version.input_inline or b"").decode(), version.options) == (True, {"format": "A4"})
    assert Job.objects.get(version__document__business_id="INV-3", version__number=1).state == "cancelled"


def test_what_asks_for_confirmation_is_skipped_without_it(batch: Batch) -> None:
    make_submission(job=make_job(batch=batch, state=JobState.SUBMITTING, business_id="INV-4"))
    code, out, _ = run("regenerate", "--document", "INV-4", "--reason", "x", "--json")
    assert (code, json.loads(out)["reasons"][0]["words"]) == (
        2,
        "Version 1 may also bill. Go on with --confirm.",
    )
    assert run("regenerate", "--document", "INV-4", "--reason", "x", "--confirm")[0] == 0


def test_a_document_that_is_marked_final_is_refused(batch: Batch) -> None:
    document = Document.objects.get(business_id="INV-1")
    finalise(document.pk, is_final=True, by=auditing.by(), now=NOW)
    code, out, _ = run("regenerate", "--document", "INV-1", "--reason", "x", "--json")
    assert (code, "marked final" in json.loads(out)["reasons"][0]["words"]) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--document", "INV-1", "INV-2"], "--html takes one document"),
        (["--document", "INV-1"], "cannot be read"),
    ],
)
def test_content_that_cannot_be_meant_or_read_is_refused(batch: Batch, arguments: list[str], words: str) -> None:
    code, _, err = run("regenerate", *arguments, "--html", "/nowhere/x.html", "--reason", "x")
    assert (code, words in err, set(numbers().values())) == (2, True, {1})


def test_an_empty_file_is_refused_with_what_is_wrong(batch: Batch, tmp_path: Path) -> None:
    (tmp_path / "empty.html").write_bytes(b"")
    code, _, err = run("regenerate", "--document", "INV-1", "--html", str(tmp_path / "empty.html"), "--reason", "x")
    assert (code, bool(err), BatchItem.objects.filter(version__number=2).exists()) == (2, True, False)


def test_another_account_is_compared_first_and_then_rendered_at(batch: Batch) -> None:
    make_account(slug="other", name="DocRaptor / main", kind="docraptor", processing_region="Virginia")
    asked = ("regenerate", "--batch", batch.public_id, "--state", "in_progress", "--account", "other")
    assert numbers()["INV-3"] == 1
    code, out, _ = run(*asked, "--dry-run")
    assert (code, out.splitlines()[0]) == (0, "Regenerate would be done for 1 document: bills 1.")
    assert "There: DocRaptor / main" in out
    assert f"Now: {batch.account.name}" in out
    assert "    A lost answer: unknown: looked up, then a person" in out
    report = json.loads(run(*asked, "--dry-run", "--json")[1])
    assert [each["account"] for each in report["accounts"]] == ["other", batch.account.slug]
    assert report["accounts"][0]["in_short"].startswith("bills 1 at DocRaptor")
    assert run(*asked, "--reason", "it is held")[0] == 0
    assert Job.objects.get(version__number=2).account.slug == "other"
    action = BulkAction.objects.get()
    assert (action.options, action.reason) == ({"account": "other"}, "it is held")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"slug": "elsewhere"}, "has no account 'other'"),
        ({"kind": "gotenberg"}, "The account other cannot be used as it is set."),
    ],
)
def test_an_account_that_cannot_be_used_is_refused(fields: dict[str, Any], words: str, batch: Batch) -> None:
    make_account(**{"slug": "other"} | fields)
    code, _, err = run("regenerate", "--batch", batch.public_id, "--account", "other", "--reason", "held")
    assert (code, words in err) == (2, True)
    assert set(numbers().values()) == {1}
