"""Read-only queries over provider accounts: which a person sees, how they stand, and on which a right is held.

What is reckoned from their evidence is `engine/capacity.py`; a secret is never read here, only whether it is set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Case, Exists, IntegerField, OuterRef, Q, QuerySet, Subquery, TextField, Value, When
from django.db.models.functions import Substr

from batches import rights, selectors
from batches.models import (
    ACCOUNT_SECRETS,
    IN_FLIGHT_STATES,
    AccountHealth,
    Alert,
    Batch,
    Job,
    JobState,
    Lane,
    PacingLane,
    ProviderAccount,
    WebhookEvent,
)
from batches.models.fields import HEAD_LENGTH, stored_at
from batches.selectors import Person

#: Counted no further; a page says "or more".
COUNTED_MOST = 10_000
BATCHES_SHOWN = 8
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Counted(Subquery):
    """How many rows, no further than the slice of the query goes."""

    template = "(SELECT COUNT(*) FROM (%(subquery)s) AS counted)"
    output_field = IntegerField()


@dataclass(frozen=True)
class AccountRow:
    """One account with its counts, up to `COUNTED_MOST`. The account comes without its secrets."""

    account: ProviderAccount
    in_flight: int
    waiting: int
    pause_until: datetime | None
    event_at: datetime | None

    @property
    def is_held(self) -> bool:
        return self.account.health == AccountHealth.HELD


@dataclass(frozen=True)
class SecretFact:
    """Whether a secret is set, and since when, as far as it says so."""

    is_set: bool
    since: datetime | None


def visible_accounts(person: Person) -> QuerySet[ProviderAccount]:
    """Accounts on which a workspace of the person may start batches, archived ones too; never with their secrets."""
    mine = selectors.visible_workspaces(person)
    # Shared ones are seen by whoever sees a workspace; a superuser sees them before there is one.
    is_anywhere = Q() if getattr(person, "is_superuser", False) else Q(Exists(mine))
    found = ProviderAccount.objects.filter((Q(workspace__isnull=True) & is_anywhere) | Q(workspace__in=mine))
    return found.select_related("workspace").defer(*ACCOUNT_SECRETS)


def rows(person: Person, *, is_archived: bool, now: datetime) -> list[AccountRow]:
    """Held ones first, then by name. One query, whatever the number of accounts and documents."""
    found = visible_accounts(person).filter(archived_at__isnull=not is_archived)
    held_first = Case(When(health=AccountHealth.HELD, then=Value(0)), default=Value(1))
    return [_row(account, now=now) for account in _with_counts(found).order_by(held_first, "name", "pk")]


def row(person: Person, slug: str, *, now: datetime) -> AccountRow | None:
    """The account of that name with its counts and whether each secret is set; None where the person sees none."""
    heads = {f"{name}_head": Substr(name, 1, HEAD_LENGTH, output_field=TextField()) for name in ACCOUNT_SECRETS}
    account = _with_counts(visible_accounts(person)).annotate(**heads).filter(slug=slug).first()
    return None if account is None else _row(account, now=now)


def secrets(account: Any) -> dict[str, SecretFact]:
    """What may be said of each secret of an account that `row` has read."""
    heads = {name: getattr(account, f"{name}_head") for name in ACCOUNT_SECRETS}
    return {name: SecretFact(bool(head), stored_at(head)) for name, head in heads.items()}


def _with_counts(accounts: QuerySet[ProviderAccount]) -> QuerySet[ProviderAccount]:
    lane = PacingLane.objects.filter(account=OuterRef("pk"), lane=Lane.SUBMIT)
    events = WebhookEvent.objects.filter(account=OuterRef("pk")).order_by("-received_at")
    return accounts.annotate(
        counted_in_flight=_counted(Job.objects.filter(account=OuterRef("pk"), state__in=IN_FLIGHT_STATES)),
        counted_waiting=_counted(Job.objects.filter(account=OuterRef("pk"), state=JobState.PENDING)),
        pause_us=Subquery(lane.values("cool_down_until_us")[:1]),
        event_at=Subquery(events.values("received_at")[:1]),
    )


def _counted(found: QuerySet[Any, Any]) -> _Counted:
    return _Counted(found.order_by().values("pk")[:COUNTED_MOST])


def _row(account: Any, *, now: datetime) -> AccountRow:
    pause = _EPOCH + timedelta(microseconds=account.pause_us or 0)
    return AccountRow(
        account, account.counted_in_flight, account.counted_waiting, pause if pause > now else None, account.event_at
    )


def lane(account: ProviderAccount) -> PacingLane | None:
    return PacingLane.objects.filter(account=account, lane=Lane.SUBMIT).first()


def batches_on(account: ProviderAccount, person: Person) -> Sequence[Batch]:
    """The newest few that the person may see."""
    mine = Batch.objects.filter(account=account, workspace__in=selectors.visible_workspaces(person))
    return list(mine.select_related("workspace").order_by("-created_at", "-pk")[: BATCHES_SHOWN + 1])


def alerts_of(account: ProviderAccount) -> Sequence[Alert]:
    """What is open about the account as a whole."""
    return list(Alert.objects.filter(account=account, job=None, batch=None, closed_at=None).order_by("pk"))


def accounts_with(person: Person, right: str) -> QuerySet[ProviderAccount]:
    """Accounts that are of a workspace in which the person has the right, or are shared while they have it anywhere."""
    mine = rights.workspaces(person, right)
    if not mine.exists():
        return ProviderAccount.objects.none()
    found = ProviderAccount.objects.filter(Q(workspace__isnull=True) | Q(workspace__in=mine.values("pk")))
    return found.defer(*ACCOUNT_SECRETS)
