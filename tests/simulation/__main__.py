"""`python -m tests.simulation`: run seeds, print how fast and which failed; or replay one with what happened in it.

python -m tests.simulation --seeds 20000 --first 0 --processes 2
python -m tests.simulation --seed 123
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

from tests.simulation import workers

#: Seeds that a worker is handed at once.
SLICE = 10
#: Between two lines about how far it has come.
TELL_SECONDS = 30.0


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
    outcome = next(workers.outcomes([seed], plant))
    print("\n".join(outcome.trace))
    print(f"\nseed {seed}: {outcome.turns} turns, {outcome.virtual_seconds:.0f} s of virtual time")
    print(f"trouble: {', '.join(sorted(outcome.kinds))}")
    print(f"digest: {outcome.digest}")
    print("\n".join(outcome.violations) or "nothing is wrong")
    return 1 if outcome.violations else 0


def _run_many(given: argparse.Namespace) -> int:
    began = told = time.monotonic()
    seeds = range(given.first, given.first + given.seeds)
    size = 1 if given.stop else SLICE
    slices = [list(seeds[start : start + size]) for start in range(0, len(seeds), size)]
    failed: dict[int, str] = {}
    done, virtual = 0, 0.0
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(given.processes, context, workers.begin, (given.plant,)) as pool:
        for future in as_completed([pool.submit(workers.work, part) for part in slices]):
            for seed, violations, seconds in future.result():
                done += 1
                virtual += seconds
                if violations:
                    failed[seed] = violations[0]
                    print(f"seed {seed} fails: {violations[0]}", flush=True)
            if time.monotonic() > told + TELL_SECONDS:
                told = time.monotonic()
                print(f"{done} of {given.seeds} runs, {len(failed)} failing", flush=True)
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


if __name__ == "__main__":
    sys.exit(main())
