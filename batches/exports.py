"""Read-only queries behind the pages of downloads: what was chosen, what it comes to, which exports there are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.db.models import Count, Max, Q, QuerySet, Sum

from batches import cursors, figures, listings, results, rights, selectors, wording
from batches.actions import Chosen, misread
from batches.cursors import Page
from batches.models import (
    EXPORTS_AT_WORK,
    KINDS_WITH_CONTENT,
    Batch,
    BatchItem,
    Export,
    ExportPart,
    ExportState,
    JobState,
)
from batches.wording import Badge

#: What is streamed at once; anything larger is built in the background, so that a broken download resumes.
SMALL_DOCUMENTS, SMALL_BYTES = 500, 200 * 1000**2
#: A workbook is written whole before its first byte leaves.
SMALL_SHEET_ROWS = 5000
EXPORTS_PER_PAGE = 20
OF_BATCH_SHOWN = 10
VALUE_MOST = 200
#: Of what was chosen, as `Selection.as_dict` names it: a search or a cell, either of which may quote a document.
QUOTES = frozenset({"q", "group_value"})
SLICE = 2000


@dataclass(frozen=True)
class Selection:
    """Which rows of a batch: those of a filter of its page or ticked ones, and of those one group, by a column.

    Without `reads_content` nothing matches by what a row holds: how many do would tell it.
    """

    chosen: Chosen
    column: str = ""
    value: str = ""
    reads_content: bool = False

    @classmethod
    def of(cls, given: Mapping[str, Any], batch: Batch, *, reads_content: bool) -> Selection:
        """From what an address or a form says; what makes no sense is left out, and `unreadable` tells of it.
        `which=saved` is the filter of that."""
        only = str(given.get("which", ""))
        chosen = Chosen.of({"state": "saved"}) if only == "saved" else Chosen.of({} if only == "all" else given)
        column = str(given.get("group_column", ""))
        column = column if column in results.columns_as_given(batch) else ""
        value = str(given.get("group_value", "")).strip()[:VALUE_MOST]
        return cls(chosen, column if value else "", value if column else "", reads_content)

    @property
    def is_everything(self) -> bool:
        return not self.chosen and not self.column

    @property
    def words(self) -> str:
        said = list(self.chosen.words)
        if self.column:
            said.append(f"{self.column}: {self.value}")
        return ", ".join(said) or "All documents of the batch"

    def as_dict(self) -> dict[str, str]:
        group = {"group_column": self.column, "group_value": self.value} if self.column else {}
        return self.chosen.as_dict() | group

    def as_facts(self) -> dict[str, str]:
        """As the audit log keeps it, which holds nothing that may quote a document."""
        return {name: "not kept" if name in QUOTES else text for name, text in self.as_dict().items()}

    @property
    def query(self) -> str:
        return urlencode(self.as_dict())

    def items(self, batch: Batch) -> QuerySet[BatchItem]:
        """The rows of the filter, before the group is asked for."""
        if not self.chosen:
            return BatchItem.objects.filter(batch=batch)
        return self.chosen.matching(batch, reads_content=self.reads_content)

    def rows(self, batch: Batch) -> list[int] | None:
        """The positions that match now, in order; None: all of the batch."""
        if self.is_everything:
            return None
        if self.column and not self.reads_content:
            return []
        found = self.items(batch).order_by("position")
        if not self.column:
            return list(found.values_list("position", flat=True))
        cells = found.values_list("position", "original_row").iterator(chunk_size=SLICE)
        return [position for position, row in cells if _cell(row.get(self.column)) == self.value]


def unreadable(given: Mapping[str, Any], batch: Batch) -> str:
    """Why a selection cannot be read, for a person; empty where all of it can: what `Selection.of` leaves out would
    hand out more than was meant."""
    nothing = "nothing is handed out"
    column, value = (str(given.get(name, "")).strip() for name in ("group_column", "group_value"))
    if str(given.get("which", "")) not in ("", "all", "saved"):
        return f"There is no such choice of documents, so {nothing}. Choose all, or saved ones only."
    if column and str(given["group_column"]) not in results.columns_as_given(batch):
        return f"The manifest has no such column, so {nothing}. Choose one on the download page."
    if bool(column) != bool(value):
        return f"A group is a column and a value in it, and one of them is missing, so {nothing}. Give both, or none."
    return misread(given, nothing=nothing)


def _cell(value: Any) -> str:
    return "" if value is None else str(value).strip()


@dataclass(frozen=True)
class Offer:
    """What a selection comes to now: rows, stored PDFs among them, and their bytes."""

    rows: int
    documents: int
    byte_count: int

    @property
    def is_small(self) -> bool:
        return self.documents <= SMALL_DOCUMENTS and self.byte_count <= SMALL_BYTES

    @property
    def is_partial(self) -> bool:
        return self.documents < self.rows

    @property
    def missing(self) -> int:
        return self.rows - self.documents


def offer(batch: Batch, rows: Sequence[int] | None) -> Offer:
    items = BatchItem.objects.filter(batch=batch)
    if rows is None:
        return _counted(items)
    total = Offer(0, 0, 0)
    for begin in range(0, len(rows), SLICE):
        some = _counted(items.filter(position__in=rows[begin : begin + SLICE]))
        total = Offer(total.rows + some.rows, total.documents + some.documents, total.byte_count + some.byte_count)
    return total


def _counted(items: QuerySet[BatchItem]) -> Offer:
    there = Q(version__artifact__isnull=False, version__artifact__local_deleted_at=None) & Q(
        version__artifact__missing_at=None
    )
    found = items.order_by().aggregate(
        rows=Count("pk"),
        documents=Count("pk", filter=there),
        byte_count=Sum("version__artifact__byte_count", filter=there),
    )
    return Offer(found["rows"], found["documents"], found["byte_count"] or 0)


def at_once(batch: Batch, saved_count: int) -> Offer | None:
    """What the button of the batch page gives at once; None where it is too large for that, which costs no query."""
    if not saved_count or saved_count > SMALL_DOCUMENTS:
        return None
    found = _counted(BatchItem.objects.filter(batch=batch, version__job__state=JobState.SAVED))
    return found if found.is_small else None


# --- which there are ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PartRow:
    number: int
    name: str
    byte_count: int
    document_count: int
    sha256: str


@dataclass(frozen=True)
class ExportRow:
    """An export as a page shows it."""

    export: Export
    parts: Sequence[PartRow]
    is_outdated: bool
    may_take: bool
    reads_content: bool
    now: datetime

    @property
    def selection_words(self) -> str:
        """What was chosen; a search or a group may quote what is in the documents."""
        if QUOTES & self.export.selection.keys() and not self.reads_content:
            return "Chosen documents"
        return self.export.selection_words or "All documents of the batch"

    @property
    def badge(self) -> Badge:
        state = self.export.state
        if state == ExportState.READY and self.is_outdated:
            return wording.OUTDATED_BADGE
        return wording.EXPORT_BADGES[state]

    @property
    def is_at_work(self) -> bool:
        return self.export.state in EXPORTS_AT_WORK

    @property
    def is_ready(self) -> bool:
        return self.export.state == ExportState.READY

    @property
    def byte_count(self) -> int:
        return sum(part.byte_count for part in self.parts)

    @property
    def is_partial(self) -> bool:
        export = self.export
        return export.kind in KINDS_WITH_CONTENT and export.document_count < export.row_count

    @property
    def counted(self) -> str:
        """`1,281 of 1,284 documents`"""
        export = self.export
        if export.kind not in KINDS_WITH_CONTENT:
            return f"{export.row_count:,} rows" if export.row_count else ""
        if not export.row_count:
            return ""
        of = f" of {export.row_count:,}" if self.is_partial else ""
        return f"{export.document_count:,}{of} document{'' if export.row_count == 1 else 's'}"

    @property
    def progress(self) -> str:
        export = self.export
        if self.waits_for_store:
            return f"Waits for the store; next try {figures.until(export.due_at or self.now, now=self.now)}."
        if export.state == ExportState.QUEUED:
            return "Waits for a worker."
        if not export.document_count:
            return "Being prepared."
        return f"{export.documents_done:,} of {export.document_count:,} documents written."

    @property
    def waits_for_store(self) -> bool:
        """The store did not answer, and no worker tries it at this moment."""
        return self.is_at_work and self.export.waits_since is not None and self.export.lease_owner is None

    @property
    def expires(self) -> str:
        """`in 6 days`"""
        if self.export.expires_at is None:
            return ""
        return figures.until(self.export.expires_at, now=self.now)

    @property
    def revision(self) -> str:
        export = self.export
        return listings.digest(
            export.state,
            export.documents_done,
            export.words,
            self.progress if self.waits_for_store else "",
            self.is_outdated,
            len(self.parts),
            self.expires,
        )


def takes(held: Collection[str], export: Export) -> bool:
    """Whether these rights are good for the files of an export."""
    holds_content = export.kind in KINDS_WITH_CONTENT or bool(export.options.get("with_words"))
    if rights.EXPORT not in held or (holds_content and rights.VIEW_CONTENT not in held):
        return False
    return rights.sees_ids(held) or not export.with_ids


def is_named_by_group(export: Export) -> bool:
    """Whether names of its files are cells of the manifest, which is content."""
    return bool(export.options.get("by_group"))


def visible(person: selectors.Person) -> QuerySet[Export]:
    """The exports of the workspaces where the person may export."""
    places = rights.workspaces(person, rights.EXPORT)
    return Export.objects.filter(workspace__in=places).select_related("batch", "workspace")


def page(
    person: selectors.Person, *, mine: bool, after: str, before: str, now: datetime, limit: int = EXPORTS_PER_PAGE
) -> Page[ExportRow]:
    """Newest first; `mine`: those that the person ordered."""
    found = visible(person).defer("rows")
    if mine:
        found = found.filter(requested_by=person.pk)
    some = cursors.page(found, "created_at", after=after, before=before, limit=limit)
    return Page(shown(some.rows, person, now=now), some.before, some.after)


def of_batch(batch: Batch, person: selectors.Person, *, now: datetime) -> list[ExportRow]:
    """The newest ones of a batch."""
    found = visible(person).defer("rows").filter(batch=batch).order_by("-created_at", "-pk")
    return shown(list(found[:OF_BATCH_SHOWN]), person, now=now)


def shown(found: Sequence[Export], person: selectors.Person, *, now: datetime) -> list[ExportRow]:
    """With their files, and whether they are outdated, in a constant number of queries."""
    files: dict[int, list[PartRow]] = {}
    held = _held_where(person, {export.workspace_id: export.workspace for export in found}.values())
    reading = {export.pk for export in found if rights.VIEW_CONTENT in held[export.workspace_id]}
    by_group = {export.pk for export in found if is_named_by_group(export)}
    parts = ExportPart.objects.filter(export__in=found, written_at__isnull=False, dropped_at=None).order_by("number")
    for part in parts:
        name = part.name if part.export_id in reading or part.export_id not in by_group else f"File {part.number}"
        row = PartRow(part.number, name, part.byte_count, part.document_count, part.sha256)
        files.setdefault(part.export_id, []).append(row)
    newest = _newest(found)
    return [
        ExportRow(
            export,
            files.get(export.pk, []) if export.state == ExportState.READY else [],
            _is_outdated(export, newest.get(export.batch_id, 0)),
            takes(held[export.workspace_id], export),
            export.pk in reading,
            now,
        )
        for export in found
    ]


def _held_where(person: selectors.Person, places: Iterable[Any]) -> dict[int, frozenset[str]]:
    """One look-up for each workspace of a page, of which there are few."""
    return {place.pk: rights.rights(person, place) for place in places}


def _newest(found: Sequence[Export]) -> dict[int, int]:
    """By batch the newest stored PDF since the sweep looked last, which it does each minute."""
    ready = [each for each in found if each.state == ExportState.READY and each.outdated_at is None]
    if not ready:
        return {}
    lowest = min(each.seen_artifact for each in ready)
    met = BatchItem.objects.filter(version__artifact__pk__gt=lowest, batch__in={each.batch_id for each in ready})
    return dict(met.order_by().values_list("batch_id").annotate(newest=Max("version__artifact__pk")))


def _is_outdated(export: Export, newest: int) -> bool:
    """Whether a row of a selection was touched, only the sweep asks."""
    return export.outdated_at is not None or (not export.selection and newest > export.seen_artifact)
