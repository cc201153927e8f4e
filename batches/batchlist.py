"""Read-only queries behind the list of batches: its filters, its order, and what stands in a row besides the progress.

Those that need a person come first, then those that run, then the newest. Which are which is asked of the few items
that failed or move, never of all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from urllib.parse import urlencode

from django.db.models import Case, Exists, IntegerField, OuterRef, Q, QuerySet, Subquery, Value, When

from batches import batchrows, cursors, selectors, wording
from batches.batchrows import BatchRow
from batches.cursors import Page
from batches.models import (
    ACTIVE_STATES,
    FAILED_STATES,
    AccountHealth,
    Batch,
    BatchItem,
    HoldReason,
    Job,
    JobState,
    ProviderAccount,
    Workspace,
)
from batches.wording import BatchState

BATCHES_PER_PAGE = 20
#: By their word in the address.
STATES: Mapping[str, str] = {
    "attention": "Needs a person",
    "unfinished": "Unfinished",
    "ended": "Ended",
    **{state.value: str(wording.BATCH_BADGES[state].label) for state in BatchState},
}
FILTERS = ("state", "mine", "account", "template", "workspace", "from", "to", "q")
NEEDING, RUNNING, OVER = 0, 1, 2


@dataclass(frozen=True)
class Filters:
    """What the list is narrowed to; empty says nothing. Dates are whole days in UTC, both included."""

    state: str = ""
    mine: str = ""
    account: str = ""
    template: str = ""
    workspace: str = ""
    since: date | None = None
    until: date | None = None
    q: str = ""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Filters:
        """From an address; what makes no sense is left out. `view` is what the address said before it had filters."""
        state = given.get("state") or given.get("view", "")
        slugs = {name: given.get(name, "") for name in ("account", "template", "workspace")}
        return cls(
            state=state if state in STATES else "",
            mine="1" if given.get("mine") else "",
            **{name: text if len(text) <= 60 and text.isprintable() else "" for name, text in slugs.items()},
            since=_date(given.get("from", "")),
            until=_date(given.get("to", "")),
            q=given.get("q", ""),
        )

    @property
    def asked(self) -> dict[str, str]:
        """As the address says them."""
        said = {name: getattr(self, name) for name in ("state", "mine", "account", "template", "workspace", "q")}
        said |= {
            "from": self.since.isoformat() if self.since else "",
            "to": self.until.isoformat() if self.until else "",
        }
        return {name: said[name] for name in FILTERS if said[name]}

    def without(self, name: str) -> Filters:
        empty: dict[str, Any] = {"from": {"since": None}, "to": {"until": None}}.get(name, {name: ""})
        return replace(self, **empty)

    @property
    def query(self) -> str:
        return urlencode(self.asked)


def _date(text: str) -> date | None:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    return day if 1970 <= day.year <= 9998 else None


# --- which are which ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Standing:
    """Batches by what they are: some document needs a person, or something moves or waits."""

    needing: frozenset[int] = frozenset()
    unfinished: frozenset[int] = frozenset()


def standing(workspaces: QuerySet[Workspace]) -> Standing:
    """Of the batches in these workspaces, in one query. Those that have ended say it by their kept counters."""
    mine = Batch.objects.filter(workspace__in=workspaces).order_by()
    held = Job.objects.filter(state=JobState.PENDING, account__in=_stopped()).values("lead_batch")
    needs = Q(settled_counts__attention__gt=0) | Q(UNSETTLED, _some(FAILED_STATES, dismissed_at=None))
    needing = mine.filter(needs | Q(pk__in=held) | Q(waits_for_release=True)).values_list("pk", Value(NEEDING))
    running = mine.filter(is_unfinished()).values_list("pk", Value(RUNNING))
    found = list(needing.union(running))
    return Standing(
        frozenset(key for key, kind in found if kind == NEEDING),
        frozenset(key for key, kind in found if kind == RUNNING),
    )


#: Of batches: their counters are not kept, for something of them moves, or did minutes ago.
UNSETTLED = Q(settled_counts__settled_at=None)


def is_unfinished() -> Q:
    """Of batches: something of it moves or waits."""
    return Q(UNSETTLED, _some(ACTIVE_STATES))


def _some(states: Collection[JobState], **of_item: None) -> Exists:
    """Whether a batch has an item that is not cancelled, whose job is in one of these states, which few jobs are in.

    Asked of the jobs whose versions lie between the first and the last of the batch, as `selectors.among_its_versions`:
    where items came first, all would be looked at that are saved already.
    """
    versions = BatchItem.objects.filter(batch=OuterRef(OuterRef("pk"))).values("version")
    first, last = versions.order_by("version")[:1], versions.order_by("-version")[:1]
    named = BatchItem.objects.filter(
        batch=OuterRef(OuterRef("pk")), version=OuterRef("version"), cancelled_at=None, **of_item
    )
    jobs = Job.objects.filter(state__in=states, version__gte=Subquery(first), version__lte=Subquery(last))
    return Exists(jobs.filter(Exists(named)))


def _stopped() -> QuerySet[ProviderAccount]:
    """Accounts on which nothing goes on before a person resumes them; one that cannot be reached goes on by itself."""
    return ProviderAccount.objects.filter(health=AccountHealth.HELD).exclude(hold_reason=HoldReason.UNREACHABLE)


# --- the list -------------------------------------------------------------------------------------------------------


def page(
    user: selectors.Person,
    filters: Filters,
    *,
    after: str = "",
    before: str = "",
    limit: int = BATCHES_PER_PAGE,
    now: datetime,
) -> Page[BatchRow]:
    """One page by keyset. Cursors that make no sense are ignored."""
    stand = standing(selectors.visible_workspaces(user))
    found = _filtered(user, filters, stand, now=now).annotate(
        rank=Case(
            When(pk__in=stand.needing, then=Value(NEEDING)),
            When(pk__in=stand.unfinished, then=Value(RUNNING)),
            default=Value(OVER),
            output_field=IntegerField(),
        )
    )
    older_than, newer_than = _place(after), _place(before)
    is_backwards = newer_than is not None and older_than is None
    if is_backwards and newer_than:
        found = found.filter(_beyond(newer_than, forwards=False)).order_by("-rank", "created_at", "pk")
    else:
        found = found.filter(_beyond(older_than, forwards=True)) if older_than else found
        found = found.order_by("rank", "-created_at", "-pk")
    batches = list(found[: limit + 1])
    has_more, batches = len(batches) > limit, batches[:limit]
    if is_backwards:
        batches.reverse()
    words = [f"{batch.rank}-{cursors.word(batch.created_at, batch.pk)}" for batch in batches]
    has_newer = has_more if is_backwards else older_than is not None
    has_older = True if is_backwards else has_more
    return Page(
        batchrows.rows(batches, now=now),
        before=words[0] if words and has_newer else None,
        after=words[-1] if words and has_older else None,
    )


def _place(text: str) -> tuple[int, cursors.Place] | None:
    rank, _, rest = text.partition("-")
    place = cursors.place(rest)
    return (int(rank), place) if rank in ("0", "1", "2") and place else None


def _beyond(place: tuple[int, cursors.Place], *, forwards: bool) -> Q:
    rank, within = place
    is_there = Q(rank=rank) & cursors.beyond("created_at", "lt" if forwards else "gt", within)
    return Q(**{f"rank__{'gt' if forwards else 'lt'}": rank}) | is_there


def _filtered(user: selectors.Person, filters: Filters, stand: Standing, *, now: datetime) -> QuerySet[Batch]:
    found = batchrows.readable(selectors.visible_batches(user).filter(sample_of=None), now=now)
    found = _in_state(found, filters.state, stand)
    if filters.mine:
        found = found.filter(created_by=user.pk)
    if filters.account:
        found = found.filter(account__slug=filters.account)
    if filters.workspace:
        found = found.filter(workspace__slug=filters.workspace)
    if filters.template:
        first = BatchItem.objects.filter(batch=OuterRef("pk"), position=0)
        by_row = Exists(first.filter(version__template_version__template__slug=filters.template))
        found = found.filter(Q(report__choices__template=filters.template) | by_row)
    if filters.since:
        found = found.filter(created_at__gte=datetime.combine(filters.since, time.min, UTC))
    if filters.until:
        found = found.filter(created_at__lt=datetime.combine(filters.until, time.min, UTC) + timedelta(days=1))
    q = filters.q
    if not q:
        return found
    matching = Q(name__icontains=q) | Q(manifest_name__icontains=q) | Q(public_id=q) | Q(sample__public_id=q)
    return found.none() if "\0" in q else found.filter(matching)


def _in_state(found: QuerySet[Batch], state: str, stand: Standing) -> QuerySet[Batch]:
    match state:
        case "":
            return found
        case "attention":
            return found.filter(pk__in=stand.needing)
        case "unfinished":
            return found.filter(pk__in=stand.unfinished)
        case "ended":
            return found.exclude(pk__in=stand.unfinished)
    # What has ended says its state by its kept counters; of the few others the items are counted.
    counted = selectors.progress_of(list(found.filter(UNSETTLED)))
    those = [key for key, progress in counted.items() if progress.state == state]
    return found.filter(Q(pk__in=those) | _settled_as(BatchState(state)))


def _settled_as(state: BatchState) -> Q:
    """As `selectors.batch_state`, of kept counters: nothing of them moves or is held."""
    none = {name: Q(**{f"settled_counts__{name}": 0}) for name in ("saved", "failed", "cancelled")}
    is_settled = Q(settled_counts__settled_at__isnull=False)
    complete = none["failed"] & none["cancelled"]
    cancelled = none["failed"] & ~none["cancelled"]
    match state:
        case BatchState.COMPLETE:
            return is_settled & complete
        case BatchState.CANCELLED:
            return is_settled & cancelled
        case BatchState.FAILED:
            return is_settled & ~none["failed"] & none["saved"]
        case BatchState.PARTIALLY_COMPLETE:
            return is_settled & ~none["failed"] & ~none["saved"]
    return Q(pk__in=[])
