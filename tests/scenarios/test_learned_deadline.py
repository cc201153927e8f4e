"""An account that wants it gets the deadline that its own durations suggest, and each job says so."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.engine.test_deadlines import fill
from tests.scenarios.world import World


@pytest.mark.parametrize(("choice", "seconds"), [("on", 120), ("suggested", 60), ("off", 60)])
def test_only_an_account_that_wants_it_is_given_the_learned_deadline(
    make_world: Callable[..., World], choice: str, seconds: int
) -> None:
    world = make_world(learned_deadline=choice, deadline_seconds=60)
    fill(world.account, [0.5] * 60)
    world.hand_over("INV-1")
    world.run_to_the_end()
    job = world.job("INV-1")
    accepted_at = job.submissions.get().accepted_at
    assert round((job.deadline_at - accepted_at).total_seconds()) == seconds
    said = job.events.get(reason="accepted").words
    assert ("2 min suggested" in said) is (choice == "on")
