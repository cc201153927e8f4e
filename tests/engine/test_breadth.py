"""A process that is busy all the time uses few threads, and all of them as soon as it waits for others again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from batches.conf import ENGINE
from batches.engine import breadth
from batches.engine.breadth import Breadth
from tests.factories import NOW

LOOK = ENGINE.breadth_look_seconds


@pytest.mark.parametrize(
    ("divisor", "busy", "then"),
    [
        (1, 0.9, 2),
        (8, 0.9, 16),
        (16, 1.0, 16),
        (4, 0.45, 4),  # between the two it stays
        (4, 0.1, 2),
        (2, 0.0, 1),
        (1, 0.0, 1),
    ],
)
def test_what_the_pools_are_divided_by_next(divisor: int, busy: float, then: int) -> None:
    assert breadth.divisor_after(divisor, busy, ENGINE) == then


@pytest.mark.parametrize(
    ("most", "divisor", "least", "used"), [(16, 1, 1, 16), (16, 16, 1, 1), (6, 4, 2, 2), (6, 2, 2, 3), (1, 16, 2, 1)]
)
def test_how_many_threads_that_leaves(most: int, divisor: int, least: int, used: int) -> None:
    assert breadth.width(most, divisor, least=least) == used


def looks(one: Breadth, shares: list[float], *, is_paced: bool = False) -> list[int]:
    now, cpu, found = NOW, 100.0, [one.look(NOW, 100.0, is_paced=is_paced)]
    for share in shares:
        now, cpu = now + timedelta(seconds=LOOK), cpu + share * LOOK
        found.append(one.look(now, cpu, is_paced=is_paced))
    return found


def test_it_narrows_step_by_step_and_widens_when_calls_begin_to_hang() -> None:
    assert looks(Breadth(ENGINE), [0.9, 0.9, 0.9, 0.9, 0.9, 0.5, 0.0, 0.0, 0.0, 0.0]) == [
        1, 2, 4, 8, 16, 16, 16, 8, 4, 2, 1,
    ]  # fmt: skip


def test_a_look_too_soon_says_nothing() -> None:
    one = Breadth(ENGINE)
    one.look(NOW, 0.0, is_paced=False)
    assert one.look(NOW + timedelta(seconds=LOOK / 2), LOOK, is_paced=False) == 1
    assert one.look(NOW + timedelta(seconds=LOOK), LOOK, is_paced=False) == 2


def test_where_a_step_waits_for_its_slot_on_its_thread_all_are_used() -> None:
    one = Breadth(ENGINE)
    assert looks(one, [0.9, 0.9])[-1] == 4
    assert looks(one, [0.9, 0.9], is_paced=True) == [1, 1, 1]
