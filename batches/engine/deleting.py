"""Deletes here what was requested, and settles it: objects in the store first, then the columns that hold content.

Each step may be done twice, so whoever dies in between leaves a requested row that the next one goes on with. A row is
settled as confirmed only once the store has taken the object away, and by one guarded update.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, Q, QuerySet

from batches.engine.contention import again_after_deadlock
from batches.models import (
    ACTIVE_STATES,
    KINDS_WITH_CONTENT,
    Batch,
    BatchItem,
    Deletion,
    DeletionState,
    DeletionWhat,
    DeletionWhere,
    DocumentVersion,
    Draft,
    DraftState,
    Exchange,
    ExportPart,
    Job,
    Submission,
    WebhookEvent,
)
from batches.storage import ArtifactStore, StoreError

log = logging.getLogger(__name__)

CARRIED_AT_ONCE = 100
#: Until what waits is tried again: something may end, or the store be back.
AGAIN_AFTER = timedelta(minutes=5)
SHARED = "The same bytes are in use by something that is kept."
EXPORTED = "A file that held it is being removed first."


@dataclass(frozen=True)
class Outcome:
    """Gone, or (`waits`) why not yet. `sha256`, `words`: what is known of what went only now."""

    waits: str = ""
    words: str = ""
    sha256: str = ""


def due(*, now: datetime, most: int = CARRIED_AT_ONCE) -> list[int]:
    """Requested deletions here that nobody finished, the one that waits longest first."""
    rows = Deletion.objects.filter(where=DeletionWhere.HERE, state=DeletionState.REQUESTED, due_at__lte=now)
    return list(rows.order_by("due_at", "pk").values_list("pk", flat=True)[:most])


def carry_out(ids: Iterable[int], store: ArtifactStore, *, now: datetime) -> int:
    """Delete what these rows name, and settle them; how many are settled. Store errors put a row off."""
    requested = Deletion.objects.filter(pk__in=list(ids), state=DeletionState.REQUESTED, where=DeletionWhere.HERE)
    related = requested.select_related("version__document__workspace", "version__artifact", "submission", "batch")
    outcomes: dict[int, Outcome] = {}
    for row in related.defer("version__input_inline", "submission__body_inline", "batch__report").order_by("pk"):
        try:
            outcomes[row.pk] = _OBJECTS[DeletionWhat(row.what)](row, store)
        except StoreError as error:
            log.warning("%s of %s stays in the store for now: %s", row.what, row.pk, error.words)
            outcomes[row.pk] = Outcome(waits=f"The store did not delete it. {error.words}")
    return _settle(outcomes, now=now)


@again_after_deadlock
@transaction.atomic
def _settle(outcomes: Mapping[int, Outcome], *, now: datetime) -> int:
    """Empty the columns and settle, in one transaction: a settled row never stands beside content that is there."""
    requested = Deletion.objects.filter(pk__in=list(outcomes), state=DeletionState.REQUESTED)
    rows = list(requested.select_for_update(no_key=True).order_by("pk"))
    gone = [row for row in rows if not outcomes[row.pk].waits]
    _empty(gone)
    for row in rows:
        outcome = outcomes[row.pk]
        columns: dict[str, Any] = {"words": outcome.words, **({"sha256": outcome.sha256} if outcome.sha256 else {})}
        if outcome.waits:
            columns = {"words": outcome.waits, "due_at": now + AGAIN_AFTER, "tries": F("tries") + 1}
        else:
            columns |= {"state": DeletionState.CONFIRMED, "settled_at": now, "due_at": None}
        Deletion.objects.filter(pk=row.pk).update(**columns)
    return len(gone)


def _empty(gone: Sequence[Deletion]) -> None:
    by_what: dict[str, list[Deletion]] = {}
    for row in gone:
        by_what.setdefault(row.what, []).append(row)
    versions = [row.version_id or 0 for row in by_what.get(DeletionWhat.INPUT, [])]
    inputs = DocumentVersion.objects.filter(pk__in=versions)
    inputs.filter(template_version__isnull=False).update(template_data={})
    inputs.update(input_inline=None, input_key=None)
    bodies = [row.submission_id or 0 for row in by_what.get(DeletionWhat.REQUEST, [])]
    Submission.objects.filter(pk__in=bodies).update(body_inline=None, body_key=None)
    batches = [row.batch_id or 0 for row in by_what.get(DeletionWhat.MANIFEST, [])]
    BatchItem.objects.filter(batch__in=batches).update(original_row={})
    Draft.objects.filter(Q(batch__in=batches) | Q(target__in=batches, state=DraftState.STARTED)).update(look={})
    for row in by_what.get(DeletionWhat.EVIDENCE, []):
        Exchange.objects.filter(job__version=row.version_id).update(request={}, response={})
        _events_of(row.version_id).update(body=b"", headers={})


# --- what lies in the store -------------------------------------------------------------------------------------------
#
# Objects are named by their content, so another row may name the same one. Nobody puts an input under the key of one
# whose deletion was requested (`versionrows.deleted_since`), nor a request under another version's key.


def _input(row: Deletion, store: ArtifactStore) -> Outcome:
    version = _version(row)
    if version.input_key is None:
        return Outcome()
    others = DocumentVersion.objects.filter(document=version.document_id, input_key=version.input_key)
    if others.filter(input_deleted_at=None).exists():
        return Outcome(waits=SHARED)
    store.delete(version.input_key)
    return Outcome()


def _request(row: Deletion, store: ArtifactStore) -> Outcome:
    sent = row.submission
    assert sent is not None, "the database holds the submission of a request"
    if sent.body_key is None:
        return Outcome()
    document = DocumentVersion.objects.values_list("document", flat=True).get(job=sent.job_id)
    others = Submission.objects.filter(job__version__document=document, body_key=sent.body_key)
    # Who is at work is asked first: what it puts is then named by its row, if it is at work no more.
    if _is_at_work(document) or others.filter(body_deleted_at=None).exists():
        return Outcome(waits=SHARED)
    store.delete(sent.body_key)
    return Outcome()


def _pdf(row: Deletion, store: ArtifactStore) -> Outcome:
    version = _version(row)
    naming = BatchItem.objects.filter(version=version).order_by().values("batch")
    left = ExportPart.objects.filter(
        export__batch__in=naming,
        export__kind__in=KINDS_WITH_CONTENT,
        created_at__lte=row.requested_at,
        gone_at=None,
    )
    if left.exists():
        return Outcome(waits=EXPORTED)
    store.delete(version.artifact.storage_key)
    return Outcome()


def _manifest(row: Deletion, store: ArtifactStore) -> Outcome:
    batch = row.batch
    assert batch is not None, "the database holds the batch of a manifest"
    ours = Batch.objects.filter(workspace=batch.workspace_id, rows_deleted_at=None)
    # What is being started is asked first: its rows are there, if it is being started no more.
    is_starting = Draft.objects.filter(workspace=batch.workspace_id, state=DraftState.STARTING).exists()
    for key in filter(None, (batch.manifest_key, batch.left_out_key)):
        if is_starting or ours.filter(Q(manifest_key=key) | Q(left_out_key=key)).exists():
            return Outcome(waits=SHARED)
        store.delete(key)
    drafts = Draft.objects.filter(Q(batch=batch) | Q(target=batch, state=DraftState.STARTED), upload_deleted_at=None)
    for draft in drafts.only("upload_key"):
        store.delete(draft.upload_key)
        Draft.objects.filter(pk=draft.pk).update(upload_deleted_at=row.requested_at)
    return Outcome()


def _evidence(row: Deletion, _store: ArtifactStore) -> Outcome:
    """Nothing of it lies in the store. What went is told by the digest of all of it."""
    digest, exchanges, events = hashlib.sha256(), 0, 0
    told = Exchange.objects.filter(job__version=row.version_id).order_by("pk")
    for request, response in told.values_list("request", "response").iterator():
        digest.update(json.dumps([request, response], sort_keys=True).encode())
        exchanges += 1
    for sha256 in _events_of(row.version_id).order_by("pk").values_list("body_sha256", flat=True):
        digest.update(sha256.encode())
        events += 1
    return Outcome(words=f"{exchanges:,} requests, {events:,} webhooks.", sha256=digest.hexdigest())


_OBJECTS: Mapping[DeletionWhat, Callable[[Deletion, ArtifactStore], Outcome]] = {
    DeletionWhat.INPUT: _input,
    DeletionWhat.REQUEST: _request,
    DeletionWhat.PDF: _pdf,
    DeletionWhat.MANIFEST: _manifest,
    DeletionWhat.EVIDENCE: _evidence,
}


def _version(row: Deletion) -> DocumentVersion:
    assert row.version is not None, "the database holds the version"
    return row.version


def _events_of(version_id: int | None) -> QuerySet[WebhookEvent]:
    sent = Submission.objects.filter(job__version=version_id, provider_job_id__isnull=False)
    pairs = list(sent.values_list("account", "provider_job_id"))
    of = Q(pk__in=[])
    for account, job_id in pairs:
        of |= Q(account=account, provider_job_id=job_id)
    return WebhookEvent.objects.filter(of)


def _is_at_work(document_id: int) -> bool:
    return Job.objects.filter(version__document=document_id, state__in=ACTIVE_STATES).exists()
