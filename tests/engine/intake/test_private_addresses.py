"""Documents for a provider that renders inside our network: none may refer to what only stands there."""

from __future__ import annotations

import pytest

from batches.models import ProviderAccount, Workspace
from tests.engine.intake.uploading import check

pytestmark = pytest.mark.django_db

ROWS = [
    {"id": "A-1", "html": '<p><img src="http://10.0.0.1/logo.png">'},
    {"id": "A-2", "html": '<p><img src="file:///etc/hostname">'},
    {"id": "A-3", "html": '<p><img src="https://example.com/logo.png">'},
]


@pytest.mark.parametrize(("renders_inside", "good"), [(False, 3), (True, 1)])
def test_private_addresses_are_reported_and_refused_where_they_could_be_reached(
    renders_inside: bool, good: int, workspace: Workspace, account: ProviderAccount
) -> None:
    account.renders_inside = renders_inside
    checked = check(ROWS, workspace, account)
    with checked.manifest:
        assert checked.ok is not renders_inside
        assert len(checked.rows) == good
        told = checked.manifest.errors if renders_inside else checked.manifest.warnings
        assert {(each.code, each.rows) for each in told} == {("remote_asset", (0,)), ("local_asset", (1,))}
