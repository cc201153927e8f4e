"""Running seeds in this process, or in workers that are handed some at a time."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.world import Outcome

_runs: Iterator[Outcome]
_line: list[int] = []


def begin(plant: str) -> None:
    """One simulator for the whole life of the worker."""
    global _runs
    _runs = outcomes(_line, plant)


def work(seeds: list[int]) -> list[tuple[int, list[str], float]]:
    _line.extend(seeds)
    return [(each.seed, each.violations, each.virtual_seconds) for each in (next(_runs) for _ in seeds)]


def outcomes(seeds: list[int], plant: str = "") -> Iterator[Outcome]:
    """Run seeds in this process, on a database of its own."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.simulation.settings"
    import django

    django.setup()
    gc.set_threshold(20_000, 20, 50)  # a run leaves little behind, and looking for it takes time
    from tests.simulation import planted
    from tests.simulation.store import make_folder
    from tests.simulation.world import Simulator

    with make_folder() as folder, planted.bug(plant):
        simulator = Simulator(Path(folder))
        for seed in seeds:  # the list may grow meanwhile
            yield simulator.run(seed)
