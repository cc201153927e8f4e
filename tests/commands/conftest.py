"""What commands work on: the installation's workspace and account, and a manifest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from batches.models import ProviderAccount
from tests.factories import make_account, make_workspace


@pytest.fixture
def default_workspace() -> Any:
    return make_workspace(slug="default")


@pytest.fixture
def sandbox() -> ProviderAccount:
    return make_account(slug="sandbox")


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "invoices.json"
    rows = [{"id": f"INV-{n}", "html_content": f"<h1>Invoice {n}</h1>"} for n in (1, 2, 3)]
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path
