"""/healthz and /readyz."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError
from django.db.migrations.executor import MigrationExecutor
from django.test import Client

pytestmark = pytest.mark.django_db


def test_healthz_answers_without_the_database(client: Client, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        answer = client.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_readyz_is_ready_when_database_and_store_are(client: Client) -> None:
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()) == (
        200,
        {"status": "ready", "database": "ok", "store": "ok", "worker": "ok"},
    )


def test_readyz_names_migrations_that_are_missing(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MigrationExecutor, "migration_plan", lambda executor, targets: [("0002", False)])
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert "1 migrations are not applied" in answer.json()["database"]


def test_readyz_names_a_database_that_is_away_without_its_address(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(executor: Any, targets: Any) -> None:
        raise DatabaseError("could not connect to db.example.com as batches")

    monkeypatch.setattr(MigrationExecutor, "migration_plan", away)
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["database"] == "does not answer (DatabaseError)"


def test_readyz_names_a_store_that_cannot_be_used(client: Client, settings: Any, tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_bytes(b"")
    settings.STORAGE_URL = f"file://{in_the_way}/store"
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["store"].startswith("cannot be used")
    assert str(tmp_path) not in answer.text
