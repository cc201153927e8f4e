"""Every command without a database that answers, or with one that is not migrated: one sentence."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError

from tests.commands.shell import run

pytestmark = pytest.mark.django_db

COMMANDS = [
    ("submit", "x.json"),
    ("batch", "bat_1"),
    ("results", "bat_1"),
    ("download", "bat_1", "--out", "x.zip"),
    ("account", "sandbox"),
    ("api_token", "m.okoye", "--name", "x"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_an_unmigrated_database_is_one_sentence(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "django.db.migrations.executor.MigrationExecutor.migration_plan", lambda *_: ["batches.0001_initial"]
    )
    assert run(*command) == (2, "", "This database is not ready; run `manage.py bootstrap` first.")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_an_absent_database_is_one_sentence(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(connection: Any) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr("batches.management.readiness.MigrationExecutor", refuse)
    code, out, err = run(*command)
    assert (code, out) == (2, "")
    assert err == "The database does not answer; look at DATABASE_URL. It said: connection refused"
