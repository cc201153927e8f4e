"""What a person should look at: PDFs that are odd, held accounts, open alerts. Why items failed: `failures.py`.

Read-only, each in one or two queries and with the first few by name, whatever the size of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Q, QuerySet, Window

from batches import selectors
from batches.models import (
    Alert,
    AlertKind,
    Batch,
    BatchItem,
    BulkAction,
    Workspace,
)

#: Open alerts about an account that its batches' pages show too. That it is held stands there in words of its own.
OF_ACCOUNTS = (AlertKind.LINKS_AGEING, AlertKind.WEBHOOKS_SILENT, AlertKind.DURATIONS)
#: Open alerts about what everybody shares.
OF_ALL = (AlertKind.STORE, AlertKind.MAIL)
#: Documents that a notice names before it says "and n more".
NAMES_SHOWN = 5
ALERTS_SHOWN = 5
ACTIONS_SHOWN = 5

# --- of one batch ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NoticedItem:
    business_id: str
    document_id: str
    words: str


@dataclass(frozen=True)
class Notices:
    """Saved documents of a batch whose PDF is worth a look; the first few by name."""

    count: int = 0
    items: Sequence[NoticedItem] = ()

    @property
    def more_count(self) -> int:
        return self.count - len(self.items)


def notices(batch: Batch, counts: selectors.Counts) -> Notices:
    """In one query; in none where nothing is saved."""
    if not counts.saved:
        return Notices()
    near = selectors.among_its_versions(batch, "version__artifact__")
    found = noticed(BatchItem.objects.filter(near, batch=batch, cancelled_at=None))
    columns = ("document__business_id", "document__public_id", "version__artifact__notice_words")
    counted = found.annotate(count=Window(Count("pk"))).order_by("position").values_list("count", *columns)
    rows = list(counted[:NAMES_SHOWN])
    return Notices(rows[0][0] if rows else 0, [NoticedItem(*named) for _count, *named in rows])


def account_alerts(batch: Batch) -> list[Alert]:
    """What is open about the account that the batch is sent by."""
    return list(open_about(batch.account_id).order_by("pk"))


def open_about(account: Any) -> QuerySet[Alert]:
    """Open alerts about one account, given by its key or by what leads there from an outer query."""
    return Alert.objects.filter(account=account, kind__in=OF_ACCOUNTS, closed_at=None)


def noticed(items: QuerySet[BatchItem]) -> QuerySet[BatchItem]:
    """Of these items those whose stored PDF is worth a look."""
    return items.filter(selectors.in_store("version__artifact__"), version__artifact__notice__gt="")


# --- of all that somebody may see ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Alerts:
    """The newest open alerts, and how many more are open."""

    shown: Sequence[Alert]
    more_count: int


#: Of an alert, with what names its document or its batch; and nothing of what a document holds.
_ALERT_COLUMNS = (
    *("kind", "subject", "words", "opened_at", "account", "job__version__document__business_id"),
    *("job__version__document__public_id", "batch__name", "batch__public_id"),
)


def open_alerts(mine: Sequence[Workspace], *, most: int = ALERTS_SHOWN, with_held: bool = False) -> Alerts:
    """Open alerts about documents and batches of these workspaces, the accounts that they use, and what all share: the
    store and the mail server. Held accounts are told apart from them, unless `with_held`."""
    about_mine = Q(batch__workspace__in=mine) | Q(job__version__document__workspace__in=mine)
    kinds = (*OF_ACCOUNTS, AlertKind.ACCOUNT_HELD) if with_held else OF_ACCOUNTS
    about_mine |= Q(kind__in=kinds, account__in=selectors.usable_accounts(mine).values("pk"))
    if mine:
        about_mine |= Q(kind__in=OF_ALL, job=None, batch=None)
    alerts = Alert.objects.filter(about_mine, closed_at=None)
    alerts = alerts if with_held else alerts.exclude(kind=AlertKind.ACCOUNT_HELD)
    named = alerts.select_related("job__version__document", "batch").only(*_ALERT_COLUMNS)
    newest = named.annotate(open_count=Window(Count("pk"))).order_by("-opened_at", "-id")
    shown = list(newest[:most])
    for alert in shown:
        if alert.job:  # the link before the words names the document already
            alert.words = alert.words.removeprefix(f"{alert.job.version.document.business_id}: ")
    return Alerts(shown, shown[0].open_count - len(shown) if shown else 0)


def under_way() -> QuerySet[BulkAction]:
    """Bulk actions that workers carry out at this moment."""
    return BulkAction.objects.filter(confirmed_at__isnull=False, finished_at=None)


def running_actions(workspaces: Sequence[Workspace]) -> list[BulkAction]:
    """The newest of them in these workspaces."""
    return list(
        under_way()
        .filter(workspace__in=workspaces)
        .select_related("batch")
        .order_by("-confirmed_at", "-pk")[:ACTIONS_SHOWN]
    )
