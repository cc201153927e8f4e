"""Running baseline (ii): its own database, `qcluster` as django-q2 ships it, one task per step."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg

from batches.processes import die_with_parent
from benchmarks import processes
from benchmarks.processes import REPOSITORY, PeerProcess
from relaypdf_site.environment import without_ours

STUCK_SECONDS = 120.0


class TaskPerStep:
    """One installation of the baseline."""

    def __init__(self, folder: Path, database: str, peer: PeerProcess) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._database = folder, database
        self._server = os.environ.get("DATABASE_URL", "")
        self._name = f"baseline_{uuid.uuid4().hex[:12]}"
        self.env = without_ours(os.environ) | {
            "DJANGO_SETTINGS_MODULE": "benchmarks.task_per_step.settings",
            "BENCH_DATA_DIR": str(folder),
            "BENCH_PEER": peer.url,
        }
        if database == "postgres":
            with psycopg.connect(self._server, autocommit=True) as connection:
                connection.execute(f'CREATE DATABASE "{self._name}"')
            self.env["DATABASE_URL"] = urlunsplit(urlsplit(self._server)._replace(path=f"/{self._name}"))
        self._manage("migrate", "--run-syncdb", "--verbosity", "0")
        self._connection: Any = (
            psycopg.connect(self.env["DATABASE_URL"], autocommit=True)
            if database == "postgres"
            else sqlite3.connect(folder / "db.sqlite3", timeout=30, isolation_level=None)
        )

    def run(self, prefix: str, documents: int) -> tuple[float, float]:
        """Seconds from commit to the last saved document, and CPU seconds of the cluster."""
        cluster = subprocess.Popen(
            [sys.executable, "-m", "django", "qcluster"],
            cwd=REPOSITORY,
            env=self.env,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        try:
            time.sleep(3)
            cpu = processes.cpu_seconds(processes.tree(cluster.pid))
            offered = processes.run_module("benchmarks.task_per_step.offer", prefix, str(documents), env=self.env)
            ended_at = self._wait(prefix, documents)
            cpu = processes.cpu_seconds(processes.tree(cluster.pid)) - cpu
        finally:
            self._end(cluster)
        return ended_at - offered["committed_at"], cpu

    def close(self) -> None:
        self._connection.close()
        if self._database == "postgres":
            with psycopg.connect(self._server, autocommit=True) as connection:
                connection.execute(f'DROP DATABASE "{self._name}" WITH (FORCE)')

    def _wait(self, prefix: str, documents: int) -> float:
        sql = f"SELECT count(*) FROM task_per_step_document WHERE state = 'saved' AND run = '{prefix}'"
        seen, moved_at = -1, time.monotonic()
        while True:
            asked_at = time.monotonic()
            count = int(self._connection.execute(sql).fetchone()[0])
            if count >= documents:
                return asked_at
            if count != seen:
                seen, moved_at = count, asked_at
            elif asked_at - moved_at > STUCK_SECONDS:
                raise RuntimeError(f"task per step stands still at {count} of {documents} documents")
            time.sleep(0.02 if documents - count < 100 else 0.1)

    def _end(self, cluster: subprocess.Popen[bytes]) -> None:
        """Ask, then kill what is left of its own group: `qcluster` does not always stop when asked."""
        cluster.send_signal(signal.SIGTERM)
        left = processes.tree(cluster.pid)
        try:
            cluster.wait(10)
        except subprocess.TimeoutExpired:
            cluster.kill()
            cluster.wait()
        for process in left:
            if process.is_running() and process.pid != cluster.pid:
                process.kill()

    def _manage(self, *arguments: str) -> None:
        subprocess.run([sys.executable, "-m", "django", *arguments], cwd=REPOSITORY, env=self.env, check=True)
