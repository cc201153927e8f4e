"""The pace is shared: processes that take slots from one lane at the same time never get the same one."""

from __future__ import annotations

import itertools

import pytest

from tests import factories
from tests.engine import racing

PROCESSES = 4
SLOTS_EACH = 25


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
def test_four_processes_share_one_pace_exactly() -> None:
    account = factories.make_account()
    runs = [(str(account.pk), str(SLOTS_EACH))] * PROCESSES
    given = racing.processes("tests.engine.reserving", runs, seconds=60)
    assert [len(each) for each in given] == [SLOTS_EACH] * PROCESSES
    slots = sorted(int(slot) for each in given for slot in each)
    assert len(set(slots)) == PROCESSES * SLOTS_EACH, "a slot was given out twice"
    gaps = [later - earlier for earlier, later in itertools.pairwise(slots)]
    # 20 slots 50 ms apart, then the window of 2 s makes the next one wait.
    assert gaps == [1_050_000 if number % 20 == 0 else 50_000 for number in range(1, len(slots))]
