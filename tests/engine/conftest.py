"""Fixtures that many tests of the engine share."""

from __future__ import annotations

from pathlib import Path

import pytest

from batches.storage.disk import DiskStore


@pytest.fixture
def store(tmp_path: Path) -> DiskStore:
    store = DiskStore(tmp_path / "store")
    store.ensure()
    return store
