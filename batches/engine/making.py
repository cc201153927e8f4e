"""Making the next version of documents that exist: the rows of it, in the caller's transaction.

What may have a next version, and who asked for it, is for the caller (`versions.py`, `replacing.py`); what intake makes
is `plannedrows.py`. Rows of versions are never updated, and an older version's job is never touched,
but for one that was not sent and that nobody needs any more: it ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Exists, F, Max, OuterRef, Q

from batches import queue
from batches.engine import bulk, pacing, reviving, running, settled, transitions, turns, versionrows
from batches.engine.audit import By
from batches.engine.versionrows import Content
from batches.models import (
    NOTHING_THERE,
    Batch,
    BatchItem,
    Document,
    DocumentVersion,
    Job,
    JobState,
    Lane,
    ProviderAccount,
    Submission,
    Workspace,
)

#: An earlier version with the same input is attached to in these states: it is there, or comes by itself.
_ATTACHABLE = frozenset({JobState.PENDING, JobState.SUBMITTING, JobState.ACCEPTED, JobState.RENDERED, JobState.SAVED})


@dataclass
class Wanted:
    """A document that gets its next version, and the items that move to it. `content` None: the same input again.

    `batch` is the one in whose turns it is sent, at `account`.
    """

    document: Document
    version: DocumentVersion
    batch: Batch
    account: ProviderAccount
    content: Content | None
    items: list[BatchItem]
    row: Mapping[str, Any] | None = None
    """The corrected row as it was given, where one was."""

    @property
    def sha256(self) -> str:
        return self.content.sha256 if self.content else self.version.input_sha256


@dataclass(frozen=True)
class Made:
    """The version that a document's items name now. Not `is_new`: one with this very input was there already."""

    version_id: int
    number: int
    is_new: bool


@dataclass(frozen=True)
class _Earlier:
    version_id: int
    number: int
    is_revived: bool


def lock(item_ids: Iterable[int]) -> None:
    """Hold all that could send or attach to what these items name: their workspaces, the lanes of their jobs'
    accounts, the jobs. In the order of `running.py`, before anything is read that is relied on."""
    workspaces: set[int] = set()
    accounts: set[int] = set()
    jobs: set[int] = set()
    columns = ("batch__workspace_id", "version__job__account_id", "version__job__pk")
    for ids in bulk.chunks(list(item_ids), bulk.ROWS_PER_STATEMENT):
        for workspace_id, account_id, job_id in BatchItem.objects.filter(pk__in=ids).order_by().values_list(*columns):
            workspaces.add(workspace_id)
            accounts.add(account_id)
            jobs.add(job_id)
    list(Workspace.objects.select_for_update(no_key=True).filter(pk__in=workspaces).order_by("pk"))
    for account_id in sorted(accounts):
        pacing.lock(account_id, Lane.SUBMIT)
    for ids in bulk.chunks(sorted(jobs), bulk.ROWS_PER_STATEMENT):
        list(Job.objects.filter(pk__in=ids).order_by("pk").select_for_update(no_key=True).values_list("pk", flat=True))


def make(wanted: Sequence[Wanted], *, by: By, reason: str, now: datetime) -> dict[int, Made]:
    """Write the next version of each document, its job, and move the items and the document to it; by document.

    Where another version of the document has this very input and is saved or on its way, nothing is made and nothing
    is billed: the items and the document move to that one. `lock` was called in this transaction.
    """
    earlier = _earlier([each for each in wanted if each.sha256 != each.version.input_sha256])
    fresh = [each for each in wanted if each.document.pk not in earlier]
    made = _insert(fresh, by=by, reason=reason, now=now)
    for each in wanted:
        if each.document.pk in earlier:
            found = earlier[each.document.pk]
            made[each.document.pk] = Made(found.version_id, found.number, is_new=False)
    _revive(wanted, earlier, by=by, reason=reason, now=now)
    _move(wanted, made)
    _settle_old(wanted, made, by=by, reason=reason, now=now)
    if made:
        queue.ring()
    return made


def _earlier(wanted: Sequence[Wanted]) -> dict[int, _Earlier]:
    """Versions to attach to, by document: the newest other one with the wanted input, if it needs nobody."""
    asked = {each.document.pk: each for each in wanted}
    may_exist = Submission.objects.filter(job__version=OuterRef("pk")).exclude(NOTHING_THERE)
    rows = (
        DocumentVersion.objects.filter(document__in=asked, input_sha256__in={each.sha256 for each in wanted})
        .annotate(may_exist=Exists(may_exist), state=F("job__state"))
        .annotate(deleted_at=F("artifact__local_deleted_at"), missing_at=F("artifact__missing_at"))
        .order_by("number")
        .values_list(
            "document",
            "pk",
            "number",
            "input_sha256",
            "state",
            "may_exist",
            "deleted_at",
            "missing_at",
            "input_deleted_at",
        )
    )
    found: dict[int, _Earlier] = {}
    for document_id, pk, number, sha256, state, may_be_there, deleted_at, missing_at, input_deleted_at in rows:
        each = asked[document_id]
        if sha256 != each.sha256 or pk == each.version.pk:
            continue
        is_unsent = state == JobState.CANCELLED and not may_be_there and input_deleted_at is None
        is_there = state in _ATTACHABLE and deleted_at is None and missing_at is None
        if is_unsent or is_there:
            found[document_id] = _Earlier(pk, number, is_revived=is_unsent)
        else:
            found.pop(document_id, None)  # a newer one with this input needs a person: it is made once more
    return found


def _insert(wanted: Sequence[Wanted], *, by: By, reason: str, now: datetime) -> dict[int, Made]:
    documents = [each.document.pk for each in wanted]
    latest = DocumentVersion.objects.filter(document__in=documents).order_by().values_list("document")
    numbers = {document: number + 1 for document, number in latest.annotate(latest=Max("number"))}
    rows = [
        versionrows.columns(
            each.content or versionrows.of_version(each.version),
            document=each.document.pk,
            number=numbers[each.document.pk],
            reason=reason,
            by=by,
            now=now,
        )
        for each in wanted
    ]
    ids = bulk.insert_returning(DocumentVersion, rows, key="document")
    versionrows.insert_jobs(((ids[each.document.pk], each.batch, each.account.pk) for each in wanted), now=now)
    return {document: Made(ids[document], numbers[document], is_new=True) for document in documents}


def _revive(wanted: Sequence[Wanted], earlier: Mapping[int, _Earlier], *, by: By, reason: str, now: datetime) -> None:
    """Earlier versions that were cancelled before they were sent are sent now, at the account that is wanted."""
    revived = {
        earlier[each.document.pk].version_id: each
        for each in wanted
        if each.document.pk in earlier and earlier[each.document.pk].is_revived
    }
    cancelled = Job.objects.filter(version__in=revived, state=JobState.CANCELLED).order_by("pk")
    moves = [
        reviving.back(
            job,
            revived[job.version_id].batch,
            revived[job.version_id].account,
            reason="revived_by_regenerate",
            words=reason,
            actor=by.words,
            now=now,
        )
        for job in cancelled
    ]
    transitions.move_many(moves, now=now)


def _move(wanted: Sequence[Wanted], made: Mapping[int, Made]) -> None:
    """The chosen items and the documents' pointers. A source that was offered and is taken now is no other one."""
    for is_taken in (True, False):
        chosen = [each.document.pk for each in wanted if (each.document.source_sha256 == each.sha256) is is_taken]
        versionrows.make_current([(pk, made[pk].version_id) for pk in chosen], is_stale=not is_taken)
    along = _taken_along(wanted)
    moving = [(pk, each) for each in wanted for pk in (*(item.pk for item in each.items), *along[each.version.pk])]
    rows = [
        {"pk": pk, "version": made[each.document.pk].version_id, "dismissed_at": None, "dismissed_note": None}
        for pk, each in moving
    ]
    bulk.guarded_update(BatchItem, rows)
    settled.void_items(pk for pk, _each in moving)
    bulk.guarded_update(BatchItem, [{"pk": pk, "original_row": each.row} for pk, each in moving if each.row])
    shared = [made[each.document.pk].version_id for each in wanted if along[each.version.pk]]
    turns.choose_leads(Job.objects.filter(version__in=shared))


def _taken_along(wanted: Sequence[Wanted]) -> defaultdict[int, list[int]]:
    """Items by the version they name, of the sample of a batch, or of the batch that waits for a sample: what is made
    anew in one of the two is made for the other as well, which would else keep the failed one for good."""
    batches = {item.batch for each in wanted for item in each.items}
    family = Q(batch__sample_of__in=batches) | Q(batch__in=[batch.sample_of_id for batch in batches])
    chosen = [item.pk for each in wanted for item in each.items]
    rows = BatchItem.objects.filter(family, version__in=[each.version.pk for each in wanted], cancelled_at=None)
    found: defaultdict[int, list[int]] = defaultdict(list)
    for version_id, pk in rows.exclude(pk__in=chosen).order_by("pk").values_list("version", "pk"):
        found[version_id].append(pk)
    return found


def _settle_old(wanted: Sequence[Wanted], made: Mapping[int, Made], *, by: By, reason: str, now: datetime) -> None:
    """Say in each older job's history what came after it, and end those that wait and that nobody needs."""
    numbers = {each.version.pk: made[each.document.pk].number for each in wanted}
    workspaces = {each.version.pk: each.document.workspace_id for each in wanted}
    jobs = Job.objects.filter(version__in=[*numbers, *(one.version_id for one in made.values())])
    turns.choose_leads(jobs)
    waiting: dict[int, list[int]] = {}
    followed: dict[int, list[tuple[int, JobState]]] = {}
    for job in Job.objects.filter(version__in=numbers).order_by("pk"):
        followed.setdefault(numbers[job.version_id], []).append((job.pk, JobState(job.state)))
        if job.state == JobState.PENDING and job.lead_batch_id is None:
            waiting.setdefault(workspaces[job.version_id], []).append(job.pk)
    for number, old in sorted(followed.items()):
        words = f"Version {number} takes its place: {reason}"
        transitions.record_unmoved(old, reason="regenerated", words=words, actor=by.words, now=now)
    for workspace_id, ids in sorted(waiting.items()):
        running.end(workspace_id, ids, now=now)
