"""10,000 documents of 5 s, all at the peer at once, after a batch to learn from: `python -m benchmarks scale`."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import ours, processes, report
from benchmarks.processes import say

JOB_SECONDS = 5.0
LEARNING_DOCUMENTS = 500
MOST_OVER_FLOOR = 1.3
MOST_PSS = 250.0
MOST_READS = 1.1


def run(*, documents: int, databases: Sequence[str]) -> None:
    """Measure and write `results/scale.md`."""
    machine = report.machine()
    rows = []
    with processes.running_peer() as peer, ours.postgres():
        for database in databases:
            folder = Path(tempfile.mkdtemp(prefix="benchmark-"))
            installation = ours.Installation(folder, database, peer)
            try:
                rows.append(_one(installation, documents))
            finally:
                installation.close()
                shutil.rmtree(folder, ignore_errors=True)
    head = [
        "database",
        "seconds",
        "submitted in, s",
        "most in flight",
        f"over floor (≤ {MOST_OVER_FLOOR:g})",
        f"whole cluster, PSS MB (≤ {MOST_PSS:g})",
        f"status reads a document (≤ {MOST_READS:g})",
        "reads while learning",
        "docs/s",
    ]
    report.write(
        "scale",
        f"{documents:,} documents of {JOB_SECONDS:g} s in flight",
        machine,
        f"Floor: from the commit to the last submission's arrival, and {JOB_SECONDS:g} s. PSS: the most that all "
        "processes of the cluster had together, looked at twice a second.",
        report.table(head, rows),
    )


def _one(installation: ours.Installation, documents: int) -> list[str]:
    peer = installation.peer
    with installation.cluster():
        peer.configure(delay=JOB_SECONDS)
        learning = installation.run("learning", LEARNING_DOCUMENTS)
        say(f"{installation.database}: learned from {LEARNING_DOCUMENTS} documents, {learning.rate:.0f} docs/s")
        peer.configure(delay=JOB_SECONDS)
        run = installation.run("scale", documents, watch_memory=True)
        jobs = list(peer.jobs().values())
    committed_at = run.committed_at
    submitted = max(arrived for arrived, _finished, _fetched, _polls in jobs) - committed_at
    over = run.seconds / (submitted + JOB_SECONDS)
    reads = run.counts["poll"] / documents
    say(f"{installation.database}: {run.seconds:.1f} s, {over:.2f} x floor, {run.peak_pss:.0f} MB, {reads:.2f} reads")
    return [
        installation.database,
        f"{run.seconds:.1f}",
        f"{submitted:.1f}",
        f"{most_in_flight(jobs):,}",
        f"{over:.2f} {report.against(over, MOST_OVER_FLOOR, at_most=True)}",
        f"{run.peak_pss:.0f} {report.against(run.peak_pss, MOST_PSS, at_most=True)}",
        f"{reads:.2f} {report.against(reads, MOST_READS, at_most=True)}",
        f"{learning.counts['poll'] / LEARNING_DOCUMENTS:.2f}",
        f"{run.rate:.0f}",
    ]


def most_in_flight(jobs: Sequence[Sequence[float]]) -> int:
    """The most jobs that had arrived and were not fetched yet."""
    changes = sorted([(job[0], 1) for job in jobs] + [(job[2], -1) for job in jobs if job[2]])
    most = now = 0
    for _at, change in changes:
        now += change
        most = max(most, now)
    return most
