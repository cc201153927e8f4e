"""How long the rest takes: what is said, when nothing is, and how often the truth lies in the range."""

from __future__ import annotations

import bisect
import itertools
import math
import random
from collections.abc import Sequence

import pytest

from batches import finishing
from batches.finishing import Work

STEADY = (20,) * 10


def work(**facts: object) -> Work:
    known = {"remaining": 400, "waiting": 394, "saved": 812, "age": 2400.0, "finished": STEADY, "span": 60.0}
    return Work(**known | {"interval": 3.0} | facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "facts",
    [
        {"age": 14.9},
        {"saved": 19},
        {"remaining": 0, "waiting": 0},
        {"finished": (0,) * 10},
    ],
    ids=str,
)
def test_nothing_is_said_before_something_is_known(facts: dict[str, object]) -> None:
    assert finishing.left(work(**facts)) is None


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, "about 19–21 min left"),
        ({"finished": (20, 18, 12, 20, 11, 20, 10, 19, 20, 12)}, "about 19–35 min left"),
        # The account sends no faster, whatever the last minutes brought.
        ({"finished": (60,) * 10}, "about 19–21 min left"),
        # Three batches take turns: the others may end before, or go on to the end.
        ({"share": 1, "shares": 3}, "about 19 min to 1 h 2 min left"),
        ({"finished": (0, 0, 0, 20, 20, 20, 0, 0, 20, 20)}, "about 19 min to 1 h 24 min left"),
        ({"remaining": 9, "waiting": 2, "finished": (40, 0, 40)}, "less than a minute left"),
        ({"remaining": 4000, "waiting": 4000}, "about 3 h 10 min to 3 h 30 min left"),
    ],
    ids=str,
)
def test_the_range_and_what_it_rests_on(facts: dict[str, object], words: str) -> None:
    left = finishing.left(work(**facts))
    assert left is not None
    assert left.words == words
    assert 0 <= left.low <= left.high < math.inf


def test_what_others_take_is_part_of_the_reason() -> None:
    alone, among = finishing.left(work()), finishing.left(work(share=1, shares=3))
    assert alone is not None
    assert alone.basis == "by its last 10 minutes; the account sends one every 3 s, the only batch that is sent"
    assert among is not None
    assert "1 of 3 turns are this batch’s" in among.basis


@pytest.mark.parametrize(("low", "high", "words"), [(10, 49, "less than a minute"), (55, 70, "about 1 min")])
def test_a_short_range_is_one_word(low: float, high: float, words: str) -> None:
    assert finishing.between(low, high) == words


@pytest.mark.parametrize(
    ("remaining", "total", "is_tail"),
    [(0, 5, False), (9, 12, True), (10, 400, False), (19, 1000, True), (20, 1000, False)],
)
def test_the_tail_is_under_ten_or_two_per_cent(remaining: int, total: int, is_tail: bool) -> None:
    assert finishing.is_tail(remaining, total) is is_tail


def test_the_tail_says_what_is_usual_and_when_it_is_given_up() -> None:
    said = finishing.finishing(6, 41, usual=3.1, deadline=600)
    assert said == "Finishing: last 6 rendering, oldest 41 s (usual 3 s, deadline 10 min)"
    assert finishing.finishing(1, 7505, usual=None, deadline=None).endswith("for 2 h 5 min")


def _history(dice: random.Random) -> tuple[list[float], float, int]:
    """One invented batch, by its pace and its share of the turns: when each document came to rest. Renders differ, and
    now and then everything stands still."""
    total, interval, shares = dice.choice((300, 900, 2500)), dice.choice((0.5, 1.0, 3.0)), dice.choice((1, 1, 2))
    stalls = sorted(
        (dice.uniform(0, total * interval), dice.uniform(20, 240)) for _ in range(dice.choice((0, 0, 1, 3)))
    )
    sent, ends = 0.0, []
    for _ in range(total):
        sent += interval * shares
        while stalls and stalls[0][0] < sent:
            sent += stalls.pop(0)[1]
        ends.append(sent + dice.lognormvariate(math.log(3), 0.5))
    return sorted(ends), interval, shares


def _looks(ends: Sequence[float], interval: float, shares: int) -> list[bool]:
    """Whether the true end lay in the range, at each minute after a fifth was done, as far as one was said."""
    hits = []
    look = ends[len(ends) // 5]
    while look < ends[-1] - 30:
        count, span = finishing.spans(look)
        before = [bisect.bisect_right(ends, look - span * number) for number in range(count + 1)]
        finished = [later - earlier for later, earlier in itertools.pairwise(before)]
        rest = len(ends) - before[0]
        said = finishing.left(
            Work(rest, max(0, rest - 3), before[0], look, finished, span, interval, shares=shares, usual=3, slow=7)
        )
        if said is not None:
            hits.append(said.low <= ends[-1] - look <= said.high)
        look += 60
    return hits


def test_the_true_end_lies_in_the_range_at_four_of_five_looks() -> None:
    hits = [hit for seed in range(60) for hit in _looks(*_history(random.Random(seed)))]
    assert len(hits) > 1000
    assert sum(hits) / len(hits) >= 0.8, f"{sum(hits) / len(hits):.0%} of {len(hits)} looks"
