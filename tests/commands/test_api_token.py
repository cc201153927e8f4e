"""`api_token`: a secret that is shown once, for members alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError

from batches import tokens
from batches.models import ApiToken, Membership
from tests.commands.shell import run

pytestmark = pytest.mark.django_db


def test_api_token_prints_the_secret_once_and_stores_a_digest(default_workspace: Any) -> None:
    user = User.objects.create_user("m.okoye")
    Membership.objects.create(workspace=default_workspace, user=user, role="viewer")
    code, out, _ = run("api_token", "m.okoye", "--name", "nightly export", "--days", "30")
    secret = out.strip()
    token = ApiToken.objects.get()
    assert code == 0
    assert secret.startswith(token.prefix)
    assert secret not in json.dumps(ApiToken.objects.values().get(), default=str)
    proven = tokens.proven(secret, now=token.created_at)
    assert proven == token


@pytest.mark.usefixtures("default_workspace")
def test_a_token_is_made_only_for_a_member() -> None:
    User.objects.create_user("s.lindqvist")
    code, _, err = run("api_token", "s.lindqvist", "--name", "x")
    assert code == 2
    assert "is not a member" in err
    assert run("api_token", "nobody", "--name", "x")[0] == 2


@pytest.mark.parametrize("wrong", ["0", "-1", "x", "3651", "²"])
def test_days_that_make_no_sense_get_a_sentence(wrong: str) -> None:
    with pytest.raises(CommandError, match="is no number of days; give 1 to 3650"):
        call_command("api_token", "m.okoye", "--name", "x", f"--days={wrong}")
