"""Real stacks for tests: bootstrap, start, kill -9, stop, with nothing left running whatever the test did.

Every process of a stack carries the stack's mark in its environment, so that `survivors()` also finds one that lost
its parent. The processes load the shipped settings, not the ones of the test run.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psutil
import psycopg

from batches.processes import die_with_parent
from relaypdf_site.environment import without_ours
from tests.databases import copy_migrated_file, migrated_template

REPOSITORY = Path(__file__).resolve().parent.parent
MARK = "STACK_UNDER_TEST"
PATIENCE_SECONDS = 60.0
#: Longer than the drain time of the cluster, after which it kills its own tasks.
STOP_SECONDS = 45.0


def eventually(condition: Callable[[], Any], what: str, *, within: float = PATIENCE_SECONDS) -> Any:
    """The first true value of `condition`; fails the test with `what` when none comes. The limit is patience only."""
    give_up_at = time.monotonic() + within
    while not (value := condition()):
        assert time.monotonic() < give_up_at, f"gave up waiting for {what}"
        time.sleep(0.05)
    return value


class Stack:
    """One installation of its own: database, DATA_DIR, and the processes of `runcluster` or `runstack`.

    `database` is "sqlite" or "postgres" (a fresh database on the server that DATABASE_URL names), by default what the
    suite runs on; it has its tables, unless it is `empty`. `env` is added to the processes' environment
    (RELAYPDF_BASE_URL, …). `command` is what `start` runs.
    """

    def __init__(
        self,
        *,
        data_dir: Path,
        database: str = "",
        env: Mapping[str, str] | None = None,
        workers: int = 2,
        empty: bool = False,
        command: Sequence[str] = ("runcluster",),
    ) -> None:
        data_dir.mkdir(parents=True, exist_ok=True)
        self.data_dir = data_dir
        self.command = tuple(command)
        self.mark = uuid.uuid4().hex
        self.process: subprocess.Popen[bytes] | None = None
        self._log_path = data_dir / "stack.log"
        self._server_url = ""
        self._database_name = ""
        server = os.environ.get("DATABASE_URL", "")
        has_postgres = urlsplit(server).scheme in ("postgres", "postgresql")
        if (database or ("postgres" if has_postgres else "sqlite")) == "postgres":
            assert has_postgres, "run this under `python -m tests.postgres -- pytest …`: it needs a PostgreSQL server"
            self.database_url = self._create_database(server, template="" if empty else migrated_template(server))
        else:
            file = data_dir / "db.sqlite3"
            self.database_url = f"sqlite:///{file}"
            if not empty and not file.exists():
                copy_migrated_file(file)
        self.env = without_ours(os.environ) | {
            "DATA_DIR": str(data_dir),
            "DATABASE_URL": self.database_url,
            "CLUSTER_WORKERS": str(workers),
            "PYTHONUNBUFFERED": "1",
            MARK: self.mark,
            **(env or {}),
        }

    # --- set-up, start, stop -----------------------------------------------------------------------------------------

    def bootstrap(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = self.manage("bootstrap", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def start(self) -> None:
        """Start `command` as a process group of its own. Returns at once."""
        assert self.process is None or self.process.poll() is not None, "this stack is running"
        with self._log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", *self.command],
                cwd=REPOSITORY,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    def stop(self) -> int:
        """SIGTERM to the first process only; its exit code. Fails when anything is left running."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(STOP_SECONDS)
        eventually(lambda: not self.survivors(), f"the end of {self.survivors()}", within=10)
        return code

    def close(self) -> None:
        """Kill whatever is left and drop the database. Harmless when called twice."""
        self.kill9_cluster()
        if self._database_name:
            with psycopg.connect(self._server_url, autocommit=True) as connection:
                connection.execute(f'DROP DATABASE "{self._database_name}" WITH (FORCE)')
            self._database_name = ""

    # --- violence ----------------------------------------------------------------------------------------------------

    def kill9_cluster(self) -> None:
        """SIGKILL to every process of the stack; returns when all are gone."""
        while left := self.survivors():
            for process in left:
                _kill(process)
            psutil.wait_procs(left, timeout=5)
        if self.process is not None:
            self.process.wait()

    def kill_random(self, rng: random.Random) -> str:
        """SIGKILL to one process of the tree; its name."""
        victim = rng.choice(eventually(self.processes, "a running stack"))
        name = _name(victim)
        _kill(victim)
        return name

    # --- looking -----------------------------------------------------------------------------------------------------

    def manage(
        self, *arguments: str, given: str | None = None, timeout: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """Run `manage.py` with the stack's environment, and `given` on its standard input, to its end."""
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=REPOSITORY,
            env=self.env,
            input=given,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def log(self) -> str:
        """All that the started processes wrote so far."""
        return self._log_path.read_text(errors="replace") if self._log_path.exists() else ""

    def processes(self) -> list[psutil.Process]:
        """The started process and everything below it."""
        if self.process is None or self.process.poll() is not None:
            return []
        try:
            root = psutil.Process(self.process.pid)
            return [process for process in (root, *root.children(recursive=True)) if _is_alive(process)]
        except psutil.NoSuchProcess:
            return []

    def named(self, name: str) -> list[psutil.Process]:
        """Processes of the tree that `ps` shows as `name` (q-supervisor, q-main, q-sentinel, q-worker, …)."""
        return [process for process in self.processes() if _name(process) == name]

    def survivors(self) -> list[psutil.Process]:
        """Every living process with this stack's mark, wherever it hangs in the tree."""
        return [process for process in psutil.process_iter() if _is_alive(process) and self._carries_mark(process)]

    def query(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Rows of a statement (`?` for parameters) on the stack's database, outside Django."""
        if url := self._postgres_url:
            with psycopg.connect(url) as connection:
                return connection.execute(sql.replace("?", "%s"), parameters).fetchall()
        with sqlite3.connect(self.data_dir / "db.sqlite3", timeout=30) as connection:
            return connection.execute(sql, parameters).fetchall()

    def execute(self, sql: str, *parameters: Any) -> None:
        """A statement that writes, as `query` otherwise."""
        if url := self._postgres_url:
            with psycopg.connect(url) as connection:
                connection.execute(sql.replace("?", "%s"), parameters)
            return
        with sqlite3.connect(self.data_dir / "db.sqlite3", timeout=30) as connection:
            connection.execute(sql, parameters)

    @property
    def _postgres_url(self) -> str:
        url = self.env["DATABASE_URL"]
        return "" if url.startswith("sqlite:") else url

    def _carries_mark(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get(MARK) == self.mark
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return False

    def _create_database(self, server: str, *, template: str) -> str:
        self._server_url = server
        self._database_name = f"stack_{self.mark}"
        with psycopg.connect(server, autocommit=True) as connection:
            source = f' TEMPLATE "{template}"' if template else ""
            connection.execute(f'CREATE DATABASE "{self._database_name}"{source}')
        return urlunsplit(urlsplit(server)._replace(path=f"/{self._database_name}"))


def _kill(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
