"""The commands of the verbs: what they choose, plan, do and print, and their exit codes."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from batches import failures
from batches.models import AuditEntry, Batch, BatchItem, BulkAction, FailureClass, Job, JobState, Workspace
from tests.commands.shell import run
from tests.factories import make_batch, make_job, make_saved_job, make_submission

pytestmark = pytest.mark.django_db


@pytest.fixture
def batch(default_workspace: Any) -> Batch:
    """Two that can be sent once more, one that cannot, one that is saved."""
    batch = make_batch(workspace=default_workspace)
    for name in ("INV-1", "INV-2"):
        make_job(batch=batch, business_id=name, state=JobState.FAILED, failure_class=FailureClass.INTERNAL)
    make_job(batch=batch, business_id="INV-3", state=JobState.FAILED, failure_class=FailureClass.INVALID_INPUT)
    make_saved_job(batch=batch, business_id="INV-4")
    return batch


def states() -> dict[str, str]:
    return dict(Job.objects.values_list("version__document__business_id", "state"))


def test_a_dry_run_says_what_is_eligible_what_is_not_and_what_it_may_bill_and_changes_nothing(batch: Batch) -> None:
    before = states()
    code, out, _ = run("retry", "--batch", batch.public_id, "--dry-run", "--json")
    report = json.loads(out)
    assert code == 0
    assert (report["eligible"], report["skipped"], report["done"], report["failed"]) == (2, 2, 0, 0)
    assert (report["renders_most"], report["price"]) == (2, "bills 0 to 2")
    assert {reason["words"]: reason["count"] for reason in report["reasons"]} == {
        "The provider refuses this content as it is. Correct it, and regenerate.": 1,
        "It is saved.": 1,
    }
    assert [item["result"] for item in report["items"]] == ["eligible", "eligible", "skipped", "skipped"]
    assert (states(), AuditEntry.objects.count()) == (before, 0)


def test_a_batch_is_retried_with_a_record_of_each_and_again_there_is_nothing_to_do(batch: Batch) -> None:
    code, out, _ = run("retry", "--batch", batch.public_id, "--reason", "fixed")
    assert code == 0
    assert out.splitlines()[0] == "Retry is done for 2 documents: bills 0 to 2."
    assert out.splitlines()[1] == "Skipped: 2 documents."
    assert states() == {"INV-1": "pending", "INV-2": "pending", "INV-3": "failed", "INV-4": "saved"}
    assert (
        list(AuditEntry.objects.values_list("action", "reason", "from_where"))
        == [("retry", "fixed", "command line")] * 2
    )
    code, _, err = run("retry", "--batch", batch.public_id, "--reason", "fixed")
    assert (code, "no document is eligible" in err) == (2, True)


def test_what_was_done_to_a_batch_stands_with_its_causes_and_its_bulk_actions(batch: Batch) -> None:
    assert run("retry", "--batch", batch.public_id, "--dry-run")[0] == 0
    assert not BulkAction.objects.exists()
    causes = dict(BatchItem.objects.values_list("document__business_id", "version__job__failure_cause"))
    assert run("retry", "--batch", batch.public_id, "--reason", "fixed")[0] == 0
    action = BulkAction.objects.get()
    assert (action.verb, action.reason, action.from_where, action.filter) == (
        "retry",
        "fixed",
        "command line",
        {"everything": "1"},
    )
    assert (action.plan["total"], action.plan["eligible"], action.plan["renders_most"]) == (3, 2, 2)
    items = action.items.order_by("position").values_list("item__document__business_id", "result", "cause")
    assert list(items) == [(name, result, causes[name]) for name, result in KEPT], "what was saved is not held"
    Job.objects.filter(version__document__business_id="INV-1").update(
        state=JobState.FAILED,
        failure_class=FailureClass.INTERNAL,
        failure_cause=causes["INV-1"],
        state_changed_at=timezone.now() + timedelta(minutes=1),
    )
    last = {cause.key: cause.last_action for cause in failures.causes(batch, total=4).shown}[causes["INV-1"]]
    assert last is not None
    assert last.public_id == action.public_id
    assert last.result_words == "1 failed again, 1 in progress"
    assert "2 retried by " in last.done_words
    assert not AuditEntry.objects.exclude(action="retry").exists(), "each document has an entry of its own"


KEPT = [("INV-1", "done"), ("INV-2", "done"), ("INV-3", "skipped")]


def test_documents_named_beside_a_batch_are_its_rows_and_without_one_no_bulk_action(batch: Batch) -> None:
    assert run("retry", "--document", "INV-1", "--reason", "x")[0] == 0
    assert not BulkAction.objects.exists()
    assert run("retry", "--batch", batch.public_id, "--document", "INV-2", "--reason", "x")[0] == 0
    assert BulkAction.objects.get().filter == {"rows": "1"}
    assert run("retry", "--batch", batch.public_id, "--reason", "x")[0] == 2
    assert BulkAction.objects.count() == 1, "nothing was done"


@pytest.mark.parametrize(
    "name", ["check_again", "fetch_again", "retry", "regenerate", "reconcile", "cancel", "dismiss", "reopen"]
)
@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)])
def test_nothing_is_done_in_an_archived_workspace(name: str, dry_run: tuple[str, ...], batch: Batch) -> None:
    Workspace.objects.update(archived_at=timezone.now())
    before = states()
    code, _, err = run(name, "--batch", batch.public_id, "--reason", "x", "--confirm", *dry_run)
    assert (code, "is archived: nothing of it is changed" in err) == (2, True)
    assert states() == before
    assert not AuditEntry.objects.exists()


def test_named_documents_are_those_of_the_workspace_or_of_the_batch_beside_them(batch: Batch) -> None:
    code, out, _ = run("dismiss", "--document", "INV-1", "INV-3", "--reason", "known", "--json")
    assert (code, json.loads(out)["done"], json.loads(out)["price"]) == (0, 2, "free")
    assert BatchItem.objects.filter(dismissed_note="known").count() == 2
    code, out, _ = run("reopen", "--batch", batch.public_id, "--document", "INV-3", "--reason", "not known after all")
    assert (code, out.splitlines()[0]) == (0, "Reopen is done for 1 document: free.")
    assert BatchItem.objects.get(dismissed_note="known").document.business_id == "INV-1"


@pytest.mark.parametrize(
    "name", ["check_again", "fetch_again", "retry", "regenerate", "reconcile", "cancel", "dismiss", "reopen"]
)
@pytest.mark.parametrize("arguments", [[], ["--document", "NONE"], ["--batch", "bat_none"]])
def test_what_names_nothing_is_refused(name: str, arguments: list[str], batch: Batch) -> None:
    code, out, err = run(name, *arguments, "--reason", "x", "--json")
    assert (code, out) == (2, "")
    assert err


@pytest.mark.parametrize("name", ["retry", "regenerate", "cancel", "dismiss"])
def test_a_verb_that_bills_or_gives_up_asks_for_a_reason(name: str, batch: Batch) -> None:
    code, _, err = run(name, "--batch", batch.public_id)
    assert (code, "asks for a reason" in err) == (2, True)


def test_what_asks_for_confirmation_is_skipped_without_it(default_workspace: Any) -> None:
    batch = make_batch(workspace=default_workspace)
    make_submission(job=make_job(batch=batch, state=JobState.SUBMITTING))
    code, out, _ = run("cancel", "--batch", batch.public_id, "--reason", "x", "--json")
    assert (code, json.loads(out)["skipped"]) == (2, 1)
    assert "Go on with --confirm." in json.loads(out)["reasons"][0]["words"]
    assert run("cancel", "--batch", batch.public_id, "--reason", "x", "--confirm")[0] == 0


def test_a_job_that_two_batches_share_is_counted_as_one_render(batch: Batch) -> None:
    job = Job.objects.get(version__document__business_id="INV-1")
    other = make_batch(workspace=batch.workspace, account=batch.account)
    BatchItem.objects.create(
        batch=other, position=0, document=job.version.document, version=job.version, intake_outcome="unchanged"
    )
    code, out, _ = run("retry", "--document", "INV-1", "--reason", "x", "--json")
    report = json.loads(out)
    assert (code, report["done"], report["price"]) == (0, 2, "bills 0 or 1")
    assert job.events.filter(reason="retry").count() == 1
