"""What durations say of more in flight: pure, on made-up minutes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from batches.engine import capacity, pacing
from batches.engine.capacity import Ended, Level
from batches.models import PacingLane, ProviderAccount
from tests.factories import NOW


def steady(minutes: int, *, rate: float, seconds: float, after: int = 0) -> list[Ended]:
    """So many saved a minute, each having taken so long."""
    step = 60 / rate
    begin = NOW + timedelta(minutes=after)
    return [Ended(begin + timedelta(seconds=step * number), seconds, seconds) for number in range(int(minutes * rate))]


def test_levels_are_told_by_what_was_in_flight_and_only_of_whole_minutes() -> None:
    """30 a minute of 2 s are one at a time, 60 of 8 s are eight; the first minute and the last ones are not whole."""
    documents = steady(10, rate=30, seconds=2) + steady(10, rate=60, seconds=8, after=10)
    found = {level.in_flight: round(level.per_minute) for level in capacity.levels(documents)}
    assert found == {1: 30, 8: 60}
    assert capacity.levels(steady(2, rate=30, seconds=2)) == []


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ({1: 10, 5: 50, 12: 98, 20: 100}, 12),  # 20 brought two more a minute
        ({1: 10, 5: 50, 12: 120}, None),  # it still helps
        ({1: 10, 5: 60, 12: 40}, 5),  # more made it slower
        ({5: 50, 12: 50}, None),  # two levels show no bend
    ],
)
def test_the_marker_stands_where_more_stopped_helping_and_only_where_that_is_seen(
    rates: dict[int, float], expected: int | None
) -> None:
    assert capacity.enough([Level(level, 5, rate) for level, rate in rates.items()]) == expected


def test_advice_has_its_reason_and_is_silent_without_data() -> None:
    documents = steady(4, rate=20, seconds=9)
    known = capacity.times(documents)
    (words,) = capacity.advice([], known=known, interval_ms=3000, cap=2)
    assert words.startswith("At one every 3 s, and with 95 % rendered within 9 s, about 3 in flight keep the pace; 2 ")
    assert "slows this account down" in words
    assert capacity.advice([], known=None, interval_ms=3000, cap=2) == []
    found = [Level(1, 5, 7.0), Level(3, 5, 19.5), Level(8, 5, 20.0)]
    assert "because the pace was reached" in capacity.advice(found, known=None, interval_ms=3000, cap=20)[0]
    assert "took no more at once" in capacity.advice(found, known=None, interval_ms=50, cap=20)[0]


def test_the_next_slot_is_told_without_taking_it() -> None:
    account = ProviderAccount(submit_interval_ms=3000, submit_burst=1)
    row = PacingLane(next_slot_us=pacing.to_us(NOW + timedelta(seconds=2)), interval_us=3_000_000)
    assert pacing.outlook(account, row, now=NOW).next_at == NOW + timedelta(seconds=2)
    row.cool_down_until_us = pacing.to_us(NOW + timedelta(seconds=60))
    outlook = pacing.outlook(account, row, now=NOW)
    assert outlook == pacing.Outlook(NOW + timedelta(seconds=60), NOW + timedelta(seconds=60))
    account.submit_interval_ms = 9000  # a slower pace moves the slot that was reckoned with the faster one
    row.cool_down_until_us = 0
    assert pacing.outlook(account, row, now=NOW).next_at == NOW + timedelta(seconds=8)
    assert pacing.outlook(account, None, now=NOW) == pacing.Outlook(NOW, None)
