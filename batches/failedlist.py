"""Read-only queries over all documents that need a person, whatever their batch: the list, its causes, its filters.

A sample's documents are those of its batch, and are listed there alone. What makes two failures one cause:
`engine/causes.py`; why items of one batch failed: `failures.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.db.models import Count, F, Max, Min, QuerySet

from batches import counting, cursors, failures, listings, results, wording
from batches.actions import TICKED_MOST
from batches.cursors import Page
from batches.models import FAILED_STATES, Batch, BatchItem, BulkAction, CauseCount, ProviderAccount, Verb, Workspace
from batches.wording import Badge

ITEMS_PER_PAGE = 50
CAUSES_SHOWN = 5
CAUSES_MOST = 200
_SLICE = 1000
#: By their word in the address: how they are called, and how old what they leave is, at least and at most.
AGES: Mapping[str, tuple[str, timedelta | None, timedelta | None]] = {
    "hour": ("In the last hour", None, timedelta(hours=1)),
    "day": ("In the last 24 hours", None, timedelta(days=1)),
    "week": ("In the last 7 days", None, timedelta(days=7)),
    "older": ("More than 7 days ago", timedelta(days=7), None),
}
COLUMNS = ("workspace", "batch_id", "batch", "row", "id", "version", "state", "reason_code", "reason", "since", "helps")
_JOB = "version__job__"
#: What makes two failures alike. Class and code follow from the cause, but for the letters of the code.
_ALIKE = (f"{_JOB}failure_cause", f"{_JOB}failure_class", f"{_JOB}failure_code")
_SPAN = {"first": Min(f"{_JOB}state_changed_at"), "last": Max(f"{_JOB}state_changed_at")}
#: Of so many batches, each is asked by itself, unless their documents failed in more ways than these.
ARMS_MOST, COUNTED_MOST = 30, 1000
#: A workspace, and why documents of one batch there failed.
OfBatch = tuple[int, list[CauseCount]]
_FILTERS = ("workspace", "account", "batch", "cause", "helps", "age")


@dataclass(frozen=True)
class Wanted:
    """Which of them: filters of the page, or ticked items. Nothing is everything that needs a person.

    `named` are the filters in words where somebody looked the names up; an action keeps them, for later they may be
    gone.
    """

    workspace: str = ""
    account: str = ""
    batch: str = ""
    cause: str = ""
    helps: str = ""
    age: str = ""
    items: tuple[int, ...] = ()
    named: tuple[str, ...] = ()

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Wanted:
        """From what an address or a form says; what makes no sense is left out, and `misread` tells of it."""
        cause, helps, age = (str(given.get(name, "")) for name in ("cause", "helps", "age"))
        ticked = {key for each in str(given.get("items", "")).split(",") if (key := cursors.number(each)) is not None}
        return cls(
            workspace=_sound(given, "workspace"),
            account=_sound(given, "account"),
            batch=_sound(given, "batch"),
            cause=cause if failures.is_key(cause) else "",
            helps=helps if helps in Verb.values else "",
            age=age if age in AGES else "",
            items=tuple(sorted(ticked)[:TICKED_MOST]),
        )

    @classmethod
    def of_action(cls, action: BulkAction) -> Wanted:
        """As it was chosen, with the words that its filters had then."""
        return replace(cls.of(action.filter), named=tuple(map(str, action.filter.get("named", ()))))

    @property
    def filters(self) -> dict[str, str]:
        """As the address says them."""
        said = {name: getattr(self, name) for name in _FILTERS}
        return {name: text for name, text in said.items() if text}

    def as_dict(self) -> dict[str, str]:
        """What a form sends; ticked items are all that counts where there are any."""
        return {"items": ",".join(map(str, self.items))} if self.items else self.filters | {"all": "1"}

    @property
    def query(self) -> str:
        return "" if self.items else urlencode(self.filters)

    @property
    def words(self) -> list[str]:
        """One short phrase for each part, as chips show them."""
        if self.items:
            return [f"{len(self.items)} ticked document{'s' if len(self.items) > 1 else ''}"]
        return list(self.named) or ["Everything that needs a person"]

    def kept(self, workspace: Workspace) -> dict[str, Any]:
        """What an action keeps of it; it is one workspace's, so that is always said."""
        return self.as_dict() | {"workspace": workspace.slug, "named": list(self.words)}


def _sound(given: Mapping[str, Any], name: str) -> str:
    text = str(given.get(name, "")).strip()
    return text if len(text) <= 60 and text.isprintable() else ""


def misread(given: Mapping[str, Any]) -> str:
    """Why what was chosen cannot be read; empty where all of it was: a filter that is dropped would mean more."""
    wanted = Wanted.of(given)
    said = {name: str(given.get(name, "")).strip() for name in _FILTERS}
    lost = [name for name, text in said.items() if text != getattr(wanted, name)]
    if lost:
        return f"There is no such {' or '.join(lost)}, so nothing was planned. Choose it on the page."
    ticked = [each for each in str(given.get("items", "")).split(",") if each]
    if len(ticked) > TICKED_MOST or None in map(cursors.number, ticked):
        return f"These ticked rows cannot be read, so nothing was planned. Tick at most {TICKED_MOST} rows of the list."
    return ""


def matching(workspaces: QuerySet[Workspace], wanted: Wanted, *, now: datetime) -> QuerySet[BatchItem]:
    """Items in these workspaces. Ticked ones whatever became of them: a plan says which were saved meanwhile."""
    if wanted.items:
        return BatchItem.objects.filter(pk__in=wanted.items, batch__workspace__in=workspaces)
    found = failures.needing_a_person().filter(batch__workspace__in=workspaces, batch__sample_of=None)
    given = {
        "batch__workspace__slug": wanted.workspace,
        f"{_JOB}account__slug": wanted.account,
        "batch__public_id": wanted.batch,
        f"{_JOB}failure_cause": wanted.cause,
    }
    found = found.filter(**{name: text for name, text in given.items() if text})
    if wanted.helps:
        helped = wording.classes_helped_by(Verb(wanted.helps))
        found = found.filter(**{f"{_JOB}failure_class__in": helped}).exclude(
            **{f"{_JOB}failure_code": wording.OBJECT_LOST}
        )
    if wanted.age:
        _words, least, most = AGES[wanted.age]
        found = found.filter(**{f"{_JOB}state_changed_at__lt": now - least}) if least else found
        found = found.filter(**{f"{_JOB}state_changed_at__gte": now - most}) if most else found
    return found


# --- causes ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cause:
    """Documents of one workspace that failed alike, over all of its batches."""

    workspace_id: int
    key: str
    failure_class: str
    code: str
    count: int
    batch_count: int
    first_at: datetime
    last_at: datetime

    @property
    def title(self) -> str:
        return wording.failure_label(self.failure_class, self.code)

    @property
    def what_to_do(self) -> str:
        return wording.what_to_do(self.failure_class, self.code)

    @property
    def suggested(self) -> Verb | None:
        return wording.suggested_verb(self.failure_class, self.code)


@dataclass(frozen=True)
class Causes:
    """All causes, the most frequent first, and how many documents they are. `is_cut`: there are more causes."""

    all: Sequence[Cause] = ()
    is_cut: bool = False

    @property
    def count(self) -> int:
        return sum(cause.count for cause in self.all)

    @property
    def workspace_ids(self) -> set[int]:
        return {cause.workspace_id for cause in self.all}

    def title_of(self, key: str) -> str:
        return next((cause.title for cause in self.all if cause.key == key), "")


def causes(workspaces: QuerySet[Workspace], wanted: Wanted, *, now: datetime) -> Causes:
    """Why what `matching` gives failed, in two queries: of batches at rest as it was kept (`engine/settled.py`), of the
    others as it is counted now. Whatever is narrowed to an age or to ticked items is asked of the items alone."""
    found = matching(workspaces, wanted, now=now)
    if wanted.items or wanted.age:
        asked = _asked(found)
        return _together(asked, is_cut=len(asked) > CAUSES_MOST)
    kept, others = _kept(workspaces, wanted)
    counted = counting.causes(others, most=COUNTED_MOST + 1) if len(others) <= ARMS_MOST else None
    if counted is None or len(counted) > COUNTED_MOST:
        asked = _asked(found.filter(batch__in=others))
        return _together([*_of_batches(kept, wanted), *asked], is_cut=len(asked) > CAUSES_MOST)
    for batch, alike in counted:
        kept.setdefault(batch, (others[batch], []))[1].append(alike)
    return _together(_of_batches(kept, wanted), is_cut=False)


def _asked(found: QuerySet[BatchItem]) -> list[Cause]:
    seen = found.order_by().values_list("batch__workspace", *_ALIKE)
    counted = seen.annotate(count=Count("pk"), batches=Count("batch", distinct=True), **_SPAN)
    return _merged(
        [Cause(*row) for row in counted.order_by("-count", *_ALIKE)[: CAUSES_MOST + 1]],
        adds_batches=False,
    )


def _kept(workspaces: QuerySet[Workspace], wanted: Wanted) -> tuple[dict[int, OfBatch], dict[int, int]]:
    """What was kept, by batch, and the batches of which nothing is, with their workspaces."""
    batches = Batch.objects.filter(workspace__in=workspaces, sample_of=None).order_by()
    given = {"workspace__slug": wanted.workspace, "public_id": wanted.batch}
    batches = batches.filter(**{name: text for name, text in given.items() if text})
    needing = batches.exclude(settled_counts__attention=0)
    kept: dict[int, OfBatch] = {}
    others: dict[int, int] = {}
    for pk, workspace_id, rows in needing.values_list("pk", "workspace_id", "settled_counts__causes"):
        if rows is None:
            others[pk] = workspace_id
        else:
            kept[pk] = (workspace_id, [CauseCount.of_json(row) for row in rows])
    return kept, others


def _of_batches(batches: Mapping[int, OfBatch], wanted: Wanted) -> list[Cause]:
    """Those that are wanted, added up."""
    accounts = ProviderAccount.objects.filter(slug=wanted.account).values_list("pk", flat=True)
    account = accounts.first() if wanted.account else None
    found: dict[tuple[int, str], _Sum] = {}
    for batch, (workspace_id, alike) in batches.items():
        for each in alike:
            if (wanted.account and each.account_id != account) or not _is_wanted(each, wanted):
                continue
            key = (workspace_id, each.cause)
            if key not in found:
                found[key] = _Sum(each.failure_class, each.code, each.first_at, each.last_at)
            found[key].add(each, batch)
    return [
        Cause(*key, each.failure_class, each.code, each.count, each.batch_count, each.first_at, each.last_at)
        for key, each in found.items()
    ]


@dataclass(slots=True)
class _Sum:
    """One cause while it is added up batch after batch: some thousand parts for one page, so no copy is made of any."""

    failure_class: str
    code: str
    first_at: datetime
    last_at: datetime
    count: int = 0
    batch_count: int = 0
    latest: int = 0

    def add(self, part: CauseCount, batch: int) -> None:
        """Parts of one batch follow each other."""
        self.count += part.count
        self.first_at, self.last_at = min(self.first_at, part.first_at), max(self.last_at, part.last_at)
        if batch != self.latest:
            self.batch_count, self.latest = self.batch_count + 1, batch


def _is_wanted(cause: CauseCount, wanted: Wanted) -> bool:
    """As `matching` has it."""
    if wanted.cause and cause.cause != wanted.cause:
        return False
    if not wanted.helps:
        return True
    helped = wording.classes_helped_by(Verb(wanted.helps))
    return cause.failure_class in helped and cause.code != wording.OBJECT_LOST


def _together(found: Sequence[Cause], *, is_cut: bool) -> Causes:
    ordered = sorted(_merged(found, adds_batches=True), key=lambda cause: (-cause.count, cause.key))
    return Causes(ordered[:CAUSES_MOST], is_cut or len(ordered) > CAUSES_MOST)


def _merged(found: Iterable[Cause], *, adds_batches: bool) -> list[Cause]:
    """One for each cause of a workspace. Where they were counted over the same batches, the larger number is told."""
    alike: dict[tuple[int, str], list[Cause]] = defaultdict(list)
    for each in found:
        alike[each.workspace_id, each.key].append(each)
    return [_one(each, adds_batches=adds_batches) if len(each) > 1 else each[0] for each in alike.values()]


def _one(alike: Sequence[Cause], *, adds_batches: bool) -> Cause:
    batches = [each.batch_count for each in alike]
    return replace(
        alike[0],
        count=sum(each.count for each in alike),
        batch_count=sum(batches) if adds_batches else max(batches),
        first_at=min(each.first_at for each in alike),
        last_at=max(each.last_at for each in alike),
    )


# --- the list -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FailedRow:
    """One document that needs a person, with its batch. `since` is when its job came to this state."""

    item_id: int
    position: int
    business_id: str
    document_id: str
    version: int
    batch_id: str
    batch: str
    workspace: str
    account: str
    state: str
    failure_class: str
    code: str
    words: str
    since: datetime

    @property
    def badge(self) -> Badge:
        return wording.JOB_BADGES[self.state]

    @property
    def title(self) -> str:
        return wording.failure_label(self.failure_class, self.code)

    @property
    def suggested(self) -> Verb | None:
        return wording.suggested_verb(self.failure_class, self.code)

    @property
    def is_over(self) -> bool:
        """Whether it needs nobody any more: repaired, or on its way again."""
        return self.state not in FAILED_STATES

    @property
    def key(self) -> str:
        return str(self.item_id)

    @property
    def revision(self) -> str:
        return listings.digest(self.state, self.since, self.words)


def page(
    found: QuerySet[BatchItem],
    *,
    reading: Collection[int],
    after: str = "",
    before: str = "",
    limit: int = ITEMS_PER_PAGE,
) -> Page[FailedRow]:
    """The newest failures first, by keyset. Cursors that make no sense are ignored.

    What the provider said may quote the document: it is left out but in the workspaces `reading`.
    """
    of_page = cursors.page(_readable(found), "failed_at", after=after, before=before, limit=limit)
    return Page([_row(item, reading) for item in of_page.rows], of_page.before, of_page.after)


def _readable(found: QuerySet[BatchItem]) -> QuerySet[BatchItem]:
    """With what a row shows, and nothing of what a document holds."""
    joined = found.select_related("document", "version__job__account", "batch__workspace")
    return joined.annotate(failed_at=F(f"{_JOB}state_changed_at")).only(
        "position",
        "document__business_id",
        "document__public_id",
        "version__number",
        "batch__public_id",
        "batch__name",
        "batch__workspace__name",
        f"{_JOB}account__name",
        f"{_JOB}state",
        f"{_JOB}failure_class",
        f"{_JOB}failure_code",
        f"{_JOB}failure_words",
        f"{_JOB}state_changed_at",
    )


def _row(item: BatchItem, reading: Collection[int]) -> FailedRow:
    job = item.version.job
    return FailedRow(
        item_id=item.pk,
        position=item.position,
        business_id=item.document.business_id,
        document_id=item.document.public_id,
        version=item.version.number,
        batch_id=item.batch.public_id,
        batch=item.batch.name,
        workspace=item.batch.workspace.name,
        account=job.account.name,
        state=job.state,
        failure_class=job.failure_class,
        code=job.failure_code,
        words=job.failure_words if item.batch.workspace_id in reading else "",
        since=job.state_changed_at,
    )


def rows_at(workspaces: QuerySet[Workspace], ids: Iterable[int], *, reading: Collection[int]) -> list[FailedRow]:
    """These items as they are now, as far as they are in these workspaces; those that were repaired too."""
    found = BatchItem.objects.filter(pk__in=list(ids), batch__workspace__in=workspaces)
    return [_row(item, reading) for item in _readable(found)]


def table(found: QuerySet[BatchItem], *, reading: Collection[int]) -> Iterator[dict[str, Any]]:
    """Every one of them, newest first, keyed by `COLUMNS`; read in slices."""
    after = ""
    while True:
        of_page = page(found, reading=reading, after=after, limit=_SLICE)
        for row in of_page.rows:
            yield {
                "workspace": row.workspace,
                "batch_id": row.batch_id,
                "batch": row.batch,
                "row": row.position,
                "id": row.business_id,
                "version": row.version,
                "state": row.state,
                "reason_code": row.code or row.failure_class,
                "reason": row.words or None,
                "since": results.timestamp(row.since),
                "helps": row.suggested.label if row.suggested else None,
            }
        if of_page.after is None:
            return
        after = of_page.after
