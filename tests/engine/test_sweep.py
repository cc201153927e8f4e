"""The periodic pass: each one handles a bounded number of rows, and the next goes on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from batches.conf import ENGINE
from batches.engine import sweep
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
