"""The judge of the pace is itself judged."""

from __future__ import annotations

import pytest

from tests.scenarios.pace import closest_breach


@pytest.mark.parametrize(
    ("arrivals", "is_kept"),
    [
        ([], True),
        ([5.0], True),
        ([0.0, 1.0, 2.0], True),
        ([0.0, 1.0, 3.5, 4.5], True),  # a slot that was given up
        ([0.0, 0.95, 2.0], True),  # inside the tolerance of a tenth
        ([0.0, 0.85, 2.0], False),  # two too close
        ([0.0, 1.5, 2.0, 3.0], False),  # caught up after a delay
        ([0.0, 0.95, 1.90, 2.85, 3.8, 4.6], False),  # each pair is fine, the run is not
    ],
)
def test_every_pair_of_arrivals_is_judged(arrivals: list[float], is_kept: bool) -> None:
    assert (closest_breach(arrivals, interval=1.0) <= 0) is is_kept
