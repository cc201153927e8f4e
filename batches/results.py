"""The result manifest: one line per manifest row, always, whatever became of it (features.md 4.4).

Owns the columns and how CSV and JSONL are written. Reads in slices, so that a batch of any size fits.
"""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from django.db.models import F

from batches.filenames import Names, pdf_stem
from batches.models import (
    Artifact,
    Batch,
    BatchItem,
    JobEvent,
    JobState,
    Submission,
    SubmissionOutcome,
)

COLUMNS = (
    "batch_id",
    "row",
    "id",
    "version",
    "status",
    "reason_code",
    "reason",
    "attempts",
    "provider",
    "provider_job_id",
    "template",
    "template_version",
    "input_sha256",
    "output_sha256",
    "bytes",
    "pages",
    "filename",
    "object_key",
    "billed",
    "cost",
    "queued_at",
    "submitted_at",
    "accepted_at",
    "rendered_at",
    "saved_at",
    "provider_seconds",
    "total_seconds",
    "flags",
)
SLICE = 1000
BOM = "\ufeff"  # what makes spreadsheet programs read a CSV file as UTF-8


def rows(batch: Batch) -> Iterator[dict[str, Any]]:
    """Every row of the batch in manifest order, keyed by `COLUMNS`.

    `row` is the position, counted from 0; `status` is the item's state; times are text (RFC 3339, UTC); what is not
    known is None. `filename` is the PDF's name in the batch's archive, given where a PDF is stored.
    """
    for row, _ in rows_with_originals(batch):
        yield row


def rows_with_originals(batch: Batch) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """As `rows`, each with the manifest's own row."""
    names = Names()
    after = -1
    while True:
        items = list(
            BatchItem.objects.filter(batch=batch, position__gt=after)
            .order_by("position")
            .select_related("document", "version", "version__job", "version__job__account", "version__artifact")
            .defer("version__input_inline")[:SLICE]
        )
        if not items:
            return
        after = items[-1].position
        jobs = [item.version.job.pk for item in items]
        submissions = _submissions(jobs)
        rendered = _rendered_at(jobs)
        for item in items:
            job = item.version.job.pk
            name = names.take(pdf_stem(item.document.business_id, item.version.number, item.version.filename))
            yield _row(batch, item, submissions[job], rendered.get(job), name), item.original_row


def _submissions(jobs: list[int]) -> Mapping[int, list[Submission]]:
    found: dict[int, list[Submission]] = defaultdict(list)
    sent = Submission.objects.filter(job__in=jobs).defer("body_inline", "result").order_by("job_id", "sequence")
    for submission in sent:
        found[submission.job_id].append(submission)
    return found


def _rendered_at(jobs: list[int]) -> Mapping[int, datetime]:
    events = JobEvent.objects.filter(job__in=jobs, to_state=JobState.RENDERED).exclude(from_state=F("to_state"))
    return dict(events.order_by("id").values_list("job_id", "at"))


def _row(
    batch: Batch,
    item: BatchItem,
    submissions: list[Submission],
    rendered_at: datetime | None,
    name: tuple[str, bool],
) -> dict[str, Any]:
    version, job = item.version, item.version.job
    artifact = getattr(version, "artifact", None)
    stored = artifact if artifact and artifact.local_deleted_at is None else None
    is_cancelled = item.cancelled_at is not None
    accepted = [submission for submission in submissions if submission.provider_job_id]
    accepted_at = accepted[-1].accepted_at if accepted else None
    saved_at = artifact.stored_at if artifact else None
    reason = "" if is_cancelled else job.failure_words
    if job.failure_code and job.failure_code not in reason:
        reason = f"{reason} ({job.failure_code})".strip()
    return {
        "batch_id": batch.public_id,
        "row": item.position,
        "id": item.document.business_id,
        "version": version.number,
        "status": JobState.CANCELLED.value if is_cancelled else job.state,
        "reason_code": None if is_cancelled else job.failure_class or None,
        "reason": reason or None,
        "attempts": sum(submission.try_count for submission in submissions),
        "provider": job.account.slug,
        "provider_job_id": accepted[-1].provider_job_id if accepted else None,
        "template": None,
        "template_version": None,
        "input_sha256": version.input_sha256,
        "output_sha256": stored.sha256 if stored else None,
        "bytes": stored.byte_count if stored else None,
        "pages": stored.page_count if stored else None,
        "filename": name[0] if stored else None,
        "object_key": stored.storage_key if stored else None,
        "billed": _billed(job.state, submissions),
        "cost": None,
        "queued_at": timestamp(job.created_at),
        "submitted_at": timestamp(submissions[0].first_sent_at if submissions else None),
        "accepted_at": timestamp(accepted_at),
        "rendered_at": timestamp(rendered_at),
        "saved_at": timestamp(saved_at),
        "provider_seconds": _seconds(accepted_at, rendered_at),
        "total_seconds": _seconds(job.created_at, saved_at),
        "flags": ";".join(_flags(item, artifact, submissions, is_renamed=name[1])) or None,
    }


def _billed(state: str, submissions: list[Submission]) -> str:
    """What our own record proves about the bill: `yes`, `no` or `unknown`. Receipts would know better."""
    outcomes = {submission.outcome for submission in submissions}
    if state == JobState.SAVED or outcomes & {SubmissionOutcome.DELIVERED, SubmissionOutcome.SURPLUS}:
        return "yes"
    never = {SubmissionOutcome.REFUSED, SubmissionOutcome.RENDER_FAILED}
    return "no" if outcomes <= never else "unknown"


def _flags(
    item: BatchItem, artifact: Artifact | None, submissions: list[Submission], *, is_renamed: bool
) -> Iterator[str]:
    if artifact and artifact.local_deleted_at:
        yield "file_deleted"
    elif artifact and is_renamed:
        yield "name_numbered"
    if item.dismissed_at:
        yield "dismissed"
    if any(submission.outcome == SubmissionOutcome.SURPLUS for submission in submissions):
        yield "billed_more_than_once"


def timestamp(instant: datetime | None) -> str | None:
    """`2026-10-02T07:31:09.114Z`"""
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z") if instant else None


def _seconds(start: datetime | None, end: datetime | None) -> float | None:
    return round((end - start).total_seconds(), 3) if start and end else None


# --- writing --------------------------------------------------------------------------------------------------------


def guarded(value: Any) -> Any:
    """A CSV cell that no spreadsheet program runs as a formula (CWE-1236); numbers and names of ours pass."""
    if isinstance(value, str) and (value[:1] in ("\t", "\r", "\n") or value.lstrip()[:1] in ("=", "+", "-", "@")):
        return f"'{value}"
    return value


def csv_lines(columns: Iterable[str], table: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """CSV for people: UTF-8 with a byte-order mark, commas, CRLF, cells guarded against formulas."""
    names = list(columns)
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\r\n")

    def line(cells: list[Any]) -> str:
        writer.writerow([guarded(cell) for cell in cells])
        text = buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
        return text

    yield BOM + line(list(names))
    for row in table:
        yield line([row.get(name) for name in names])


def jsonl_lines(table: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """JSONL for machines: nothing guarded, null for what is not known."""
    for row in table:
        yield json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n"
