"""`manage.py runstack`: pages, workers and, if asked, the sandbox, in the foreground with one log.

Exit codes: 0 stopped by SIGTERM or Ctrl-C, 1 a part died for good, 2 something that a person has to mend.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser
from django.db import OperationalError, connection, connections
from django.db.migrations.executor import MigrationExecutor

from batches import installation
from batches.engine import slots
from batches.management import choosing
from batches.models import ProviderAccount
from batches.stack import Foreman, Part

MANAGE = Path(sys.argv[0]).resolve()
#: A stack that was killed may need this long until its last process has let go of the port.
PORT_SECONDS = 3.0
BACKLOG = 512


class Command(BaseCommand):
    help = "Run pages and workers (and the sandbox) in the foreground. Run bootstrap before it."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="Address to listen on (default %(default)s).")
        parser.add_argument("--port", type=int, default=8000, help="0 takes a free one (default %(default)s).")
        parser.add_argument("--workers", type=int, metavar="N", help="Worker processes; CLUSTER_WORKERS if not given.")
        parser.add_argument("--sandbox", action="store_true", help="Run the sandbox too, as the service that renders.")
        parser.add_argument("--sandbox-port", type=int, metavar="N", help="Where it listens; as its account says.")

        parser.add_argument(
            "--when-ready", default="", metavar="WORDS", help="Written below the address once all serve."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        workers = options["workers"] if options["workers"] is not None else settings.CLUSTER_WORKERS
        if not 1 <= workers <= 64:
            raise choosing.refusal("--workers must lie between 1 and 64.")
        with _only_stack_of(settings.DATA_DIR):
            self._require_bootstrap()
            sandbox_port = _sandbox_port(options["sandbox_port"]) if options["sandbox"] else None
            slots.ensure(max(1, workers - 1))
            connections.close_all()
            call_command("collectstatic", interactive=False, verbosity=0)
            with _listening(options["host"], options["port"]) as listener:
                address = f"http://{_in_url(options['host'])}:{listener.getsockname()[1]}/"
                foreman = Foreman(
                    _parts(listener, workers=workers, sandbox_port=sandbox_port),
                    ready=lambda: f"ready at {address} (Ctrl-C stops it)\n{options['when_ready']}",
                    patience_seconds=settings.CLUSTER_DRAIN_SECONDS + 10,
                )
                code = foreman.run()
        sys.exit(code)

    def _require_bootstrap(self) -> None:
        try:
            executor = MigrationExecutor(connection)
            missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
        except OperationalError as error:
            raise choosing.refusal(f"The database does not answer; look at DATABASE_URL. It said: {error}") from error
        if missing or not ProviderAccount.objects.exists():
            raise choosing.refusal("This database is not ready; run `manage.py bootstrap` first.")


def _parts(listener: socket.socket, *, workers: int, sandbox_port: int | None) -> list[Part]:
    env = os.environ | {"CLUSTER_WORKERS": str(workers), "PYTHONUNBUFFERED": "1"}
    manage = (sys.executable, str(MANAGE))
    parts = []
    if sandbox_port is not None:
        folder = str(settings.DATA_DIR / "sandbox")
        parts.append(
            Part(
                "sandbox",
                (*manage, "sandbox", "--port", str(sandbox_port), "--data-dir", folder),
                env,
                ready_words=" ready at ",
                stops_last=True,
            )
        )
    gunicorn = (sys.executable, "-m", "gunicorn", "--config", "python:relaypdf_site.gunicorn_conf")
    parts.append(
        Part(
            "web",
            (*gunicorn, "--bind", f"fd://{listener.fileno()}", "relaypdf_site.wsgi"),
            env,
            ready_words="Booting worker",
            pass_fds=(listener.fileno(),),
        )
    )
    parts.append(Part("cluster", (*manage, "runcluster"), env))
    return parts


def _sandbox_port(wanted: int | None) -> int:
    """Where the sandbox must listen so that its account finds it."""
    account = ProviderAccount.objects.filter(slug=installation.SANDBOX_SLUG).first()
    bound = urlsplit(account.base_url).port if account else None
    if wanted and bound and wanted != bound:
        raise choosing.refusal(
            f"Account {installation.SANDBOX_SLUG} looks for its sandbox on port {bound}, not {wanted}. Leave "
            f"--sandbox-port out, or run `SANDBOX_PORT={wanted} manage.py bootstrap` while the account is unused."
        )
    port: int = wanted or bound or settings.SANDBOX_PORT
    return port


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


@contextlib.contextmanager
def _only_stack_of(data_dir: Path) -> Iterator[None]:
    """One stack per DATA_DIR; the kernel gives the lock back however this process ends."""
    with (data_dir / "runstack.lock").open("a", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise choosing.refusal(f"A stack is running on {data_dir} already; stop it first.") from None
        yield


@contextlib.contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    """A listening socket that outlives restarts of the web part: connections wait meanwhile instead of failing."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        give_up_at = time.monotonic() + PORT_SECONDS
        while True:
            try:
                listener.bind((host, port))
                listener.listen(BACKLOG)
                break
            except (OSError, OverflowError) as error:
                taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
                if not taken or time.monotonic() > give_up_at:
                    why = "is taken by another program" if taken else f"cannot be listened on ({error})"
                    raise choosing.refusal(f"Port {port} of {host} {why}; choose another with --port.") from error
                time.sleep(0.1)  # nothing tells when a dying process lets go of its port
        yield listener
