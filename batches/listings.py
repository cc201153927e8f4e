"""Read-only queries behind the pages: lists of batches and their items, by keyset. What needs a person: `attention.py`.

Each function asks a constant number of queries and reads at most one page of rows, whatever the size of a batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet

from batches import attention, cursors, failures, selectors, sentences, wording
from batches.cursors import Page
from batches.models import (
    ACTIVE_STATES,
    FAILED_STATES,
    AccountHealth,
    Batch,
    BatchItem,
    HoldReason,
    JobState,
    Submission,
)
from batches.wording import Badge, Group

ITEMS_PER_PAGE = 50
BATCHES_PER_PAGE = 20


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

    With `is_noticed` only those whose stored PDF is worth a look. The batch page and its bulk actions filter by it.
    Without `reads_content` nothing is searched that may quote a document.
    """
    items = selectors.with_group(BatchItem.objects.filter(batch=batch))
    if group in Group.values:
        items = selectors.in_group(items, group)
    if failures.is_key(cause):
        items = items.filter(version__job__failure_cause=cause, dismissed_at=None)
    if is_noticed:
        items = attention.noticed(items)
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
    if backwards:
        items = items.filter(position__lt=before).order_by("-position")
    else:
        items = items.filter(position__gt=-1 if after is None else after).order_by("position")
    rows = [_item_row(values, reads_content) for values in items.values_list(*_ITEM_COLUMNS)[: limit + 1]]
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
    """Items whose id or reason holds the text, or whose row number or provider job id is it."""
    if "\0" in q:  # PostgreSQL takes no NUL; no stored text holds one
        return items.none()
    wanted = Q(document__business_id__icontains=q) | Q(version__job__failure_code__iexact=q)
    if reads_content:
        submitted = Submission.objects.filter(job=OuterRef("version__job"), provider_job_id=q)
        wanted |= Q(version__job__failure_words__icontains=q) | Q(Exists(submitted))
    position = cursors.number(q)
    if position is not None:
        wanted |= Q(position=position)
    return items.filter(wanted)


def _item_row(values: tuple[Any, ...], reads_content: bool) -> ItemRow:
    *shown, deleted_at, missing_at = values
    row = ItemRow(*shown)
    if not reads_content:
        row = replace(row, failure_words=wording.failure_label(row.failure_class, ""))
    if selectors.is_in_store(row.byte_count, deleted_at, missing_at):
        return row
    return replace(row, pages=None, byte_count=None, notice="", notice_words="")


# --- batches --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BatchRow:
    """A batch with its progress; its sample stands beside it, and is no row of its own: its documents are the same."""

    batch: Batch
    progress: selectors.Progress
    starter: str = ""
    sample: selectors.Progress | None = None

    @property
    def sample_words(self) -> str:
        return sentences.sample_in_short(self.batch, self.sample) if self.sample else ""

    @property
    def badge(self) -> Badge:
        return wording.BATCH_BADGES[self.progress.state]

    @property
    def second_badge(self) -> Badge | None:
        is_paused, is_cancelled = self.batch.paused_at is not None, self.batch.cancelled_at is not None
        return wording.second_badge(self.progress.state, is_paused=is_paused, is_cancelled=is_cancelled)

    @property
    def key(self) -> str:
        return self.batch.public_id

    @property
    def revision(self) -> str:
        counts = self.progress.counts
        facts = (self.progress.state, self.second_badge, counts.as_dict(), self.progress.attention_count)
        return digest(*facts, self.sample_words)


#: Views of the batch list by their word in the address.
BATCH_VIEWS = {"": "All", "unfinished": "Unfinished", "attention": "Needs a person"}


def batches_page(
    user: selectors.Person,
    *,
    view: str = "",
    q: str = "",
    after: str = "",
    before: str = "",
    limit: int = BATCHES_PER_PAGE,
) -> Page[BatchRow]:
    """The user's batches, newest first. Cursors that make no sense are ignored."""
    mine = selectors.visible_batches(user).filter(sample_of=None)
    batches = _viewed(mine.select_related("created_by"), view)
    if q:
        matching = Q(name__icontains=q) | Q(manifest_name__icontains=q) | Q(public_id=q) | Q(sample__public_id=q)
        batches = batches.none() if "\0" in q else batches.filter(matching)
    page = cursors.page(batches, "created_at", after=after, before=before, limit=limit)
    return Page(_batch_rows(page.rows), page.before, page.after)


def batch_rows(user: selectors.Person, public_ids: Iterable[str]) -> list[BatchRow]:
    """These batches as they are now, as far as the user may see them."""
    found = list(selectors.visible_batches(user).select_related("created_by").filter(public_id__in=list(public_ids)))
    return _batch_rows(found)


def _batch_rows(found: Sequence[Batch]) -> list[BatchRow]:
    samples = {sample.sample_of_id: sample for sample in Batch.objects.filter(sample_of__in=found)} if found else {}
    progress, starters = selectors.progress_of([*found, *samples.values()]), selectors.starters(found)
    shown = {main: progress[sample.pk] for main, sample in samples.items()}
    return [BatchRow(batch, progress[batch.pk], starters.get(batch.pk, ""), shown.get(batch.pk)) for batch in found]


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
    sample = None if batch.sample_of_id else Batch.objects.filter(sample_of=batch).first()
    if sample is None:
        return None
    its_own = selectors.progress(sample)
    sentence = sentences.sample_sentence(batch, progress, its_own)
    return SampleView(sample, its_own, items_page(sample, reads_content=reads_content).rows, sentence)


def _viewed(batches: QuerySet[Batch], view: str) -> QuerySet[Batch]:
    live = BatchItem.objects.filter(batch=OuterRef("pk"), cancelled_at=None)
    if view == "unfinished":
        return batches.filter(Exists(live.filter(version__job__state__in=ACTIVE_STATES)))
    if view == "attention":
        failed = Q(version__job__state__in=FAILED_STATES, dismissed_at=None)
        held = Q(version__job__state=JobState.PENDING, version__job__account__health=AccountHealth.HELD)
        # An account that could not be reached goes on by itself.
        resumed_by_a_person = held & ~Q(version__job__account__hold_reason=HoldReason.UNREACHABLE)
        return batches.filter(Exists(live.filter(failed | resumed_by_a_person)) | Q(waits_for_release=True))
    return batches


def digest(*facts: object) -> str:
    """A short name for a state of what is shown, to tell whether it changed."""
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:10]
