"""The simulator finds known bugs that are put into the engine, within 500 seeds each, and replays what it found."""

from __future__ import annotations

import re

import pytest

from tests.simulation.runs import simulate

pytestmark = pytest.mark.simulation


@pytest.mark.parametrize(
    ("plant", "says", "first"),
    [
        ("fencing", "holds the newest claim", 0),
        ("saved", "the store does not hold its PDF", 0),
        ("retention", "sent again", 0),  # with a key that was accepted and forgotten, or to one that takes no key
        ("cap", "and its cap is", 60),  # found at 73: what lies before it takes a minute
    ],
)
def test_a_planted_bug_is_found_within_500_seeds(plant: str, says: str, first: int) -> None:
    ran = simulate("--first", str(first), "--seeds", "440", "--processes", "1", "--stop", "--plant", plant)
    found = re.search(r"^seed (\d+) fails: (.*)$", ran.stdout, re.MULTILINE)
    assert found is not None, ran.stdout + ran.stderr
    assert ran.returncode == 1
    assert int(found[1]) < 500
    assert says in found[2]
    once, again = (simulate("--seed", found[1], "--plant", plant, hash_seed=hash_seed) for hash_seed in ("1", "2"))
    assert (once.returncode, again.returncode, once.stderr) == (1, 1, "")
    assert found[2] in once.stdout, "a failing seed fails again, by the same words"
    assert once.stdout == again.stdout
