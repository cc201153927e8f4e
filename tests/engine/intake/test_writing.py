"""From a checked manifest to rows: all of it or nothing, with what a person chose for the batch."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test.utils import CaptureQueriesContext

from batches import manifests
from batches.conf import ENGINE
from batches.engine import audit, bulk, intake, stopping
from batches.engine.audit import By
from batches.engine.errors import IntakeRefused
from batches.models import AuditEntry, Batch, DocumentVersion, Job, ProviderAccount, Workspace
from batches.storage import StoreFull
from batches.storage.disk import DiskStore
from tests import factories
from tests.engine.intake.uploading import NOTHING, check, everything, rows, start
from tests.factories import NOW
from tests.storage.listing import keys_in

pytestmark = pytest.mark.django_db


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
    entry = audit.record("x", subject="s" * 500, workspace=None, by=By(None, "a" * 500, "f" * 500), now=NOW)
    entry.refresh_from_db()
    assert (len(entry.subject), len(entry.actor_words), len(entry.from_where)) == (200, 150, 100)


def test_a_batch_keeps_its_weight_and_its_stop_rules(
    workspace: Workspace, account: ProviderAccount, store: DiskStore
) -> None:
    start(check(rows("INV-1"), workspace, account), store, rules=stopping.Rules(3, 50, 10))
    batch = Batch.objects.get()
    assert (batch.weight, batch.stop_after_failures, batch.stop_after_percent) == (3, 50, 10)


@pytest.mark.parametrize(
    "rules", [stopping.Rules(weight=0), stopping.Rules(weight=101), stopping.Rules(stop_after_percent=0)]
)
def test_rules_that_make_no_sense_are_refused(
    workspace: Workspace, account: ProviderAccount, store: DiskStore, rules: stopping.Rules
) -> None:
    with pytest.raises(IntakeRefused):
        start(check(rows("INV-1"), workspace, account), store, rules=rules)
    assert not Batch.objects.exists()


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
    checks_1, starts_1 = _statements(bulk.ROWS_PER_STATEMENT, workspace, account, store)
    checks_10, starts_10 = _statements(10 * bulk.ROWS_PER_STATEMENT, workspace, account, store)
    assert Job.objects.count() == 11 * bulk.ROWS_PER_STATEMENT
    assert checks_10 - checks_1 == 9, "one question a chunk"
    per_chunk = (starts_10 - starts_1) / 9
    assert per_chunk <= 60, f"{per_chunk} statements for each {bulk.ROWS_PER_STATEMENT} rows"
