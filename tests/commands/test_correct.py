"""`correct`: the list of failed rows comes back from the command line, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from batches import results, storage
from batches.engine import drafts
from batches.engine.errors import IntakeRefused
from batches.models import (
    AuditEntry,
    Batch,
    Draft,
    DraftState,
    FailureClass,
    Job,
    JobState,
    ProviderAccount,
    TemplateVersion,
)
from tests.commands.shell import run
from tests.factories import make_template_version

pytestmark = pytest.mark.django_db(transaction=True)

CSV = "Invoice no,html\n0041,<p>one</p>\n0042,<p>two</p>\n0043,<p>three</p>\n"
MAP = ("--map", "Invoice no=id")


@pytest.fixture
def batch(default_workspace: Any, sandbox: ProviderAccount, tmp_path: Path) -> Batch:
    """Two failed, one saved."""
    path = tmp_path / "invoices.csv"
    path.write_text(CSV, encoding="utf-8")
    assert run("submit", str(path), *MAP)[0] == 0
    batch = Batch.objects.get()
    failure = {"failure_class": FailureClass.RENDER_FAILED, "failure_words": "It would not render."}
    Job.objects.exclude(version__document__business_id="0043").update(state=JobState.FAILED, **failure)
    Job.objects.filter(version__document__business_id="0043").update(state=JobState.SAVED)
    return batch


@pytest.fixture
def corrected(batch: Batch, tmp_path: Path) -> Path:
    """Its list of failed rows, with one of them corrected."""
    path = tmp_path / "failed.csv"
    content = "".join(results.failed_lines(batch)).encode()
    path.write_bytes(content.replace(b"(document, 10 characters)", b"<p>one, corrected</p>", 1))
    return path


def versions_of(batch: Batch) -> dict[str, int]:
    return dict(batch.items.values_list("document__business_id", "version__number"))


def test_a_dry_run_says_what_would_be_replaced_and_replaces_nothing(batch: Batch, corrected: Path) -> None:
    code, out, err = run("correct", batch.public_id, str(corrected), *MAP, "--dry-run")
    assert code == 0, out + err
    assert out.splitlines() == [
        f"1 document of {batch.public_id} would be rendered: bills 1 at most.",
        "1 corrected: rendered as the next version",
        "1 unchanged: what failed before, nothing is sent",
    ]
    assert (set(versions_of(batch).values()), Draft.objects.exists()) == ({1}, False)


def test_the_failed_row_that_was_corrected_is_replaced_and_no_other(batch: Batch, corrected: Path) -> None:
    code, out, err = run("correct", batch.public_id, str(corrected), *MAP, "--reason", "Prices corrected.", "--json")
    assert code == 0, out + err
    report = json.loads(out)
    assert (report["batch"], report["done"], report["renders"]) == (batch.public_id, True, 1)
    assert {name: report["summary"][name] for name in ("corrected", "unchanged", "refused")} == {
        "corrected": 1,
        "unchanged": 1,
        "refused": 0,
    }
    assert versions_of(batch) == {"0041": 2, "0042": 1, "0043": 1}
    entry = AuditEntry.objects.get(action="replace_rows")
    assert (entry.reason, entry.from_where) == ("Prices corrected.", "command line")
    again, _, words = run("correct", batch.public_id, str(corrected), *MAP, "--reason", "Prices corrected.")
    assert (again, "nothing to replace" in words) == (2, True), "it is on its way, so it is left alone"


def test_the_mapping_of_a_batch_from_the_command_line_is_known_when_its_failed_rows_come_back(
    batch: Batch, corrected: Path
) -> None:
    code, out, err = run("correct", batch.public_id, str(corrected), "--reason", "Prices corrected.")
    assert code == 0, out + err
    assert f"1 document of {batch.public_id} is rendered: bills 1 at most." in out
    assert versions_of(batch) == {"0041": 2, "0042": 1, "0043": 1}


def test_the_file_is_kept_byte_for_byte_with_its_digest(batch: Batch, corrected: Path) -> None:
    run("correct", batch.public_id, str(corrected), *MAP, "--reason", "Prices corrected.")
    draft = Draft.objects.get()
    assert (draft.state, draft.target, draft.created_by, draft.filename) == (
        DraftState.STARTED,
        batch,
        None,
        "failed.csv",
    )
    store = storage.open_store(settings.STORAGE_URL)
    with store.open(draft.upload_key) as stream:
        assert stream.read() == corrected.read_bytes()
    drafts.sweep(store, now=draft.touched_at)
    with store.open(draft.upload_key) as stream:
        assert stream.read(), "it is evidence"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("Invoice no,html\n0041,<p>new</p>\n0099,<p>whose?</p>\n", "Nothing of it is replaced while a row is refused"),
        ("Invoice no,html\n0043,<p>new</p>\n", "There is nothing to replace"),
        ("Invoice no,html\n0041,\n0042,gone.html\n", "The file was refused; see above"),
        ("", "The file was refused; see above"),
    ],
)
def test_what_cannot_be_replaced_is_refused_whole_and_keeps_nothing(
    content: str, words: str, batch: Batch, tmp_path: Path
) -> None:
    path = tmp_path / "other.csv"
    path.write_text(content, encoding="utf-8")
    code, out, err = run("correct", batch.public_id, str(path), *MAP, "--reason", "why")
    assert (code, words in err) == (2, True), out + err
    assert (set(versions_of(batch).values()), Draft.objects.exists()) == ({1}, False)


def test_without_a_reason_nothing_is_read(batch: Batch) -> None:
    code, _, err = run("correct", batch.public_id, "nowhere.csv")
    assert (code, "asks for a reason" in err) == (2, True)


def test_what_changed_at_the_last_moment_is_refused_and_its_file_is_forgotten(
    batch: Batch, corrected: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_given: Any, **_named: Any) -> None:
        raise IntakeRefused("Since the check, more of its rows failed.")

    monkeypatch.setattr("batches.engine.replacing.replace_rows", refused)
    code, _, err = run("correct", batch.public_id, str(corrected), *MAP, "--reason", "why")
    assert (code, "Since the check" in err) == (2, True)
    assert Draft.objects.get().state == DraftState.SWEPT


def test_rows_that_name_a_template_are_filled_again(
    default_workspace: Any, sandbox: ProviderAccount, tmp_path: Path
) -> None:
    make_template_version(workspace=default_workspace, source="<p>{{ name }}</p>", slug="letter")
    path = tmp_path / "letters.json"
    path.write_text(json.dumps([{"id": "A-1", "template": "letter", "name": "Ada"}]), encoding="utf-8")
    run("submit", str(path))
    batch = Batch.objects.get()
    Job.objects.update(state=JobState.FAILED, failure_class=FailureClass.RENDER_FAILED)
    path.write_text(json.dumps([{"id": "A-1", "template": "letter", "name": "Ada L."}]), encoding="utf-8")
    code, out, err = run("correct", batch.public_id, str(path), "--reason", "name")
    assert code == 0, out + err
    version = batch.items.get().version
    assert (version.number, version.template_data["name"]) == (2, "Ada L.")
    assert version.template_version == TemplateVersion.objects.get()
