"""Two writers on one SQLite file: whoever waits has the lock once it is free, or gives up in time."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connections, transaction
from django.db.backends.sqlite3.base import DatabaseWrapper

from batches import sqlite_turns

PATIENCE = 30.0


@pytest.fixture
def database(tmp_path: Path, django_db_blocker: Any) -> Iterator[DatabaseWrapper]:
    """A connection of Django's to a file of its own, in the way in which the product opens one."""
    settings = dict(connections.settings["default"])
    settings |= {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(tmp_path / "turns.sqlite3"),
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": PATIENCE},
    }
    connections.settings["turns"] = settings
    wrapper = connections["turns"]
    with django_db_blocker.unblock():
        with wrapper.cursor() as cursor:
            cursor.execute("CREATE TABLE seen (name TEXT)")
        yield wrapper  # type: ignore[misc]  # the engine above makes one of these
        wrapper.close()
    del connections["turns"]
    del connections.settings["turns"]


@pytest.fixture
def other(database: DatabaseWrapper) -> Iterator[sqlite3.Connection]:
    """Another program's connection to the same file."""
    raw = sqlite3.connect(database.settings_dict["NAME"], isolation_level=None, check_same_thread=False)
    yield raw
    raw.close()


def busy_timeout(database: DatabaseWrapper) -> int:
    with database.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout")
        return int(cursor.fetchone()[0])


def test_a_connection_gets_its_turns_once_however_often_it_is_opened(database: DatabaseWrapper) -> None:
    database.close()
    database.ensure_connection()
    assert database.execute_wrappers.count(sqlite_turns._begin_in_turn) == 1


def test_who_waits_goes_on_when_the_lock_is_given_back(
    database: DatabaseWrapper, other: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    other.execute("BEGIN IMMEDIATE")
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            other.execute("COMMIT")

    monkeypatch.setattr(sqlite_turns.time, "sleep", sleep)
    with transaction.atomic(using="turns"), database.cursor() as cursor:
        cursor.execute("INSERT INTO seen VALUES ('a')")
    assert looks == [sqlite_turns.LOOK_SECONDS] * 3
    assert other.execute("SELECT count(*) FROM seen").fetchone() == (1,)
    assert busy_timeout(database) == PATIENCE * 1000, "other statements wait as before"


def test_when_its_time_is_over_it_says_what_sqlite_says(
    database: DatabaseWrapper, other: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([0.0, 1.0, PATIENCE - 0.1, PATIENCE])
    monkeypatch.setattr(sqlite_turns.time, "monotonic", lambda: next(times))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(OperationalError, match="database is locked"), transaction.atomic(using="turns"):
        raise AssertionError("nobody is let in")
    monkeypatch.undo()
    assert busy_timeout(database) == PATIENCE * 1000
    other.execute("COMMIT")
    with transaction.atomic(using="turns"), database.cursor() as cursor:
        cursor.execute("INSERT INTO seen VALUES ('a')")


def test_another_error_is_not_waited_for(database: DatabaseWrapper, monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(_seconds: float) -> None:
        raise AssertionError("it waits")

    monkeypatch.setattr(sqlite_turns.time, "sleep", sleep)
    database.ensure_connection()
    raw: Any = database.connection
    raw.execute("BEGIN IMMEDIATE")  # behind Django's back: a transaction within a transaction is refused
    with pytest.raises(OperationalError, match="within a transaction"), transaction.atomic(using="turns"):
        raise AssertionError("nobody is let in")
    raw.execute("ROLLBACK")


def test_two_writers_at_once_both_write_all(database: DatabaseWrapper) -> None:
    def write(name: str) -> None:
        try:
            for _ in range(50):
                with transaction.atomic(using="turns"), connections["turns"].cursor() as cursor:
                    cursor.execute("INSERT INTO seen VALUES (%s)", [name])
        finally:
            connections["turns"].close()

    writers = [threading.Thread(target=write, args=(name,)) for name in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(PATIENCE)
    with database.cursor() as cursor:
        cursor.execute("SELECT name, count(*) FROM seen GROUP BY name ORDER BY name")
        assert cursor.fetchall() == [("a", 50), ("b", 50)]
