"""What every connection to PostgreSQL asks of it: to answer each statement with one process.

A page asks ten to fifteen small questions of a machine whose processors also send and store documents. Two helping
processes take longer to start than most of these answers take, and want the processors that the pumps are on
(docs/decisions/0038).
"""

from __future__ import annotations

from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper


def answer_alone(connection: BaseDatabaseWrapper, **_signal: Any) -> None:
    """A receiver of `connection_created`. A statement, not an option of the connection, which PgBouncer refuses."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SET max_parallel_workers_per_gather = 0")
