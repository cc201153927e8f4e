"""What every connection asks of PostgreSQL (`batches/postgres_sessions.py`)."""

from __future__ import annotations

import pytest
from django.db import connection


@pytest.mark.django_db
def test_postgresql_answers_each_statement_with_one_process() -> None:
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SHOW max_parallel_workers_per_gather")
            assert cursor.fetchone() == ("0",)
    else:  # no other database is asked for anything that only PostgreSQL knows
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            assert cursor.fetchone() == (1,)
