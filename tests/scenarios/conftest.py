"""Fixtures of the stories: a world in virtual time, torn down with nothing left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from batches.engine import threads
from batches.engine.pdfcheck import PdfChecker
from tests.sandbox_process import SandboxProcess, start_sandbox
from tests.scenarios.world import World


@pytest.fixture
def make_world(
    transactional_db: None, tmp_path: Path, checker: PdfChecker, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., World]:
    """Makes a `World`; keyword arguments are its account's columns."""

    def make(**account: Any) -> World:
        world = World(tmp_path, checker, **account)
        monkeypatch.setattr(threads, "ThreadPoolExecutor", world.clock.pools)
        return world

    return make


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world()


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[SandboxProcess]:
    """A sandbox process of the test's own, for stories on real stacks."""
    sandbox = start_sandbox(tmp_path)
    yield sandbox
    sandbox.stop()
