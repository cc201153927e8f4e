"""Documents whose end is not certain, and the two ways to settle them: reconciling, and adopting a provider job."""

from __future__ import annotations

import itertools
from dataclasses import replace

from batches.engine import adoption, reconcile
from batches.engine.adoption import Adoption
from batches.engine.audit import By
from batches.engine.orders import Order
from batches.engine.reconcile import Findings
from batches.models import BatchItem
from batches.providers import errors
from tests.engine.simulated import Lose, Refuse, SimulatedJob
from tests.scenarios.world import World

ORDER = Order(By(None, "m.okoye", "a test"), reason="the answer was lost")


CONFIRMED = replace(ORDER, is_confirmed=True)


def unknown(world: World, *names: str, arrived: bool = True) -> None:
    """Documents whose every answer was lost: taken and billed by the provider, or never seen by it."""
    for name in names:
        answer = Lose() if arrived else Refuse(errors.AnswerLost)
        world.provider.script(name, submit=itertools.repeat(answer))
    world.hand_over(*names)
    world.run_to_the_end(within=4000)
    assert {world.states()[name] for name in names} == {"unknown"}


def with_look_up(world: World) -> None:
    world.provider.capabilities = replace(world.provider.capabilities, look_up=True)  # type: ignore[misc] # of this one


def item_of(world: World, name: str) -> BatchItem:
    return BatchItem.objects.get(version=world.job(name).version)


def reconciled(world: World, name: str) -> Findings:
    return reconcile.settle(
        item_of(world, name).pk,
        order=ORDER,
        provider=world.provider,
        store=world.store,
        checker=world.checker,
        now=world.clock.now(),
    )


def adopted(world: World, name: str, pasted: str, *, order: Order = CONFIRMED) -> Adoption:
    return adoption.adopt(
        world.job(name).pk,
        pasted,
        order=order,
        provider=world.provider,
        store=world.store,
        checker=world.checker,
        now=world.clock.now(),
    )


def billed(world: World) -> int:
    return len(world.provider.jobs)


def job_at_provider(world: World, name: str) -> SimulatedJob:
    (job,) = world.provider.jobs_of(name)
    return job


def words_of(findings: Findings) -> str:
    return " ".join(each.words for each in findings.evidence)
