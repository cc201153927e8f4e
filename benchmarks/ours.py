"""The product as it is installed: bootstrap, true cluster, real intake, disk store, with nothing switched off."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg

from batches.processes import die_with_parent
from benchmarks import processes
from benchmarks.peer import API_KEY
from benchmarks.processes import PeerProcess
from tests.postgres import Server, server
from tests.stack_process import Stack, eventually

#: Three workers are two pumps: the third runs checks, sweeps and whatever else waits.
WORKERS = 3
#: PostgreSQL as it is delivered, durable; only the number of connections is raised.
POSTGRES_OPTIONS = ("max_connections=200",)
UNPACED = {
    "submit_interval_ms": "0",
    "poll_interval_ms": "0",
    "max_in_flight": "100000",
    "poll_initial_ms": "200",
    "poll_max_ms": "15000",
}
STUCK_SECONDS = 90.0


@contextlib.contextmanager
def postgres() -> Iterator[Server]:
    """A durable PostgreSQL, named in DATABASE_URL so that every `Installation` on "postgres" finds it."""
    with server(POSTGRES_OPTIONS) as running:
        before = os.environ.get("DATABASE_URL")
        os.environ["DATABASE_URL"] = running.url
        try:
            yield running
        finally:
            if before is None:
                os.environ.pop("DATABASE_URL", None)
            else:
                os.environ["DATABASE_URL"] = before


@dataclass(frozen=True)
class Run:
    """One batch from commit to the last saved document. `counts` is what the peer saw."""

    documents: int
    seconds: float
    intake_seconds: float
    cpu_seconds: float
    database_cpu_seconds: float
    committed_at: float
    counts: Mapping[str, Any]
    peak_pss: float = 0.0

    @property
    def rate(self) -> float:
        return self.documents / self.seconds


class Installation:
    """One database and data folder, bootstrapped for the peer; the cluster is started for each measured run."""

    def __init__(
        self,
        folder: Path,
        database: str,
        peer: PeerProcess,
        *,
        workers: int = WORKERS,
        limits: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        command: tuple[str, ...] = ("runcluster",),
    ) -> None:
        self.folder, self.database, self.peer = folder, database, peer
        self.stack = Stack(
            data_dir=folder,
            database=database,
            workers=workers,
            command=command,
            env={
                "RELAYPDF_BASE_URL": peer.url,
                "RELAYPDF_API_KEY": API_KEY,
                "LOG_LEVEL": "WARNING",
                "DJANGO_SETTINGS_MODULE": "relaypdf_site.settings",
                **(env or {}),
            },
        )
        self.stack.bootstrap()
        self.workers = workers
        self.set_limits(**{**UNPACED, **(limits or {})})
        self._connection: Any = None

    def set_limits(self, **limits: str) -> None:
        """Change the account's settings (`manage.py account --set`)."""
        pairs = [f"{name}={value}" for name, value in limits.items()]
        done = self.stack.manage("account", "relaypdf", "--set", *pairs)
        if done.returncode != 0:
            raise RuntimeError(done.stdout + done.stderr)

    @contextlib.contextmanager
    def cluster(self) -> Iterator[None]:
        """The workers, up, warm and idle while the block runs."""
        self.stack.start()
        try:
            eventually(lambda: len(self.stack.named("q-worker")) >= self.workers, "the workers")
            time.sleep(1.5)  # imports and first connections of every worker are done
            yield
        finally:
            self.stack.stop()

    def start_another_cluster(self) -> subprocess.Popen[bytes]:
        """A second `runcluster` on the same database, as on another host; the caller ends it."""
        return subprocess.Popen(
            [sys.executable, "manage.py", "runcluster"],
            cwd=processes.REPOSITORY,
            env=self.stack.env,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )

    def add_account(self, slug: str, peer: PeerProcess, **limits: Any) -> None:
        """A further account, with a peer of its own, on the same cluster."""
        columns = {"base_url": peer.url, **limits}
        processes.run_module("benchmarks.add_account", slug, json.dumps(columns), env=self.stack.env)

    def offer(self, prefix: str, documents: int, account: str = "relaypdf") -> dict[str, Any]:
        """The real intake in a process of its own; its statements are never counted (`settings.py`)."""
        arguments = (prefix, str(documents), str(self.folder), account)
        return processes.run_module("benchmarks.offer", *arguments, env=self.stack.env | {"BENCH_STATEMENTS": ""})

    def run(
        self,
        prefix: str,
        documents: int,
        *,
        watch_memory: bool = False,
        postgres_pid: int | None = None,
    ) -> Run:
        """Offer a batch to the running cluster and wait until all of it is saved. Raises when it stands still."""
        before = self.saved()
        tree = self.tree()
        cpu, database_cpu = processes.cpu_seconds(tree), self._database_cpu(postgres_pid)
        watcher = processes.PeakPss(tree[0].pid) if watch_memory else None
        with watcher or contextlib.nullcontext():
            offered = self.offer(prefix, documents)
            ended_at = self.wait_for(before + documents)
        return Run(
            documents,
            ended_at - offered["committed_at"],
            offered["seconds"],
            processes.cpu_seconds(self.tree()) - cpu,
            self._database_cpu(postgres_pid) - database_cpu,
            offered["committed_at"],
            self.peer.stats(),
            watcher.peak if watcher else 0.0,
        )

    def saved(self) -> int:
        return int(self.query("SELECT count(*) FROM batches_job WHERE state = 'saved'")[0][0])

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows over one connection that stays open: asking must cost the measured stack next to nothing."""
        if self._connection is None:
            if self.database == "postgres":
                self._connection = psycopg.connect(self.stack.database_url, autocommit=True)
            else:
                self._connection = sqlite3.connect(self.folder / "db.sqlite3", timeout=30, isolation_level=None)
        rows: list[tuple[Any, ...]] = self._connection.execute(sql).fetchall()
        return rows

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self.stack.close()

    def wait_for(self, wanted: int) -> float:
        """When the last document was saved: looked for every 20 ms, less often while much is left."""
        seen, moved_at = -1, time.monotonic()
        while True:
            asked_at = time.monotonic()
            count = self.saved()
            if count >= wanted:
                return asked_at
            if count != seen:
                seen, moved_at = count, asked_at
            elif asked_at - moved_at > STUCK_SECONDS:
                raise RuntimeError(f"it stands still at {count} of {wanted} documents:\n{self.stack.log()[-4000:]}")
            time.sleep(0.02 if wanted - count < 200 else 0.1)

    def tree(self) -> list[psutil.Process]:
        assert self.stack.process is not None
        return processes.tree(self.stack.process.pid)

    def _database_cpu(self, pid: int | None) -> float:
        return processes.cpu_seconds(processes.tree(pid)) if pid and self.database == "postgres" else 0.0
