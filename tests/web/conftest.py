"""People and their clients, the browser, the sandbox. Okoye works in the workspace, Nadia only looks, Lindqvist belongs
elsewhere."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone
from playwright.sync_api import Browser

from batches.models import Membership, ProviderAccount, Role, Workspace
from batches.views import sessions
from tests.factories import make_workspace
from tests.sandbox_process import SandboxProcess, start_sandbox
from tests.web import browser as chrome

CASES = Path(__file__).parent.parent / "cases"
PASSWORD = "Correct-horse-7"


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    session = client.session  # begun as by signing in: the first request has nothing to write down
    sessions.begin(SimpleNamespace(session=session), now=timezone.now())  # type: ignore[arg-type]
    session.save()
    return client


def make_member(workspace: Workspace, name: str, role: str) -> User:
    user = User.objects.create_user(name, password=PASSWORD)
    Membership.objects.create(workspace=workspace, user=user, role=role)
    return user


@pytest.fixture
def okoye(workspace: Workspace) -> User:
    return make_member(workspace, "m.okoye", Role.OPERATOR)


@pytest.fixture
def operator(okoye: User) -> Client:
    return signed_in(okoye)


@pytest.fixture
def viewer(workspace: Workspace) -> Client:
    return signed_in(make_member(workspace, "nadia", Role.VIEWER))


@pytest.fixture
def outsider(db: None) -> Client:
    return signed_in(make_member(make_workspace(), "s.lindqvist", Role.ADMIN))


@pytest.fixture
def upload(operator: Client, workspace: Workspace, account: ProviderAccount) -> Callable[..., Any]:
    """Hands a file over on the page of a new batch, and gives its draft's page; rows become a JSON manifest."""

    def hand_over(content: Any, name: str = "invoices.json", client: Client = operator, **fields: str) -> Any:
        content = content if isinstance(content, bytes) else json.dumps(content).encode()
        form = {
            "file": SimpleUploadedFile(name, content),
            "workspace": workspace.slug,
            "account": account.slug,
            "on_conflict": "refuse",
        }
        return client.post("/new/", form | fields, follow=True)

    return hand_over


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # Playwright runs an event loop in this thread, and Django would refuse its database to it.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with chrome.chromium() as running:
        yield running
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[SandboxProcess]:
    running = start_sandbox(tmp_path, jobs={"min_seconds": 0, "max_seconds": 0})
    yield running
    running.stop()
