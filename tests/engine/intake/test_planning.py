"""Every action of the plan: what is sent, what attaches, what is refused; nothing is sent twice."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from batches import manifests
from batches.engine import audit, running
from batches.engine.errors import IntakeRefused
from batches.engine.existing import documents
from batches.manifests import planning
from batches.models import (
    ACTIVE_STATES,
    FAILED_STATES,
    Batch,
    Document,
    DocumentVersion,
    Job,
    JobState,
    ProviderAccount,
    Workspace,
)
from batches.storage.disk import DiskStore
from tests import factories
from tests.engine.intake.uploading import check, everything, existing, rows, start
from tests.factories import NOW
from tests.storage.listing import keys_in

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("state", ["pending", "submitting", "accepted", "rendered", "saved"])
def test_the_same_input_attaches_and_sends_nothing(
    workspace: Workspace, account: ProviderAccount, store: DiskStore, rings: list[int], state: str
) -> None:
    job = existing(workspace, account, "INV-1", state)
    before = everything()
    batch = start(check(rows("INV-1"), workspace, account), store)
    item = batch.items.get()
    assert (item.version, item.intake_outcome) == (job.version, "unchanged")
    assert (Document.objects.count(), DocumentVersion.objects.count(), Job.objects.count()) == before[2:5]
    job.refresh_from_db()
    assert (job.state, rings) == (state, [])


@pytest.mark.parametrize("state", ["failed", "unknown", "deadline_exceeded", "expired"])
def test_what_has_failed_is_shown_and_not_sent_again(
    workspace: Workspace, account: ProviderAccount, store: DiskStore, rings: list[int], state: str
) -> None:
    job = existing(workspace, account, "INV-1", state)
    batch = start(check(rows("INV-1"), workspace, account), store)
    job.refresh_from_db()
    assert (batch.items.get().intake_outcome, job.state, rings) == ("attached_failed", state, [])


def test_what_was_cancelled_before_it_was_sent_is_sent_now_at_this_batchs_account(
    workspace: Workspace, account: ProviderAccount, store: DiskStore, rings: list[int]
) -> None:
    job = existing(workspace, factories.make_account(), "INV-1", "cancelled", due_at=NOW - timedelta(days=1))
    batch = start(check(rows("INV-1"), workspace, account), store)
    job.refresh_from_db()
    assert (job.state, job.account, job.due_at, rings) == ("pending", account, NOW, [1])
    assert batch.items.get().intake_outcome == "revive"
    assert [event.reason for event in job.events.all()] == ["revived_by_upload"]


def test_what_was_cancelled_after_it_may_have_been_sent_is_never_revived(
    workspace: Workspace, account: ProviderAccount, store: DiskStore, rings: list[int]
) -> None:
    job = existing(workspace, account, "INV-1", "cancelled")
    factories.make_submission(job=job)
    batch = start(check(rows("INV-1"), workspace, account), store)
    job.refresh_from_db()
    assert (job.state, rings, batch.items.get().intake_outcome) == ("cancelled", [], "attached_failed")


def test_a_submission_that_began_between_check_and_start_stops_the_revival(
    workspace: Workspace, account: ProviderAccount, store: DiskStore
) -> None:
    job = existing(workspace, account, "INV-1", "cancelled")
    checked = check(rows("INV-1"), workspace, account)
    factories.make_submission(job=job)
    start(checked, store)
    job.refresh_from_db()
    assert job.state == "cancelled"


def test_a_saved_document_whose_file_was_deleted_says_so_and_is_not_rendered(
    workspace: Workspace, account: ProviderAccount, store: DiskStore, rings: list[int]
) -> None:
    batch = factories.make_batch(workspace=workspace, account=account)
    job = factories.make_saved_job(batch=batch, business_id="INV-1")
    job.version.input_sha256 = manifests.fingerprint("html", "<h1>INV-1</h1>", {})
    job.version.save()
    job.version.artifact.local_deleted_at = NOW
    job.version.artifact.save()
    second = start(check(rows("INV-1"), workspace, account), store)
    assert (second.items.get().intake_outcome, rings) == ("attached_deleted", [])


def test_other_input_under_a_known_id_is_refused(
    workspace: Workspace, account: ProviderAccount, store: DiskStore
) -> None:
    existing(workspace, account, "INV-1", "saved")
    before = everything()
    checked = check([{"id": "INV-1", "html": "<h1>changed</h1>"}, *rows("INV-2")], workspace, account)
    assert not checked.ok
    assert checked.report()["summary"]["changed"] == 1
    with pytest.raises(IntakeRefused, match="nothing was started"):
        start(checked, store)
    assert everything() == before
    assert keys_in(store) == []


def test_other_input_becomes_the_next_version_when_that_was_chosen(
    workspace: Workspace, account: ProviderAccount, store: DiskStore, rings: list[int]
) -> None:
    job = existing(workspace, account, "INV-1", "saved")
    batch = start(check([{"id": "INV-1", "html": "<h1>changed</h1>"}], workspace, account, "new-version"), store)
    item = batch.items.get()
    assert (item.version.number, item.intake_outcome, item.version.job.state) == (2, "changed", "pending")
    assert item.document.current_version == item.version
    assert item.version.reason == "New content in invoices.json"
    job.refresh_from_db()
    assert (job.state, rings) == ("saved", [1])


def test_a_version_that_may_still_bill_asks_for_a_confirmation(
    workspace: Workspace, account: ProviderAccount, store: DiskStore
) -> None:
    existing(workspace, account, "INV-1", "accepted")
    changed = [{"id": "INV-1", "html": "<h1>changed</h1>"}]
    with pytest.raises(IntakeRefused, match="1 of its rows need a confirmation"):
        start(check(changed, workspace, account, "new-version"), store)
    assert Batch.objects.filter(name="March").count() == 0
    start(check(changed, workspace, account, "new-version"), store, confirmed=True)


def test_a_document_at_another_account_stays_there(
    workspace: Workspace, account: ProviderAccount, store: DiskStore
) -> None:
    elsewhere = factories.make_account(slug="elsewhere")
    job = existing(workspace, elsewhere, "INV-1", "accepted")
    factories.make_submission(job=job)
    checked = check(rows("INV-1"), workspace, account)
    assert "Already accepted at elsewhere" in checked.report()["notices"][0]["message"]
    start(checked, store, confirmed=True)
    job.refresh_from_db()
    assert job.account == elsewhere


def test_one_manifest_may_hold_every_action_at_once(
    workspace: Workspace, account: ProviderAccount, store: DiskStore, rings: list[int]
) -> None:
    existing(workspace, account, "SAVED", "saved")
    existing(workspace, account, "FAILED", "failed")
    existing(workspace, account, "CANCELLED", "cancelled")
    existing(workspace, account, "CHANGED", "saved")
    documents = [*rows("SAVED", "NEW", "FAILED", "CANCELLED"), {"id": "CHANGED", "html": "<h1>other</h1>"}]
    batch = start(check(documents, workspace, account, "new-version"), store)
    assert list(batch.items.order_by("position").values_list("intake_outcome", flat=True)) == [
        "unchanged",
        "new",
        "attached_failed",
        "revive",
        "changed",
    ]
    assert rings == [1]


def test_the_same_id_in_another_workspace_is_another_document(
    workspace: Workspace, account: ProviderAccount, store: DiskStore
) -> None:
    existing(factories.make_workspace(), account, "INV-1", "saved")
    batch = start(check(rows("INV-1"), workspace, account), store)
    assert batch.items.get().intake_outcome == "new"


def test_a_document_that_was_cancelled_after_the_check_is_sent_all_the_same(
    workspace: Workspace, account: ProviderAccount, store: DiskStore
) -> None:
    first = start(check(rows("INV-1"), workspace, account), store)
    checked = check(rows("INV-1"), workspace, account)
    running.cancel(first.pk, reason="Wrong file.", by=audit.By(None, "a test", "here"), now=NOW)
    second = start(checked, store, creation_key="second")
    job = Job.objects.get()
    assert (job.state, job.lead_batch_id) == ("pending", second.pk)


def test_a_document_whose_every_try_was_refused_before_it_was_cancelled_is_revived(
    workspace: Workspace, account: ProviderAccount, store: DiskStore
) -> None:
    first = start(check(rows("INV-1"), workspace, account), store)
    factories.make_submission(job=Job.objects.get(), in_doubt=False)
    running.cancel(first.pk, reason="Wrong file.", by=audit.By(None, "a test", "here"), now=NOW)
    second = start(check(rows("INV-1"), workspace, account), store, creation_key="second")
    assert (Job.objects.get().state, second.items.get().intake_outcome) == ("pending", "revive")


def test_the_check_reads_what_exists_with_one_question_a_chunk(
    workspace: Workspace, account: ProviderAccount, now: datetime
) -> None:
    for number in range(40):
        existing(workspace, account, f"INV-{number}", JobState.SAVED)
    names = [f"INV-{number}" for number in range(60)]
    with CaptureQueriesContext(connection) as queries:
        found = documents(workspace, account, names)
    assert (len(queries), len(found)) == (1, 40)


def test_the_plan_knows_the_states_of_the_jobs_as_the_models_do() -> None:
    """`manifests` may not import the models, so it spells the states anew; this keeps the two lists one."""
    assert set(planning.IN_PROGRESS_STATES) == {state.value for state in ACTIVE_STATES}
    assert set(planning.FAILED_STATES) == {state.value for state in FAILED_STATES}
    assert set(planning.KNOWN_STATES) == set(JobState.values)
