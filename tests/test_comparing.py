"""What pages and commands say of accounts side by side, before somebody chooses one."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from batches import comparing
from batches.engine import terms
from batches.engine.estimates import Estimate
from batches.engine.verbs import Standing
from batches.models import JobState, ProviderAccount
from batches.providers import PROVIDERS
from batches.providers.base import Capabilities
from tests.factories import NOW


def account(**fields: Any) -> ProviderAccount:
    defaults = {
        "slug": "main",
        "name": "DocRaptor / main",
        "kind": "docraptor",
        "base_url": "https://docraptor.example",
    }
    return ProviderAccount(**defaults | {"price_currency": "USD"} | fields)


def facts(where: ProviderAccount, renders: int = 1, problems: tuple[str, ...] = ()) -> comparing.Facts:
    cost = None if where.price_per_job is None else where.price_per_job * renders
    estimate = Estimate(renders, 60.0 * renders, "", cost, where.price_currency, "")
    return comparing.facts(where, PROVIDERS[where.kind].capabilities, estimate, terms.of_account(where), problems)


def test_a_choice_says_in_short_what_it_bills_what_it_costs_and_where_it_is_rendered() -> None:
    told = facts(account(price_per_job=Decimal("0.12"), processing_region="Virginia"))
    assert told.in_short == "bills 1 at DocRaptor, 0.12 USD, rendered in Virginia"


def test_what_nobody_wrote_down_is_said_to_be_so() -> None:
    told = facts(account())
    assert told.in_short == ("bills 1 at DocRaptor, no price is written down, where it is rendered is not written down")


def test_a_provider_that_bills_nothing_has_no_price() -> None:
    told = facts(account(kind="gotenberg", price_per_job=Decimal("0.12"), processing_region="our rack"))
    assert told.in_short == "bills nothing at Gotenberg, rendered in our rack"


def test_every_fact_stands_in_a_row_of_its_own_and_those_that_differ_are_told() -> None:
    relay = account(slug="relay", name="RelayPDF / prod", kind="relaypdf", base_url="https://relay.example")
    columns = (facts(relay, 12), facts(account(source_retention="7 days"), 12))
    rows = {row.label: row for row in comparing.Comparison(columns).rows}
    assert rows["Provider"].cells == ("RelayPDF at relay.example", "DocRaptor at docraptor.example")
    assert rows["A lost answer"].cells == ("sent again with the same key", "unknown: looked up, then a person")
    assert rows["Takes"].cells == ("HTML, Markdown, URL, Template at the provider", "HTML")
    assert rows["Deletes on request"].cells == ("yes", "no")
    assert rows["Content kept there for"].cells == ("not written down", "7 days")
    assert (rows["Content kept there for"].differs, rows["Processor"].differs) == (True, False)


@pytest.mark.parametrize(
    ("fields", "problems", "trouble", "can_be_chosen"),
    [
        ({}, (), "", True),
        ({"health": "held", "held_at": NOW}, (), "held: what is sent there waits until that has ended", True),
        ({}, ("The option network is missing.",), "The option network is missing.", False),
    ],
)
def test_what_keeps_an_account_from_sending_is_said(
    fields: dict[str, Any], problems: tuple[str, ...], trouble: str, can_be_chosen: bool
) -> None:
    told = facts(account(**fields), problems=problems)
    assert (told.trouble, told.can_be_chosen) == (trouble, can_be_chosen)


@pytest.mark.parametrize(
    ("state", "may_bill", "bills", "words"),
    [
        (JobState.SAVED, True, True, "stays at RelayPDF, billed"),
        (JobState.SAVED, True, False, "stays at RelayPDF, which bills nothing"),
        (JobState.UNKNOWN, True, True, "stays at RelayPDF and may also bill"),
        (JobState.SUBMITTING, False, True, "stays at RelayPDF and may also bill"),
        (JobState.FAILED, False, True, "billed nothing at RelayPDF"),
        (JobState.PENDING, False, True, "is not sent to RelayPDF any more, unless another batch needs it"),
        (JobState.PENDING, True, True, "stays at RelayPDF and may also bill"),
    ],
)
def test_what_becomes_of_the_version_before(state: JobState, may_bill: bool, bills: bool, words: str) -> None:
    standing, can = Standing(state, may_bill=may_bill), Capabilities(client_key=True, bills=bills)
    assert comparing.stays(standing, can, provider="RelayPDF") == words


def test_the_same_facts_are_told_as_json() -> None:
    told = facts(account(price_per_job=Decimal("0.12")), 12).as_dict()
    assert (told["account"], told["renders"], told["cost"]) == ("main", 12, "1.44 USD")
    assert told["terms"]["host"] == "docraptor.example"
