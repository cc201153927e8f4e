"""The run's database: SQLite in memory, put back to a migrated snapshot before each run, with every commit watched.

A commit boundary is the end of a transaction or a write outside of one. At each the run's `Faults` may kill the
process, before (the work is lost) or after (the work is done, its process never knows); or the database goes away,
before or after, and the process lives on with an `OperationalError`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from django.core.management import call_command
from django.db import OperationalError, connection

#: Statements that change rows.
WRITES = ("INSERT", "UPDATE", "DELETE", "WITH")


class Faults(Protocol):
    """What happens at a boundary. Each may raise `Killed` or `OperationalError`."""

    def before_statement(self) -> None: ...

    def before_commit(self) -> None: ...

    def after_commit(self) -> None: ...


class Snapshot:
    """A migrated, empty database, kept beside the one that the engine uses."""

    def __init__(self, prepare: Callable[[], None]) -> None:
        call_command("migrate", run_syncdb=True, verbosity=0)
        prepare()
        self._kept = sqlite3.connect(":memory:")
        connection.connection.backup(self._kept)

    def restore(self) -> None:
        """Everything that a run wrote is gone."""
        connection.ensure_connection()
        assert not connection.in_atomic_block
        self._kept.backup(connection.connection)


@contextmanager
def watched(faults: Faults) -> Iterator[None]:
    """Put `faults` at every boundary of the default connection."""
    plain_commit = connection._commit

    def commit() -> None:
        try:
            faults.before_commit()
        except BaseException:
            _undo()
            raise
        plain_commit()
        try:
            faults.after_commit()
        except BaseException:
            connection.run_on_commit = []
            raise

    def execute(run: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        faults.before_statement()
        if connection.in_atomic_block or not sql.lstrip().startswith(WRITES):
            return run(sql, params, many, context)
        faults.before_commit()
        answer = run(sql, params, many, context)
        faults.after_commit()
        return answer

    connection._commit = commit  # type: ignore[method-assign]
    try:
        with connection.execute_wrapper(execute):
            yield
    finally:
        del connection._commit
        if connection.in_atomic_block:
            _undo()


def _undo() -> None:
    """What the transaction wrote is gone, as when the process had died before the commit."""
    connection.run_on_commit = []
    if connection.connection is not None and connection.connection.in_transaction:
        connection.connection.rollback()


def read(sql: str, *params: object) -> list[tuple[Any, ...]]:
    """Look at the rows past Django, so that looking is no boundary."""
    given: Any = params[0] if params and isinstance(params[0], dict) else params
    found: list[tuple[Any, ...]] = connection.connection.execute(sql, given).fetchall()
    return found


def away(words: str = "the simulated database does not answer") -> OperationalError:
    return OperationalError(words)
