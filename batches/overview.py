"""Read-only queries behind the home page: what runs, how the accounts are, what ended lately, what of mine waits.

A constant number of queries, each over what moves, waits or failed; the workspaces were asked for once and are handed
in. What needs a person is `failedlist.py` and `attention.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from math import inf

from django.db.models import Count, Exists, F, IntegerField, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from batches import attention, batchlist, batchrows, selectors, uploads, wording
from batches.batchrows import BatchRow
from batches.models import (
    IN_FLIGHT_STATES,
    AccountHealth,
    Batch,
    Draft,
    Job,
    ProviderAccount,
    WebhookEvent,
    Workspace,
)
from batches.wording import Badge

RUNNING_SHOWN = 10
FINISHED_SHOWN = 5
DRAFTS_SHOWN = 5
_WAITS = Q(waits_for_release=True)


@dataclass(frozen=True)
class Running:
    """What is not over, the newest first, and how many more there are. `waiting`: their sample is to be looked at."""

    rows: Sequence[BatchRow] = ()
    more_count: int = 0

    @property
    def count(self) -> int:
        return len(self.rows) + self.more_count

    @property
    def moving_count(self) -> int:
        """Without those that nothing is sent of."""
        return sum(1 for row in self.rows if row.is_moving) + self.more_count

    @property
    def to_look_at(self) -> list[BatchRow]:
        """Those whose sample is rendered, and which wait for somebody to look at it."""
        return [row for row in self.rows if row.has_sample_to_look_at]

    @property
    def oldest(self) -> BatchRow | None:
        """The batch whose document has been due the longest, of those of which something is sent."""
        due = [row for row in self.rows if row.is_moving and row.pace.oldest_due_at]
        return min(due, key=lambda row: row.pace.oldest_due_at or row.batch.created_at) if due else None


@dataclass(frozen=True)
class Overview:
    running: Running = Running()
    finished: Sequence[BatchRow] = ()


def batches(workspaces: Sequence[Workspace], *, now: datetime) -> Overview:
    """What is not over, and what ended last: those whose end was not noticed yet, then by when it was."""
    if not workspaces:
        return Overview()
    mine = Batch.objects.filter(workspace__in=workspaces, sample_of=None)
    # Two arms: of either condition in one, PostgreSQL would look into each batch there is.
    found = [mine.filter(which).values_list("created_at", "pk") for which in (batchlist.is_unfinished(), _WAITS)]
    open_ones = [key for _created_at, key in sorted(found[0].union(found[1]), reverse=True)]
    shown = open_ones[:RUNNING_SHOWN]
    lately = mine.exclude(pk__in=open_ones).order_by(F("settled_counts__seen_at").desc(nulls_first=True), "-pk")
    ended = lately.values("pk")[:FINISHED_SHOWN]
    places = {key: place for place, key in enumerate(shown)}
    wanted = batchrows.readable(mine.filter(Q(pk__in=shown) | Q(pk__in=ended)), now=now)
    ordered = sorted(wanted, key=lambda batch: (places.get(batch.pk, len(shown)), *_ended_last(batch)))
    rows = batchrows.rows(ordered, now=now, in_short=True)
    return Overview(Running(rows[: len(shown)], len(open_ones) - len(shown)), rows[len(shown) :])


def _ended_last(batch: Batch) -> tuple[float, int]:
    """What ended is ordered by this, as the query that chose it has it."""
    seen_at = getattr(getattr(batch, "settled_counts", None), "seen_at", None)
    return (-seen_at.timestamp() if seen_at else -inf, -batch.pk)


def with_flags(workspaces: QuerySet[Workspace], person: selectors.Person) -> QuerySet[Workspace]:
    """With whether the person left drafts there, `has_drafts`, and whether a bulk action is carried out, `has_actions`:
    mostly neither, so the page asks no more of them."""
    drafts = Draft.objects.filter(workspace=OuterRef("pk"), created_by=person.pk, state__in=uploads.LIVING)
    actions = attention.under_way().filter(workspace=OuterRef("pk"))
    return workspaces.annotate(has_drafts=Exists(drafts), has_actions=Exists(actions))


# --- accounts -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AccountRow:
    """An account as it is: what is at the provider, and when its last webhook came."""

    account: ProviderAccount
    in_flight: int
    webhook_at: datetime | None

    @property
    def badge(self) -> Badge:
        return wording.ACCOUNT_BADGES[self.account.health]

    @property
    def is_held(self) -> bool:
        return self.account.health == AccountHealth.HELD


def accounts(workspaces: Sequence[Workspace]) -> list[AccountRow]:
    """Those that these workspaces use, held ones first, in one query."""
    if not workspaces:
        return []
    at_provider = Job.objects.filter(account=OuterRef("pk"), state__in=IN_FLIGHT_STATES).order_by()
    counted = at_provider.values("account").annotate(count=Count("pk")).values("count")
    events = WebhookEvent.objects.filter(account=OuterRef("pk")).order_by("-received_at")
    found = selectors.usable_accounts(workspaces).annotate(
        in_flight=Coalesce(Subquery(counted, output_field=IntegerField()), 0),
        webhook_at=Subquery(events.values("received_at")[:1]),
    )
    rows = [AccountRow(account, account.in_flight, account.webhook_at) for account in found]
    return sorted(rows, key=lambda row: not row.is_held)


# --- of mine --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Drafts:
    """Uploads of the person's own that were not started, the newest by name."""

    shown: Sequence[Draft] = ()
    more_count: int = 0

    @property
    def count(self) -> int:
        return len(self.shown) + self.more_count


def drafts(person: selectors.Person, workspaces: Sequence[Workspace]) -> Drafts:
    if not workspaces:
        return Drafts()
    mine = Draft.objects.filter(created_by=person.pk, workspace__in=workspaces, state__in=uploads.LIVING)
    shown = list(mine.defer(*uploads.HEAVY).order_by("-created_at", "-pk")[: DRAFTS_SHOWN + 1])
    more = mine.count() - DRAFTS_SHOWN if len(shown) > DRAFTS_SHOWN else 0
    return Drafts(shown[:DRAFTS_SHOWN], more)
