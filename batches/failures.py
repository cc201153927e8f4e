"""Why items of one batch failed, grouped by cause, and what became of the last verb that was applied to each group.

Read-only, in at most four queries whatever the size of a batch, three where it is at rest.
What makes two failures one cause: `engine/causes.py`.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from django.db.models import Case, Count, F, IntegerField, Max, Q, QuerySet, Value, When, Window
from django.db.models.functions import RowNumber

from batches import counting, figures, selectors, wording
from batches.models import (
    FAILED_STATES,
    Batch,
    BatchItem,
    BulkActionItem,
    CauseCount,
    ItemResult,
    JobState,
    SettledCounts,
    Verb,
)

#: Documents that a cause names before it says "and n more".
NAMES_PER_CAUSE = 5
CAUSES_SHOWN = 5
#: When all are asked for. A batch where every document fails in its own words would have as many as documents.
CAUSES_MOST = 100
_GROUPS_MOST = 1000
_KEY = re.compile(r"[0-9a-f]{16}")


def is_key(text: str) -> bool:
    """Whether the text can name a cause in an address."""
    return _KEY.fullmatch(text) is not None


@dataclass(frozen=True)
class FailedItem:
    position: int
    business_id: str
    document_id: str
    words: str


@dataclass(frozen=True)
class LastAction:
    """The last bulk action that was confirmed over items of a cause, and where those that it was done to are now.

    `joined` are failed items of the cause that it did not hold: they came later, or were never part of it.
    """

    public_id: str
    verb: Verb
    by: str
    at: datetime
    is_running: bool
    is_across: bool = False  # over several batches; what is counted here are this batch's items
    done: int = 0
    waiting: int = 0
    saved: int = 0
    failed_again: int = 0
    unchanged: int = 0
    moving: int = 0
    skipped: int = 0
    not_done: int = 0
    joined: int = 0

    @property
    def done_words(self) -> str:
        """`312 retried by m.okoye`"""
        total = self.done + self.waiting
        count = f"{self.done:,} of {total:,}" if self.is_running and self.waiting else f"{self.done:,}"
        return f"{count} {wording.VERBS_DONE[self.verb]} by {self.by}"

    @property
    def result_words(self) -> str:
        """`300 saved, 12 failed again`"""
        parts = (
            (self.saved, "saved"),
            (self.failed_again, "failed again"),
            (self.moving, "in progress"),
            (self.unchanged, "as before"),
            (self.skipped, "skipped"),
            (self.not_done, "not done"),
        )
        return ", ".join(f"{count:,} {words}" for count, words in parts if count)


@dataclass(frozen=True)
class Cause:
    """Failed, undismissed items of one batch that failed alike; the first few by name. `share` is of the batch."""

    key: str
    failure_class: str
    code: str
    count: int
    share: float
    first_at: datetime
    last_at: datetime
    items: Sequence[FailedItem] = ()
    last_action: LastAction | None = None

    @property
    def title(self) -> str:
        return wording.failure_label(self.failure_class, self.code)

    @property
    def what_to_do(self) -> str:
        return wording.what_to_do(self.failure_class, self.code)

    @property
    def suggested(self) -> Verb | None:
        """The verb that is most often the way out; None where the content has to be corrected first."""
        return wording.suggested_verb(self.failure_class, self.code)

    @property
    def share_words(self) -> str:
        """`24 %` of the batch; what is there is never 0 %, what lacks one is never 100 %."""
        if self.share >= 1:
            return "all"
        return figures.share(self.share)

    @property
    def more_count(self) -> int:
        return self.count - len(self.items)


@dataclass(frozen=True)
class Causes:
    """The most frequent causes in full, and what the others are called; `titles` by key."""

    shown: Sequence[Cause] = ()
    more_count: int = 0
    titles: Mapping[str, str] = field(default_factory=dict)


def causes(batch: Batch, *, total: int, shows_all: bool = False, reads_content: bool = True) -> Causes:
    """Why items of this batch failed, the most frequent cause first. `total` is what the batch holds. What the provider
    said of an item may quote the document, and is left out without `reads_content`.

    Read `batch` with its `settled_counts`: what is kept there of a batch at rest is not counted again.
    """
    groups = _groups(batch, total)
    shown = groups[: CAUSES_MOST if shows_all else CAUSES_SHOWN]
    if not shown:
        return Causes()
    keys = [cause.key for cause in shown]
    named = _named(batch, keys, reads_content=reads_content)
    actions = _last_actions(batch, {cause.key: cause.count for cause in shown})
    full = [replace(cause, items=named[cause.key], last_action=actions.get(cause.key)) for cause in shown]
    return Causes(full, len(groups) - len(shown), {cause.key: cause.title for cause in groups})


def needing_a_person() -> QuerySet[BatchItem]:
    """Items that failed, neither cancelled in their batch nor dismissed; of all batches."""
    items = BatchItem.objects.filter(cancelled_at=None, dismissed_at=None)
    return items.filter(version__job__state__in=FAILED_STATES)


def failed_items(batch: Batch) -> QuerySet[BatchItem]:
    """What of a batch needs a person."""
    return needing_a_person().filter(selectors.among_its_versions(batch, "version__job__"), batch=batch)


def title_of(batch: Batch, key: str) -> str:
    """What the cause is called that failed items of this batch have; empty where none of them has it."""
    job = "version__job__"
    found = failed_items(batch).filter(**{f"{job}failure_cause": key}).order_by()
    row = found.values_list(f"{job}failure_class", f"{job}failure_code").first()
    return wording.failure_label(*row) if row else ""


def _groups(batch: Batch, total: int) -> list[Cause]:
    settled: SettledCounts | None = getattr(batch, "settled_counts", None)
    kept = settled.causes if settled is not None and settled.settled_at is not None else None
    counted = map(CauseCount.of_json, kept) if kept is not None else _counted(batch)
    # Class and code follow from the cause, but for the letters of the code.
    groups: dict[str, Cause] = {}
    for each in counted:
        met = groups.get(each.cause)
        count = each.count + (met.count if met else 0)
        groups[each.cause] = Cause(
            each.cause,
            met.failure_class if met else each.failure_class,
            met.code if met else each.code,
            count,
            count / max(total, 1),
            min(each.first_at, met.first_at) if met else each.first_at,
            max(each.last_at, met.last_at) if met else each.last_at,
        )
    return sorted(groups.values(), key=lambda cause: (-cause.count, cause.failure_class, cause.code, cause.key))


def _counted(batch: Batch) -> list[CauseCount]:
    return [each for _batch_id, each in counting.causes([batch.pk], most=_GROUPS_MOST)]


def _named(batch: Batch, keys: Sequence[str], *, reads_content: bool) -> Mapping[str, list[FailedItem]]:
    """The first documents of each cause, in manifest order."""
    place = Window(RowNumber(), partition_by=[F("version__job__failure_cause")], order_by="position")
    first = (
        failed_items(batch)
        .filter(version__job__failure_cause__in=keys)
        .annotate(place=place)
        .filter(place__lte=NAMES_PER_CAUSE)
    )
    columns = ("position", "document__business_id", "document__public_id", "version__job__failure_words")
    named: dict[str, list[FailedItem]] = defaultdict(list)
    # What they are called is looked up for the first ones alone.
    found_first = BatchItem.objects.filter(pk__in=first.values("pk")).order_by("position")
    for key, *item in found_first.values_list("version__job__failure_cause", *columns):
        found = FailedItem(*item)
        named[key].append(found if reads_content else replace(found, words=wording.WITHHELD))
    return named


# --- what was done about it -----------------------------------------------------------------------------------------


def _last_actions(batch: Batch, failing: Mapping[str, int]) -> Mapping[str, LastAction]:
    """By cause, in one query where nothing was done, in two else. `failing`: how many items each cause has now."""
    held = BulkActionItem.objects.filter(action__confirmed_at__isnull=False, cause__in=list(failing)).order_by()
    own = held.filter(action__batch=batch).values_list("cause").annotate(last=Max("action"))
    across = held.filter(action__batch=None, action__workspace=batch.workspace_id, item__batch=batch)
    last: dict[str, int] = {}
    for key, action_id in own.union(across.values_list("cause").annotate(last=Max("action"))):
        last[key] = max(action_id, last.get(key, 0))
    if not last:
        return {}
    found: dict[str, LastAction] = {}
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for key, result, state, has_moved, is_failing, count, *told in _where_they_are(batch, last):
        if key not in found:
            found[key] = _told(*told)
        counts[key]["still_failing"] += count if is_failing else 0
        for name in _counted_as(result, state, has_moved=bool(has_moved)):
            counts[key][name] += count
    for key, action in found.items():
        numbers: dict[str, Any] = dict(counts[key])
        joined = max(0, failing[key] - numbers.pop("still_failing"))
        found[key] = replace(action, joined=joined, **numbers)
    return found


def _told(
    public_id: str,
    verb: str,
    by: str,
    confirmed_at: datetime | None,
    planned_at: datetime,
    finished_at: datetime | None,
    batch_id: int | None,
) -> LastAction:
    at, is_running = confirmed_at or planned_at, finished_at is None
    return LastAction(public_id, Verb(verb), by, at, is_running, is_across=batch_id is None)


def _of_last(last: Mapping[str, int]) -> Q:
    """The rows of each cause in the last action over it."""
    wanted = Q()
    for key, action_id in last.items():
        wanted |= Q(cause=key, action_id=action_id)
    return wanted


def _where_they_are(batch: Batch, last: Mapping[str, int]) -> Iterable[tuple[Any, ...]]:
    """How many items of each cause came to which result and are where now, each row with its action: cause, result,
    state, whether it moved since, whether it needs a person for that cause, count, and what `_told` takes."""
    job = "item__version__job__"
    needs_a_person = Q(item__cancelled_at=None, item__dismissed_at=None, **{f"{job}state__in": FAILED_STATES})
    rows = BulkActionItem.objects.filter(_of_last(last), item__batch=batch).order_by()
    rows = rows.annotate(
        moved=_holds(Q(**{f"{job}state_changed_at__gte": F("at")})),
        failing=_holds(needs_a_person & Q(**{f"{job}failure_cause": F("cause")})),
    )
    of_action = ("public_id", "verb", "actor_words", "confirmed_at", "planned_at", "finished_at", "batch")
    told = [f"action__{name}" for name in of_action]
    grouped = rows.values("cause", "result", f"{job}state", "moved", "failing", *told).annotate(count=Count("pk"))
    found: Iterable[tuple[Any, ...]] = grouped.values_list(
        "cause", "result", f"{job}state", "moved", "failing", "count", *told
    )
    return found


def _holds(condition: Q) -> Case:
    return Case(When(condition, then=Value(1)), default=Value(0), output_field=IntegerField())


def _counted_as(result: str, state: str, *, has_moved: bool) -> Iterable[str]:
    match result:
        case ItemResult.WAITING:
            return ("waiting",)
        case ItemResult.SKIPPED:
            return ("skipped",)
        case ItemResult.FAILED | ItemResult.ABORTED:
            return ("not_done",)
    if state == JobState.SAVED:
        return ("done", "saved")
    if state in FAILED_STATES:
        return ("done", "failed_again" if has_moved else "unchanged")
    return ("done", "moving") if state != JobState.CANCELLED else ("done",)
