"""Fixtures of the intake: a store, and a doorbell that is counted instead of rung."""

from __future__ import annotations

import pytest

from batches import queue


@pytest.fixture(autouse=True)
def rings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often the doorbell was rung."""
    rung: list[int] = []
    monkeypatch.setattr(queue, "ring", lambda pumps=1: rung.append(pumps))
    return rung
