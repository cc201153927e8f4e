"""The engine keeps every promise in so many simulated runs, whatever happens in them."""

from __future__ import annotations

import pytest

from tests.simulation.runs import simulate

pytestmark = pytest.mark.simulation

#: About a minute of one core. `make simulate SEEDS=20000` runs more.
SEEDS = 100


def test_every_promise_holds_in_every_run() -> None:
    ran = simulate("--seeds", str(SEEDS), "--processes", "1")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{SEEDS} runs" in ran.stdout
    assert "every promise held in every run" in ran.stdout


def test_a_seed_replays_exactly_whatever_python_hashes_strings_with() -> None:
    """Seed 7 has kills, suspensions and an outage among its troubles."""
    first, second = (simulate("--seed", "7", hash_seed=hash_seed) for hash_seed in ("1", "2"))
    assert (first.returncode, first.stderr) == (0, "")
    assert "digest: " in first.stdout
    assert first.stdout == second.stdout
