"""Handing a batch over in a simulated world: through the real intake, with what a person asks for beside it."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

from batches import manifests
from batches.engine import intake, samples, stopping
from tests.simulation import budgets

if TYPE_CHECKING:
    from tests.simulation.world import World


def hand_over(world: World, rows: list[dict[str, str]]) -> None:
    """Start a batch through the real intake."""
    source = manifests.from_upload(io.BytesIO(json.dumps(rows).encode()), "manifest.json")
    checked = intake.check(source, workspace=world.workspace, account=world.account, on_conflict="new-version")
    asked = budgets.given(world, checked.render_count)
    with checked.manifest:
        batch = intake.start(
            checked,
            name="",
            actor=None,
            actor_words="a person",
            from_where="command line",
            creation_key=f"{len(world.handed_over)}",
            store=world.store,
            now=world.scheduler.now(),
            confirmed=True,
            rules=_rules(world),
            **asked,
        )
    world.handed_over[batch.pk] = len(rows)
    sample, size = samples.of(batch), budgets.expected_sample(checked.render_count, asked.get("sample_size", 0))
    if sample is not None:
        world.handed_over[sample.pk] = size
    elif size:
        world.report(f"batch {batch.pk} has no sample of {size}")
    world.trace("handed over", batch.pk, *(row["id"] for row in rows))


def _rules(world: World) -> stopping.Rules:
    if not world.plan.has("stop_rules"):
        return stopping.NO_RULES
    return stopping.Rules(weight=world.rng.choice((1, 1, 3)), stop_after_failures=world.rng.choice((1, 2)))
