"""A document failed unbilled, is sent once more, and that answer is lost: it is never sent a third time."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from batches.engine import reconcile
from batches.engine.audit import By
from batches.engine.orders import Order
from batches.models import Alert, BatchItem, Job, Submission, SubmissionOutcome
from tests.engine.simulated import Accept, Complete, Fail, Lose
from tests.scenarios.world import World

ORDER = Order(By(None, "okoye", "198.51.100.7"), "Where is it?", is_confirmed=True)


def pressed(world: World) -> None:
    item = BatchItem.objects.get()
    now = world.clock.now()
    reconcile.reconcile(
        [item.pk], order=ORDER, now=now, providers=world.providers(), store=world.store, checker=world.checker
    )
    world.run_for(600)


def submissions() -> list[tuple[int, str, bool]]:
    return list(Submission.objects.order_by("sequence").values_list("sequence", "outcome", "in_doubt"))


@pytest.fixture
def lost(world: World) -> World:
    """Two submissions: the first failed and unbilled by two readings, the second accepted with every answer lost."""
    world.provider.script("INV-1", submit=[Accept(), *[Lose()] * 6], status=itertools.repeat(Fail(unbilled=True)))
    world.hand_over("INV-1")
    world.run_until(lambda: world.states() == {"INV-1": "unknown"}, within=8000)
    assert submissions() == [(1, "render_failed", False), (2, "open", True)]
    return world


def test_reconcile_does_not_take_the_failed_one_for_the_lost_one(lost: World) -> None:
    pressed(lost)
    assert lost.states() == {"INV-1": "unknown"}
    assert submissions() == [(1, "render_failed", False), (2, "open", True)]
    assert len(lost.provider.jobs) == 2


def test_the_verdict_is_about_the_lost_one_and_not_about_the_one_that_failed(lost: World) -> None:
    found = reconcile.look(BatchItem.objects.get().pk, store=lost.store, checker=lost.checker, now=lost.clock.now())
    assert found.verdict is reconcile.Verdict.UNKNOWABLE
    assert found.verdict_words.startswith("Cannot be known")


def test_a_look_up_that_knows_nothing_of_the_lost_one_settles_it_beside_the_failed_one(lost: World) -> None:
    lost.provider.capabilities = replace(lost.provider.capabilities, look_up=True)  # type: ignore[misc] # of this one
    for job_id, job in list(lost.provider.jobs.items()):
        if job.key == Submission.objects.get(sequence=2).idempotency_key:
            del lost.provider.jobs[job_id]
    lost.run_for(600)  # until then its last try may still be on its way
    pressed(lost)
    assert lost.states() == {"INV-1": "failed"}
    assert "never arrived" in Job.objects.get().failure_words


def test_an_earlier_one_that_was_finished_after_all_is_taken(lost: World) -> None:
    lost.provider.script("INV-1", status=itertools.repeat(Complete()))
    pressed(lost)
    assert lost.states() == {"INV-1": "saved"}
    assert len(lost.provider.jobs) == 2
    alert = Alert.objects.get(kind="surplus", closed_at=None)
    assert "Submission 2 may have been accepted and billed too" in alert.words


def test_however_it_came_to_wait_it_gets_no_other_key_beside_one_in_doubt(lost: World) -> None:
    """As if a fault of ours had put it back: the last look before the intent finds the doubt."""
    Submission.objects.filter(sequence=2).update(outcome=SubmissionOutcome.SUPERSEDED, closed_at=lost.clock.now())
    now = lost.clock.now()
    fields = {"state": "pending", "failure_class": "", "failure_words": "", "failure_cause": "", "due_at": now}
    Job.objects.update(**fields)
    lost.run_for(600)
    job = lost.job("INV-1")
    assert (job.state, job.failure_class) == ("failed", "unknown_outcome")
    assert len(lost.provider.jobs) == 2
    assert len(submissions()) == 2
