"""The base of commands that need a database: without one they end with a sentence and exit code 2, not a traceback.

They also end quietly when nobody reads their output any more, as in `manage.py results bat_… | head`.
"""

from __future__ import annotations

import os
import select
import sys
from typing import Any

from django.core.management.base import BaseCommand
from django.db import OperationalError, connection
from django.db.migrations.executor import MigrationExecutor

from batches.management import choosing
from batches.storage import StoreError

#: The exit code of a program that SIGPIPE ended (128 + 13): what a shell expects of it in a pipeline.
BROKEN_PIPE = 141


class DatabaseCommand(BaseCommand):
    """A command that starts only on a database that answers and is migrated."""

    def run_from_argv(self, argv: list[str]) -> None:
        try:
            try:
                super().run_from_argv(argv)
            finally:
                sys.stdout.flush()  # here, where it is caught, and not when the interpreter ends
        except BrokenPipeError:
            if not _nobody_reads_output():
                raise
            # What is still buffered has to go somewhere when the interpreter ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(BROKEN_PIPE)

    def execute(self, *args: Any, **options: Any) -> str | None:
        _require_database()
        try:
            return super().execute(*args, **options)
        except StoreError as error:
            raise choosing.refusal(f"The store cannot be used: {error.words}") from error
        except OperationalError as error:
            raise choosing.refusal(f"The database does not answer any more. It said: {error}") from error


def _nobody_reads_output() -> bool:
    """Whether standard output is the pipe that broke, and not a connection to something else."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _descriptor, event in poll.poll(0))


def _require_database() -> None:
    try:
        executor = MigrationExecutor(connection)
        missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except OperationalError as error:
        raise choosing.refusal(f"The database does not answer; look at DATABASE_URL. It said: {error}") from error
    if missing:
        raise choosing.refusal("This database is not ready; run `manage.py bootstrap` first.")
