"""The periodic pass: each one handles a bounded number of rows, and the next goes on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from batches.conf import ENGINE
from batches.engine import links, outliers, running, stopping, sweep, wakeups, webhook_setup
from batches.models import Batch, Job
from batches.storage import open_store
from tests import factories
from tests.factories import NOW


def test_one_pass_handles_a_bounded_number_and_the_next_ones_do_the_rest(
    batch: Batch, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """Case 98: a pass that took longer than its minute filled all workers with copies of itself."""
    monkeypatch.setattr(sweep, "ROWS_MOST", 2)
    for _ in range(5):
        factories.make_job(batch=batch, lease_owner="dead", lease_until=NOW)
    store = open_store(settings.STORAGE_URL)
    later = NOW + timedelta(seconds=ENGINE.lease_seconds)
    assert [sweep.sweep(store, now=later).leases_cleared for _ in range(4)] == [2, 2, 1, 0]
    assert not Job.objects.exclude(lease_owner=None).exists()


def test_a_live_lease_is_left(batch: Batch, settings: Any) -> None:
    factories.make_job(batch=batch, lease_owner="alive", lease_until=NOW + timedelta(seconds=1))
    store = open_store(settings.STORAGE_URL)
    assert sweep.sweep(store, now=NOW).leases_cleared == 0
    assert Job.objects.get().lease_owner == "alive"


FAULT = RuntimeError("a fault of ours")


def fails(*_given: Any, **_named: Any) -> int:
    raise FAULT


PARTS = {
    "_clear_leases": sweep,
    "_clear_slots": sweep,
    "tell_late": links,
    "end_unneeded": running,
    "sweep": outliers,
    "match_recorded": wakeups,
    "end_previous": webhook_setup,
}


@pytest.mark.parametrize("part", PARTS)
def test_a_fault_in_one_part_leaves_the_others_done(
    part: str, batch: Batch, monkeypatch: pytest.MonkeyPatch, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(settings.STORAGE_URL)
    (store.root / ".temporary" / "left").touch()  # type: ignore[attr-defined]  # the tests' store is on a disk
    asked = []
    monkeypatch.setattr(stopping, "_close_ended", lambda *, now: asked.append(now))
    monkeypatch.setattr(PARTS[part], part, fails)
    report = sweep.sweep(store, now=datetime.now(UTC) + timedelta(days=1))
    assert (len(asked), report.temporaries_removed) == (1, 1)
    assert "a fault of ours" in caplog.text


def test_a_store_that_cannot_be_asked_loses_nothing_of_the_report(
    batch: Batch, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    factories.make_job(batch=batch, lease_owner="dead", lease_until=NOW)
    store = open_store(settings.STORAGE_URL)
    monkeypatch.setattr(store, "sweep_temporaries", fails)
    report = sweep.sweep(store, now=NOW + timedelta(seconds=1))
    assert (report.leases_cleared, report.temporaries_removed) == (1, 0)
