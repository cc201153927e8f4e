"""The read-only API: one batch, with a token."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from batches import selectors, tokens
from batches.models import ApiToken, Batch, Membership, Workspace
from tests.factories import make_accepted_job, make_batch, make_saved_job

pytestmark = pytest.mark.django_db


@pytest.fixture
def person(workspace: Workspace) -> User:
    user = User.objects.create_user("m.okoye")
    Membership.objects.create(workspace=workspace, user=user, role="operator")
    return user


@pytest.fixture
def secret(person: User, workspace: Workspace) -> str:
    return tokens.issue(person, workspace, name="test", now=timezone.now(), lifetime=timedelta(days=1))[1]


def get(client: Client, batch_id: str, secret: str | None) -> Any:
    headers = {"Authorization": f"Bearer {secret}"} if secret is not None else {}
    return client.get(f"/api/v1/batches/{batch_id}", headers=headers)


def test_a_batch_comes_as_every_face_gives_it(client: Client, batch: Batch, secret: str) -> None:
    make_saved_job(batch=batch)
    make_accepted_job(batch=batch)
    answer = get(client, batch.public_id, secret)
    assert answer.status_code == 200
    assert answer.json() == selectors.batch_json(batch)
    assert answer["Cache-Control"] == "no-store"


def test_the_token_notes_its_use(client: Client, batch: Batch, secret: str) -> None:
    get(client, batch.public_id, secret)
    first = ApiToken.objects.get().last_used_at
    assert first is not None
    get(client, batch.public_id, secret)
    assert ApiToken.objects.get().last_used_at == first


@pytest.mark.parametrize("wrong", [None, "", "rpb_", "rpb_" + "x" * 43, "x" * 5000, "rpb_é"])
def test_without_a_living_token_it_answers_401_in_json(wrong: str | None, client: Client, batch: Batch) -> None:
    answer = get(client, batch.public_id, wrong)
    assert answer.status_code == 401
    assert answer.json()["error"] == "unauthorized"
    assert answer["WWW-Authenticate"] == "Bearer"


def test_a_session_is_no_token(admin_client: Client, batch: Batch) -> None:
    assert get(admin_client, batch.public_id, None).status_code == 401


@pytest.mark.parametrize(
    "change",
    [
        lambda token: ApiToken.objects.update(expires_at=timezone.now()),
        lambda token: tokens.revoke(token, now=timezone.now()),
        lambda token: User.objects.update(is_active=False),
        lambda token: Membership.objects.all().delete(),
    ],
    ids=["expired", "revoked", "person inactive", "no longer a member"],
)
def test_a_token_that_ended_proves_nothing(change: Any, client: Client, batch: Batch, secret: str) -> None:
    assert get(client, batch.public_id, secret).status_code == 200
    change(ApiToken.objects.get())
    assert get(client, batch.public_id, secret).status_code == 401


@pytest.mark.parametrize("batch_id", ["bat_nothing", "%00", "bat_%00x", "1", "%ff"])
def test_an_unknown_batch_is_404_in_json(batch_id: str, client: Client, secret: str) -> None:
    answer = get(client, batch_id, secret)
    assert (answer.status_code, answer.json()["error"]) == (404, "not_found")


def test_a_batch_of_another_workspace_is_404(client: Client, secret: str) -> None:
    assert get(client, make_batch().public_id, secret).status_code == 404


@pytest.mark.parametrize("path", ["/api/", "/api/v1/", "/api/v1/batches", "/api/v2/batches/x", "/api/v1/nothing/x"])
def test_whatever_else_is_asked_for_is_404_in_json(path: str, client: Client) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.json()["error"]) == (404, "not_found")


def test_it_writes_nothing(client: Client, batch: Batch, secret: str) -> None:
    headers = {"Authorization": f"Bearer {secret}"}
    for method in (client.post, client.put, client.patch, client.delete):
        answer = method(f"/api/v1/batches/{batch.public_id}", headers=headers)
        assert (answer.status_code, answer["Allow"]) == (405, "GET")
        assert answer.json()["error"] == "method_not_allowed"


def test_what_breaks_is_told_in_json_and_logged(
    client: Client, batch: Batch, secret: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(selectors, "batch_json", lambda batch, **how: 1 / 0)
    answer = get(client, batch.public_id, secret)
    assert (answer.status_code, answer.json()["error"]) == (500, "internal_error")
    assert "ZeroDivisionError" in caplog.text


def test_it_describes_itself_without_a_foreign_host(client: Client) -> None:
    schema = client.get("/api/v1/openapi.json").json()
    assert schema["paths"]["/api/v1/batches/{batch_id}"]["get"]["tags"] == ["Batches"]
    assert list(schema["paths"]["/api/v1/batches/{batch_id}"]) == ["get"]
    page = client.get("/api/v1/docs").text
    assert "http://" not in page
    assert "https://" not in page
