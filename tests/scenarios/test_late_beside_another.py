"""A first submission that finishes late although a second one was made: one is delivered, and the other is told of."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

import pytest

from batches.models import Alert
from batches.providers import errors
from tests.engine.simulated import Accept, Answer, Complete, Fail, Lose, Refuse, SimulatedJob, Word
from tests.engine.vendor import pdf
from tests.scenarios.watching import FIRST, watched_for
from tests.scenarios.world import World

UNBILLED = Fail("render_failed", unbilled=True)


def statuses_by_job(world: World, monkeypatch: pytest.MonkeyPatch, **answers: Iterator[Answer]) -> None:
    """Status reads are answered by the job that is read, instead of in the order in which they come."""
    usual = world.provider._status

    def status(job: SimulatedJob, answer: Answer) -> object:
        return usual(job, next(answers.get(job.id, iter(())), answer))

    monkeypatch.setattr(world.provider, "_status", status)


def submissions(world: World, name: str = "INV-1") -> list[tuple[int, str, bool]]:
    return list(world.job(name).submissions.order_by("sequence").values_list("sequence", "outcome", "in_doubt"))


def test_a_first_submission_that_finishes_late_takes_the_place_of_a_second_that_was_never_taken(world: World) -> None:
    """The second was refused for want of credit: it never arrived, so it is closed instead of sent after the top-up."""
    world.provider.script(
        "INV-1", submit=[Accept(), Refuse(errors.InsufficientCredit)], status=[UNBILLED, UNBILLED, Complete()]
    )
    world.provider.balance = Decimal(0)
    world.hand_over("INV-1")
    world.run_until(lambda: world.account_now().health == "held", within=120)
    world.clock.advance(FIRST + 60)
    world.run_for(30)
    world.assert_saved(["INV-1"])
    assert submissions(world) == [(1, "delivered", False), (2, "refused", False)]
    world.provider.balance = Decimal(100)
    world.run_for(200)
    assert [arrival.became for arrival in world.provider.arrivals] == ["accepted", "InsufficientCredit"]


def test_a_first_submission_that_finishes_late_is_fetched_when_the_second_passes_its_deadline(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: Iterator[Answer] = itertools.chain([UNBILLED, UNBILLED], itertools.repeat(Complete()))
    statuses_by_job(world, monkeypatch, pdf_1=answers, pdf_2=itertools.repeat(Word("processing")))
    world.hand_over("INV-1")
    world.run_to_the_end()
    watched_for(world, 2)
    assert world.states() == {"INV-1": "saved"}
    assert world.stored("INV-1") == pdf("INV-1")
    assert submissions(world) == [(1, "delivered", False), (2, "superseded", False)]
    assert world.open_alerts() == []
    assert world.job("INV-1").submissions.get(sequence=2).watch_at is not None, "its own watch goes on"


def test_the_second_submission_is_surplus_when_it_is_finished_after_all(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: Iterator[Answer] = itertools.chain([UNBILLED, UNBILLED], itertools.repeat(Complete()))
    second = {"pdf_2": itertools.repeat(Word("processing"))}
    statuses_by_job(world, monkeypatch, pdf_1=answers, pdf_2=iter(lambda: next(second["pdf_2"]), None))
    world.hand_over("INV-1")
    world.run_to_the_end()
    watched_for(world, 2)
    second["pdf_2"] = itertools.repeat(Complete())
    watched_for(world, 2)
    assert world.states() == {"INV-1": "saved"}
    assert submissions(world) == [(1, "delivered", False), (2, "surplus", False)]
    assert world.open_alerts() == ["surplus"]


def test_a_first_submission_that_finishes_late_is_fetched_when_nobody_knows_of_the_second(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second stays in doubt and is never called refused, and the alert about it outlives the good end."""
    answers: Iterator[Answer] = itertools.chain([UNBILLED, UNBILLED], itertools.repeat(Complete()))
    statuses_by_job(world, monkeypatch, pdf_1=answers)
    world.provider.script("INV-1", submit=[Accept(), Lose(), Refuse(errors.InvalidInput)])
    world.hand_over("INV-1")
    world.run_to_the_end()
    assert world.states() == {"INV-1": "unknown"}
    watched_for(world, 2)
    assert world.states() == {"INV-1": "saved"}
    assert submissions(world) == [(1, "delivered", False), (2, "superseded", True)]
    assert world.open_alerts() == ["surplus"]
    assert "may have been accepted and billed too" in Alert.objects.get(closed_at=None).words


def test_a_late_success_is_told_at_once_and_fetched_when_the_one_under_way_ends_badly(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider's retention passes meanwhile as far as we assume: the watch outlasts the other submission."""
    type(world.account).objects.update(deadline_seconds=1500)
    answers: Iterator[Answer] = itertools.chain([UNBILLED, UNBILLED], itertools.repeat(Complete()))
    statuses_by_job(world, monkeypatch, pdf_1=answers, pdf_2=itertools.repeat(Word("processing")))
    world.hand_over("INV-1")
    world.run_until(lambda: len(world.provider.jobs) == 2)
    first = world.job("INV-1").submissions.filter(sequence=1)
    first.update(watch_until=world.clock.now() + timedelta(seconds=FIRST + 1))
    watched_for(world, 1 / 3)
    assert world.states() == {"INV-1": "accepted"}
    assert world.reasons("INV-1").count("finished_meanwhile") == 1
    watched_for(world, 1 / 3)
    assert world.states() == {"INV-1": "saved"}
    assert submissions(world) == [(1, "delivered", False), (2, "superseded", False)]


def test_a_job_that_was_waiting_without_a_deadline_may_turn_out_to_be_unfinished(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that waits to be sent has no deadline, and one that is rendering has to have one."""
    answers: Iterator[Answer] = itertools.chain([UNBILLED, UNBILLED, Complete()], itertools.repeat(Word("processing")))
    statuses_by_job(world, monkeypatch, pdf_1=answers)
    world.provider.script(
        "INV-1",
        submit=[Accept(), Refuse(errors.InsufficientCredit)],
        download=itertools.repeat(Refuse(errors.NotFound)),
    )
    world.provider.balance = Decimal(0)
    world.hand_over("INV-1")
    world.run_until(lambda: world.account_now().health == "held", within=120)
    world.clock.advance(FIRST + 60)
    world.run_for(30)
    assert "not_finished_after_all" in world.reasons("INV-1")
    assert world.failures() == {"INV-1": "deadline_exceeded"}
