"""The people of a simulated world: who ends holds, who holds and pauses, and who presses whatever button there is."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from batches.engine import applying, health, reconcile, running
from batches.engine.audit import By
from batches.engine.orders import Order, Result
from batches.engine.readpace import ReadPace
from batches.models import Batch, HoldReason, ItemResult, Verb
from tests.simulation.database import read
from tests.simulation.network import OneProvider
from tests.simulation.scheduler import ProcessClock
from tests.simulation.store import StoreOfProcess

if TYPE_CHECKING:
    from tests.simulation.world import World


#: After a hold for credit that nothing here could see ended, a person looks at last.
PATIENCE_US = 200_000_000
SOMEBODY = By(None, "a person", "command line")
PAUSED = "A person paused it."
#: The reason by which a version that a person had made again is known.
AGAIN = "A person wants it again."
PRESSED = (
    Verb.CHECK_AGAIN,
    Verb.FETCH_AGAIN,
    Verb.RETRY,
    Verb.RETRY,
    Verb.CANCEL,
    Verb.DISMISS,
    Verb.REOPEN,
    Verb.RECONCILE,
    Verb.REGENERATE,
)


def now_of(world: World) -> datetime:
    """What the host's clock shows."""
    return world.scheduler.now() + timedelta(microseconds=world.clock_offset_us)


def while_troubled(world: World, dice: random.Random, low: float, high: float) -> bool:
    """Wait a while; false once the trouble is over."""
    world.scheduler.sleep(dice.uniform(low, high))
    return not world.is_calm


def operate(world: World, dice: random.Random) -> None:
    """Ends the holds that only a person can end: slowly in the trouble, at once afterwards."""
    while True:
        world.scheduler.sleep(5 if world.is_calm else dice.choice((30, 200)) * dice.uniform(0.3, 1))
        (reason,) = read("SELECT hold_reason FROM batches_provideraccount")[0]
        if reason in ends_by_hand(world):
            world.remote.key_is_good = True
            if world.remote.credit is not None and world.remote.credit <= 0:
                world.remote.credit = dice.choice((1, 5, 50))
            world.trace("resumes", reason)
            health.resume(world.account.pk, now=now_of(world))
        for batch_id, words in read("SELECT id, pause_reason FROM batches_batch WHERE paused_at IS NOT NULL"):
            if world.is_calm or words != PAUSED:
                world.trace("lets it go on", batch_id, words)
                world.let_go_on(dice, batch_id)


def ends_by_hand(world: World) -> tuple[str, ...]:
    """Where top-ups are seen, an empty wallet needs nobody, or somebody only late."""
    if world.plan.has("topups") and world.plan.has("credit") and world.calm_for_us < PATIENCE_US:
        return (HoldReason.AUTH, HoldReason.PERSON)
    return (HoldReason.AUTH, HoldReason.PERSON, HoldReason.CREDIT)


def hold_and_pause(world: World, dice: random.Random) -> None:
    """Holds the account and pauses batches, takes both back, and now and then cancels for good."""
    while while_troubled(world, dice, 1, 30):
        deed = dice.choice(("hold", "resume", "pause", "pause", "continue", "continue", "cancel"))
        batches = list(Batch.objects.order_by("pk"))
        if not batches:
            continue
        batch, now = dice.choice(batches), now_of(world)
        world.trace(deed, batch.pk)
        if deed == "hold":
            health.hold(world.account.pk, reason=HoldReason.PERSON, words="A person held it.", now=now)
        elif deed == "resume":
            health.resume(world.account.pk, now=now)
        elif deed == "pause":
            running.pause(batch.pk, reason=PAUSED, by=SOMEBODY, now=now)
        elif deed == "continue":
            world.let_go_on(dice, batch.pk)
        elif dice.random() < 0.5:
            running.cancel(batch.pk, reason="A person gave it up.", by=SOMEBODY, now=now)


def press_verbs(world: World, dice: random.Random) -> None:
    """People press whatever button there is, on a few documents at once, wherever those stand."""
    while while_troubled(world, dice, 0.5, 15):
        items = [pk for (pk,) in read("SELECT id FROM batches_batchitem ORDER BY id")]
        if not items:
            continue
        verb = dice.choice(PRESSED)
        chosen = dice.sample(items, dice.randint(1, min(3, len(items))))
        reason = AGAIN if verb is Verb.REGENERATE else "A person wants it."
        order = Order(SOMEBODY, reason=reason, is_confirmed=dice.random() < 0.5)
        if verb is Verb.RECONCILE:
            results = _reconcile(world, chosen, order)
        else:
            results = applying.apply(verb, chosen, order=order, now=now_of(world))
        world.trace("presses", verb.value, [(pk, result.result.value) for pk, result in sorted(results.items())])
        for pk, result in results.items():
            if result.result is ItemResult.FAILED:
                world.report(f"{verb} of item {pk} failed: {result.words}")


def _reconcile(world: World, chosen: list[int], order: Order) -> dict[int, Result]:
    clock = ProcessClock(world.scheduler, offset_us=world.clock_offset_us)
    return reconcile.reconcile(
        chosen,
        order=order,
        now=clock.now(),
        providers=OneProvider(world.provider),
        store=StoreOfProcess(world.store),  # type: ignore[arg-type]  # it passes everything on
        checker=world.checker,  # type: ignore[arg-type]  # it has the same one question
        pace=ReadPace(clock, patience=timedelta(seconds=5)),
    )
