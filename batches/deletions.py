"""The deletion certificate of a document: what was deleted where, when and by which rule; what could not be proven;
what is still there, and until when. Reads only, and no content."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q
from django.utils.dateparse import parse_datetime

from batches import figures
from batches.engine import retention
from batches.engine.retention_rules import NOT_ENDED, Kept, Part, Policy, kept_because
from batches.models import (
    ACTIVE_STATES,
    Deletion,
    DeletionState,
    DeletionWhat,
    DeletionWhere,
    Document,
    DocumentVersion,
    Job,
    JobState,
    Submission,
    SubmissionOutcome,
    Workspace,
)

#: More versions, and more deletions, than any document has.
VERSIONS_MOST = 200
BACKUPS = "Backups of the database and of the store are not seen from here: nothing is said of them."
FOR_EVER = "for ever: nobody set a number of days"


@dataclass(frozen=True)
class Left:
    """Something that is still there. `until` is None where it ends by no clock of ours; `words` say why."""

    version: int
    what: str
    where: str
    words: str
    until: datetime | None = None
    sha256: str = ""


@dataclass(frozen=True)
class Certificate:
    """All of one document, as it was at `at`."""

    document: Document
    at: datetime
    rows: Sequence[Deletion]
    left: Sequence[Left]

    @property
    def not_proven(self) -> list[str]:
        """What nobody can vouch for, in sentences."""
        found = []
        for row in self.rows:
            what = f"{row.get_what_display()} of version {version_of(row) or '–'} at the provider"
            if row.state == DeletionState.FAILED:
                found.append(f"{what}: the provider never confirmed that it is gone.")
            elif row.state == DeletionState.NOT_OFFERED:
                found.append(f"{what}: the provider deletes nothing on request.")
        return [*found, BACKUPS]


def certificate(document: Document, *, now: datetime) -> Certificate:
    versions = document.versions.select_related("job", "artifact").defer("input_inline").order_by("number")
    chosen = list(versions[:VERSIONS_MOST])
    ids = [version.pk for version in chosen]
    batches = {item.batch_id for item in document.items.only("batch_id")}
    rows = (
        Deletion.objects.filter(Q(version__in=ids) | Q(submission__job__version__in=ids) | Q(batch__in=batches))
        .select_related("version", "submission__job__version", "batch", "submission__account")
        .defer("version__input_inline", "submission__job__version__input_inline", "submission__body_inline")
        .order_by("requested_at", "pk")
    )
    found = list(rows)
    return Certificate(document, now, found, list(_left(document.workspace, chosen, found, now=now)))


def version_of(row: Deletion) -> int | None:
    """The number of the version that a row is about; None for what is of a whole batch."""
    if row.version is not None:
        return row.version.number
    return row.submission.job.version.number if row.submission is not None else None


def _left(
    workspace: Workspace, versions: Sequence[DocumentVersion], rows: Sequence[Deletion], *, now: datetime
) -> Iterator[Left]:
    standing = retention.kept(version.pk for version in versions)
    policy = policy_of(workspace)
    evidence = {row.version_id for row in rows if row.what == DeletionWhat.EVIDENCE}
    for version in versions:
        there = {
            Part.INPUTS: version.input_deleted_at is None,
            Part.OUTPUTS: hasattr(version, "artifact") and version.artifact.local_deleted_at is None,
            Part.EVIDENCE: version.pk not in evidence,
        }
        for part, what in retention.WHAT.items():
            if there[part]:
                digest = {Part.INPUTS: version.input_sha256}.get(part, "")
                digest = version.artifact.sha256 if part is Part.OUTPUTS else digest
                until, words = ends(policy, part, standing[version.pk], now=now)
                yield Left(version.number, what.label, DeletionWhere.HERE.label, words, until, digest)
    yield from _copies(versions, rows)


def _copies(versions: Sequence[DocumentVersion], rows: Sequence[Deletion]) -> Iterator[Left]:
    """What may be at providers, by what they said when they finished it."""
    gone = {row.submission_id or 0 for row in rows if row.where == DeletionWhere.PROVIDER and row.state == "confirmed"}
    sent = Submission.objects.filter(
        job__version__in=[version.pk for version in versions],
        provider_job_id__isnull=False,
        outcome__in=(SubmissionOutcome.DELIVERED, SubmissionOutcome.SURPLUS),
    ).exclude(pk__in=gone)
    for row in sent.select_related("job__version", "account").defer("body_inline", "job__version__input_inline"):
        said = (row.result or {}).get("expires_at")
        until = parse_datetime(said) if isinstance(said, str) else None
        kept = row.account.output_retention
        words = "as the provider said" if until else f"kept there for {kept}" if kept else "the provider does not say"
        where = f"{DeletionWhere.PROVIDER.label} ({row.account.name})"
        yield Left(row.job.version.number, DeletionWhat.PDF.label, where, words, until)


def policy_of(workspace: Workspace) -> Policy:
    return Policy(workspace.keep_inputs_days, workspace.keep_outputs_days, workspace.keep_evidence_days)


def ends(policy: Policy, part: Part, kept: Kept, *, now: datetime) -> tuple[datetime | None, str]:
    """When a part is deleted, and in words why then or not at all."""
    if policy.days(part) is None:
        return None, FOR_EVER
    if kept.state in ACTIVE_STATES:
        return None, NOT_ENDED
    if because := kept_because(part, kept, now=now):
        return None, because
    return policy.due_at(part, kept.ended_at), policy.rule(part)


def countdown(version: DocumentVersion, job: Job, *, now: datetime) -> dict[str, str]:
    """When the input and the PDF of a version are deleted, in words (`in 12 days`), by `input` and `pdf`, as far as its
    job alone tells: it costs no query."""
    policy = policy_of(version.document.workspace)
    kept = Kept(state=JobState(job.state), ended_at=job.state_changed_at)
    artifact = getattr(version, "artifact", None)
    there = {
        Part.INPUTS: version.input_deleted_at is None,
        Part.OUTPUTS: artifact is not None and artifact.local_deleted_at is None,
    }
    found = {retention.WHAT[part].value: ends(policy, part, kept, now=now)[0] for part, is_it in there.items() if is_it}
    return {name: figures.until(at, now=now) for name, at in found.items() if at is not None}


def as_dict(found: Certificate) -> dict[str, Any]:
    """JSON values. A provider's own words are left out: they may quote the document."""
    return {
        "document": found.document.public_id,
        "business_id": found.document.business_id,
        "workspace": found.document.workspace.slug,
        "made_at": found.at.isoformat(),
        "deletions": [_row(row) for row in found.rows],
        "not_proven": found.not_proven,
        "still_there": [
            {
                "version": each.version,
                "what": each.what,
                "where": each.where,
                "until": each.until.isoformat() if each.until else None,
                "words": each.words,
                "sha256": each.sha256 or None,
            }
            for each in found.left
        ],
    }


def _row(row: Deletion) -> dict[str, Any]:
    return {
        "version": version_of(row),
        "batch": row.batch.public_id if row.batch else None,
        "what": row.what,
        "where": row.where,
        "account": row.submission.account.slug if row.submission and row.where == DeletionWhere.PROVIDER else None,
        "rule": row.rule,
        "by": row.by,
        "state": row.state,
        "requested_at": row.requested_at.isoformat(),
        "settled_at": row.settled_at.isoformat() if row.settled_at else None,
        "sha256": row.sha256 or None,
        "bytes": row.byte_count,
    }
