"""From a checked manifest to rows: documents, versions, jobs and a batch, all in one transaction or none.

`check` reads and plans and stores nothing. `start` writes the plan down; the same creation key never makes a second
batch, and two starts that race for one business id leave one winner and one refusal.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, BinaryIO, cast

from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef

from batches import manifests, queue
from batches.conf import ENGINE
from batches.engine import audit, bulk, existing, keys, reviving, stopping, transitions, turns, waiting
from batches.engine.audit import By
from batches.engine.contention import again_after_deadlock
from batches.engine.errors import IntakeRefused
from batches.manifests import Action, Manifest, ManifestSource, OnConflict, Plan
from batches.models import (
    ACTIVE_STATES,
    Batch,
    BatchItem,
    Document,
    DocumentVersion,
    Job,
    JobState,
    ProviderAccount,
    Submission,
    Workspace,
)
from batches.storage import ArtifactStore, input_key, manifest_key

#: Rows per statement, and documents held in memory at once.
CHUNK = 500
#: Column names that a batch keeps for its failed list; JSON rows may each have their own.
COLUMNS_MOST = 1000
RACED = "Another batch with some of the same documents was started at this moment. Check the file again."


@dataclass(frozen=True)
class Check:
    """A manifest that was read, and what starting it would do. Nothing is stored yet; close the manifest when done."""

    manifest: Manifest
    plan: Plan
    workspace: Workspace
    account: ProviderAccount
    waiting: tuple[dict[str, Any], ...] = ()
    """The notices of `waiting.notices`."""

    @property
    def ok(self) -> bool:
        return self.manifest.ok and self.plan.ok

    def report(self) -> dict[str, Any]:
        """The validation answer: counts per outcome, errors and warnings grouped by code, notices."""
        report = self.manifest.report(self.plan)
        return report | {"notices": [*report["notices"], *self.waiting]}


def check(source: ManifestSource, *, workspace: Workspace, account: ProviderAccount, on_conflict: str) -> Check:
    """Read a manifest whole and compare it with what the workspace has. Raises `manifests.ManifestRefused`."""
    manifest = manifests.read(source)
    known = existing.documents(workspace, account, [row.business_id for row in manifest.rows])
    plan = manifests.plan(manifest, known, OnConflict(on_conflict), account_slug=account.slug)
    return Check(manifest, plan, workspace, account, waiting.notices(workspace, plan))


def start(
    checked: Check,
    *,
    name: str,
    actor: Any,
    actor_words: str,
    from_where: str,
    creation_key: str,
    store: ArtifactStore,
    now: datetime,
    confirmed: bool = False,
    rules: stopping.Rules = stopping.NO_RULES,
) -> Batch:
    """Write the plan down and ring for pumps. The same `creation_key` returns the same batch.

    `confirmed` says that the person has seen the notices that ask for it. `rules` are of a new batch. Raises
    `IntakeRefused` with nothing stored.
    """
    workspace = checked.workspace
    creation_key = hashlib.sha256(creation_key.encode()).hexdigest()
    starter = By(actor, actor_words, from_where)
    for is_last_try in (False, True):
        known = Batch.objects.filter(workspace=workspace, creation_key=creation_key).first()
        if known:
            return known
        _refuse_unless_startable(checked, confirmed=confirmed)
        batch = _batch(checked, name, starter, creation_key, store, now=now)
        rules.apply(batch)
        try:
            _write(batch, checked, starter, now=now)
            return batch
        except IntegrityError as error:
            # Somebody else was first with some of these documents. What they started may be what this one wants.
            if is_last_try:
                raise IntakeRefused(RACED) from error
            seen = _to_confirm(checked)
            checked = _planned_again(checked)
            if not checked.ok or _to_confirm(checked) - seen:  # nobody has seen, so nobody has confirmed
                raise IntakeRefused(RACED) from error
    raise AssertionError("one of the two tries returned or raised")


def _to_confirm(checked: Check) -> set[str]:
    return {planned.row.business_id for planned in checked.plan.needs_confirmation}


def _planned_again(checked: Check) -> Check:
    """The same manifest against what the workspace has by now."""
    business_ids = [row.business_id for row in checked.manifest.rows]
    known = existing.documents(checked.workspace, checked.account, business_ids)
    plan = manifests.plan(checked.manifest, known, checked.plan.on_conflict, account_slug=checked.account.slug)
    return replace(checked, plan=plan)


def _batch(checked: Check, name: str, starter: By, creation_key: str, store: ArtifactStore, *, now: datetime) -> Batch:
    """The batch's row, not yet written; what it names in the store is there already."""
    stored_key = manifest_key(checked.workspace.slug, checked.manifest.upload_sha256)
    stored = store.put(stored_key, cast(BinaryIO, checked.manifest.upload))
    _store_large_inputs(checked, store)
    return Batch(
        public_id=keys.public_id("bat"),
        workspace=checked.workspace,
        account=checked.account,
        name=name.strip()[:200] or checked.manifest.filename[:200],
        manifest_name=checked.manifest.filename,
        manifest_key=stored_key,
        manifest_sha256=checked.manifest.upload_sha256,
        manifest_bytes=stored.byte_count,
        report=_kept_report(checked),
        on_conflict=checked.plan.on_conflict.value,
        creation_key=creation_key,
        created_by=starter.actor,
        created_at=now,
    )


def _refuse_unless_startable(checked: Check, *, confirmed: bool) -> None:
    if not checked.ok:
        raise IntakeRefused("The manifest has errors; nothing was started.")
    if checked.account.archived_at or checked.account.workspace_id not in (None, checked.workspace.pk):
        raise IntakeRefused(f"The account {checked.account.slug} cannot be used by this workspace.")
    if checked.plan.needs_confirmation and not confirmed:
        rows = len(checked.plan.needs_confirmation)
        raise IntakeRefused(f"{rows} of its rows need a confirmation first; see the notices of the check.")


def _kept_report(checked: Check) -> dict[str, Any]:
    """What a batch's page shows of the check later; the errors are none."""
    report = checked.report()
    kept = {name: report[name] for name in ("summary", "warnings", "notices", "encoding", "format", "container")}
    columns = list(dict.fromkeys(name for planned in checked.plan.rows for name in planned.row.original))
    return kept | kept_columns(columns)


def kept_columns(columns: Sequence[str], *, are_all: bool = True) -> dict[str, Any]:
    """What a batch's report says of columns: as many as are kept, and whether those are all that its rows have."""
    return {
        "columns": list(columns[:COLUMNS_MOST]),
        "columns_are_all": are_all and len(columns) <= COLUMNS_MOST,
    }


def _store_large_inputs(checked: Check, store: ArtifactStore) -> None:
    """Before the transaction, under keys that their content names: harmless if it never commits."""
    for planned in checked.plan.rows:
        row = planned.row
        if planned.action in (Action.NEW, Action.CHANGED) and row.text_bytes > ENGINE.inline_bytes_most:
            key = input_key(checked.workspace.slug, row.business_id, row.input_sha256)
            store.put(key, io.BytesIO(row.text().encode()))


@again_after_deadlock
@transaction.atomic
def _write(batch: Batch, checked: Check, starter: By, *, now: datetime) -> None:
    # Two batches that name the same new documents in different order would wait for each other (PostgreSQL).
    Workspace.objects.select_for_update(no_key=True).get(pk=batch.workspace_id)
    batch.save(force_insert=True)
    for chunk in bulk.chunks(checked.plan.rows, CHUNK):
        _make_documents(batch, [planned for planned in chunk if planned.action is Action.NEW], now=now)
        documents = _documents(batch.workspace, [planned.row.business_id for planned in chunk])
        _refuse_final(batch.workspace, [planned for planned in chunk if planned.action is Action.CHANGED])
        sending = [planned for planned in chunk if planned.action in (Action.NEW, Action.CHANGED)]
        _make_versions(batch, sending, documents, starter, now=now)
        versions = _versions(documents.values())
        _make_jobs(batch, sending, documents, versions, now=now)
        # A document that was under way when the file was checked may have been cancelled since.
        waiting = [planned for planned in chunk if planned.action in (Action.REVIVE, Action.UNCHANGED)]
        _revive(waiting, documents, versions, batch, now=now)
        bulk.insert(
            BatchItem,
            [
                {
                    "batch": batch.pk,
                    "position": planned.row.position,
                    "document": documents[planned.row.business_id],
                    "version": versions[documents[planned.row.business_id], planned.version_number],
                    "original_row": dict(planned.row.original),
                    "intake_outcome": planned.action.value,
                }
                for planned in chunk
            ],
        )
        _take_the_lead([planned for planned in chunk if planned.action is Action.UNCHANGED], documents, versions)
    audit.record(
        "start_batch",
        subject=f"batch {batch.public_id}",
        workspace=batch.workspace,
        by=starter,
        now=now,
        facts={"name": batch.name, "manifest_sha256": batch.manifest_sha256, **checked.plan.summary()},
    )
    if checked.plan.render_count:
        queue.ring()


def _refuse_final(workspace: Workspace, changed: Sequence[manifests.PlannedRow]) -> None:
    """Raise for a document that was marked final since the check."""
    names = [planned.row.business_id for planned in changed]
    if names and Document.objects.filter(workspace=workspace, business_id__in=names, is_final=True).exists():
        raise IntakeRefused("One of its documents was marked final at this moment. Check the file again.")


def _make_documents(batch: Batch, planned_rows: Sequence[manifests.PlannedRow], *, now: datetime) -> None:
    bulk.insert(
        Document,
        [
            {
                "workspace": batch.workspace_id,
                "public_id": keys.public_id("doc"),
                "business_id": planned.row.business_id,
                "created_at": now,
            }
            for planned in planned_rows
        ],
    )


def _documents(workspace: Workspace, business_ids: Sequence[str]) -> dict[str, int]:
    """Document ids by business id."""
    rows = Document.objects.filter(workspace=workspace, business_id__in=business_ids)
    return dict(rows.values_list("business_id", "pk"))


def _versions(document_ids: Iterable[int]) -> dict[tuple[int, int], int]:
    """Version ids by document id and number."""
    rows = DocumentVersion.objects.filter(document__in=list(document_ids)).values_list("document_id", "number", "pk")
    return {(document_id, number): pk for document_id, number, pk in rows}


def _make_versions(
    batch: Batch,
    planned_rows: Sequence[manifests.PlannedRow],
    documents: Mapping[str, int],
    starter: By,
    *,
    now: datetime,
) -> None:
    bulk.insert(
        DocumentVersion,
        [_version(batch, planned, documents[planned.row.business_id], starter, now=now) for planned in planned_rows],
    )


def _version(
    batch: Batch, planned: manifests.PlannedRow, document_id: int, starter: By, *, now: datetime
) -> dict[str, Any]:
    row = planned.row
    is_large = row.text_bytes > ENGINE.inline_bytes_most
    return {
        "document": document_id,
        "number": planned.version_number,
        "kind": row.kind,
        "input_inline": None if is_large else row.text().encode(),
        "input_key": input_key(batch.workspace.slug, row.business_id, row.input_sha256) if is_large else None,
        "input_sha256": row.input_sha256,
        "input_bytes": row.text_bytes,
        "filename": row.filename,
        "options": dict(row.options),
        "reason": "" if planned.action is Action.NEW else f"New content in {batch.manifest_name}"[:200],
        "created_by": starter.actor.pk if starter.actor else None,
        "created_at": now,
    }


def _make_jobs(
    batch: Batch,
    planned_rows: Sequence[manifests.PlannedRow],
    documents: Mapping[str, int],
    versions: Mapping[tuple[int, int], int],
    *,
    now: datetime,
) -> None:
    """The new versions' jobs; each version becomes its document's current one."""
    made = [
        (document_id, versions[document_id, planned.version_number])
        for planned in planned_rows
        for document_id in [documents[planned.row.business_id]]
    ]
    times = {"due_at": now, "created_at": now, "state_changed_at": now}
    whose = {"account": batch.account_id, "lead_batch": batch.pk}
    bulk.insert(Job, [{"version": version_id, **whose, **times} for _document, version_id in made])
    if made:
        is_taken = {"source_sha256": "", "source_seen_at": None}  # nothing newer than this was offered
        current = [{"pk": document_id, "current_version": version_id, **is_taken} for document_id, version_id in made]
        bulk.guarded_update(Document, current)


def _revive(
    planned_rows: Sequence[manifests.PlannedRow],
    documents: Mapping[str, int],
    versions: Mapping[tuple[int, int], int],
    batch: Batch,
    *,
    now: datetime,
) -> None:
    """Versions that were cancelled before they were ever sent are sent now, at this batch's account."""
    version_ids = [versions[documents[planned.row.business_id], planned.version_number] for planned in planned_rows]
    may_exist = Submission.objects.filter(job=OuterRef("pk")).exclude(existing.REFUSED_FOR_GOOD)
    cancelled = Job.objects.filter(~Exists(may_exist), version_id__in=version_ids, state=JobState.CANCELLED)
    moves = [reviving.back(job, batch, reason="revived_by_upload", now=now) for job in cancelled]
    transitions.move_many(moves, now=now)


def _take_the_lead(
    planned_rows: Sequence[manifests.PlannedRow], documents: Mapping[str, int], versions: Mapping[tuple[int, int], int]
) -> None:
    """Waiting documents whose batch is paused or cancelled are sent in the turns of this one."""
    version_ids = [versions[documents[planned.row.business_id], planned.version_number] for planned in planned_rows]
    if version_ids:
        waiting = Job.objects.filter(version_id__in=version_ids, state__in=ACTIVE_STATES)
        turns.choose_leads(waiting.exclude(turns.led_by_a_running_batch()))
