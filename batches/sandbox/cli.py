"""Starting the sandbox from a command line: arguments, one process per state folder, clean ends."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import http.client
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, TypeVar

from batches.sandbox import routes, switches
from batches.sandbox.files import sweep
from batches.sandbox.rendering import ENGINE, RendererUnavailable
from batches.sandbox.rendering.fonts import FontsMissing
from batches.sandbox.server import Server
from batches.sandbox.service import SWEEP_SECONDS, Sandbox
from batches.sandbox.switches import BadSwitch

T = TypeVar("T")

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8787
EXIT_REFUSED = 2
SERVER_PRIORITY = -10
ENGINE_VARIABLE = "SANDBOX_ENGINE"
_FINISH_SECONDS = 3.0
# A predecessor that was killed a moment ago may still hold its lock or its port.
_PATIENCE_SECONDS = 2.0


class CannotStart(Exception):
    """A sentence that says why, and what to do."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default=DEFAULT_HOST, help="address to listen on (default %(default)s)")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="0 takes a free one (default %(default)s)")
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=None,
        help="where jobs, files and money are kept (default: sandbox/ in $DATA_DIR, or in var/)",
    )
    parser.add_argument("--ledger", action="store_true", help="print what the running sandbox has billed, and end")
    parser.add_argument("--config", type=Path, help="a JSON file of switches; see batches/sandbox/README.md")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="one switch, such as jobs.min_seconds=1"
    )


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT, or print the ledger. Gives the exit code: 0, or 2 when it could not."""
    if options.ledger:
        return _print_ledger(options)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="sandbox: %(message)s")
    try:
        _serve(options)
    except (CannotStart, BadSwitch, FontsMissing, RendererUnavailable) as error:
        sys.stderr.write(f"The sandbox can't start: {error}\n")
        return EXIT_REFUSED
    return 0


def _print_ledger(options: argparse.Namespace) -> int:
    """What the sandbox that runs on this port has accepted and billed, as one JSON document."""
    peer = http.client.HTTPConnection(options.host, options.port, timeout=30)
    try:
        peer.request("GET", "/_sandbox/ledger")
        ledger = json.load(peer.getresponse())
        ledger["totals"]  # another service may have the port
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        sys.stderr.write(f"No sandbox answers on {options.host}:{options.port}; start it, or name its --port.\n")
        return EXIT_REFUSED
    finally:
        peer.close()
    sys.stdout.write(json.dumps(ledger, indent=2) + "\n")
    return 0


def _serve(options: argparse.Namespace) -> None:
    folder = options.data_dir or Path(os.environ.get("DATA_DIR", "var")) / "sandbox"
    patches = _patches(options)
    _require_known_engine()
    with contextlib.closing(_only_user_of(folder)):
        sandbox = Sandbox(folder.resolve(), patches)
        server = _listening(options, sandbox)
        sandbox.base_url = server.url
        sandbox.start()
        threading.Thread(target=_sweep_loop, args=(sandbox,), daemon=True).start()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: server.stop())
        # The hot path is short; giving way quickly keeps arrival stamps true under many connections.
        sys.setswitchinterval(0.001)
        with contextlib.suppress(PermissionError):
            # A stamp is the receiver's word on our pace; where root runs it, it need not queue for a processor.
            os.setpriority(os.PRIO_PROCESS, 0, SERVER_PRIORITY)
        _greet(sandbox, server)
        try:
            server.serve()
        finally:
            sandbox.stop()
            server.finish_connections(_FINISH_SECONDS)
            sandbox.store.close()


def _patches(options: argparse.Namespace) -> list[dict[str, Any]]:
    patches: list[dict[str, Any]] = []
    if options.config is not None:
        try:
            patches.append(json.loads(options.config.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise CannotStart(f"--config {options.config} can't be read as JSON: {error}") from error
    patches += [switches.parse_assignment(text) for text in options.set]
    return patches


def _require_known_engine() -> None:
    """Refuse an engine that is not here, rather than render with another one than was asked for."""
    wanted = os.environ.get(ENGINE_VARIABLE) or ENGINE
    if wanted != ENGINE:
        raise CannotStart(
            f"{ENGINE_VARIABLE}={wanted} is not an engine of this sandbox; it renders with {ENGINE}. "
            f"Unset {ENGINE_VARIABLE} or set it to {ENGINE}."
        )


def _only_user_of(folder: Path) -> IO[str]:
    """Hold the folder's lock; the kernel gives it back however this process ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / "lock").open("w", encoding="ascii")
    except OSError as error:
        raise CannotStart(f"{folder} can't be written: {error}") from error
    try:
        _patiently(lambda: fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB))
    except BlockingIOError:
        handle.close()
        raise CannotStart(f"another sandbox is using {folder}. Stop it, or choose another --data-dir.") from None
    return handle


def _listening(options: argparse.Namespace, sandbox: Sandbox) -> Server:
    try:
        return _patiently(
            lambda: Server(
                options.host,
                options.port,
                lambda request: routes.handle(sandbox, request),
                max_body_bytes=lambda: sandbox.switches.limits.max_body_bytes,
            )
        )
    except (OSError, OverflowError) as error:
        raise CannotStart(
            f"{options.host}:{options.port} can't be listened on ({error}). Choose another --port."
        ) from error


def _patiently(attempt: Callable[[], T]) -> T:
    """What `attempt` gives, tried again for a short while when the system refuses it."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    pause = threading.Event()
    while True:
        try:
            return attempt()
        except OSError:
            if time.monotonic() > deadline:
                raise
        pause.wait(0.1)


def _greet(sandbox: Sandbox, server: Server) -> None:
    """One line on standard output says that it is ready, and where; the rest goes to the log."""
    sys.stdout.write(f"RelayPDF sandbox ready at {server.url}\n")
    sys.stdout.flush()
    changed = switches.differences(sandbox.switches)
    if changed:
        logging.getLogger(__name__).info("switches that differ from their defaults: %s", json.dumps(changed))


def _sweep_loop(sandbox: Sandbox) -> None:
    while not sandbox.stopping.wait(SWEEP_SECONDS):
        sweep(sandbox)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m batches.sandbox", description=__doc__)
    add_arguments(parser)
    return run(parser.parse_args(arguments))
