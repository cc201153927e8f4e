"""Fixtures that many tests share. Rows come from `tests/factories.py`, processes from `tests/stack_process.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from batches.conf import ENGINE
from batches.engine.pdfcheck import PdfChecker
from batches.models import Batch, ProviderAccount, Workspace
from batches.storage import open_store
from tests import factories
from tests.stack_process import Stack

#: Stories that measure a pace on a real stack; a neighbour on the same two cores would bend it.
MEASURING = {Path(__file__).parent / "scenarios" / name for name in ("test_kill9_cluster.py", "test_two_clusters.py")}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks as `alone` what must have the machine for itself, before -m chooses."""
    for item in items:
        if item.path in MEASURING:
            item.add_marker(pytest.mark.alone)


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
