"""Read-only queries behind the document page: one document with its versions, its submissions and its history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from batches import selectors, timelines, wording
from batches.models import (
    ACTIVE_STATES,
    AccountHealth,
    Artifact,
    BatchItem,
    Document,
    DocumentVersion,
    Job,
    JobState,
    Submission,
)

SUBMISSIONS_SHOWN = 50
BATCHES_SHOWN = 20
VERSIONS_SHOWN = 50


@dataclass(frozen=True)
class VersionRow:
    """One version in the list of versions."""

    version: DocumentVersion
    job: Job
    artifact: Artifact | None

    @property
    def badge(self) -> wording.Badge:
        return wording.JOB_BADGES[self.job.state]

    @property
    def has_file(self) -> bool:
        return self.artifact is not None and self.artifact.local_deleted_at is None


@dataclass(frozen=True)
class History:
    """All that the page shows of one version, and the versions beside it, newest first."""

    chosen: VersionRow
    versions: Sequence[VersionRow]
    submissions: Sequence[Submission]
    items: Sequence[BatchItem]
    timeline: Sequence[timelines.Entry]

    @property
    def version(self) -> DocumentVersion:
        return self.chosen.version

    @property
    def job(self) -> Job:
        return self.chosen.job

    @property
    def is_held(self) -> bool:
        return self.job.state == JobState.PENDING and self.job.account.health == AccountHealth.HELD

    @property
    def is_at_rest(self) -> bool:
        """Nothing moves any more by itself, short of a late answer."""
        return self.job.state not in ACTIVE_STATES


def history(document: Document, *, number: int | None) -> History | None:
    """The history of one version, the current one where no number is given; None where there is no such version."""
    rows = [
        VersionRow(version, version.job, getattr(version, "artifact", None))
        for version in document.versions.select_related("job__account", "artifact", "created_by")
        .defer("input_inline", *(f"job__account__{name}" for name in selectors.ACCOUNT_SECRETS))
        .order_by("-number")[:VERSIONS_SHOWN]
    ]
    wanted = number if number is not None else (document.current_version.number if document.current_version else None)
    chosen = next((row for row in rows if row.version.number == wanted), None)
    if chosen is None:
        return None
    items = BatchItem.objects.filter(version=chosen.version).select_related("batch").order_by("-batch_id")
    submissions = Submission.objects.filter(job=chosen.job).defer("body_inline", "result").order_by("-sequence")
    return History(
        chosen=chosen,
        versions=rows,
        submissions=list(submissions[:SUBMISSIONS_SHOWN]),
        items=list(items[:BATCHES_SHOWN]),
        timeline=timelines.timeline(chosen.version, chosen.job, chosen.artifact),
    )
