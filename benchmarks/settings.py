"""The shipped settings, with each database statement counted where BENCH_STATEMENTS names a folder.

What begins, ends or nests a transaction is not counted: SQLite says it in words, PostgreSQL by its protocol.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.db.backends.signals import connection_created

from benchmarks.counting import Counter
from relaypdf_site.settings import *  # noqa: F403 - these are the shipped settings

FOLDER = os.environ.get("BENCH_STATEMENTS", "")
NOT_COUNTED = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "PRAGMA")

_counter = Counter(Path(FOLDER))


def _count(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: dict[str, Any]) -> Any:
    if not str(sql).lstrip().upper().startswith(NOT_COUNTED):
        _counter.add(1)  # one prepared statement with many rows (SQLite's way of an insert of many) is one
    return execute(sql, params, many, context)


def _watch(connection: Any, **_: Any) -> None:
    if _count not in connection.execute_wrappers:
        connection.execute_wrappers.append(_count)


if FOLDER:
    connection_created.connect(_watch, weak=False)
