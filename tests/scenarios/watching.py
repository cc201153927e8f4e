"""How a story gets to a late watch, and how its time goes by: only what is due is read, however long it lasts."""

from __future__ import annotations

import itertools
from datetime import timedelta

from batches.conf import ENGINE
from batches.models import ACTIVE_STATES, Job, Submission
from tests.engine.simulated import Word
from tests.scenarios.world import World

FIRST = ENGINE.watch_first_seconds


def given_up(world: World, name: str = "INV-1") -> Submission:
    """Past its deadline, and still “processing” there."""
    world.provider.script(name, status=itertools.repeat(Word("processing")))
    world.hand_over(name)
    world.run_to_the_end()
    assert world.states()[name] == "deadline_exceeded"
    return world.job(name).submissions.get()


def watched_for(world: World, hours: float) -> None:
    """Time goes by, and each watch is read when it is due; only what is due is worth a pump."""
    ends_at = world.clock.now() + timedelta(hours=hours)
    while world.clock.now() < ends_at:
        due = [row.watch_at for row in Submission.objects.filter(watch_at__isnull=False) if row.watch_at]
        due += [job.due_at for job in Job.objects.filter(state__in=ACTIVE_STATES)]
        due_at = min([*due, ends_at])
        if due_at == ends_at:
            break
        world.clock.advance(max(0.0, (due_at - world.clock.now()).total_seconds()))
        world.pump().run()
    world.clock.advance(max(0.0, (ends_at - world.clock.now()).total_seconds()))
