"""Read-only queries behind the page of a batch: its items, by keyset, and its sample. What needs a person:
`attention.py`; the list of batches: `batchlist.py`.

Each function asks a constant number of queries and reads at most one page of rows, whatever the size of a batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet

from batches import attention, cursors, failures, rownumbers, searching, selectors, sentences, wording
from batches.cursors import Page
from batches.models import (
    Batch,
    BatchItem,
    JobState,
    Submission,
)
from batches.wording import Badge, Group

ITEMS_PER_PAGE = 50


# --- items of a batch -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ItemRow:
    """One manifest row as the batch page shows it. `changed_at` is when its job last changed its state."""

    position: int
    business_id: str
    document_id: str
    version: int
    state: str
    group: str
    failure_class: str
    failure_words: str
    changed_at: datetime
    pages: int | None
    byte_count: int | None
    notice: str
    notice_words: str
    is_final: bool
    source_sha256: str
    current_version: int

    @property
    def marks(self) -> list[Badge]:
        """What holds of the document beside its state: final, stale."""
        marks = ((self.is_final, wording.FINAL_BADGE), (bool(self.source_sha256), wording.STALE_BADGE))
        return [badge for holds, badge in marks if holds]

    @property
    def newer_words(self) -> str:
        """Where the row names another version than the document's current one."""
        return f"Version {self.current_version} exists." if self.current_version != self.version else ""

    @property
    def badge(self) -> Badge:
        if self.group in (Group.HELD, Group.CANCELLED):
            return wording.GROUP_BADGES[self.group]
        return wording.JOB_BADGES[self.state]

    @property
    def reason(self) -> str:
        """Why it failed, or why it waits once more after a render that failed."""
        if self.group == Group.FAILED:
            return self.failure_words
        is_waiting = self.state == JobState.PENDING and self.group != Group.CANCELLED
        return f"Not rendered so far: {self.failure_words}" if is_waiting and self.failure_words else ""

    @property
    def has_file(self) -> bool:
        return self.byte_count is not None

    @property
    def key(self) -> str:
        return str(self.position)

    @property
    def revision(self) -> str:
        """Changes whenever what the row shows does."""
        facts = (self.version, self.group, self.state, self.changed_at, self.byte_count, self.failure_words)
        return digest(*facts, self.notice_words, self.is_final, self.source_sha256, self.current_version)


_ITEM_COLUMNS = (
    "position",
    "document__business_id",
    "document__public_id",
    "version__number",
    "version__job__state",
    "group",
    "version__job__failure_class",
    "version__job__failure_words",
    "version__job__state_changed_at",
    "version__artifact__page_count",
    "version__artifact__byte_count",
    "version__artifact__notice",
    "version__artifact__notice_words",
    "document__is_final",
    "document__source_sha256",
    "document__current_version__number",
    "version__artifact__local_deleted_at",
    "version__artifact__missing_at",
)


def items_matching(
    batch: Batch,
    *,
    group: str = "",
    cause: str = "",
    q: str = "",
    is_noticed: bool = False,
    reads_content: bool = True,
) -> QuerySet[BatchItem]:
    """The items of one counter, one `failures.Cause` and a search where given.

    With `is_noticed` only those whose stored PDF is worth a look. The batch page, its bulk actions and its downloads
    filter by it. Without `reads_content` nothing is searched that may quote a document.
    """
    is_group = group in Group.values
    items = (
        selectors.in_group(batch, group) if is_group else selectors.with_group(BatchItem.objects.filter(batch=batch))
    )
    if failures.is_key(cause):
        items = items.filter(version__job__failure_cause=cause, dismissed_at=None)
    if is_noticed:
        items = attention.noticed(items.filter(selectors.among_its_versions(batch, "version__artifact__")))
    if q:
        items = _searched(items, q, reads_content=reads_content)
    return items


def items_page(
    batch: Batch,
    *,
    group: str = "",
    cause: str = "",
    q: str = "",
    is_noticed: bool = False,
    after: int | None = None,
    before: int | None = None,
    limit: int = ITEMS_PER_PAGE,
    reads_content: bool = True,
) -> Page[ItemRow]:
    """What `items_matching` gives, in manifest order, beyond a position."""
    items = items_matching(batch, group=group, cause=cause, q=q, is_noticed=is_noticed, reads_content=reads_content)
    backwards = before is not None
    order = "-position" if backwards else "position"
    items = (
        items.filter(position__lt=before) if backwards else items.filter(position__gt=-1 if after is None else after)
    )
    # The rows of the page are found first: what they show is looked up for them alone, and not for all that match.
    found = BatchItem.objects.filter(pk__in=items.order_by(order).values("pk")[: limit + 1]).order_by(order)
    shown = selectors.with_group(found).values_list(*_ITEM_COLUMNS)
    rows = [_item_row(values, reads_content) for values in shown]
    has_more, rows = len(rows) > limit, rows[:limit]
    if backwards:
        rows.reverse()
    came_from_before = (after is not None and after >= 0) if not backwards else has_more
    goes_on = has_more if not backwards else True
    return Page(
        rows,
        before=str(rows[0].position) if rows and came_from_before else None,
        after=str(rows[-1].position) if rows and goes_on else None,
    )


def items_at(batch: Batch, positions: Iterable[int], *, reads_content: bool = True) -> list[ItemRow]:
    """The rows at these positions as they are now, for updating them in place."""
    items = selectors.with_group(BatchItem.objects.filter(batch=batch, position__in=list(positions)))
    return [_item_row(values, reads_content) for values in items.order_by("position").values_list(*_ITEM_COLUMNS)]


def _searched(items: QuerySet[BatchItem], q: str, *, reads_content: bool) -> QuerySet[BatchItem]:
    """Items that the tokens of the search name and its words are found in."""
    search = searching.read(q)
    if "\0" in q or search.is_unreadable:  # PostgreSQL takes no NUL; no stored text holds one
        return items.none()
    items = items.filter(search.condition)
    if search.in_group:
        items = items.filter(Q(group=search.in_group))
    return _holding(items, search.text, reads_content=reads_content) if search.text else items


def _holding(items: QuerySet[BatchItem], q: str, *, reads_content: bool) -> QuerySet[BatchItem]:
    """Items whose id or reason holds the text, or whose row number or provider job id is it."""
    wanted = Q(document__business_id__icontains=q) | Q(version__job__failure_code__iexact=q)
    if reads_content:
        submitted = Submission.objects.filter(job=OuterRef("version__job"), provider_job_id=q)
        wanted |= Q(version__job__failure_words__icontains=q) | Q(Exists(submitted))
    number = cursors.number(q)
    if number is not None:
        wanted |= Q(position=rownumbers.meant(number))
    return items.filter(wanted)


def _item_row(values: tuple[Any, ...], reads_content: bool) -> ItemRow:
    *shown, deleted_at, missing_at = values
    row = ItemRow(*shown)
    if not reads_content:
        row = replace(row, failure_words=wording.failure_label(row.failure_class, ""))
    if selectors.is_in_store(row.byte_count, deleted_at, missing_at):
        return row
    return replace(row, pages=None, byte_count=None, notice="", notice_words="")


# --- the sample of a batch -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SampleView:
    """The sample of a batch as the page of that batch shows it: all of its documents."""

    batch: Batch
    progress: selectors.Progress
    rows: Sequence[ItemRow]
    sentence: str

    @property
    def badge(self) -> Badge:
        return wording.BATCH_BADGES[self.progress.state]


def sample_of(batch: Batch, progress: selectors.Progress, *, reads_content: bool) -> SampleView | None:
    """None where it has none, in one query."""
    sample = None if batch.sample_of_id else getattr(batch, "sample", None)
    if sample is None:
        return None
    its_own = selectors.progress(sample)
    sentence = sentences.sample_sentence(batch, progress, its_own)
    return SampleView(sample, its_own, items_page(sample, reads_content=reads_content).rows, sentence)


def digest(*facts: object) -> str:
    """A short name for a state of what is shown, to tell whether it changed."""
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:10]
