"""Statements per document and a worker's memory at two sizes, which must not differ: `python -m benchmarks statements`.

Counted by Django in every process of the cluster, from before the batch is offered until its last document is saved,
idle looks of the queue included, intake not.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import psycopg

from benchmarks import ours, processes, report
from benchmarks.counting import counted
from benchmarks.processes import say

MOST_STATEMENTS = 1.0
#: How much more of something the large run may need before it is not called flat.
FLAT = 1.25


class WorkerMemory:
    """The largest worker's resident memory while the block runs, in megabytes, looked at every second."""

    def __init__(self, installation: ours.Installation) -> None:
        self._installation = installation
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.peak = 0.0

    def _watch(self) -> None:
        while not self._over.wait(1.0):
            for worker in self._installation.stack.named("q-worker"):
                with contextlib.suppress(psutil.NoSuchProcess):
                    self.peak = max(self.peak, worker.memory_info().rss / 1024**2)

    def __enter__(self) -> WorkerMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def run(*, sizes: Sequence[int], databases: Sequence[str]) -> None:
    """Measure and write `results/statements.md`."""
    rows: list[list[str]] = []
    machine = report.machine()
    with processes.running_peer() as peer, ours.postgres() as server:
        for database in databases:
            found = [_one(peer, server.pid, database, size) for size in sizes]
            for size, (statements, commits, memory, rate) in zip(sizes, found, strict=True):
                rows.append(
                    [
                        database,
                        f"{size:,}",
                        f"{statements:.2f}",
                        report.against(statements, MOST_STATEMENTS, at_most=True),
                        f"{commits:.2f}" if commits is not None else "-",
                        f"{memory:.0f}",
                        f"{rate:.0f}",
                    ]
                )
            first, last = found[0], found[-1]
            rows.append(
                [
                    database,
                    "growth",
                    f"{last[0] / first[0]:.2f} x",
                    report.against(last[0] / first[0], FLAT, at_most=True),
                    "",
                    f"{last[2] / first[2]:.2f} x ({report.against(last[2] / first[2], FLAT, at_most=True)})",
                    f"{last[3] / first[3]:.2f} x",
                ]
            )
    head = ["database", "documents", "statements a document", "≤ 1.0; flat", "commits", "largest worker, MB", "docs/s"]
    report.write(
        "statements",
        "Database statements a document, and memory of a worker",
        machine,
        "Jobs are finished at once. Counting costs a little, so the rates here are lower than in the other tables.",
        report.table(head, rows),
    )


def _one(
    peer: processes.PeerProcess, postgres_pid: int, database: str, documents: int
) -> tuple[float, float | None, float, float]:
    """Statements and commits a document, megabytes of the largest worker, documents per second."""
    with _counting_installation(peer, database) as (installation, folder), installation.cluster():
        peer.configure(delay=0)
        statements, commits = counted(folder), _commits(installation)
        with WorkerMemory(installation) as memory:
            run = installation.run("s", documents, postgres_pid=postgres_pid)
        statements = counted(folder) - statements
        after = _commits(installation)
        say(f"{database}, {documents:,} documents: {statements / documents:.2f} statements, {run.rate:.0f} docs/s")
    per_document = (after - commits) / documents if after is not None and commits is not None else None
    return statements / documents, per_document, memory.peak, run.rate


@contextlib.contextmanager
def _counting_installation(peer: processes.PeerProcess, database: str) -> Iterator[tuple[ours.Installation, Path]]:
    folder = Path(tempfile.mkdtemp(prefix="benchmark-"))
    counts = folder / "counts"
    counts.mkdir()
    env = {"DJANGO_SETTINGS_MODULE": "benchmarks.settings", "BENCH_STATEMENTS": str(counts)}
    installation = ours.Installation(folder / "data", database, peer, env=env)
    try:
        yield installation, counts
    finally:
        installation.close()
        shutil.rmtree(folder, ignore_errors=True)


def _commits(installation: ours.Installation) -> int | None:
    """Transactions that PostgreSQL has ended in this database, its own and ours."""
    if installation.database != "postgres":
        return None
    with psycopg.connect(installation.stack.database_url) as connection:
        row = connection.execute(
            "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    return int(row[0]) if row else None
