"""Read-only queries behind the pages of bulk actions: what was chosen, their list, one of them with its items."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

from django.db.models import Count, QuerySet
from django.urls import reverse

from batches import cursors, failures, listings, results, wording
from batches.cursors import Page
from batches.models import Batch, BatchItem, BulkAction, BulkActionItem, ItemResult, Verb
from batches.wording import Badge, Group

ITEMS_PER_PAGE = 50
ACTIONS_PER_PAGE = 20
#: Rows that may be ticked at once: those of a page.
TICKED_MOST = 200
EXPORT_SLICE = 1000


@dataclass(frozen=True)
class Chosen:
    """Which items of a batch: a filter of its page, ticked rows, or expressly all. Nothing chosen is false."""

    group: str = ""
    cause: str = ""
    q: str = ""
    is_noticed: bool = False
    rows: tuple[int, ...] = ()
    is_everything: bool = False
    cause_title: str = ""
    hides_search: bool = False

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Chosen:
        """From what an address, a form or an action's `filter` says; what makes no sense is left out."""
        group = str(given.get("state", ""))
        group = group if group in Group.values else ""
        cause = str(given.get("cause", ""))
        rows = {row for each in str(given.get("rows", "")).split(",") if (row := cursors.number(each)) is not None}
        return cls(
            group=group,
            cause=cause if group == Group.FAILED and failures.is_key(cause) else "",
            q=str(given.get("q", "")).strip()[:200],
            is_noticed=bool(given.get("notice")),
            rows=tuple(sorted(rows)[:TICKED_MOST]),
            is_everything=bool(given.get("everything")),
        )

    @classmethod
    def of_action(cls, action: BulkAction) -> Chosen:
        """As it was chosen, a cause with the title that it had then."""
        return replace(cls.of(action.filter), cause_title=str(action.filter.get("cause_title", "")))

    def shown(self, *, reads_content: bool) -> Chosen:
        """As a person may see it: what somebody searched for may quote a document."""
        return self if reads_content or not self.q else replace(self, q="", hides_search=True)

    def __bool__(self) -> bool:
        return bool(self.rows or self.is_filter or self.is_everything)

    @property
    def is_filter(self) -> bool:
        return bool(self.group or self.cause or self.q or self.is_noticed)

    def as_dict(self) -> dict[str, str]:
        """As the address of the batch page says it; ticked rows are all that counts where there are any."""
        if self.rows:
            return {"rows": ",".join(map(str, self.rows))}
        said = {"state": self.group, "cause": self.cause, "q": self.q, "notice": "1" if self.is_noticed else ""}
        said = {name: value for name, value in said.items() if value}
        return said or ({"everything": "1"} if self.is_everything else {})

    @property
    def query(self) -> str:
        """What to put behind the batch page's address to see it listed; ticked rows have no list of their own, and
        without its search it would list more."""
        return "" if self.rows or self.hides_search else urlencode(self.as_dict())

    def matching(self, batch: Batch, *, reads_content: bool) -> QuerySet[BatchItem]:
        """`reads_content`: as `listings.items_matching`, of whoever chose: how many match tells what is in them."""
        if self.rows:
            return BatchItem.objects.filter(batch=batch, position__in=self.rows)
        if not self:
            return BatchItem.objects.none()
        return listings.items_matching(
            batch,
            group=self.group,
            cause=self.cause,
            q=self.q,
            is_noticed=self.is_noticed,
            reads_content=reads_content,
        )

    @property
    def words(self) -> list[str]:
        """One short phrase for each part, as chips show them."""
        if self.rows:
            return [f"{len(self.rows)} ticked row{'s' if len(self.rows) > 1 else ''}"]
        said = []
        if self.group:
            said.append(f"State: {Group(self.group).label}")
        if self.cause:
            said.append(f"Cause: {self.cause_title}" if self.cause_title else "One cause")
        if self.q:
            said.append(f"Search: “{self.q}”")
        elif self.hides_search:
            said.append("A search")
        if self.is_noticed:
            said.append("Worth a look")
        return said or (["All documents of the batch"] if self.is_everything else [])


def misread(given: Mapping[str, Any], *, nothing: str = "nothing was planned") -> str:
    """Why what was chosen cannot be read, for a person, and that therefore `nothing` was done; empty where all of it
    can: what is left out would mean more than was meant."""
    group, cause = str(given.get("state", "")), str(given.get("cause", ""))
    rows = [each for each in str(given.get("rows", "")).split(",") if each]
    if group and group not in Group.values:
        return f"There is no such state, so {nothing}. Choose one of the states above the list."
    if cause and (group != Group.FAILED or not failures.is_key(cause)):
        return f"There is no such cause, so {nothing}. Choose a cause on this page."
    if len(rows) > TICKED_MOST or None in map(cursors.number, rows):
        return f"These ticked rows cannot be read, so {nothing}. Tick at most {TICKED_MOST} rows of the list."
    return ""


# --- one action -----------------------------------------------------------------------------------------------------


def address(action: BulkAction, page: str = "detail") -> str:
    """Of one of its pages: below its batch, or by itself where it is over several."""
    if action.batch is None:
        return reverse(f"batches:across_{page}", args=[action.public_id])
    return reverse(f"batches:action_{page}", args=[action.batch.public_id, action.public_id])


def where(action: BulkAction) -> str:
    """`September invoices`, or `3 batches`."""
    if action.batch is not None:
        return action.batch.name
    count = action.plan.get("batch_count", 0)
    return f"{count:,} batch{'' if count == 1 else 'es'}"


@dataclass(frozen=True)
class Counts:
    """Items of one action by result."""

    waiting: int = 0
    done: int = 0
    skipped: int = 0
    failed: int = 0
    aborted: int = 0

    @property
    def total(self) -> int:
        return self.waiting + self.done + self.skipped + self.failed + self.aborted

    @property
    def settled(self) -> int:
        return self.total - self.waiting

    def of(self, result: str) -> int:
        return int(getattr(self, result))


def counts(action: BulkAction) -> Counts:
    return counts_of([action])[action.pk]


def counts_of(actions: Sequence[BulkAction]) -> dict[int, Counts]:
    """By primary key, in one query; those that are over are not counted again."""
    found: dict[int, dict[str, int]] = {action.pk: action.results or {} for action in actions}
    open_ones = [action.pk for action in actions if action.results is None]
    rows = BulkActionItem.objects.filter(action__in=open_ones).order_by().values_list("action_id", "result")
    for key, result, count in rows.annotate(count=Count("pk")):
        found[key][result] = count
    return {key: Counts(**numbers) for key, numbers in found.items()}


def badge(action: BulkAction) -> Badge:
    """Where an action stands, by its times."""
    if action.aborted_at:
        return wording.ACTION_BADGES["aborted"]
    if action.finished_at:
        return wording.ACTION_BADGES["finished"]
    return wording.ACTION_BADGES["running" if action.confirmed_at else "planned"]


@dataclass(frozen=True)
class ItemRow:
    """One item of an action as its page shows it."""

    position: int
    row: int
    business_id: str
    document_id: str
    version: int
    result: str
    words: str
    at: datetime | None
    batch_id: str
    batch: str

    @property
    def badge(self) -> Badge:
        return wording.RESULT_BADGES[self.result]

    @property
    def key(self) -> str:
        return str(self.position)

    @property
    def revision(self) -> str:
        """Changes whenever what the row shows does."""
        return listings.digest(self.result, self.words)


_COLUMNS = (
    "position",
    "item__position",
    "item__document__business_id",
    "item__document__public_id",
    "version__number",
    "result",
    "words",
    "at",
    "item__batch__public_id",
    "item__batch__name",
)


def items_page(
    action: BulkAction, *, result: str = "", after: int | None = None, before: int | None = None
) -> Page[ItemRow]:
    """Its items in the order of the action, of one result where given, beyond a place."""
    items = BulkActionItem.objects.filter(action=action)
    if result in ItemResult.values:
        items = items.filter(result=result)
    backwards = before is not None
    beyond = (
        items.filter(position__lt=before) if backwards else items.filter(position__gt=-1 if after is None else after)
    )
    found = beyond.order_by("-position" if backwards else "position").values_list(*_COLUMNS)
    rows = [ItemRow(*values) for values in found[: ITEMS_PER_PAGE + 1]]
    has_more, rows = len(rows) > ITEMS_PER_PAGE, rows[:ITEMS_PER_PAGE]
    if backwards:
        rows.reverse()
    has_earlier = has_more if backwards else after is not None
    has_later = backwards or has_more
    return Page(
        rows,
        before=str(rows[0].position) if rows and has_earlier else None,
        after=str(rows[-1].position) if rows and has_later else None,
    )


def items_at(action: BulkAction, positions: Iterable[int]) -> list[ItemRow]:
    """The rows at these places as they are now, for updating them in place."""
    items = BulkActionItem.objects.filter(action=action, position__in=list(positions)).order_by("position")
    return [ItemRow(*values) for values in items.values_list(*_COLUMNS)]


EXPORT_COLUMNS = ("action_id", "verb", "batch_id", "row", "id", "version", "result", "words", "at")


def export_rows(action: BulkAction) -> Iterator[dict[str, Any]]:
    """Every item of the action, keyed by `EXPORT_COLUMNS`, read in slices."""
    after = -1
    while True:
        items = BulkActionItem.objects.filter(action=action, position__gt=after).order_by("position")
        rows = [ItemRow(*values) for values in items.values_list(*_COLUMNS)[:EXPORT_SLICE]]
        if not rows:
            return
        after = rows[-1].position
        for row in rows:
            yield {
                "action_id": action.public_id,
                "verb": action.verb,
                "batch_id": row.batch_id,
                "row": row.row,
                "id": row.business_id,
                "version": row.version,
                "result": row.result,
                "words": row.words or None,
                "at": results.timestamp(row.at),
            }


def estimate(action: BulkAction) -> str:
    """What it may cost, `0.27 USD`; empty where the account had no price."""
    text = action.plan.get("estimate")
    if text is None:
        return ""
    return money(text, action.plan.get("currency", ""))


def money(text: str, currency: str) -> str:
    amount = Decimal(text)
    return f"{amount.normalize() if amount < 1 else round(amount, 2):f} {currency}".strip()


def estimates(action: BulkAction) -> list[str]:
    """Account by account, of an action over several batches whose accounts have no price in common."""
    if action.plan.get("estimate") is not None:
        return []
    return [
        f"{each['account']}: {money(each['estimate'], each['currency']) if each['estimate'] else 'no price is set'}"
        for each in action.plan.get("by_account", ())
    ]


# --- the actions of a batch -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ActionRow:
    action: BulkAction
    counts: Counts
    reads_content: bool

    @property
    def badge(self) -> Badge:
        return badge(self.action)

    @property
    def chosen(self) -> Chosen:
        return Chosen.of_action(self.action).shown(reads_content=self.reads_content)


def actions_page(batch: Batch, *, before: int | None = None, reads_content: bool) -> Page[ActionRow]:
    """The batch's actions, newest first, older than one by its key; `after` of the page leads to older ones."""
    found = BulkAction.objects.filter(batch=batch).order_by("-pk")
    if before is not None:
        found = found.filter(pk__lt=before)
    actions = list(found[: ACTIONS_PER_PAGE + 1])
    has_more, actions = len(actions) > ACTIONS_PER_PAGE, actions[:ACTIONS_PER_PAGE]
    counted = counts_of(actions)
    rows = [ActionRow(action, counted[action.pk], reads_content) for action in actions]
    return Page(rows, after=str(actions[-1].pk) if has_more else None)


def verb_of(text: str) -> Verb | None:
    return Verb(text) if text in Verb.values else None
