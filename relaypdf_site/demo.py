"""`make demo` and `make up`: the whole product on the built-in sandbox, in a folder of its own.

Nothing of the caller's environment that names an account, a database or a folder gets through, so a demonstration can
never cost money or touch real data. Everything is done by the commands that an operator would type.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn
from urllib.parse import quote

from batches import processes
from relaypdf_site import environment

REPOSITORY = Path(__file__).resolve().parent.parent
EXAMPLES = "examples"
#: Of the account that the first start makes; afterwards the pace is what a person set.
FIRST_PACE = ("--first-interval", "0.2")
WORKERS = "2"
#: Where `up` serves its pages, unless another program has the port.
PREFERRED_PORT = 8000
FIRST_USER, FIRST_ADDRESS = "admin", "admin@example.com"
MAIL_FOLDER = "mail"
START_SECONDS = 120.0
BATCH_SECONDS = "600"
#: The stack gives its own parts this long and a little less.
STOP_SECONDS = 60.0
LOG_LINES_SHOWN = 40


class DemoFailed(Exception):
    """Why there is nothing to show; the text says what to do."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m relaypdf_site.demo", description=__doc__)
    parser.add_argument("what", choices=("demo", "up"))
    parser.add_argument("--data-dir", type=Path, default=REPOSITORY / "var" / "demo")
    parser.add_argument("--port", type=int, help="Where `up` serves its pages.")
    options = parser.parse_args(arguments)
    folder: Path = options.data_dir.resolve()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, _end_in_order)
    # On a busy machine the first step takes a minute; whoever waits should know for what.
    sys.stdout.write(f"Preparing {_shown(folder)} …\n")
    sys.stdout.flush()
    try:
        env = _environment(folder)
        if options.what == "demo":
            return _demo(folder, env)
        _up(folder, env, options.port)
    except DemoFailed as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        return 130


def _end_in_order(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _environment(folder: Path) -> dict[str, str]:
    """For every command of the demonstration. The sandbox keeps its first port, since its account is bound to it."""
    remembered = folder / "sandbox-port"
    if not remembered.exists():
        remembered.write_text(str(_free_port()), "ascii")
    return environment.without_ours(os.environ) | {
        "DATA_DIR": str(folder),
        "CLUSTER_WORKERS": WORKERS,
        "SANDBOX_PORT": remembered.read_text("ascii"),
        "LOG_LEVEL": "WARNING",
        "PYTHONUNBUFFERED": "1",
    }


def _demo(folder: Path, env: Mapping[str, str]) -> int:
    _manage(env, "bootstrap", *FIRST_PACE)
    with _running_stack(folder, env):
        billed_before = _billed(env)
        submitted = subprocess.run(  # noqa: S603 - our own command
            [*_command("submit"), EXAMPLES, "--name", "Examples", "--wait", "--timeout", BATCH_SECONDS],
            cwd=REPOSITORY,
            env=env,
        )
        billed = _billed(env)
    pdfs = sum(1 for _ in (folder / "artifacts").rglob("*.pdf"))
    sys.stdout.write(
        f"\nThe sandbox has billed {billed} jobs in all, {billed - billed_before} of them in this run.\n"
        f"{pdfs} PDFs are stored in {_shown(folder / 'artifacts')}; everything is stopped.\n"
        "Run it again: nothing is sent twice. `make up` keeps the same stack running, with its pages.\n"
    )
    return submitted.returncode


def _up(folder: Path, env: dict[str, str], port: int | None) -> NoReturn:
    """Become the stack in the foreground."""
    if port is None:
        port = PREFERRED_PORT if _is_free(PREFERRED_PORT) else 0
    port = port or _free_port()
    env |= _mail_as_files(folder, port)
    first = ("--admin", FIRST_USER, "--admin-email", FIRST_ADDRESS)
    made = json.loads(_manage(env, "bootstrap", *FIRST_PACE, *first, "--json"))["admin"]
    login = folder / "first-login.txt"
    if made["password"]:
        login.touch(mode=0o600)
        login.write_text(f"{FIRST_USER} {made['password']}\n", "utf-8")
    user, _, password = login.read_text("utf-8").strip().partition(" ") if login.exists() else (FIRST_USER, "", "")
    sign_in = f"Sign in as {user} with {password or 'your password'}"
    sys.stdout.write(
        f"{sign_in}; the address follows when all is up.\n"
        f"Data, this login and PDFs are in {_shown(folder)}. Ctrl-C stops everything.\n"
        f"The account is called sandbox; the sandbox is at http://127.0.0.1:{env['SANDBOX_PORT']}\n"
        f"For commands beside it, in another shell: export DATA_DIR={_shown(folder)}\n\n"
    )
    sys.stdout.flush()
    os.chdir(REPOSITORY)
    mail = f"Each mail is a file in {_shown(folder / MAIL_FOLDER)}: tick the notices when you start a batch."
    command = [*_command("runstack"), "--sandbox", "--port", str(port), "--when-ready", f"{sign_in}.\n{mail}"]
    os.execve(sys.executable, command, env | {"LOG_LEVEL": "INFO"})  # noqa: S606 - our own command, no shell wanted


def _mail_as_files(folder: Path, port: int) -> dict[str, str]:
    """Settings with which notices by e-mail can be tried without a mail server: nothing leaves this machine."""
    return {
        "EMAIL_URL": f"filemail:///{quote(str(folder / MAIL_FOLDER))}",
        "DEFAULT_FROM_EMAIL": "RelayPDF Batches <batches@example.com>",
        "SITE_URL": f"http://127.0.0.1:{port}",
    }


@contextlib.contextmanager
def _running_stack(folder: Path, env: Mapping[str, str]) -> Iterator[None]:
    """The stack, up while the block runs and stopped by its process id whatever happens in it."""
    parent = os.getpid()
    process = subprocess.Popen(  # noqa: S603 - our own command
        [*_command("runstack"), "--sandbox", "--port", "0"],
        cwd=REPOSITORY,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
        preexec_fn=lambda: processes.die_with_parent(parent=parent),
    )
    log = folder / "stack.log"
    ready = threading.Event()
    reader = threading.Thread(target=_keep_log, args=(process, log, ready), daemon=True)
    reader.start()
    try:
        ready.wait(START_SECONDS)
        if process.poll() is not None:
            reader.join()
            raise DemoFailed(_why(log))
        yield
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join()


def _keep_log(process: subprocess.Popen[str], path: Path, ready: threading.Event) -> None:
    """Write the stack's log to `path`; `ready` is set when it serves, and when it ends."""
    assert process.stdout is not None
    with path.open("w", encoding="utf-8") as file:
        for line in process.stdout:
            file.write(line)
            file.flush()
            if "ready at http" in line and line.startswith("stack"):
                ready.set()
    process.wait()
    ready.set()


def _why(log: Path) -> str:
    """What the stack said at its end, and the way out when another program has the sandbox's port."""
    said = "\n".join(log.read_text("utf-8").splitlines()[-LOG_LINES_SHOWN:])
    hint = "\nFree that port, or forget this demonstration with `make clean`." if "listened on" in said else ""
    return f"The stack did not start. It said:\n{said}{hint}"


def _billed(env: Mapping[str, str]) -> int:
    """Jobs that the sandbox has billed since it was first started."""
    connection = http.client.HTTPConnection("127.0.0.1", int(env["SANDBOX_PORT"]), timeout=30)
    try:
        connection.request("GET", "/_sandbox/ledger?jobs=0")
        return int(json.load(connection.getresponse())["totals"]["jobs_billed"])
    except (OSError, ValueError, KeyError) as error:
        raise DemoFailed(f"The sandbox does not answer ({error}); its log is stack.log beside the data.") from error
    finally:
        connection.close()


def _manage(env: Mapping[str, str], *arguments: str) -> str:
    """Run a management command to its end; what it printed. Raises `DemoFailed`."""
    done = subprocess.run(  # noqa: S603 - our own command
        _command(*arguments), cwd=REPOSITORY, env=env, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise DemoFailed(f"manage.py {arguments[0]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _command(*arguments: str) -> list[str]:
    return [sys.executable, str(REPOSITORY / "manage.py"), *arguments]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _shown(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


if __name__ == "__main__":
    sys.exit(main())
