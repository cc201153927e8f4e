"""An account that wants it gets the deadline that its own durations suggest, and each job says so."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta

import pytest

from tests import factories
from tests.engine.simulated import SimulatedJob, Word
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


def test_a_job_whose_id_was_recorded_by_another_holder_is_given_it_too(make_world: Callable[..., World]) -> None:
    world = make_world(learned_deadline="on", deadline_seconds=60)
    fill(world.account, [0.5] * 60)
    world.provider.script("INV-1", status=itertools.repeat(Word("processing"), 20))
    batch = world.hand_over("INV-1")  # so that a pump is at work, and has read the durations
    now = world.clock.now()
    job = factories.make_job(batch=batch, state="submitting", due_at=now + timedelta(seconds=5))
    factories.make_submission(job=job, provider_job_id="pdf_known", accepted_at=now, in_doubt=False)
    world.provider.jobs["pdf_known"] = SimulatedJob("pdf_known", "x", "k", "d", now, read_count=5)
    world.run_until(lambda: world.is_over())
    assert "2 min suggested" in job.events.get(reason="id_was_recorded").words
