"""Read-only queries behind the document page: one document with its versions, its submissions and its history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Exists, OuterRef
from django.utils.dateparse import parse_datetime

from batches import figures, selectors, timelines, wording
from batches.models import (
    ACCOUNT_SECRETS,
    ACTIVE_STATES,
    AccountHealth,
    Artifact,
    Batch,
    BatchItem,
    Document,
    DocumentNote,
    DocumentVersion,
    Job,
    JobEvent,
    JobState,
    Submission,
    SubmissionOutcome,
)

SUBMISSIONS_SHOWN = 50
BATCHES_SHOWN = 20
VERSIONS_SHOWN = 50
NOTES_SHOWN = 50


@dataclass(frozen=True)
class VersionRow:
    """One version in the list of versions."""

    version: DocumentVersion
    job: Job
    artifact: Artifact | None
    is_maybe_sent: bool

    @property
    def previous_number(self) -> int:
        return self.version.number - 1

    @property
    def is_held(self) -> bool:
        """As `selectors.with_group` counts it: unsent, and its account sends nothing."""
        is_stopped = self.job.account.health == AccountHealth.HELD
        return self.job.state == JobState.PENDING and is_stopped and not self.is_maybe_sent

    @property
    def badge(self) -> wording.Badge:
        if self.is_held:
            return wording.GROUP_BADGES[wording.Group.HELD]
        return wording.JOB_BADGES[self.job.state]

    @property
    def has_file(self) -> bool:
        artifact = self.artifact
        return artifact is not None and selectors.is_in_store(artifact, artifact.local_deleted_at, artifact.missing_at)


@dataclass(frozen=True)
class SentRow:
    """One submission with what it came to."""

    submission: Submission
    job: Job

    @property
    def outcome(self) -> str:
        if self.submission.outcome != SubmissionOutcome.OPEN:
            return SubmissionOutcome(self.submission.outcome).label
        if self.submission.provider_job_id:
            return "Accepted" if self.job.state in ACTIVE_STATES else "Accepted; no PDF came of it"
        if not self.submission.in_doubt:
            return "Did not arrive"
        return "Being sent" if self.job.state == JobState.SUBMITTING else "Not known if it arrived"

    @property
    def billed(self) -> str:
        """Whether it costs something, as far as anybody knows."""
        sent, outcome = self.submission, SubmissionOutcome(self.submission.outcome)
        if sent.billed_amount is not None:
            return f"Yes, {figures.money(sent.billed_amount, self.job.account.price_currency)}, as the provider says"
        if outcome in (SubmissionOutcome.DELIVERED, SubmissionOutcome.SURPLUS):
            return "Yes: the provider finished it"
        if outcome == SubmissionOutcome.REFUSED or (
            outcome == SubmissionOutcome.OPEN and not (sent.in_doubt or sent.provider_job_id)
        ):
            return "No: the provider never took it"
        if outcome == SubmissionOutcome.RENDER_FAILED and sent.failed_at is not None:
            return "No: the provider says that it failed unbilled"
        return "Not known"

    @property
    def copy_ends_at(self) -> datetime | None:
        """When the provider's copy of the finished file ends, where it said so."""
        said = (self.submission.result or {}).get("expires_at")
        return parse_datetime(said) if isinstance(said, str) else None

    @property
    def may_be_resent(self) -> bool:
        """Whether the engine may still send the same bytes with the same key."""
        is_open = self.submission.outcome == SubmissionOutcome.OPEN and self.submission.in_doubt
        return is_open and not self.submission.provider_job_id and self.job.state in ACTIVE_STATES


@dataclass(frozen=True)
class History:
    """All that the page shows of one version, and the versions beside it, newest first.

    What the provider said may quote the document: without `reads_content` it is left out.
    """

    chosen: VersionRow
    versions: Sequence[VersionRow]
    submissions: Sequence[SentRow]
    items: Sequence[BatchItem]
    notes: Sequence[DocumentNote]
    events: Sequence[JobEvent]
    timeline: Sequence[timelines.Entry]
    reads_content: bool

    @property
    def version(self) -> DocumentVersion:
        return self.chosen.version

    @property
    def job(self) -> Job:
        return self.chosen.job

    @property
    def earlier(self) -> Sequence[SentRow]:
        """The submissions before the latest, newest first."""
        return self.submissions[1:]

    @property
    def split(self) -> list[tuple[str, str]]:
        return timelines.split(self.timeline)

    @property
    def warnings(self) -> list[str]:
        """What the provider warned about, in the latest status read that brought a result."""
        if not self.reads_content:
            return []
        results = [row.submission.result for row in self.submissions if row.submission.result]
        return [str(words) for words in results[0].get("warnings", ())] if results else []

    @property
    def waits(self) -> str:
        """Why it is where it is and what comes next, where its state alone does not say it; empty otherwise."""
        return waits(self.job, [row.submission for row in self.submissions], reads_content=self.reads_content)

    @property
    def failure_words(self) -> str:
        return self.job.failure_words if self.reads_content else wording.WITHHELD

    @property
    def terms_batch(self) -> Batch | None:
        """The batch whose data terms it was last sent under, or would be: of its latest submission, else its newest."""
        sent = next((row.submission.batch for row in self.submissions if row.submission.batch is not None), None)
        return sent or next((item.batch for item in self.items), None)

    @property
    def is_at_rest(self) -> bool:
        """Nothing moves any more by itself."""
        return self.job.state not in ACTIVE_STATES


def waits(job: Job, submissions: Sequence[Submission], *, reads_content: bool) -> str:
    """Why a job waits and until when, in one or two sentences, from what is recorded; `submissions` newest first."""
    latest = submissions[0] if submissions else None
    is_held, due = job.account.health == AccountHealth.HELD, figures.clock(job.due_at)
    if job.state == JobState.PENDING:
        return " ".join(
            part
            for part in (_earlier(job, submissions, reads_content), _next_send(job, latest, is_held=is_held))
            if part
        )
    if latest is None:
        return ""
    if job.state == JobState.SUBMITTING and job.lease_owner is None and latest.in_doubt:
        since = "once its account goes on" if is_held else f"from {due} on"
        return f"No clear answer came, so it may have arrived. It is sent again with the same key {since}."
    if job.state == JobState.ACCEPTED and latest.failed_at is not None:
        return f"The provider says it failed and was not billed; it is read once more at {due} before it is sent again."
    if job.state == JobState.RENDERED and job.due_at > job.state_changed_at:
        return f"The finished file could not be fetched yet; the next try is at {due}."
    return ""


def _earlier(job: Job, submissions: Sequence[Submission], reads_content: bool) -> str:
    """What came of the tries before, of a job that waits."""
    failed = sum(submission.outcome == SubmissionOutcome.RENDER_FAILED for submission in submissions)
    if failed:
        times = {1: "once", 2: "twice"}.get(failed, f"{failed} times")
        said = job.failure_words.strip().removesuffix(".") if reads_content else ""
        if job.failure_code and job.failure_code not in said:
            said = f"{said}, {job.failure_code}" if said else job.failure_code
        return f"Failed {times} at the provider, not billed{f' ({said})' if said else ''}."
    return "The try before came to nothing." if submissions else ""


def _next_send(job: Job, latest: Submission | None, *, is_held: bool) -> str:
    if job.lead_batch is None:
        return "It is not sent: no batch needs it any more."
    if job.lead_batch.paused_at is not None:
        return "It is not sent while its batch is paused."
    if is_held:  # told beside it, with what ends that
        return ""
    return f"It will be sent again in its turn, from {figures.clock(job.due_at)} on." if latest else ""


def history(document: Document, *, number: int | None, reads_content: bool, audits: bool) -> History | None:
    """The history of one version, the current one where no number is given; None where there is no such version.

    With `audits` it tells what the audit log says of it.
    """
    in_doubt = Submission.objects.filter(job__version=OuterRef("pk"), outcome=SubmissionOutcome.OPEN, in_doubt=True)
    rows = [
        VersionRow(version, version.job, getattr(version, "artifact", None), version.is_maybe_sent)
        for version in document.versions.annotate(is_maybe_sent=Exists(in_doubt))
        .select_related("job__account", "job__lead_batch", "artifact", "created_by")
        .defer("input_inline", *(f"job__account__{name}" for name in ACCOUNT_SECRETS))
        .order_by("-number")[:VERSIONS_SHOWN]
    ]
    wanted = number if number is not None else (document.current_version.number if document.current_version else None)
    chosen = next((row for row in rows if row.version.number == wanted), None)
    if chosen is None:
        return None
    items = BatchItem.objects.filter(version=chosen.version).select_related("batch").order_by("-batch_id")
    sent = Submission.objects.filter(job=chosen.job).select_related("batch").defer("body_inline").order_by("-sequence")
    submissions = list(sent[:SUBMISSIONS_SHOWN])
    events = list(JobEvent.objects.filter(job=chosen.job).order_by("-id")[: timelines.EVENTS_SHOWN])
    return History(
        chosen=chosen,
        versions=rows,
        submissions=[SentRow(submission, chosen.job) for submission in submissions],
        items=list(items[:BATCHES_SHOWN]),
        notes=list(document.notes.order_by("-id")[:NOTES_SHOWN]),
        events=events,
        timeline=timelines.timeline(
            chosen.version,
            chosen.job,
            chosen.artifact,
            submissions,
            events,
            reads_content=reads_content,
            audited=document if audits else None,
        ),
        reads_content=reads_content,
    )
