"""Waiting for SQLite's one write lock in small even steps, so that a pump is not asleep when its turn comes.

SQLite's own wait sleeps longer each time, up to 100 ms, and a lock that is held for 5 ms is given to whoever happens to
be awake: two pumps at full speed spent a third to a half of their time in it. Here the lock is looked for every
millisecond; the time limit (`OPTIONS["timeout"]`) and the error when it passes stay SQLite's own. See
`docs/decisions/0016-even-turns-on-sqlite.md`.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

BEGIN = "BEGIN IMMEDIATE"
LOOK_SECONDS = 0.001
#: What the driver waits where the settings say nothing.
DRIVER_TIMEOUT = 5.0


def take_turns(sender: object, connection: BaseDatabaseWrapper, **_signal: object) -> None:
    """A receiver of `connection_created`."""
    if connection.vendor == "sqlite" and _begin_in_turn not in connection.execute_wrappers:
        connection.execute_wrappers.append(_begin_in_turn)


def _begin_in_turn(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
    if sql != BEGIN:
        return execute(sql, params, many, context)
    database: Any = context["connection"]
    seconds = float(database.settings_dict["OPTIONS"].get("timeout", DRIVER_TIMEOUT))
    with database.wrap_database_errors:
        _wait_and_begin(database.connection, seconds)
    return None


def _wait_and_begin(raw: sqlite3.Connection, seconds: float) -> None:
    gives_up_at = time.monotonic() + seconds
    raw.execute("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                raw.execute(BEGIN)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= gives_up_at:
                    raise
            else:
                return
            time.sleep(LOOK_SECONDS)  # real time, as in the wait of the driver that this stands for
    finally:
        raw.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")
