"""People and their clients. Okoye works in the workspace, Nadia only looks, Lindqvist belongs elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from batches.models import Membership, ProviderAccount, Role, Workspace
from tests.factories import make_workspace

CASES = Path(__file__).parent.parent / "cases"


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def make_member(workspace: Workspace, name: str, role: str) -> User:
    user = User.objects.create_user(name, password="Correct-horse-7")
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
