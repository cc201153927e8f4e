"""What is said before a start: how long it takes, what it costs, and what both figures rest on."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from batches.engine import estimates
from batches.models import Batch, ProviderAccount
from tests.factories import NOW, make_account, make_batch, make_job, make_saved_job


@pytest.mark.parametrize(
    ("others", "renders", "weight", "ahead"),
    [
        ([], 100, 1, 0),
        ([(10, 1)], 100, 1, 10),  # it is done before us
        ([(1000, 1)], 100, 1, 100),  # turn by turn
        ([(1000, 2)], 100, 1, 200),
        ([(1000, 1)], 100, 4, 25),
        ([(1000, 1), (30, 3), (5, 1)], 100, 1, 135),
    ],
)
def test_others_leave_in_turns_with_it(others: list[tuple[int, int]], renders: int, weight: int, ahead: int) -> None:
    assert estimates.documents_ahead(others, renders, weight=weight) == ahead


@pytest.fixture
def account(db: None) -> ProviderAccount:
    return make_account(
        submit_interval_ms=3000, price_per_job=Decimal("0.0013"), price_currency="USD", price_source="price list"
    )


def waiting(account: ProviderAccount, count: int, **batch: Any) -> Batch:
    made = make_batch(account=account, **batch)
    for _ in range(count):
        make_job(batch=made)
    return made


def test_alone_it_takes_the_pace_and_the_price(account: ProviderAccount) -> None:
    assert estimates.of(account, 1240).as_dict() == {
        "renders": 1240,
        "seconds": 3717,
        "seconds_basis": "the account's pace",
        "cost": "1.612",
        "currency": "USD",
        "basis": "the account's price for each document (price list)",
    }


def test_the_queue_ahead_counts_as_far_as_its_turns_come(account: ProviderAccount) -> None:
    waiting(account, 3)
    waiting(account, 30, weight=1)
    waiting(account, 5, paused_at=NOW)
    waiting(make_account(), 50)
    found = estimates.of(account, 10)
    assert found.seconds == 3 * (10 + 3 + 10 - 1)
    assert found.seconds_basis == (
        "the account's pace, and 13 documents of other batches that are sent in turns with it"
    )
    assert estimates.of(account, 10, weight=10).seconds == 3 * (10 + 1 + 1 - 1)
    assert estimates.of(account, 0).seconds == 0


def test_a_held_account_is_said(account: ProviderAccount) -> None:
    account.health = "held"
    assert "the account is held, so it begins once that has ended" in estimates.of(account, 10).seconds_basis


@pytest.mark.parametrize(
    ("billed", "cost", "basis"),
    [
        (["0.0010", "0.0020", "0.0090"], "0.02", "median of the last 3 that were billed at this account"),
        (["0.0010", "0.0020"], "0.015", "median of the last 2 that were billed at this account"),
        (["0.0070"], "0.07", "the last one billed at this account"),
    ],
)
def test_what_was_billed_lately_is_known_better_than_the_price(
    account: ProviderAccount, billed: list[str], cost: str, basis: str
) -> None:
    batch = make_batch(account=account)
    for amount in billed:
        make_saved_job(batch=batch).submissions.update(billed_amount=Decimal(amount))
    make_saved_job(batch=batch)  # of this one nothing is known
    elsewhere = make_saved_job(batch=make_batch(account=make_account()))
    elsewhere.submissions.update(billed_amount=Decimal(5))
    found = estimates.of(account, 10).as_dict()
    assert (found["cost"], found["basis"]) == (cost, basis)


def test_only_the_last_count(account: ProviderAccount, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "BILLED_LATELY", 2)
    batch = make_batch(account=account)
    for amount in ("9", "9", "9", "0.01", "0.03"):
        make_saved_job(batch=batch).submissions.update(billed_amount=Decimal(amount))
    assert estimates.of(account, 1).as_dict()["cost"] == "0.02"


def test_without_a_price_nothing_is_made_up(account: ProviderAccount) -> None:
    account.price_per_job = None
    found = estimates.of(account, 10)
    assert (found.cost, found.cost_words) == (None, "")
    assert found.as_dict()["cost"] is None
    assert "names no price" in found.basis
