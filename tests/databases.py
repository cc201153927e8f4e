"""Databases of tests, cheaply: migrations run once for a whole run, and a test's rows are deleted where they are.

A migrated database is a file that is copied (SQLite) or a template that new ones are made from (PostgreSQL). Migrating
takes seconds, and every worker of pytest-xdist and every stack needs a database of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from django.db import connection, transaction

from relaypdf_site.environment import without_ours

REPOSITORY = Path(__file__).resolve().parent.parent


def _digest_of_migrations() -> str:
    digest = hashlib.sha256()
    for file in sorted((REPOSITORY / "batches" / "migrations").glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


#: Which migrations there are is part of the name: a server that outlives a run keeps the template of others, too.
TEMPLATE = f"migrated_{_digest_of_migrations()}"
#: What `migrate` itself writes and no test changes; Django's own flush would delete it and make it again.
MADE_BY_MIGRATE = {
    "django_migrations",
    "django_content_type",
    "auth_permission",
    "auth_group",
    "auth_group_permissions",
}


@functools.cache
def _shared_folder() -> Path:
    """What all processes of a test run share (tests/settings.py); outside of one, this process's own."""
    if shared := os.environ.get("TESTS_DATA_DIR"):
        return Path(shared)
    folder = tempfile.mkdtemp(prefix="relaypdf-databases-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def migrated_file() -> Path:
    """A SQLite database with all tables and no rows; nobody writes to it."""
    file = _shared_folder() / f"{TEMPLATE}.sqlite3"
    with _one_at_a_time("sqlite"):
        if not file.exists():
            made = file.with_suffix(".partial")
            _migrate(f"sqlite:///{made}")
            with contextlib.closing(sqlite3.connect(made)) as opened:
                # Back from WAL: all is in the one file that is copied.
                opened.execute("PRAGMA journal_mode=DELETE")
            made.rename(file)
    return file


def copy_migrated_file(to: Path) -> None:
    for suffix in ("-wal", "-shm"):
        to.with_name(to.name + suffix).unlink(missing_ok=True)
    shutil.copyfile(migrated_file(), to)


def migrated_template(server: str) -> str:
    """The name of a migrated database on the PostgreSQL server that DATABASE_URL names; nobody is connected to it."""
    with _one_at_a_time("postgres"), psycopg.connect(server, autocommit=True) as session:
        if not session.execute("SELECT 1 FROM pg_database WHERE datname = %s", [TEMPLATE]).fetchone():
            half_made = f"{TEMPLATE}_partial"
            session.execute(f'DROP DATABASE IF EXISTS "{half_made}"')
            session.execute(f'CREATE DATABASE "{half_made}"')
            _migrate(urlunsplit(urlsplit(server)._replace(path=f"/{half_made}")))
            session.execute(f'ALTER DATABASE "{half_made}" RENAME TO "{TEMPLATE}"')
    return TEMPLATE


def make_migrated(settings: dict[str, Any]) -> None:
    """Have Django's test database, which `settings` describes and which it makes next, begin migrated."""
    if connection.vendor == "sqlite":
        copy_migrated_file(Path(settings["TEST"]["NAME"]))
    else:
        settings["TEST"]["TEMPLATE"] = migrated_template(os.environ["DATABASE_URL"])


def delete_all_rows() -> None:
    """Leave the tables as `migrate` made them, in a few milliseconds: most tests fill few of them.

    Every foreign key of ours is checked at the end of a transaction, so the order does not matter.
    """
    with connection.constraint_checks_disabled(), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_filled_tables())
        for (table,) in cursor.fetchall():
            cursor.execute(f"DELETE FROM {connection.ops.quote_name(table)}")


@functools.cache
def _filled_tables() -> str:
    """A statement that gives the names of the tables that have rows."""
    tables = connection.introspection.django_table_names(only_existing=True, include_views=False)
    return " UNION ALL ".join(
        f"SELECT '{table}' WHERE EXISTS (SELECT 1 FROM {connection.ops.quote_name(table)})"
        for table in sorted({*tables} - MADE_BY_MIGRATE)
    )


def _migrate(url: str) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "migrate", "--verbosity", "0"],
        cwd=REPOSITORY,
        env=without_ours(os.environ) | {"DATA_DIR": str(_shared_folder()), "DATABASE_URL": url},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def _one_at_a_time(what: str) -> Iterator[None]:
    with (_shared_folder() / f"{TEMPLATE}-{what}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
