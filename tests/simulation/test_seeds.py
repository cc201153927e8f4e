"""The engine keeps every promise in so many simulated runs, whatever happens in them, and each can be had again."""

from __future__ import annotations

import pytest

from tests.simulation.runs import FURTHER, assert_clean, simulate

pytestmark = pytest.mark.simulation


def test_every_promise_holds_in_every_run() -> None:
    assert_clean(range(FURTHER))


def test_a_seed_replays_exactly_whatever_python_hashes_strings_with() -> None:
    """Seed 7 has kills, suspensions and an outage among its troubles."""
    first, second = (simulate("--seed", "7", hash_seed=hash_seed) for hash_seed in ("1", "2"))
    assert (first.returncode, first.stderr) == (0, "")
    assert "digest: " in first.stdout
    assert first.stdout == second.stdout
