"""The pace is shared: processes that take slots from one lane at the same time never get the same one."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest
from django.db import connection

from tests import factories

PROCESSES = 4
SLOTS_EACH = 25


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
def test_four_processes_share_one_pace_exactly() -> None:
    account = factories.make_account()
    command = [sys.executable, "-m", "tests.engine.reserving", str(connection.settings_dict["NAME"])]
    takers = [
        subprocess.Popen(
            [*command, str(account.pk), str(SLOTS_EACH)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(PROCESSES)
    ]
    try:
        for taker in takers:
            assert taker.stdout is not None
            assert taker.stdout.readline() == "ready\n"
        for taker in takers:
            assert taker.stdin is not None
            taker.stdin.write("go\n")
            taker.stdin.flush()
        given = [taker.communicate(timeout=60)[0].split() for taker in takers]
    finally:
        for taker in takers:
            taker.kill()
            taker.wait()
    assert [taker.returncode for taker in takers] == [0] * PROCESSES
    assert [len(each) for each in given] == [SLOTS_EACH] * PROCESSES
    slots = sorted(int(slot) for each in given for slot in each)
    assert len(set(slots)) == PROCESSES * SLOTS_EACH, "a slot was given out twice"
    gaps = [later - earlier for earlier, later in itertools.pairwise(slots)]
    # 20 slots 50 ms apart, then the window of 2 s makes the next one wait.
    assert gaps == [1_050_000 if number % 20 == 0 else 50_000 for number in range(1, len(slots))]
