"""When it makes sense to download for a store: always, until it refuses an object; then one at a time finds out."""

from __future__ import annotations

from datetime import timedelta

import pytest

from batches.engine.keeping import PROBE_FIRST, PROBE_MOST, StoreGate, StoreWaits
from batches.storage import StoreFull
from batches.storage.disk import DiskStore
from tests.factories import NOW


def refuse(gate: StoreGate, store: DiskStore, *, at: timedelta = timedelta(0)) -> None:
    with pytest.raises(StoreFull), gate.passing(store, now=NOW + at):
        raise StoreFull("No space is left.")


def test_a_store_that_takes_everything_is_asked_nothing_first(store: DiskStore) -> None:
    gate = StoreGate()
    (store.root / ".artifact-store").unlink()  # not ready, and nobody asks
    with gate.passing(store, now=NOW), gate.passing(store, now=NOW):
        gate.stored()


def test_after_a_refusal_one_passes_at_a_time_and_only_after_a_while(store: DiskStore) -> None:
    gate = StoreGate()
    refuse(gate, store)
    with pytest.raises(StoreWaits, match="No space"), gate.passing(store, now=NOW + PROBE_FIRST / 2):
        raise AssertionError("nothing may be downloaded yet")
    later = NOW + PROBE_FIRST
    with gate.passing(store, now=later):
        with pytest.raises(StoreWaits), gate.passing(store, now=later):
            raise AssertionError("one finds out for all")
        gate.stored()
        with gate.passing(store, now=later):
            gate.stored()


def test_a_probe_that_came_to_nothing_lets_the_next_one_try_at_once(store: DiskStore) -> None:
    gate = StoreGate()
    refuse(gate, store)
    with pytest.raises(ConnectionError), gate.passing(store, now=NOW + PROBE_FIRST):
        raise ConnectionError
    with gate.passing(store, now=NOW + PROBE_FIRST):
        gate.stored()


def test_a_store_that_says_it_is_not_ready_costs_no_download(store: DiskStore) -> None:
    gate = StoreGate()
    refuse(gate, store)
    (store.root / ".artifact-store").unlink()
    with pytest.raises(Exception, match="mounted"), gate.passing(store, now=NOW + PROBE_FIRST):
        raise AssertionError("it is not ready")


def test_the_waits_grow_to_a_bound_and_start_anew_after_a_success(store: DiskStore) -> None:
    gate, at, waits = StoreGate(), timedelta(0), []
    refuse(gate, store)
    for _ in range(7):
        before = at
        while True:
            try:
                with gate.passing(store, now=NOW + at):
                    raise StoreFull("No space is left.")
            except StoreWaits:
                at += timedelta(seconds=1)
            except StoreFull:
                break
        waits.append(at - before)
    assert waits[0] == PROBE_FIRST
    assert waits[-1] == PROBE_MOST
    assert waits == sorted(waits)
