"""The result manifest: one line per manifest row, always, whatever became of it.

Owns the columns and how CSV and JSONL are written. Reads in slices, so that a batch of any size fits.
"""

from __future__ import annotations

import csv
import io
import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db.models import BooleanField, ExpressionWrapper, F, Q, QuerySet

from batches import failures, selectors, wording
from batches.cells import FAILED_COLUMNS, ROW, guarded
from batches.filenames import Names, pdf_stem
from batches.models import (
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
    "notice",
)
#: What the list of rows that were left out adds to the columns of the manifest; like those of the failed list, a new
#: upload of it ignores them.
LEFT_OUT_COLUMNS = (ROW, "_line", "_code", "_reason", "_fix")
SLICE = 1000
TYPES = {
    "csv": "text/csv; charset=utf-8",
    "jsonl": "application/x-ndjson",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
BOM = "\ufeff"  # what makes spreadsheet programs read a CSV file as UTF-8


@dataclass(frozen=True)
class Span:
    """Which rows of a batch: positions from `first` to `last`, and of those only the chosen ones where some were."""

    first: int = 0
    last: int | None = None
    chosen: Sequence[int] | None = None  # in order

    def slice_of(self, items: QuerySet[BatchItem], *, after: int, most: int) -> QuerySet[BatchItem]:
        """The next rows behind a position, so many at most."""
        if self.chosen is not None:
            begin = bisect_right(self.chosen, after)
            chosen = self.chosen[begin : begin + most]
            if self.last is not None:
                chosen = chosen[: bisect_right(chosen, self.last)]
            return items.filter(position__in=chosen).order_by("position")
        items = items.filter(position__gt=after)
        if self.last is not None:
            items = items.filter(position__lte=self.last)
        return items.order_by("position")[:most]


EVERYTHING = Span()


def rows(
    batch: Batch, *, with_ids: bool = False, with_words: bool = True, span: Span = EVERYTHING
) -> Iterator[dict[str, Any]]:
    """Every row of the batch in manifest order, keyed by `COLUMNS`. Provider job ids are masked but `with_ids`: whoever
    has one whole can fetch the file. What the provider said of a failure may quote the document: without `with_words`
    it is told by its kind alone.

    `row` is the position, counted from 0; `status` is the item's state; times are text (RFC 3339, UTC); what is not
    known is None. `filename` is the PDF's name in the batch's archive, given where a PDF is stored; `notice` is
    what makes a stored PDF worth a look.
    """
    for row, _ in rows_with_originals(batch, with_ids=with_ids, span=span):
        if row["reason"] and not with_words:
            row["reason"] = wording.failure_label(row["reason_code"] or "", "") or None
        yield row


def rows_with_originals(
    batch: Batch,
    *,
    with_ids: bool = False,
    only_failed: bool = False,
    span: Span = EVERYTHING,
    named: Mapping[int, tuple[str, bool]] | None = None,
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """As `rows`, each with the manifest's own row; with `only_failed` those that failed and nobody dismissed.

    `named` gives the names of files by position, and whether each was numbered, where an archive gave them already.
    """
    names = Names()
    after = span.first - 1
    while True:
        items = list(_items(batch, span, after=after, only_failed=only_failed))
        if not items:
            return
        after = items[-1].position
        jobs = [item.job_id for item in items]
        submissions = _submissions(jobs)
        rendered, saved = _rendered_and_saved(jobs)
        for item in items:
            if named is None:
                name = names.take(pdf_stem(item.business_id, item.number, item.wished_name))
            else:
                name = named.get(item.position, ("", False))
            times = (rendered.get(item.job_id), saved.get(item.job_id, item.stored_at))
            row = _row(batch, item, submissions[item.job_id], times, name)
            if row["provider_job_id"] and not with_ids:
                row["provider_job_id"] = wording.masked(row["provider_job_id"])
            yield row, item.original_row


def _items(batch: Batch, span: Span, *, after: int, only_failed: bool) -> Iterable[Any]:
    """The next slice of rows as named tuples: plain columns, since a model instance for each costs ten times more."""
    columns = {
        "business_id": "document__business_id",
        "number": "version__number",
        "wished_name": "version__filename",
        "input_sha256": "version__input_sha256",
        "job_id": "version__job__pk",
        "state": "version__job__state",
        "failure_class": "version__job__failure_class",
        "failure_code": "version__job__failure_code",
        "failure_words": "version__job__failure_words",
        "queued_at": "version__job__created_at",
        "account": "version__job__account__slug",
        "stored_submission": "version__artifact__submission_id",
        "storage_key": "version__artifact__storage_key",
        "sha256": "version__artifact__sha256",
        "byte_count": "version__artifact__byte_count",
        "page_count": "version__artifact__page_count",
        "stored_at": "version__artifact__stored_at",
        "deleted_at": "version__artifact__local_deleted_at",
        "missing_at": "version__artifact__missing_at",
        "notice": "version__artifact__notice_words",
    }
    wanted = failures.failed_items(batch) if only_failed else BatchItem.objects.filter(batch=batch)
    items = span.slice_of(wanted, after=after, most=SLICE)
    named = items.annotate(**{name: F(path) for name, path in columns.items()})
    return named.values_list("position", "cancelled_at", "dismissed_at", "original_row", *columns, named=True)


def _submissions(jobs: list[int]) -> Mapping[int, list[Any]]:
    found: dict[int, list[Any]] = defaultdict(list)
    columns = ("pk", "job_id", "try_count", "provider_job_id", "first_sent_at", "accepted_at", "outcome")
    sent = Submission.objects.filter(job__in=jobs).order_by("job_id", "sequence")
    was_rendered = ExpressionWrapper(Q(result__isnull=False), BooleanField())
    for submission in sent.annotate(was_rendered=was_rendered).values_list(*columns, "was_rendered", named=True):
        found[submission.job_id].append(submission)
    return found


def _rendered_and_saved(jobs: list[int]) -> tuple[Mapping[int, datetime], Mapping[int, datetime]]:
    """When each job was seen to be rendered, and when it was first saved.

    A stored PDF that was lost is fetched again or put back: that renders nothing and makes neither time later.
    """
    rendered: dict[int, datetime] = {}
    saved: dict[int, datetime] = {}
    events = JobEvent.objects.filter(job__in=jobs, to_state__in=(JobState.RENDERED, JobState.SAVED))
    moves = events.exclude(from_state=F("to_state")).order_by("id")
    for job_id, from_state, to_state, at in moves.values_list("job_id", "from_state", "to_state", "at"):
        if job_id in saved or from_state in (JobState.SAVED, JobState.EXPIRED):
            continue
        (saved if to_state == JobState.SAVED else rendered)[job_id] = at
    return rendered, saved


def _row(
    batch: Batch,
    item: Any,
    submissions: list[Any],
    times: tuple[datetime | None, datetime | None],
    name: tuple[str, bool],
) -> dict[str, Any]:
    """One line; `times` are when it was rendered and when saved."""
    rendered_at, saved_at = times
    is_cancelled = item.cancelled_at is not None
    is_stored = selectors.is_in_store(item.storage_key, item.deleted_at, item.missing_at)
    accepted = [submission for submission in submissions if submission.provider_job_id]
    # The one whose PDF is stored, else the last.
    accepted.sort(key=lambda submission: submission.pk == item.stored_submission)
    accepted_at = accepted[-1].accepted_at if accepted else None
    return {
        "batch_id": batch.public_id,
        "row": item.position,
        "id": item.business_id,
        "version": item.number,
        "status": JobState.CANCELLED.value if is_cancelled else item.state,
        "reason_code": None if is_cancelled else item.failure_class or None,
        "reason": None if is_cancelled else _reason(item),
        "attempts": sum(submission.try_count for submission in submissions),
        "provider": item.account,
        "provider_job_id": accepted[-1].provider_job_id if accepted else None,
        "template": None,
        "template_version": None,
        "input_sha256": item.input_sha256,
        "output_sha256": item.sha256 if is_stored else None,
        "bytes": item.byte_count if is_stored else None,
        "pages": item.page_count if is_stored else None,
        "filename": (name[0] or None) if is_stored else None,
        "object_key": item.storage_key if is_stored else None,
        "billed": _billed(item, submissions),
        "cost": None,
        "queued_at": timestamp(item.queued_at),
        "submitted_at": timestamp(submissions[0].first_sent_at if submissions else None),
        "accepted_at": timestamp(accepted_at),
        "rendered_at": timestamp(rendered_at),
        "saved_at": timestamp(saved_at),
        "provider_seconds": _seconds(accepted_at, rendered_at),
        "total_seconds": _seconds(item.queued_at, saved_at),
        "flags": ";".join(_flags(item, submissions, is_renamed=name[1])) or None,
        "notice": item.notice or None if is_stored else None,
    }


def _reason(item: Any) -> str | None:
    """Our words, with the provider's code where they do not hold it."""
    if item.deleted_at is not None and not item.failure_words:
        return f"The stored file was deleted by retention on {item.deleted_at:%Y-%m-%d}."
    words: str = item.failure_words
    if item.failure_code and item.failure_code not in words:
        words = f"{words} ({item.failure_code})".strip()
    return words or None


def _billed(item: Any, submissions: list[Any]) -> str:
    """What our own record proves about the bill: `yes`, `no` or `unknown`. Receipts would know better.

    What was stored once was billed, whatever became of the file; so was what the provider said it had finished.
    """
    outcomes = {submission.outcome for submission in submissions}
    never = {SubmissionOutcome.REFUSED, SubmissionOutcome.RENDER_FAILED}
    if item.state == JobState.SAVED or item.storage_key is not None:
        return "yes"
    if outcomes & {SubmissionOutcome.DELIVERED, SubmissionOutcome.SURPLUS}:
        return "yes"
    if any(submission.was_rendered and submission.outcome not in never for submission in submissions):
        return "yes"
    return "no" if outcomes <= never else "unknown"


def _flags(item: Any, submissions: list[Any], *, is_renamed: bool) -> Iterator[str]:
    if item.deleted_at:
        yield "file_deleted"
    elif item.missing_at:
        yield "file_missing"
    elif item.storage_key and is_renamed:
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


# --- the failed list ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Written:
    """How a list that comes back is written: as the table that was handed over, so that it is read with the choices
    that were made for that one. `mark` is its byte-order mark, or nothing."""

    delimiter: str = ","
    encoding: str = "utf-8"
    mark: str = BOM

    @classmethod
    def as_given(cls, batch: Batch) -> Written:
        """What else than delimited text was handed over comes as the CSV that any spreadsheet program reads."""
        delimiter, encoding = batch.report.get("delimiter"), batch.report.get("encoding")
        if not delimiter or not encoding:
            return cls()
        bare = _BARE.get(encoding)
        return cls(delimiter, bare or encoding, BOM if bare else "")

    @property
    def content_type(self) -> str:
        return f"text/csv; charset={self.encoding}"

    def encoded(self, lines: Iterable[str]) -> Iterator[bytes]:
        """A character that the encoding lacks stands only in our remarks, and is spelled out there."""
        return (line.encode(self.encoding, "backslashreplace") for line in lines)


#: Encodings that bear a byte-order mark, without it: a mark stands once, not before each line.
_BARE = {"utf-8-sig": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}


def failed_lines(batch: Batch) -> Iterator[str]:
    """failed.csv: every failed row that nobody dismissed, as it was given, with what became of it."""
    found = (failed_row(row, original) for row, original in rows_with_originals(batch, only_failed=True))
    return csv_lines((*_columns_of_failed(batch), *FAILED_COLUMNS), flat(found), Written.as_given(batch))


def left_out_lines(batch: Batch, given: Callable[[], Iterable[tuple[int, Mapping[str, Any]]]]) -> Iterator[str]:
    """left-out.csv: every row that is no item of the batch, as it was given, with all that was wrong with it.

    `given` tells the rows by their positions, in order, each time that it is called. A row that could not be read has
    its remarks alone.
    """
    names = dict.fromkeys(columns_as_given(batch))
    for _position, cells in given():
        names |= dict.fromkeys(name for name in cells if not name.startswith("_"))
    return csv_lines((*(names or ("id",)), *LEFT_OUT_COLUMNS), flat(_left_out(batch, given())), Written.as_given(batch))


def _left_out(batch: Batch, given: Iterable[tuple[int, Mapping[str, Any]]]) -> Iterator[dict[str, Any]]:
    remarks, ids = _remarks(batch)
    for position, cells in given:
        told = {name: value for name, value in cells.items() if not name.startswith("_")}
        yield (told or {"id": ids.get(position)}) | remarks.pop(position, {ROW: position})
    for position, remark in sorted(remarks.items()):
        yield {"id": ids.get(position)} | remark


def _remarks(batch: Batch) -> tuple[dict[int, dict[str, Any]], dict[int, str | None]]:
    """What is said of each row, and its id, by position."""
    elsewhere = batch.report.get("left_out_places", {})
    remarks: dict[int, dict[str, Any]] = {}
    ids: dict[int, str | None] = {}
    for problem in batch.report.get("errors", []) if batch.report.get("left_out") else []:
        places = {place["row"]: place for place in problem.get("places", [])}
        for row in problem["rows"]:
            place = places.get(row, {})
            line, ids[row] = (place["line"], place["id"]) if place else elsewhere.get(str(row), (None, ids.get(row)))
            reason, fix = place.get("message") or problem["message"], place.get("fix") or problem["fix"]
            before = remarks.get(row)
            if before is None:
                remarks[row] = dict(zip(LEFT_OUT_COLUMNS, (row, line, problem["code"], reason, fix), strict=True))
                continue
            before["_code"] += f", {problem['code']}"
            before["_reason"] += f" {reason}"
            before["_fix"] += f" {fix}" if fix not in before["_fix"] else ""
    return remarks, ids


def failed_row(row: Mapping[str, Any], original: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest's own cells, and ours in place of those that an earlier failed list brought along."""
    cells = {name: value for name, value in original.items() if not name.startswith("_")}
    ours = (row["row"], row["reason_code"], row["reason"], row["attempts"], row["status"])
    return cells | dict(zip(FAILED_COLUMNS, ours, strict=True))


def columns_as_given(batch: Batch) -> list[str]:
    """The manifest's columns in its order, as intake kept them: PostgreSQL keeps no order of the keys of a row."""
    return [name for name in batch.report.get("columns", []) if not name.startswith("_")]


def _columns_of_failed(batch: Batch) -> list[str]:
    """Those as they were given; where intake kept none, or not all, those that failed rows have besides."""
    names = dict.fromkeys(columns_as_given(batch))
    if batch.report.get("columns_are_all"):
        return list(names)
    more: set[str] = set()
    originals = failures.failed_items(batch).order_by("position").values_list("original_row", flat=True)
    for original in originals.iterator(chunk_size=SLICE):
        more |= {name for name in original if not name.startswith("_")}
    return [*names, *sorted(more - names.keys(), key=lambda name: (name != "id", name))]


def flat(table: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Cells as text where a manifest row holds lists or objects."""
    for row in table:
        yield {
            name: json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list, bool)) else value
            for name, value in row.items()
        }


# --- writing --------------------------------------------------------------------------------------------------------


def csv_lines(
    columns: Iterable[str], table: Iterable[Mapping[str, Any]], written: Written = Written()
) -> Iterator[str]:
    """CSV for people: with commas and a byte-order mark unless `written` says otherwise, CRLF, cells guarded against
    formulas."""
    names = list(columns)
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, delimiter=written.delimiter, lineterminator="\r\n")

    def line(cells: list[Any]) -> str:
        writer.writerow([guarded(cell) for cell in cells])
        text = buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
        return text

    yield written.mark + line(list(names))
    for row in table:
        yield line([row.get(name) for name in names])


def jsonl_lines(table: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """JSONL for machines: nothing guarded, null for what is not known."""
    for row in table:
        yield json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n"
