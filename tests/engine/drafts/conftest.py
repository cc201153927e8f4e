"""Fixtures of drafts: who hands over, doorbells that are counted instead of rung, and a draft in its first states."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from batches import queue
from batches.engine import drafts
from batches.models import Draft, ProviderAccount, Workspace
from batches.storage.disk import DiskStore
from tests.engine.drafts.drafted import ROWS, by, checked, operator, received, run_of
from tests.factories import NOW


@pytest.fixture
def okoye(workspace: Workspace) -> User:
    return operator(workspace)


@pytest.fixture(autouse=True)
def rings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    rung: list[str] = []
    monkeypatch.setattr(queue, "ring_drafts", lambda: rung.append("drafts"))
    monkeypatch.setattr(queue, "ring", lambda pumps=1: rung.append("pumps"))
    return rung


@pytest.fixture
def draft(store: DiskStore, workspace: Workspace, account: ProviderAccount, okoye: User) -> Draft:
    return received(ROWS, store, workspace, account, okoye)


@pytest.fixture
def starting(draft: Draft, store: DiskStore, okoye: User) -> Draft:
    return drafts.ask_start(draft.pk, run_of(checked(draft, store)), by=by(okoye), now=NOW)
