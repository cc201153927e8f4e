"""While the database is away nothing new is sent, and what was learned before waits in memory until it is back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection

from batches.models import Job, Submission
from batches.providers import errors
from tests.engine.simulated import Refuse
from tests.scenarios.world import World

NAMES = [f"INV-{number}" for number in range(1, 9)]
CONDITIONS: dict[str, Callable[[World], bool]] = {
    "before anything": lambda world: True,
    "an intent is committed": lambda world: Submission.objects.exists(),
    "the first is accepted": lambda world: len(world.provider.jobs) >= 1,
    "one is rendered": lambda world: Job.objects.filter(state="rendered").exists(),
    "one is stored": lambda world: any(key.endswith(".pdf") for key in world.store.puts),
}


class Outage:
    """The database refuses every statement from when `condition` first holds, for `seconds` of the world's time."""

    def __init__(self, world: World, condition: Callable[[World], bool], *, seconds: float) -> None:
        self.world, self.condition, self.seconds = world, condition, seconds
        self.began_at: Any = None
        self.ends_at: Any = None
        self.refused = 0
        self.arrivals_before = 0

    def look(self) -> None:
        if self.began_at is None and self.condition(self.world):
            self.world.clock.on_look = None
            self.began_at = self.world.clock.now()
            self.ends_at = self.began_at + timedelta(seconds=self.seconds)
            self.arrivals_before = len(self.world.provider.arrivals)

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if self.began_at is not None and self.world.clock.now() < self.ends_at:
            self.refused += 1
            raise OperationalError("the database system is shutting down")
        return execute(sql, params, many, context)


@contextmanager
def outage(world: World, condition: Callable[[World], bool], *, seconds: float) -> Iterator[Outage]:
    out = Outage(world, condition, seconds=seconds)
    world.clock.on_look = out.look
    with connection.execute_wrapper(out):
        yield out
    world.clock.on_look = None


@pytest.mark.parametrize("when", CONDITIONS)
@pytest.mark.parametrize("seconds", [0.05, 4.0])
def test_a_short_outage_loses_nothing(world: World, when: str, seconds: float) -> None:
    world.provider.download_seconds = 0.04  # so that "finished" is written first, and the file comes meanwhile
    world.hand_over(*NAMES)
    with outage(world, CONDITIONS[when], seconds=seconds) as out:
        world.pump().run()
    world.run_to_the_end()
    assert out.refused > 0
    world.assert_saved(NAMES)
    assert len(world.provider.arrivals) == len(NAMES), "what was learned before was not lost"
    assert not Job.objects.exclude(lease_owner=None).exists()


def test_while_nothing_can_be_committed_nothing_new_is_sent(world: World) -> None:
    world.hand_over(*NAMES)
    with outage(world, lambda world: len(world.provider.arrivals) >= 2, seconds=20.0) as out:
        world.pump().run()
        between = [each.at for each in world.provider.arrivals if out.began_at < each.at < out.ends_at]
    # Slots that were given out before it began may still be used.
    assert all(at <= out.began_at + timedelta(seconds=0.5) for at in between)
    world.run_to_the_end()
    world.assert_saved(NAMES)


def test_an_outage_that_outlasts_the_pump_loses_time_and_nothing_else(make_world: Callable[..., World]) -> None:
    world = make_world(deadline_seconds=600)
    world.hand_over(*NAMES)
    with outage(world, lambda world: len(world.provider.arrivals) >= 3, seconds=300.0) as out:
        world.pump().run()
        assert world.clock.now() < out.ends_at
        world.clock.advance(300)
    world.run_to_the_end()
    world.assert_saved(NAMES)
    assert len({arrival.key for arrival in world.provider.arrivals}) == len(NAMES)


def test_the_database_is_not_asked_in_a_hot_loop_while_it_is_away(world: World) -> None:
    world.hand_over(*NAMES)
    looks = 0

    def stopping() -> bool:
        nonlocal looks
        looks += 1
        return False

    with outage(world, lambda world: len(world.provider.arrivals) >= 2, seconds=20.0) as out:
        world.pump(stopping=stopping).run()
    assert out.refused < 60
    assert looks < 2000


def test_a_probe_that_gets_through_while_the_database_is_away_ends_no_pump(world: World) -> None:
    world.hand_over("INV-1")
    world.provider.trouble = Refuse(errors.NotSent)
    world.run_until(lambda: world.account_now().health == "held")
    world.provider.trouble = None
    with outage(world, lambda world: world.provider.probes >= 1, seconds=4.0) as out:
        world.run_for(10)
        assert out.refused > 0
    world.run_to_the_end()
    world.assert_saved(["INV-1"])
