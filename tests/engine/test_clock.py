"""Following the database's clock: of several readings the one that can be off by least."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from batches.engine import clock
from tests.factories import NOW


def test_the_reading_with_the_shortest_round_trip_is_believed() -> None:
    slow = (0.400, NOW + timedelta(seconds=9), 10.0)  # its connection was still being made
    quick = (0.001, NOW, 11.0)
    assert clock._quickest([slow, quick, (0.020, NOW + timedelta(seconds=3), 12.0)]) == (NOW, 11.0)


@pytest.mark.django_db
def test_it_follows_the_database_within_a_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    found = clock.SystemClock()
    monkeypatch.setattr(found, "_base", datetime(2020, 1, 1, tzinfo=UTC))
    before = time.time()
    found.calibrate()
    assert before - 1 <= found.now().timestamp() <= time.time() + 1
