"""More simulated runs, in a file of their own so that two workers of the tests share them."""

from __future__ import annotations

import pytest

from tests.simulation.runs import FURTHER, SEEDS, assert_clean

pytestmark = pytest.mark.simulation


def test_every_promise_holds_in_every_further_run() -> None:
    assert_clean(range(FURTHER, SEEDS))
