"""What a person should look at: why items failed, PDFs that are odd, held accounts, open alerts.

Read-only, each in one or two queries and with the first few by name, whatever the size of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Count, F, Q, QuerySet, Window
from django.db.models.functions import RowNumber

from batches import selectors, wording
from batches.models import (
    FAILED_STATES,
    AccountHealth,
    Alert,
    AlertKind,
    Batch,
    BatchItem,
    ProviderAccount,
)

#: Documents that a cause or a notice names before it says "and n more".
NAMES_PER_CAUSE = 5
CAUSES_SHOWN = 8
ALERTS_SHOWN = 5

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
    """In no query where nothing is saved, in one where there are none, in two where there are."""
    if not counts.saved:
        return Notices()
    found = noticed(BatchItem.objects.filter(batch=batch, cancelled_at=None))
    columns = ("document__business_id", "document__public_id", "version__artifact__notice_words")
    named = [NoticedItem(*row) for row in found.order_by("position").values_list(*columns)[:NAMES_PER_CAUSE]]
    return Notices(found.count() if len(named) == NAMES_PER_CAUSE else len(named), named)


def noticed(items: QuerySet[BatchItem]) -> QuerySet[BatchItem]:
    """Of these items those whose stored PDF is worth a look."""
    return items.filter(selectors.in_store("version__artifact__"), version__artifact__notice__gt="")


@dataclass(frozen=True)
class FailedItem:
    position: int
    business_id: str
    document_id: str
    words: str


@dataclass(frozen=True)
class Cause:
    """Failed, undismissed items of one batch with the same class and provider code; the first few by name."""

    failure_class: str
    code: str
    count: int
    items: Sequence[FailedItem]

    @property
    def title(self) -> str:
        return wording.failure_label(self.failure_class, self.code)

    @property
    def key(self) -> str:
        """Names the cause in an address."""
        return f"{self.failure_class}:{self.code}"

    @property
    def what_to_do(self) -> str:
        return wording.what_to_do(self.failure_class, self.code)

    @property
    def more_count(self) -> int:
        return self.count - len(self.items)


def causes(batch: Batch) -> list[Cause]:
    """Why items of this batch failed, the most frequent cause first, in one query."""
    by_cause = [F("version__job__failure_class"), F("version__job__failure_code")]
    failed = (
        BatchItem.objects.filter(
            batch=batch, cancelled_at=None, dismissed_at=None, version__job__state__in=FAILED_STATES
        )
        .annotate(
            place=Window(RowNumber(), partition_by=by_cause, order_by="position"),
            in_cause=Window(Count("pk"), partition_by=by_cause),
        )
        .filter(place__lte=NAMES_PER_CAUSE)
        .order_by("-in_cause", "version__job__failure_class", "version__job__failure_code", "position")
        .values_list(
            "version__job__failure_class",
            "version__job__failure_code",
            "in_cause",
            "position",
            "document__business_id",
            "document__public_id",
            "version__job__failure_words",
        )
    )
    named: dict[tuple[str, str, int], list[FailedItem]] = {}
    for row in failed[: CAUSES_SHOWN * NAMES_PER_CAUSE]:
        named.setdefault(row[:3], []).append(FailedItem(*row[3:]))
    return [Cause(*key, items) for key, items in named.items()]


# --- of all that the user may see ------------------------------------------------------------------------------------


def held_accounts_of(user: selectors.Person) -> QuerySet[ProviderAccount]:
    """Held accounts that the user's workspaces may use."""
    usable = selectors.usable_accounts(selectors.visible_workspaces(user))
    return usable.filter(health=AccountHealth.HELD) if selectors.visible_workspaces(user).exists() else usable.none()


@dataclass(frozen=True)
class Alerts:
    """The newest open alerts, and how many more are open."""

    shown: Sequence[Alert]
    more_count: int


def open_alerts(user: selectors.Person) -> Alerts:
    """Open alerts about the user's documents and batches, their accounts' late downloads, and the store they share.

    Held accounts are told apart from them.
    """
    mine = selectors.visible_workspaces(user)
    about_mine = Q(batch__workspace__in=mine) | Q(job__version__document__workspace__in=mine)
    about_mine |= Q(kind=AlertKind.LINKS_AGEING, account__in=selectors.usable_accounts(mine).values("pk"))
    if mine.exists():
        about_mine |= Q(kind=AlertKind.STORE, job=None, batch=None)
    alerts = Alert.objects.filter(about_mine, closed_at=None).exclude(kind=AlertKind.ACCOUNT_HELD)
    newest = alerts.select_related("job__version__document", "batch").order_by("-opened_at", "-id")
    shown = list(newest[:ALERTS_SHOWN])
    for alert in shown:
        if alert.job:  # the link before the words names the document already
            alert.words = alert.words.removeprefix(f"{alert.job.version.document.business_id}: ")
    return Alerts(shown, alerts.count() - len(shown) if len(shown) == ALERTS_SHOWN else 0)
