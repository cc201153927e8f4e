"""How long sending a batch takes and what it costs, each with what the figure rests on. Reads only.

Time is the account's pace over the batch's own documents and over those that other running batches send meanwhile in
their turns (`turns.py`). Cost is the median of what the provider billed lately, where it says that, else the account's
price.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.db.models import Count

from batches import figures
from batches.engine import turns
from batches.models import AccountHealth, Job, JobState, ProviderAccount, Submission
from batches.models.accounts import pace_seconds

#: Of so many of the last amounts the median is taken.
BILLED_LATELY = 500
FINEST = Decimal("0.000001")


@dataclass(frozen=True)
class Estimate:
    """`seconds` until the last document is sent, at the least; `cost` None where nobody knows a price."""

    renders: int
    seconds: float
    seconds_basis: str
    cost: Decimal | None
    currency: str
    basis: str

    def as_dict(self) -> dict[str, Any]:
        """JSON values: the part `estimate` of the validation answer."""
        cost = None if self.cost is None else f"{self.cost:f}"
        return {
            "renders": self.renders,
            "cost": cost,
            "currency": self.currency,
            "basis": self.basis,
            "seconds": round(self.seconds),
            "seconds_basis": self.seconds_basis,
        }

    @property
    def duration(self) -> str:
        return figures.duration(self.seconds)

    @property
    def cost_words(self) -> str:
        return "" if self.cost is None else figures.money(self.cost, self.currency)


def of(account: ProviderAccount, renders: int, *, weight: int = 1) -> Estimate:
    """What sending so many documents there takes and costs, were it begun now."""
    ahead = documents_ahead(_waiting(account), renders, weight=weight) if renders else 0
    each, basis = _each(account)
    return Estimate(
        renders,
        pace_seconds(account, renders + ahead),
        _seconds_basis(account, ahead),
        None if each is None else (each * renders).quantize(FINEST).normalize() + 0,
        account.price_currency,
        basis,
    )


def documents_ahead(others: Iterable[tuple[int, int]], renders: int, *, weight: int = 1) -> int:
    """How many documents of other batches, given as (waiting, weight), leave before the last of these. Pure.

    While both have documents, one of weight 2 sends two for each of weight 1 (`turns.py`).
    """
    return sum(min(waiting, renders * their_weight // weight) for waiting, their_weight in others)


def _waiting(account: ProviderAccount) -> list[tuple[int, int]]:
    """The documents that wait there, by running batch, with its weight."""
    waiting = Job.objects.filter(turns.led_by_a_running_batch(), account=account, state=JobState.PENDING)
    rows = waiting.order_by().values_list("lead_batch_id", "lead_batch__weight").annotate(count=Count("pk"))
    return [(count, weight) for _batch_id, weight, count in rows]


def _seconds_basis(account: ProviderAccount, ahead: int) -> str:
    basis = "the account's pace"
    if ahead:
        basis += f", and {figures.documents(ahead)} of other batches that are sent in turns with it"
    if account.health == AccountHealth.HELD:
        basis += "; the account is held, so it begins once that has ended"
    return basis


def _each(account: ProviderAccount) -> tuple[Decimal | None, str]:
    """What one document costs, and where that comes from."""
    billed = Submission.objects.filter(account=account, billed_amount__isnull=False).order_by("-pk")
    latest = billed.values_list("billed_amount", flat=True)[:BILLED_LATELY]
    amounts = [amount for amount in latest if amount is not None]
    if amounts:
        of_many = f"median of the last {len(amounts):,} that were billed" if len(amounts) > 1 else "the last one billed"
        return statistics.median(amounts), f"{of_many} at this account"
    if account.price_per_job is None:
        return None, "the account names no price, and nothing is known of what was billed"
    source = f" ({account.price_source})" if account.price_source else ""
    return account.price_per_job, f"the account's price for each document{source}"
