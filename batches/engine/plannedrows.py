"""Rows of a plan as documents, versions, jobs and items: a fixed number of statements for some hundred of them.

Owns no transaction and decides nothing: `writing.py` says which rows are written when.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db.models import Exists, OuterRef

from batches.engine import bulk, existing, keys, reviving, transitions, turns, versionrows
from batches.engine.audit import By
from batches.engine.errors import IntakeRefused
from batches.engine.versionrows import Content
from batches.manifests import Action, PlannedRow
from batches.models import (
    ACTIVE_STATES,
    Batch,
    BatchItem,
    Document,
    DocumentVersion,
    Job,
    JobState,
    Submission,
    Workspace,
)


def write(
    chunk: Sequence[PlannedRow], contents: Mapping[int, Content], *, batch: Batch, starter: By, now: datetime
) -> None:
    """Write some rows of a batch that is there, in the caller's transaction; `contents` of what is sent, by position.

    Raises `IntakeRefused`, and `IntegrityError` where somebody else was first with one of them.
    """
    _make_documents(batch, [planned for planned in chunk if planned.action is Action.NEW], now=now)
    documents = _documents(batch.workspace, [planned.row.business_id for planned in chunk])
    _refuse_final(batch.workspace, [planned for planned in chunk if planned.action is Action.CHANGED])
    sending = [planned for planned in chunk if planned.action in (Action.NEW, Action.CHANGED)]
    put = [(documents[planned.row.business_id], contents[planned.row.position]) for planned in sending]
    if versionrows.deleted_since(put):
        raise IntakeRefused(versionrows.DELETED_MEANWHILE)
    bulk.insert(
        DocumentVersion,
        [_version(planned, documents, contents, batch=batch, starter=starter, now=now) for planned in sending],
    )
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
    if batch.paused_at is None:
        take_the_lead(
            [
                versions[documents[planned.row.business_id], planned.version_number]
                for planned in chunk
                if planned.action is Action.UNCHANGED
            ]
        )


def _refuse_final(workspace: Workspace, changed: Sequence[PlannedRow]) -> None:
    """Raise for a document that was marked final since the check."""
    names = [planned.row.business_id for planned in changed]
    if names and Document.objects.filter(workspace=workspace, business_id__in=names, is_final=True).exists():
        raise IntakeRefused("One of its documents was marked final at this moment. Check the file again.")


def _make_documents(batch: Batch, planned_rows: Sequence[PlannedRow], *, now: datetime) -> None:
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


def _version(
    planned: PlannedRow,
    documents: Mapping[str, int],
    contents: Mapping[int, Content],
    *,
    batch: Batch,
    starter: By,
    now: datetime,
) -> dict[str, Any]:
    return versionrows.columns(
        contents[planned.row.position],
        document=documents[planned.row.business_id],
        number=planned.version_number,
        reason="" if planned.action is Action.NEW else f"New content in {batch.manifest_name}"[:200],
        by=starter,
        now=now,
    )


def _make_jobs(
    batch: Batch,
    planned_rows: Sequence[PlannedRow],
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
    versionrows.insert_jobs(((version_id, batch, batch.account_id) for _document, version_id in made), now=now)
    versionrows.make_current(made)


def _revive(
    planned_rows: Sequence[PlannedRow],
    documents: Mapping[str, int],
    versions: Mapping[tuple[int, int], int],
    batch: Batch,
    *,
    now: datetime,
) -> None:
    """Versions that were cancelled before they were ever sent are sent now, at this batch's account."""
    version_ids = [versions[documents[planned.row.business_id], planned.version_number] for planned in planned_rows]
    may_exist = Submission.objects.filter(job=OuterRef("pk")).exclude(existing.REFUSED_FOR_GOOD)
    cancelled = Job.objects.filter(
        ~Exists(may_exist), version_id__in=version_ids, version__input_deleted_at=None, state=JobState.CANCELLED
    )
    moves = [reviving.back(job, batch, reason="revived_by_upload", now=now) for job in cancelled]
    transitions.move_many(moves, now=now)


def take_the_lead(version_ids: Any) -> None:
    """Waiting documents whose batch is paused or cancelled are sent in the turns of this one."""
    waiting = Job.objects.filter(version__in=version_ids, state__in=ACTIVE_STATES)
    turns.choose_leads(waiting.exclude(turns.led_by_a_running_batch()))
