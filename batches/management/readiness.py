"""The base of commands that need a database: without one they end with a sentence and exit code 2, not a traceback."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand
from django.db import OperationalError, connection
from django.db.migrations.executor import MigrationExecutor

from batches.management import choosing
from batches.storage import StoreError


class DatabaseCommand(BaseCommand):
    """A command that starts only on a database that answers and is migrated."""

    def execute(self, *args: Any, **options: Any) -> str | None:
        _require_database()
        try:
            return super().execute(*args, **options)
        except StoreError as error:
            raise choosing.refusal(f"The store cannot be used: {error.words}") from error
        except OperationalError as error:
            raise choosing.refusal(f"The database does not answer any more. It said: {error}") from error


def _require_database() -> None:
    try:
        executor = MigrationExecutor(connection)
        missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except OperationalError as error:
        raise choosing.refusal(f"The database does not answer; look at DATABASE_URL. It said: {error}") from error
    if missing:
        raise choosing.refusal("This database is not ready; run `manage.py bootstrap` first.")
