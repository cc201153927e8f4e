"""The pause while the database is away: it grows, leaves out what comes after the failure, and ends with a success."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.db import OperationalError

from batches.engine import outage, retries
from batches.engine.outage import Outage
from tests.engine.samples import Dice
from tests.engine.virtual_time import VirtualClock
from tests.factories import NOW


@pytest.fixture(autouse=True)
def closings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The connection is closed, so that the next attempt opens another; here it stays open for the test."""
    closed: list[str] = []

    class Connection:
        def close(self) -> None:
            closed.append("closed")

    monkeypatch.setattr(outage, "connection", Connection())
    return closed


def away(_now: datetime) -> None:
    raise OperationalError("the server closed the connection")


def test_what_comes_after_the_failure_waits_until_the_pause_is_over(closings: list[str]) -> None:
    clock, done = VirtualClock(NOW), list[datetime]()
    pause = Outage(clock, Dice(1.0))
    pause.attempt(away, done.append)
    pause.attempt(done.append)
    assert done == []
    assert closings == ["closed"]

    seconds = (retries.backoff(1, Dice(1.0))).total_seconds()
    assert pause.seconds_left(NOW) == seconds
    clock.advance(seconds)
    pause.attempt(done.append)

    assert done == [NOW + timedelta(seconds=seconds)]
    assert pause.seconds_left(clock.now()) == 0


def test_the_pause_grows_three_times_and_a_success_forgets_it() -> None:
    clock = VirtualClock(NOW)
    pause = Outage(clock, Dice(1.0))
    pauses = []
    for _failure in range(4):
        pause.attempt(away)
        pauses.append(pause.seconds_left(clock.now()))
        clock.advance(pauses[-1])
    assert pauses == [retries.backoff(n, Dice(1.0)).total_seconds() for n in (1, 2, 3, 3)]

    pause.attempt(lambda _now: None)
    pause.attempt(away)
    assert pause.seconds_left(clock.now()) == pauses[0]


def test_the_last_attempt_does_not_wait() -> None:
    done = list[datetime]()
    pause = Outage(VirtualClock(NOW), Dice(1.0))
    pause.attempt(away)
    pause.cut_short()
    pause.attempt(done.append)

    assert done == [NOW]


def test_another_fault_passes_through() -> None:
    def broken(_now: datetime) -> None:
        raise ValueError("ours")

    with pytest.raises(ValueError, match="ours"):
        Outage(VirtualClock(NOW), Dice(1.0)).attempt(broken)
