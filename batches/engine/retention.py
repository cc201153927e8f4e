"""What is kept no longer: found by each workspace's policy, and requested. `deleting.py` then deletes it.

A look walks the versions by their keys and asks `retention_rules.py`; a dry run ends there, so that its numbers are
those of a run. A request takes the locks of the jobs, asks once more, and commits a `Deletion` with the mark from which
on nothing reads the content. Nothing is deleted here, and no store or provider is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Exists, F, Max, OuterRef, Q, QuerySet

from batches.engine import bulk, exports
from batches.engine.contention import again_after_deadlock
from batches.engine.retention_rules import Kept, Part, Policy, kept_because
from batches.models import (
    ACTIVE_STATES,
    EXPORTS_AT_WORK,
    KINDS_WITH_CONTENT,
    MAYBE_THERE,
    Artifact,
    Batch,
    BatchItem,
    BulkActionItem,
    Deletion,
    DeletionState,
    DeletionWhat,
    DeletionWhere,
    DocumentVersion,
    Export,
    ItemResult,
    Job,
    JobState,
    Submission,
    WebhookEvent,
    Workspace,
)

#: Versions that are looked at in one statement.
LOOKED_AT_ONCE = 500
#: Versions whose deletion is requested in one transaction: their jobs are locked so long.
REQUESTED_AT_ONCE = 100
WHAT: Mapping[Part, DeletionWhat] = {
    Part.INPUTS: DeletionWhat.INPUT,
    Part.OUTPUTS: DeletionWhat.PDF,
    Part.EVIDENCE: DeletionWhat.EVIDENCE,
}
BATCH_KEPT = "the input of one of its documents is kept"
BATCH_WRITTEN = "its rows are still being written"


@dataclass(frozen=True)
class Found:
    """One part of one version, or the file and rows of a batch (`part` None), that is old enough.

    `because` says why it is kept all the same; "" where it is to be deleted.
    """

    part: Part | None
    pk: int
    workspace_id: int
    ended_at: datetime
    byte_count: int
    because: str = ""


@dataclass
class Tally:
    """What is deleted of one kind, and what is kept although it is old enough, counted by the reason."""

    count: int = 0
    byte_count: int = 0
    oldest: datetime | None = None
    kept: Counter[str] = field(default_factory=Counter)

    def add(self, found: Found) -> None:
        if found.because:
            self.kept[found.because] += 1
            return
        self.count += 1
        self.byte_count += found.byte_count
        self.oldest = min(filter(None, (self.oldest, found.ended_at)))


@dataclass
class Survey:
    """All that was found, by part; None stands for files and rows of batches. `is_whole`: nothing was left out."""

    parts: dict[Part | None, Tally] = field(default_factory=lambda: {part: Tally() for part in (*Part, None)})
    is_whole: bool = True

    def add(self, found: Iterable[Found]) -> None:
        for each in found:
            self.parts[each.part].add(each)


def policies(workspaces: QuerySet[Workspace] | None = None) -> dict[int, Policy]:
    """The policies that delete something, by workspace; of archived workspaces too."""
    rows = Workspace.objects.all() if workspaces is None else workspaces
    columns = ("pk", "keep_inputs_days", "keep_outputs_days", "keep_evidence_days")
    found = {pk: Policy(*days) for pk, *days in rows.order_by("pk").values_list(*columns)}
    return {pk: policy for pk, policy in found.items() if not policy.is_empty()}


def survey(known: Mapping[int, Policy], *, now: datetime, most: int | None = None) -> Survey:
    """What a run would delete now. At most so many versions and batches are looked at where `most` is given."""
    done = Survey()
    for walk in (versions, batches):
        looked_at, after = 0, 0
        while (page := walk(known, after=after, now=now)) is not None:
            found, after = page
            done.add(found)
            looked_at += LOOKED_AT_ONCE
            if most is not None and looked_at >= most:
                done.is_whole = False
                break
    return done


# --- looking ----------------------------------------------------------------------------------------------------------


def versions(known: Mapping[int, Policy], *, after: int, now: datetime) -> tuple[list[Found], int] | None:
    """What of the next versions behind that key is old enough, and the key to go on behind; None at the end."""
    rows = _aged(DocumentVersion.objects.filter(pk__gt=after).order_by("pk")[:LOOKED_AT_ONCE])
    if not rows or not known:
        return None
    return list(_judged(rows, known, now=now)), rows[-1]["pk"]


def _aged(rows: QuerySet[DocumentVersion]) -> list[Mapping[str, Any]]:
    evidence = Deletion.objects.filter(version=OuterRef("pk"), what=DeletionWhat.EVIDENCE, where=DeletionWhere.HERE)
    return list(
        rows.annotate(
            workspace=F("document__workspace"),
            state=F("job__state"),
            ended_at=F("job__state_changed_at"),
            pdf_bytes=F("artifact__byte_count"),
            pdf_deleted_at=F("artifact__local_deleted_at"),
            evidence_is_gone=Exists(evidence),
        ).values(
            "pk",
            "workspace",
            "state",
            "ended_at",
            "input_bytes",
            "input_deleted_at",
            "pdf_bytes",
            "pdf_deleted_at",
            "evidence_is_gone",
        )
    )


def _judged(rows: Sequence[Mapping[str, Any]], known: Mapping[int, Policy], *, now: datetime) -> Iterator[Found]:
    old = [(row, part) for row in rows for part in Part if _is_old(row, part, known.get(row["workspace"]), now)]
    standing = kept({row["pk"] for row, _part in old})
    for row, part in old:
        byte_count = {Part.INPUTS: row["input_bytes"], Part.OUTPUTS: row["pdf_bytes"]}.get(part) or 0
        because = kept_because(part, standing[row["pk"]], now=now)
        yield Found(part, row["pk"], row["workspace"], row["ended_at"], byte_count, because)


def _is_old(row: Mapping[str, Any], part: Part, policy: Policy | None, now: datetime) -> bool:
    """Whether it is still there, and over the time for which it is kept. What is under way has not ended at all."""
    is_there = {
        Part.INPUTS: row["input_deleted_at"] is None,
        Part.OUTPUTS: row["pdf_bytes"] is not None and row["pdf_deleted_at"] is None,
        Part.EVIDENCE: not row["evidence_is_gone"],
    }
    if policy is None or not is_there[part] or row["ended_at"] is None:
        return False
    due_at = policy.due_at(part, row["ended_at"])
    return due_at is not None and due_at <= now


def kept(version_ids: Iterable[int]) -> dict[int, Kept]:
    """How these versions stand, as the rules ask, by their keys."""
    ids = sorted(version_ids)
    found: dict[int, Kept] = {}
    for chunk in bulk.chunks(ids, LOOKED_AT_ONCE):
        found |= _kept(chunk)
    return found


def _kept(ids: Sequence[int]) -> dict[int, Kept]:
    sent = Submission.objects.filter(job=OuterRef("pk"))
    going = Deletion.objects.filter(
        submission__job=OuterRef("pk"), where=DeletionWhere.PROVIDER, state=DeletionState.REQUESTED
    )
    acted_on = BulkActionItem.objects.filter(
        version=OuterRef("version"),
        result=ItemResult.WAITING,
        action__confirmed_at__isnull=False,
        action__finished_at=None,
    )
    events = (
        Submission.objects.filter(job__version__in=ids, provider_job_id__isnull=False)
        .order_by()
        .values_list("job__version", "account", "provider_job_id")
    )
    newest = _newest_events(list(events))
    needed, exported = _batches_of(ids)
    rows = Job.objects.filter(version__in=ids).annotate(
        in_doubt=Exists(sent.filter(MAYBE_THERE)),
        resend_until=Max("submissions__resend_until"),
        watch_until=Max("submissions__watch_until"),
        copy_is_going=Exists(going),
        is_acted_on=Exists(acted_on),
    )
    columns = ("in_doubt", "resend_until", "watch_until", "copy_is_going", "is_acted_on")
    return {
        row["version"]: Kept(
            state=JobState(row["state"]),
            ended_at=row["state_changed_at"],
            is_needed=row["version"] in needed,
            is_exported=row["version"] in exported,
            newest_event_at=newest.get(row["version"]),
            **{name: row[name] for name in columns},
        )
        for row in rows.order_by().values("version", "state", "state_changed_at", *columns)
    }


def _newest_events(sent: Sequence[tuple[int, int, str | None]]) -> dict[int, datetime]:
    """When the last webhook of each version came, by version."""
    of = {(account, job_id): version for version, account, job_id in sent}
    found: dict[int, datetime] = {}
    for chunk in bulk.chunks(list(of), LOOKED_AT_ONCE):
        rows = WebhookEvent.objects.filter(
            account__in={account for account, _ in chunk}, provider_job_id__in=[job_id for _, job_id in chunk]
        ).order_by()
        newest = rows.values("account", "provider_job_id").annotate(at=Max("received_at"))
        for account, job_id, at in newest.values_list("account", "provider_job_id", "at"):
            version = of.get((account, job_id))
            if version is not None:
                found[version] = max(found.get(version, at), at)
    return found


def _batches_of(ids: Sequence[int]) -> tuple[set[int], set[int]]:
    """Which of the versions a batch needs that is not over, and of which a file is being made."""
    naming = list(BatchItem.objects.filter(version__in=ids).order_by().values_list("batch", "version"))
    batch_ids = {batch for batch, _version in naming}
    at_work = BatchItem.objects.filter(batch=OuterRef("pk"), version__job__state__in=ACTIVE_STATES)
    living = Batch.objects.filter(pk__in=batch_ids).filter(Q(writing_at__isnull=False) | Exists(at_work))
    building = Export.objects.filter(batch__in=batch_ids, state__in=EXPORTS_AT_WORK, kind__in=KINDS_WITH_CONTENT)
    needing = set(living.order_by().values_list("pk", flat=True))
    exporting = set(building.order_by().values_list("batch", flat=True))
    return (
        {version for batch, version in naming if batch in needing},
        {version for batch, version in naming if batch in exporting},
    )


def batches(known: Mapping[int, Policy], *, after: int, now: datetime) -> tuple[list[Found], int] | None:
    """As `versions`, of the files and rows of batches: they go when the inputs of all their documents have gone."""
    rows = (
        Batch.objects.filter(pk__gt=after)
        .order_by("pk")
        .only("workspace", "created_at", "writing_at", "rows_deleted_at", "manifest_bytes")
    )
    page = list(rows[:LOOKED_AT_ONCE])
    if not page or not known:
        return None
    return [found for row in page for found in _of_batch(row, known, now=now)], page[-1].pk


def _of_batch(batch: Batch, known: Mapping[int, Policy], *, now: datetime) -> Iterator[Found]:
    policy = known.get(batch.workspace_id)
    due_at = policy.due_at(Part.INPUTS, batch.created_at) if policy else None
    if batch.rows_deleted_at is not None or due_at is None or due_at > now:
        return
    because = BATCH_WRITTEN if batch.writing_at else "" if _inputs_go(batch, known, now=now) else BATCH_KEPT
    yield Found(None, batch.pk, batch.workspace_id, batch.created_at, batch.manifest_bytes, because)


def _inputs_go(batch: Batch, known: Mapping[int, Policy], *, now: datetime) -> bool:
    """Whether no document of the batch keeps its input: each is gone, or is to be deleted now."""
    after = 0
    of_batch = DocumentVersion.objects.filter(
        Exists(BatchItem.objects.filter(batch=batch, version=OuterRef("pk"))), input_deleted_at=None
    )
    while rows := _aged(of_batch.filter(pk__gt=after).order_by("pk")[:LOOKED_AT_ONCE]):
        judged = [found for found in _judged(rows, known, now=now) if found.part is Part.INPUTS]
        if len(judged) < len(rows) or any(found.because for found in judged):
            return False
        after = rows[-1]["pk"]
    return True


# --- requesting -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asking:
    """Who asks for deletions, when, and by which policies."""

    known: Mapping[int, Policy]
    by: str
    now: datetime

    def row(self, workspace_id: int, part: Part, what: DeletionWhat, **of: Any) -> Deletion:
        return Deletion(
            workspace_id=workspace_id,
            what=what,
            where=DeletionWhere.HERE,
            rule=self.known[workspace_id].rule(part),
            by=self.by[:150],
            requested_at=self.now,
            due_at=self.now,
            **of,
        )


def request(found: Sequence[Found], known: Mapping[int, Policy], *, by: str, now: datetime) -> list[int]:
    """Commit that these are deleted: keys of the deletions that `deleting.py` carries out. What began to be needed
    since it was looked at is left."""
    asking = Asking(known, by, now)
    made: list[int] = []
    going = [each for each in found if not each.because]
    for part in (*Part, None):
        for chunk in bulk.chunks([each.pk for each in going if each.part is part], REQUESTED_AT_ONCE):
            made += _request_batches(chunk, asking) if part is None else _request(part, chunk, asking)
    return made


@again_after_deadlock
@transaction.atomic
def _request(part: Part, ids: Sequence[int], asking: Asking) -> list[int]:
    if part is Part.INPUTS:  # in the order of `running.py`: nobody attaches to it or names its text again meanwhile
        theirs = DocumentVersion.objects.filter(pk__in=ids).values("document__workspace")
        held = Workspace.objects.filter(pk__in=theirs).order_by("pk").select_for_update(no_key=True)
        list(held.values_list("pk", flat=True))
    jobs = Job.objects.filter(version__in=ids).order_by("pk")
    list(jobs.select_for_update(no_key=True, of=("self",)).values_list("pk", flat=True))
    # By a statement of its own: what the locking one read is as old as its wait (PostgreSQL).
    aged = _aged(DocumentVersion.objects.filter(pk__in=ids).order_by("pk"))
    judged = _judged(aged, asking.known, now=asking.now)
    chosen = [each.pk for each in judged if each.part is part and not each.because]
    of = DocumentVersion.objects.filter(pk__in=chosen).select_related("document", "artifact").defer("input_inline")
    rows = [
        asking.row(version.document.workspace_id, part, WHAT[part], version=version, **_what_goes(part, version))
        for version in of.order_by("pk")
    ]
    if part is Part.INPUTS:
        rows += _request_bodies(chosen, asking)
        DocumentVersion.objects.filter(pk__in=chosen).update(input_deleted_at=asking.now)
    if part is Part.OUTPUTS:
        Artifact.objects.filter(version__in=chosen).update(local_deleted_at=asking.now)
        exports.expire_holding(chosen, now=asking.now)
    return [row.pk for row in Deletion.objects.bulk_create(rows)]


def _what_goes(part: Part, version: DocumentVersion) -> dict[str, Any]:
    """Digest and size, where they are known before: of evidence they are counted when it goes."""
    if part is Part.INPUTS:
        return {"sha256": version.input_sha256, "byte_count": version.input_bytes}
    if part is Part.OUTPUTS:
        return {"sha256": version.artifact.sha256, "byte_count": version.artifact.byte_count}
    return {}


def _request_bodies(version_ids: Sequence[int], asking: Asking) -> list[Deletion]:
    """The bytes that were sent hold the document once more."""
    sent = Submission.objects.filter(job__version__in=version_ids, body_deleted_at=None)
    found = list(sent.order_by("pk").values_list("pk", "job__version__document__workspace", "request_sha256"))
    Submission.objects.filter(pk__in=[pk for pk, _, _ in found]).update(body_deleted_at=asking.now)
    return [
        asking.row(workspace_id, Part.INPUTS, DeletionWhat.REQUEST, submission_id=pk, sha256=sha256)
        for pk, workspace_id, sha256 in found
    ]


@again_after_deadlock
@transaction.atomic
def _request_batches(ids: Sequence[int], asking: Asking) -> list[int]:
    rows = Batch.objects.filter(pk__in=ids, rows_deleted_at=None).order_by("pk")
    list(rows.select_for_update(no_key=True, of=("self",)).values_list("pk", flat=True))
    chosen = [
        batch
        for batch in rows.defer("report")
        if any(not each.because for each in _of_batch(batch, asking.known, now=asking.now))
    ]
    made = [
        asking.row(
            batch.workspace_id,
            Part.INPUTS,
            DeletionWhat.MANIFEST,
            batch=batch,
            sha256=batch.manifest_sha256,
            byte_count=batch.manifest_bytes,
        )
        for batch in chosen
    ]
    Batch.objects.filter(pk__in=[batch.pk for batch in chosen]).update(rows_deleted_at=asking.now)
    return [row.pk for row in Deletion.objects.bulk_create(made)]
