"""Samples and spend caps of a simulated world: how batches get them, who releases and raises them, what must hold."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from batches.engine import running, samples
from batches.engine.errors import SpendCapReached
from batches.models import Batch
from tests.simulation.database import read
from tests.simulation.people import SOMEBODY, now_of, while_troubled

if TYPE_CHECKING:
    from tests.simulation.world import World

#: What a document costs where caps are set.
PRICE = Decimal("0.01")
SIZES = (1, 2, 3)


def given(world: World, renders: int) -> dict[str, Any]:
    """What a person asks for beside a batch that sends so many documents: a sample, a cap, both or nothing."""
    dice = random.Random(f"budget {world.plan.seed} {len(world.handed_over)}")
    asked: dict[str, Any] = {}
    if world.plan.has("samples") and dice.random() < 0.7:
        asked["sample_size"] = dice.choice(SIZES)
    if world.plan.has("caps") and dice.random() < 0.8:
        asked["spend_cap"] = PRICE * (renders + dice.choice((0, 0, 1)))  # tight: a second submission may pass it
    return asked


def expected_sample(renders: int, size: int) -> int:
    """Rows of the sample of a batch that sends so many: none where nobody would be left to wait."""
    return size if 0 < size < renders else 0


# --- people ---


def let_go_on(world: World, dice: random.Random, batch_id: int) -> None:
    """Resume or release a batch; where its cap is reached, somebody raises it."""
    try:
        running.resume(batch_id, reason="It was looked at.", by=SOMEBODY, now=now_of(world))
        return
    except SpendCapReached:
        check_caps(world)  # by the cap that held so far
    cap = Batch.objects.values_list("spend_cap", flat=True).get(pk=batch_id) or Decimal(0)
    for more in (dice.choice((1, 3)), 10, 100):
        try:
            running.resume(
                batch_id, reason="More may be spent.", by=SOMEBODY, now=now_of(world), spend_cap=cap + more * PRICE
            )
        except SpendCapReached:
            continue
        world.trace("raises the cap of", batch_id, cap + more * PRICE)
        return
    world.report(f"batch {batch_id}: its cap was raised by 100 documents, and nothing more may leave")


def look_at_samples(world: World, dice: random.Random) -> None:
    """People look at samples, often before they are finished, and press Release twice."""
    while while_troubled(world, dice, 1, 40):
        for (batch_id,) in read("SELECT id FROM batches_batch WHERE waits_for_release ORDER BY id"):
            if dice.random() < 0.5:
                continue
            try:
                pressed = [samples.release(batch_id, by=SOMEBODY, now=now_of(world)) for _ in range(2)]
            except SpendCapReached:
                let_go_on(world, dice, batch_id)
                continue
            world.trace("releases", batch_id, pressed)
            if all(pressed):
                world.report(f"batch {batch_id} was released twice")


# --- what must hold ---


def check_samples(world: World) -> None:
    """The rows of a sample are rows of its batch, so that both count each document once; and they end together."""
    for sample_id, batch_id, cancelled_at, of_batch in read(
        "SELECT s.id, b.id, s.cancelled_at, b.cancelled_at FROM batches_batch s"
        " JOIN batches_batch b ON b.id = s.sample_of_id"
    ):
        strangers = read(
            "SELECT i.position FROM batches_batchitem i LEFT JOIN batches_batchitem o ON o.batch_id = ?"
            " AND o.position = i.position AND o.document_id = i.document_id WHERE i.batch_id = ? AND o.id IS NULL",
            batch_id,
            sample_id,
        )
        if strangers:
            world.report(f"sample {sample_id} has rows that batch {batch_id} has not: {strangers}")
        if of_batch is not None and cancelled_at is None:
            world.report(f"batch {batch_id} was cancelled, and its sample {sample_id} was not")


def check_caps(world: World) -> None:
    """What the vendor bills for submissions of a batch and its sample stays under its cap.

    Not counted is what it billed twice for one key, and a job that it read as failed before it finished after all.
    """
    batch_of = dict(
        read(
            "SELECT s.idempotency_key, coalesce(b.sample_of_id, b.id) FROM batches_submission s"
            " JOIN batches_batch b ON b.id = s.batch_id"
        )
    )
    billed: dict[int, int] = {}
    for key, jobs in world.remote.accepted_keys.items():
        batch_id = batch_of.get(key)
        if batch_id is not None and key not in world.remote.doubled:
            billed[batch_id] = billed.get(batch_id, 0) + sum(job.bills for job in jobs)
    for batch_id, cap in read("SELECT id, spend_cap FROM batches_batch WHERE spend_cap IS NOT NULL ORDER BY id"):
        if billed.get(batch_id, 0) * PRICE > Decimal(str(cap)):
            world.report(f"batch {batch_id} was billed {billed[batch_id]} documents, and its cap is {cap}")
