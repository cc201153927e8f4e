"""`python -m tests.simulation`: run seeds, print how fast and which failed; or replay one with what happened in it.

python -m tests.simulation --seeds 20000 --first 0 --processes 2
python -m tests.simulation --seed 123
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.world import Outcome

#: Seeds that a worker is handed at once.
SLICE = 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, help="replay this one and print its trace")
    parser.add_argument("--seeds", type=int, default=1000, help="how many to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--plant", default="", help="put a known bug into the engine first")
    parser.add_argument("--stop", action="store_true", help="stop at the first failing seed")
    given = parser.parse_args()
    if given.seed is not None:
        return _replay(given.seed, given.plant)
    return _run_many(given)


def _replay(seed: int, plant: str) -> int:
    outcome = next(outcomes([seed], plant))
    print("\n".join(outcome.trace))
    print(f"\nseed {seed}: {outcome.turns} turns, {outcome.virtual_seconds:.0f} s of virtual time")
    print(f"trouble: {', '.join(sorted(outcome.kinds))}")
    print(f"digest: {outcome.digest}")
    print("\n".join(outcome.violations) or "nothing is wrong")
    return 1 if outcome.violations else 0


def _run_many(given: argparse.Namespace) -> int:
    began = time.monotonic()
    seeds = range(given.first, given.first + given.seeds)
    slices = [list(seeds[start : start + SLICE]) for start in range(0, len(seeds), SLICE)]
    failed: dict[int, str] = {}
    done, virtual = 0, 0.0
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(given.processes, context, _begin_worker, (given.plant,)) as pool:
        for future in as_completed([pool.submit(_work, part) for part in slices]):
            for seed, violations, seconds in future.result():
                done += 1
                virtual += seconds
                if violations:
                    failed[seed] = violations[0]
                    print(f"seed {seed} fails: {violations[0]}", flush=True)
            if failed and given.stop:
                pool.shutdown(cancel_futures=True)
                break
    took = time.monotonic() - began
    print(f"{done} runs in {took:.1f} s, {done / took:.1f} a second; {virtual / 3600:.0f} h of virtual time")
    if failed:
        print(f"{len(failed)} seeds fail: {' '.join(map(str, sorted(failed)))}")
        print(f"replay one: make simulate SEED={min(failed)}")
        return 1
    print("every promise held in every run")
    return 0


_runs: Iterator[Outcome]
_line: list[int] = []


def _begin_worker(plant: str) -> None:
    """One simulator for the whole life of the worker."""
    global _runs
    _runs = outcomes(_line, plant)


def _work(seeds: list[int]) -> list[tuple[int, list[str], float]]:
    _line.extend(seeds)
    return [(each.seed, each.violations, each.virtual_seconds) for each in (next(_runs) for _ in seeds)]


def outcomes(seeds: list[int], plant: str = "") -> Iterator[Outcome]:
    """Run seeds in this process, on a database of its own."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.simulation.settings"
    import django

    django.setup()
    from tests.simulation import planted
    from tests.simulation.store import make_folder
    from tests.simulation.world import Simulator

    with make_folder() as folder, planted.bug(plant):
        simulator = Simulator(Path(folder))
        for seed in seeds:  # the list may grow meanwhile
            yield simulator.run(seed)


if __name__ == "__main__":
    sys.exit(main())
