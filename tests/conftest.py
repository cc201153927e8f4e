"""Fixtures that many tests share. Rows come from `tests/factories.py`, processes from `tests/stack_process.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import TransactionTestCase

from batches.conf import ENGINE
from batches.engine.pdfcheck import PdfChecker
from batches.models import Batch, ProviderAccount, Workspace
from batches.storage import open_store
from tests import databases, factories
from tests.stack_process import Stack


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each worker of pytest-xdist collects for itself, and all have to find the same names."""
    changing = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if changing:
        raise pytest.UsageError(f"These names hold an address in memory; give the parameters ids: {changing}")


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings_parallel_suffix: None, monkeypatch_session: pytest.MonkeyPatch
) -> None:
    """Before pytest-django makes the test database: it begins migrated, and is emptied by a way of ours, which asks the
    tables what there is to delete. Django's would empty each of them, then make all permissions again."""
    databases.make_migrated(connection.settings_dict)
    monkeypatch_session.setattr(TransactionTestCase, "_fixture_teardown", lambda case: databases.delete_all_rows())


@pytest.fixture(scope="session")
def monkeypatch_session() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="session")
def django_db_keepdb() -> bool:
    """The copied file is the database; a PostgreSQL database is made anew, from the template."""
    return connection.vendor == "sqlite"


@pytest.fixture(autouse=True)
def artifact_folder(settings: Any, tmp_path: Path) -> Path:
    """Where this test's artifacts go: a folder of its own."""
    folder = tmp_path / "artifacts"
    settings.STORAGE_URL = f"file://{folder}"
    open_store(settings.STORAGE_URL).ensure()
    return folder


@pytest.fixture(scope="session")
def checker() -> Iterator[PdfChecker]:
    """One child process for all tests of a process: starting it is what takes time."""
    checker = PdfChecker(seconds=ENGINE.pdf_check_seconds)
    yield checker
    checker.close()


@pytest.fixture
def now() -> datetime:
    return factories.NOW


@pytest.fixture
def workspace(db: None) -> Workspace:
    return factories.make_workspace()


@pytest.fixture
def account(db: None) -> ProviderAccount:
    return factories.make_account()


@pytest.fixture
def batch(workspace: Workspace, account: ProviderAccount) -> Batch:
    return factories.make_batch(workspace=workspace, account=account)


@pytest.fixture
def login_throttling(settings: Any) -> None:
    """Turns django-axes on, which is off in tests."""
    settings.AXES_ENABLED = True


@pytest.fixture
def make_stack(tmp_path: Path) -> Iterator[Callable[..., Stack]]:
    """Makes `Stack`s (keyword arguments as `Stack`'s); kills whatever is left of them and drops their databases."""
    stacks: list[Stack] = []

    def make(**arguments: Any) -> Stack:
        arguments.setdefault("data_dir", tmp_path / f"stack-{len(stacks)}")
        stacks.append(Stack(**arguments))
        return stacks[-1]

    yield make
    for stack in stacks:
        stack.close()
