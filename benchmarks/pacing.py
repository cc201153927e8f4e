"""The pace as the peer saw it, at 1, 20 and 100 submissions a second: `python -m benchmarks pacing`.

Four worker processes on one database; with `--clusters 2` two such clusters, as on two hosts (PostgreSQL).
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import ours, processes, report
from benchmarks.processes import say
from tests.scenarios.pace import StallWatch, closest_breach

WORKERS = 4
JOB_SECONDS = 1.0


def least_share(rate: float) -> float:
    """Of the allowed number of submissions in a minute."""
    return 0.97 if rate >= 100 else 0.99


def run(*, rates: Sequence[float], database: str, clusters: int, seconds: float) -> None:
    """Measure and write `results/pacing….md`."""
    machine = report.machine()
    rows = []
    with contextlib.ExitStack() as stack:
        peer = stack.enter_context(processes.running_peer(urgent=True))
        if database == "postgres":
            stack.enter_context(ours.postgres())
        for rate in rates:
            with StallWatch() as stalls:
                arrivals = _arrivals(peer, database, clusters, rate, seconds)
            rows.append([*_row(arrivals, rate, seconds), f"{1000 * stalls.worst:.0f}"])
            say(f"{rate:g}/s: {rows[-1]}")
    name = f"pacing-{database}" + (f"-{clusters}-clusters" if clusters > 1 else "")
    head = [
        "pace",
        f"arrived in {seconds:g} s",
        "share",
        "at least",
        "",
        "worst pair, ms",
        "",
        "smallest gap, ms",
        "stall, ms",
    ]
    words = "one cluster" if clusters == 1 else f"{clusters} clusters"
    report.write(
        name,
        f"Pace at the peer: {database}, {words} of {WORKERS} worker processes",
        machine,
        "Worst pair: by how much the worst of all pairs i < j of arrivals undercuts (j - i) x interval - tolerance, "
        "the tolerance being the larger of 20 ms and a tenth of the interval. 0 or less keeps the contract. "
        "Stall: the longest that this machine kept a thread waiting that wanted to run, start and stop of the cluster "
        "included: a breach shorter than that may be the receiver's. "
        f"Load after: {processes.load()}.",
        report.table(head, rows),
    )


def _row(arrivals: Sequence[float], rate: float, seconds: float) -> list[str]:
    allowed = rate * seconds
    share = len(arrivals) / allowed
    breach = closest_breach(arrivals, interval=1 / rate)
    gaps = [later - earlier for earlier, later in itertools.pairwise(arrivals)]
    return [
        f"{rate:g}/s",
        f"{len(arrivals):,}",
        f"{100 * share:.1f} %",
        f"{100 * least_share(rate):g} %",
        report.against(share, least_share(rate)),
        f"{1000 * breach:.1f}",
        report.against(breach, 0.0, at_most=True),
        f"{1000 * min(gaps):.1f}" if gaps else "-",
    ]


def _arrivals(peer: processes.PeerProcess, database: str, clusters: int, rate: float, seconds: float) -> list[float]:
    """The arrivals of the first `seconds`, the first of them included."""
    folder = Path(tempfile.mkdtemp(prefix="benchmark-"))
    limits = {"submit_interval_ms": str(round(1000 / rate)), "poll_initial_ms": "1000"}
    # As many slots for pumps as the clusters have workers to fill, less one each.
    slots = clusters * (WORKERS - 1) + 1
    installation = ours.Installation(folder, database, peer, workers=slots, limits=limits)
    installation.workers = WORKERS
    installation.stack.env["CLUSTER_WORKERS"] = str(WORKERS)
    try:
        with _clusters(installation, clusters):
            peer.configure(delay=JOB_SECONDS)
            installation.offer("pace", int(rate * seconds * 1.05) + 5)
            while not (first := peer.stats()["first_arrival"]):
                time.sleep(0.1)
            time.sleep(max(0.0, first + seconds + 0.5 - time.monotonic()))
            stats = peer.stats()
        if stats["double_key"]:
            say(f"{stats['double_key']} submissions were resent")
        arrivals: list[float] = stats["arrivals"]
        return [arrival for arrival in arrivals if arrival < first + seconds]
    finally:
        installation.close()
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _clusters(installation: ours.Installation, count: int) -> Iterator[None]:
    with installation.cluster():
        further = [installation.start_another_cluster() for _ in range(count - 1)]
        if further:
            time.sleep(4)  # their workers' imports
        try:
            yield
        finally:
            for process in further:
                process.terminate()
            for process in further:
                try:
                    process.wait(45)
                except subprocess.TimeoutExpired:
                    process.kill()
