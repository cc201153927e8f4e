"""From a checked manifest to rows: all of it or nothing, once per creation key, and nothing sent twice."""

from __future__ import annotations

import hashlib
import io
import json
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import IntegrityError, connection
from django.test.utils import CaptureQueriesContext

from batches import manifests, queue
from batches.conf import ENGINE
from batches.engine import audit, intake, running, stopping
from batches.engine.errors import IntakeRefused
from batches.manifests import planning
from batches.models import (
    ACTIVE_STATES,
    FAILED_STATES,
    AuditEntry,
    Batch,
    BatchItem,
    Document,
    DocumentVersion,
    Job,
    JobState,
    ProviderAccount,
    Workspace,
)
from batches.storage import StoreFull
from batches.storage.disk import DiskStore
from tests import factories
from tests.factories import NOW
from tests.storage.listing import keys_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def store(tmp_path: Path) -> DiskStore:
    store = DiskStore(tmp_path / "store")
    store.ensure()
    return store


@pytest.fixture(autouse=True)
def rings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often the doorbell was rung."""
    rung: list[int] = []
    monkeypatch.setattr(queue, "ring", lambda pumps=1: rung.append(pumps))
    return rung


def rows(*names: str, **changes: Any) -> list[dict[str, Any]]:
    return [{"id": name, "html": f"<h1>{name}</h1>", **changes} for name in names]


def check(
    documents: list[dict[str, Any]], workspace: Workspace, account: ProviderAccount, on_conflict: str = "refuse"
) -> intake.Check:
    source = manifests.from_upload(io.BytesIO(json.dumps(documents).encode()), "invoices.json")
    return intake.check(source, workspace=workspace, account=account, on_conflict=on_conflict)


def start(checked: intake.Check, store: DiskStore, *, key: str = "key-1", **options: Any) -> Batch:
    defaults = {
        "name": "March",
        "actor": None,
        "actor_words": "submit",
        "from_where": "command line",
        "creation_key": key,
        "store": store,
        "now": NOW,
    }
    with checked.manifest:
        return intake.start(checked, **defaults | options)


def everything() -> tuple[int, ...]:
    """Row counts of all that an intake writes."""
    return tuple(
        model._base_manager.count() for model in (Batch, BatchItem, Document, DocumentVersion, Job, AuditEntry)
    )


NOTHING = (0, 0, 0, 0, 0, 0)


# --- the straight road ---


def test_a_batch_becomes_rows(
    workspace: Workspace, account: ProviderAccount, store: DiskStore, rings: list[int]
) -> None:
    user = get_user_model().objects.create_user("okoye")
    checked = check(rows("INV-1", "INV-2"), workspace, account)
    batch = start(checked, store, actor=user, actor_words="okoye", from_where="192.0.2.1")
    assert (batch.name, batch.created_by, batch.created_at, batch.account) == ("March", user, NOW, account)
    assert list(batch.items.values_list("position", "document__business_id", "version__number", "intake_outcome")) == [
        (0, "INV-1", 1, "new"),
        (1, "INV-2", 1, "new"),
    ]
    version = DocumentVersion.objects.get(document__business_id="INV-1")
    assert bytes(version.input_inline) == b"<h1>INV-1</h1>"
    assert (version.input_key, version.input_bytes, version.created_by) == (None, 14, user)
    assert version.document.current_version == version
    job = version.job
    assert (job.state, job.due_at, job.account, job.created_at) == ("pending", NOW, account, NOW)
    assert rings == [1]


def test_the_upload_is_kept_byte_for_byte(workspace: Workspace, account: ProviderAccount, store: DiskStore) -> None:
    content = json.dumps(rows("INV-1"), indent=3).encode()
    source = manifests.from_upload(io.BytesIO(content), "invoices.json")
    checked = intake.check(source, workspace=workspace, account=account, on_conflict="refuse")
    batch = start(checked, store)
    with store.open(batch.manifest_key) as stream:
        assert stream.read() == content
    assert batch.manifest_sha256 == hashlib.sha256(content).hexdigest()
    assert batch.manifest_bytes == len(content)
    assert batch.manifest_name == "invoices.json"


def test_the_document_does_not_stand_in_the_row_that_is_kept_as_evidence(
    workspace: Workspace, account: ProviderAccount, store: DiskStore
) -> None:
    batch = start(check(rows("INV-1", meta={"customer": "Lindqvist"}), workspace, account), store)
    kept = batch.items.get().original_row
    assert kept["meta"] == {"customer": "Lindqvist"}
    assert "<h1>" not in json.dumps(kept)


def test_a_batch_without_a_name_is_called_after_its_file(
    workspace: Workspace, account: ProviderAccount, store: DiskStore
) -> None:
    assert start(check(rows("INV-1"), workspace, account), store, name="  ").name == "invoices.json"


def test_a_large_input_lies_in_the_store_under_its_digest(
    workspace: Workspace, account: ProviderAccount, store: DiskStore
) -> None:
    text = "<p>" + "é" * ENGINE.inline_bytes_most
    start(check([{"id": "BIG", "html": text}, *rows("SMALL")], workspace, account), store)
    version = DocumentVersion.objects.get(document__business_id="BIG")
    assert version.input_inline is None
    assert version.input_sha256 in version.input_key
    with store.open(version.input_key) as stream:
        assert stream.read() == text.encode()
    assert DocumentVersion.objects.get(document__business_id="SMALL").input_key is None


def test_who_started_what_is_in_the_audit_log_without_content(
    workspace: Workspace, account: ProviderAccount, store: DiskStore
) -> None:
    batch = start(check(rows("INV-1"), workspace, account), store, from_where="192.0.2.7", actor_words="okoye")
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.subject) == ("start_batch", f"batch {batch.public_id}")
    assert (entry.actor_words, entry.from_where, entry.workspace, entry.at) == ("okoye", "192.0.2.7", workspace, NOW)
    assert (entry.facts["new"], entry.facts["name"]) == (1, "March")
    assert "<h1>" not in json.dumps(entry.facts)


def test_the_audit_log_takes_long_words(workspace: Workspace) -> None:
    entry = audit.record(
        "x", subject="s" * 500, workspace=None, actor=None, actor_words="a" * 500, from_where="f" * 500, now=NOW
    )
    entry.refresh_from_db()
    assert (len(entry.subject), len(entry.actor_words), len(entry.from_where)) == (200, 150, 100)


# --- every action of the plan ---


def existing(workspace: Workspace, account: ProviderAccount, name: str, state: str, **fields: Any) -> Job:
    """A document as an earlier intake made it, its job in `state`."""
    batch = factories.make_batch(workspace=workspace, account=account)
    job = factories.make_job(batch=batch, state=state, business_id=name, **fields)
    DocumentVersion.objects.filter(pk=job.version_id).update(
        input_sha256=manifests.fingerprint("html", f"<h1>{name}</h1>", {})
    )
    return job


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


# --- refusals leave nothing ---


def test_a_manifest_with_errors_starts_nothing(
    workspace: Workspace, account: ProviderAccount, store: DiskStore
) -> None:
    checked = check([{"id": "", "html": "<h1>x</h1>"}, *rows("INV-1")], workspace, account)
    with pytest.raises(IntakeRefused, match="The manifest has errors"):
        start(checked, store)
    assert everything() == NOTHING
    assert keys_in(store) == []


@pytest.mark.parametrize("trouble", ["archived", "of another workspace"])
def test_an_account_that_may_not_be_used_starts_nothing(
    workspace: Workspace, account: ProviderAccount, store: DiskStore, trouble: str
) -> None:
    if trouble == "archived":
        account.archived_at = NOW
    else:
        account.workspace = factories.make_workspace()
    account.save()
    with pytest.raises(IntakeRefused, match="cannot be used by this workspace"):
        start(check(rows("INV-1"), workspace, account), store)
    assert everything() == NOTHING


def test_a_full_store_starts_nothing(
    workspace: Workspace, account: ProviderAccount, store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_given: object) -> None:
        raise StoreFull("No space is left.")

    monkeypatch.setattr(store, "put", full)
    with pytest.raises(StoreFull):
        start(check(rows("INV-1"), workspace, account), store)
    assert everything() == NOTHING


class Crash(BaseException):
    """The process is gone."""


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "table", ["batches_batch", "batches_document", "batches_documentversion", "batches_job", "batches_auditentry"]
)
def test_a_crash_in_the_middle_leaves_nothing_behind(store: DiskStore, table: str, rings: list[int]) -> None:
    workspace, account = factories.make_workspace(), factories.make_account()
    checked = check(rows("INV-1", "INV-2"), workspace, account)

    def crash(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        result = execute(sql, params, many, context)
        if sql.startswith("INSERT") and f'"{table}"' in sql:
            raise Crash
        return result

    with pytest.raises(Crash), connection.execute_wrapper(crash):
        start(checked, store)
    assert everything() == NOTHING
    # The same upload, tried again after the restart, is taken whole.
    batch = start(check(rows("INV-1", "INV-2"), workspace, account), store)
    assert batch.items.count() == 2


# --- once, whoever races ---


def test_the_same_creation_key_is_the_same_batch(
    workspace: Workspace, account: ProviderAccount, store: DiskStore, rings: list[int]
) -> None:
    first = start(check(rows("INV-1"), workspace, account), store)
    before = everything()
    second = start(check(rows("INV-1"), workspace, account), store)
    assert (second, everything(), rings) == (first, before, [1])
    other = start(check(rows("INV-1"), factories.make_workspace(), account), store)
    assert other != first, "keys are a workspace's own"


def test_a_creation_key_may_be_any_text(workspace: Workspace, account: ProviderAccount, store: DiskStore) -> None:
    key = "é" * 5000
    first = start(check(rows("INV-1"), workspace, account), store, key=key)
    assert start(check(rows("INV-1"), workspace, account), store, key=key) == first


@pytest.fixture
def together(transactional_db: None) -> Callable[[list[Callable[[], Any]]], list[Any]]:
    """Runs calls in threads of their own at the same time; gives back what each returned or raised."""

    def run(calls: list[Callable[[], Any]]) -> list[Any]:
        barrier, outcomes = threading.Barrier(len(calls)), [None] * len(calls)

        def work(number: int, call: Callable[[], Any]) -> None:
            try:
                barrier.wait()
                outcomes[number] = call()
            except Exception as error:  # noqa: BLE001 - it is the outcome
                outcomes[number] = error
            finally:
                connection.close()

        threads = [threading.Thread(target=work, args=pair) for pair in enumerate(calls)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return outcomes

    return run


def test_one_click_sent_twice_at_once_is_one_batch(store: DiskStore, together: Any) -> None:
    workspace, account = factories.make_workspace(), factories.make_account()
    checks = [check(rows("INV-1", "INV-2"), workspace, account) for _ in range(2)]
    outcomes = together([lambda checked=checked: start(checked, store).pk for checked in checks])
    assert len(set(outcomes)) == 1, outcomes
    assert everything() == (1, 2, 2, 2, 2, 1)


def test_of_two_batches_that_race_for_one_new_document_one_sends_it_and_the_other_attaches(
    store: DiskStore, together: Any
) -> None:
    workspace, account = factories.make_workspace(), factories.make_account()
    checks = [check(rows("INV-1", f"INV-{number}"), workspace, account) for number in (2, 3)]
    outcomes = together(
        [lambda checked=checked, key=f"k{n}": start(checked, store, key=key) for n, checked in enumerate(checks)]
    )
    assert all(isinstance(outcome, Batch) for outcome in outcomes), outcomes
    assert everything() == (2, 4, 3, 3, 3, 2)
    shared = BatchItem.objects.filter(document__business_id="INV-1")
    assert sorted(shared.values_list("intake_outcome", flat=True)) == ["new", "unchanged"]
    assert len(set(shared.values_list("version", flat=True))) == 1


def test_of_two_batches_that_race_for_one_id_with_other_input_one_is_refused_and_can_be_checked_again(
    store: DiskStore, together: Any
) -> None:
    workspace, account = factories.make_workspace(), factories.make_account()
    contents = [[{"id": "INV-1", "html": f"<h1>from {name}</h1>"}, *rows(name)] for name in ("INV-2", "INV-3")]
    checks = [check(content, workspace, account) for content in contents]
    outcomes = together(
        [lambda checked=checked, key=f"k{n}": start(checked, store, key=key) for n, checked in enumerate(checks)]
    )
    (refused,) = [outcome for outcome in outcomes if isinstance(outcome, IntakeRefused)]
    assert refused.words == intake.RACED
    assert everything() == (1, 2, 2, 2, 2, 1), "nothing of the refused one is left"
    loser = contents[outcomes.index(refused)]
    assert check(loser, workspace, account).report()["summary"]["changed"] == 1
    batch = start(check(loser, workspace, account, "new-version"), store, key="again")
    assert sorted(batch.items.values_list("intake_outcome", flat=True)) == ["changed", "new"]


@pytest.fixture
def replans(monkeypatch: pytest.MonkeyPatch) -> list[intake.Check]:
    """What was planned a second time."""
    made: list[intake.Check] = []
    planned_again = intake._planned_again

    def noted(checked: intake.Check) -> intake.Check:
        made.append(checked)
        return planned_again(checked)

    monkeypatch.setattr(intake, "_planned_again", noted)
    return made


def test_a_start_that_was_overtaken_since_its_check_is_planned_once_more_and_attaches(
    workspace: Workspace, account: ProviderAccount, store: DiskStore, replans: list[intake.Check], rings: list[int]
) -> None:
    first, second = (check(rows("INV-1", "INV-2"), workspace, account) for _ in range(2))
    start(first, store, key="first")
    batch = start(second, store, key="second")
    assert replans == [second]
    assert set(batch.items.values_list("intake_outcome", flat=True)) == {"unchanged"}
    assert batch.report["summary"]["unchanged"] == 2, "the batch's page shows what came of it, not what was planned"
    assert AuditEntry.objects.order_by("pk").last().facts["unchanged"] == 2
    assert (Job.objects.count(), rings) == (2, [1])


def test_a_start_that_was_overtaken_by_other_input_is_refused_with_nothing_stored(
    workspace: Workspace, account: ProviderAccount, store: DiskStore, replans: list[intake.Check]
) -> None:
    overtaken = check(rows("INV-1", "INV-2"), workspace, account)
    start(check([{"id": "INV-2", "html": "<h1>other</h1>"}], workspace, account), store, key="first")
    before = everything()
    with pytest.raises(IntakeRefused) as refused:
        start(overtaken, store, key="second")
    assert (refused.value.words, everything(), len(replans)) == (intake.RACED, before, 1)


@pytest.mark.parametrize("confirmed", [False, True])
def test_a_confirmation_covers_nothing_that_came_up_after_the_check(
    workspace: Workspace, account: ProviderAccount, store: DiskStore, confirmed: bool
) -> None:
    existing(workspace, account, "INV-1", "saved")
    overtaken = check([{"id": "INV-1", "html": "<h1>mine</h1>"}], workspace, account, "new-version")
    theirs = [{"id": "INV-1", "html": "<h1>theirs</h1>"}]
    first = start(check(theirs, workspace, account, "new-version"), store, key="first")
    job = first.items.get().version.job
    Job.objects.filter(pk=job.pk).update(state=JobState.ACCEPTED, deadline_at=NOW)
    factories.make_submission(job=job)
    before = everything()
    with pytest.raises(IntakeRefused) as refused:
        start(overtaken, store, key="second", confirmed=confirmed)
    assert (refused.value.words, everything()) == (intake.RACED, before)


def test_a_start_that_is_overtaken_twice_is_refused(
    workspace: Workspace,
    account: ProviderAccount,
    store: DiskStore,
    replans: list[intake.Check],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def overtaken(*_given: object, **_options: object) -> None:
        raise IntegrityError

    monkeypatch.setattr(intake, "_write", overtaken)
    with pytest.raises(IntakeRefused) as refused:
        start(check(rows("INV-1"), workspace, account), store)
    assert (refused.value.words, everything(), len(replans)) == (intake.RACED, NOTHING, 1)


def test_batches_that_race_for_the_next_version_make_one_version_each(store: DiskStore, together: Any) -> None:
    workspace, account = factories.make_workspace(), factories.make_account()
    existing(workspace, account, "INV-1", "saved")
    checks = [
        check([{"id": "INV-1", "html": f"<h1>change {number}</h1>"}], workspace, account, "new-version")
        for number in (1, 2)
    ]
    outcomes = together(
        [lambda checked=checked, key=f"k{n}": start(checked, store, key=key) for n, checked in enumerate(checks)]
    )
    assert all(isinstance(outcome, Batch) for outcome in outcomes), outcomes
    assert list(DocumentVersion.objects.order_by("number").values_list("number", flat=True)) == [1, 2, 3]
    assert set(BatchItem.objects.filter(batch__in=outcomes).values_list("version__number", flat=True)) == {2, 3}
    assert Document.objects.get().current_version.number == 3


def test_two_batches_that_name_the_same_new_documents_in_opposite_order_do_not_block_each_other(
    store: DiskStore, together: Any
) -> None:
    workspace, account = factories.make_workspace(), factories.make_account()
    names = [f"INV-{number}" for number in range(400)]
    checks = [check(rows(*order), workspace, account) for order in (names, names[::-1])]
    outcomes = together(
        [lambda checked=checked, key=f"k{n}": start(checked, store, key=key) for n, checked in enumerate(checks)]
    )
    assert all(isinstance(outcome, Batch) for outcome in outcomes), outcomes
    assert everything() == (2, 800, 400, 400, 400, 2)


# --- size ---


def _statements(count: int, workspace: Workspace, account: ProviderAccount, store: DiskStore) -> tuple[int, int]:
    names = [f"N{count}-{number}" for number in range(count)]
    with CaptureQueriesContext(connection) as checking:
        checked = check(rows(*names), workspace, account)
    with CaptureQueriesContext(connection) as starting:
        start(checked, store, key=f"size {count}")
    return len(checking), len(starting)


def test_statements_grow_by_chunks_and_not_by_rows(
    workspace: Workspace, account: ProviderAccount, store: DiskStore
) -> None:
    checks_1, starts_1 = _statements(intake.CHUNK, workspace, account, store)
    checks_10, starts_10 = _statements(10 * intake.CHUNK, workspace, account, store)
    assert Job.objects.count() == 11 * intake.CHUNK
    assert checks_10 - checks_1 == 9, "one question a chunk"
    per_chunk = (starts_10 - starts_1) / 9
    assert per_chunk <= 60, f"{per_chunk} statements for each {intake.CHUNK} rows"


def test_the_check_reads_what_exists_with_one_question_a_chunk(
    workspace: Workspace, account: ProviderAccount, now: datetime
) -> None:
    for number in range(40):
        existing(workspace, account, f"INV-{number}", JobState.SAVED)
    names = [f"INV-{number}" for number in range(60)]
    with CaptureQueriesContext(connection) as queries:
        found = intake.existing_documents(workspace, account, names)
    assert (len(queries), len(found)) == (1, 40)


def test_the_plan_knows_the_states_of_the_jobs_as_the_models_do() -> None:
    """`manifests` may not import the models, so it spells the states anew; this keeps the two lists one."""
    assert set(planning.IN_PROGRESS_STATES) == {state.value for state in ACTIVE_STATES}
    assert set(planning.FAILED_STATES) == {state.value for state in FAILED_STATES}
    assert set(planning.KNOWN_STATES) == set(JobState.values)


# --- whose turn a document takes ---


def test_new_documents_take_the_turns_of_their_batch(
    workspace: Workspace, account: ProviderAccount, store: DiskStore
) -> None:
    batch = start(check(rows("INV-1", "INV-2"), workspace, account), store)
    assert set(Job.objects.values_list("lead_batch_id", flat=True)) == {batch.pk}


@pytest.mark.parametrize("stopped", [{"paused_at": NOW}, {"cancelled_at": NOW}])
def test_a_waiting_document_of_a_stopped_batch_takes_the_turns_of_the_one_that_attaches(
    workspace: Workspace, account: ProviderAccount, store: DiskStore, stopped: dict[str, datetime]
) -> None:
    first = start(check(rows("INV-1", "INV-2"), workspace, account), store)
    second = start(check(rows("INV-1"), workspace, account), store, creation_key="second")
    assert set(Job.objects.values_list("lead_batch_id", flat=True)) == {first.pk}, "the older one leads"
    Batch.objects.filter(pk__in=[first.pk, second.pk]).update(**stopped)
    third = start(check(rows("INV-1"), workspace, account), store, creation_key="third")
    leads = dict(Job.objects.values_list("version__document__business_id", "lead_batch_id"))
    assert leads == {"INV-1": third.pk, "INV-2": first.pk}


def test_a_check_says_which_documents_wait_in_a_paused_batch_and_would_be_sent(
    workspace: Workspace, account: ProviderAccount, store: DiskStore
) -> None:
    def said() -> list[tuple[str, list[int], bool]]:
        told = check(rows("INV-0", "INV-1", "INV-2"), workspace, account).report()["notices"]
        return [(notice["message"], notice["rows"], notice["needs_confirmation"]) for notice in told]

    first = start(check(rows("INV-1", "INV-2", "INV-3"), workspace, account), store)
    assert said() == []
    by = audit.By(None, "a test", "here")
    running.pause(first.pk, reason="Wrong prices.", by=by, now=NOW)
    words = "also wait in a batch that is paused (March); starting this one sends them."
    assert said() == [(f"2 documents {words}", [1, 2], False)]
    second = start(check(rows("INV-2"), workspace, account), store, creation_key="second")
    alone = "1 document also waits in a batch that is paused (March); starting this one sends it."
    assert said() == [(alone, [1], False)], "the other one is on its way"
    assert second.report["notices"][0]["message"] == alone
    running.resume(first.pk, reason="", by=by, now=NOW)
    assert said() == []


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


@pytest.mark.parametrize(
    "rules", [stopping.Rules(weight=0), stopping.Rules(weight=101), stopping.Rules(stop_after_percent=0)]
)
def test_rules_that_make_no_sense_are_refused(
    workspace: Workspace, account: ProviderAccount, store: DiskStore, rules: stopping.Rules
) -> None:
    with pytest.raises(IntakeRefused):
        start(check(rows("INV-1"), workspace, account), store, rules=rules)
    assert not Batch.objects.exists()


def test_a_batch_keeps_its_weight_and_its_stop_rules(
    workspace: Workspace, account: ProviderAccount, store: DiskStore
) -> None:
    start(check(rows("INV-1"), workspace, account), store, rules=stopping.Rules(3, 50, 10))
    batch = Batch.objects.get()
    assert (batch.weight, batch.stop_after_failures, batch.stop_after_percent) == (3, 50, 10)
