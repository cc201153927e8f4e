"""How long a provider may ask us to wait."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from batches.providers.retry_after import MAX_RETRY_AFTER, parse_retry_after
from tests.providers.conformance import CASES

NOW = datetime(2026, 3, 2, 9, 0, 0, tzinfo=UTC)

#: What the words beside each value of the case file come to; None is "own backoff".
EXPECTED: dict[str, float | None] = {
    "0": None,
    "2": 2,
    "1.5": 2,
    "-1": None,
    "9999999999": MAX_RETRY_AFTER,
    "86400": MAX_RETRY_AFTER,
    "": None,
    "soon": None,
    "Wed, 21 Oct 2015 07:28:00 GMT": None,
}


def case_values() -> list[str]:
    lines = (CASES / "056-retry-after-values.txt").read_text(encoding="utf-8").splitlines()
    return [line.partition("|")[0].strip() for line in lines if "|" in line and not line.startswith("#")]


def test_the_case_file_holds_the_values_that_are_expected_here() -> None:
    assert set(case_values()) == set(EXPECTED)


@pytest.mark.parametrize("value", case_values())
def test_a_value_seen_in_the_wild_gives_a_bounded_wait_or_none(value: str) -> None:
    assert parse_retry_after(value, now=NOW) == EXPECTED[value]


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        (None, None),
        ("  7  ", 7),
        ("0.2", 1),
        ("0.0", None),
        ("Mon, 02 Mar 2026 09:01:30 GMT", 90),
        ("Monday, 02-Mar-26 09:01:30 GMT", 90),
        ("Mon Mar  2 09:01:30 2026", 90),
        ("Mon, 02 Mar 2026 10:01:30 +0100", 90),
        ("Mon, 02 Mar 2026 09:00:00 GMT", None),
        ("Fri, 31 Dec 9999 23:59:59 GMT", MAX_RETRY_AFTER),
        ("Mon, 99 Mar 2026 09:01:30 GMT", None),
        ("Mon, 02 Mar 99999999 09:01:30 GMT", None),
        ("2, 3", None),
        ("+5", None),
        ("1e3", None),
        ("NaN", None),
        ("inf", None),
        ("٣", None),
        ("\x002", None),
        ("9" * 5000, None),
        ("9" * 50, None),
    ],
)
def test_every_form_gives_a_bounded_wait_or_none(value: str | None, wait: float | None) -> None:
    assert parse_retry_after(value, now=NOW) == wait


def test_a_date_is_measured_on_the_servers_own_clock() -> None:
    an_hour_ahead = "Mon, 02 Mar 2026 10:00:00 GMT"
    wait = parse_retry_after("Mon, 02 Mar 2026 10:01:30 GMT", now=NOW, date=an_hour_ahead)
    assert wait == 90


def test_an_unreadable_server_clock_is_replaced_by_ours() -> None:
    assert parse_retry_after("Mon, 02 Mar 2026 09:01:30 GMT", now=NOW, date="yesterday") == 90
