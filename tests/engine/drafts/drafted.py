"""Drafts for tests: handed over, looked at, checked and started, with what a worker does in between."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User

from batches.engine import checking, drafts
from batches.engine.audit import By
from batches.models import Draft, Membership, Role, Workspace
from batches.storage.base import ArtifactStore
from tests.engine.carried import Clock
from tests.factories import NOW

ROWS = [{"id": f"INV-{n}", "html_content": f"<h1>Invoice {n}</h1>"} for n in (1, 2, 3)]
BROKEN = [*ROWS, {"html_content": "<p>no id</p>"}]


def operator(workspace: Workspace, name: str = "okoye") -> User:
    user = User.objects.create_user(name)
    Membership.objects.create(workspace=workspace, user=user, role=Role.OPERATOR)
    return user


def by(user: User) -> By:
    return By(user, user.get_username(), "192.0.2.1")


def received(
    content: Any, store: ArtifactStore, workspace: Workspace, account: Any, user: User, **fields: Any
) -> Draft:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    named = {"filename": "march.json"} | fields
    upload = drafts.Upload(io.BytesIO(data), workspace=workspace, account=account, **named)
    draft = drafts.receive(upload, by=by(user), store=store, now=NOW)
    with store.open(draft.upload_key) as stream:
        return drafts.look(draft, stream, now=NOW)


def work(
    draft: Draft,
    store: ArtifactStore,
    *,
    owner: str = "a worker",
    now: datetime = NOW,
    stopping: Callable[[], bool] = checking.never,
) -> Draft:
    """One turn of it, and the draft as it is then."""
    checking.work_on(draft.pk, Clock(now), owner=owner, store=store, stopping=stopping)
    return fresh(draft)


def fresh(draft: Draft) -> Draft:
    return Draft.objects.select_related("workspace", "account", "batch").get(pk=draft.pk)


def checked(draft: Draft, store: ArtifactStore) -> Draft:
    drafts.ask_check(draft.pk, now=NOW)
    return work(draft, store)


def run_of(draft: Draft, **chosen: Any) -> drafts.Run:
    """The Start button as it is shown for the draft."""
    renders = (draft.report or {}).get("renders", 0)
    return drafts.Run(**{"generation": draft.generation, "renders_shown": renders, "name": draft.name} | chosen)
