"""The walk of tests/web/test_rights_walk.py over what is no page: each address of the admin, each operation of the API.
What is refused changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import URLPattern, URLResolver, reverse
from django.utils import timezone

from batches import tokens
from batches.api.batches import api
from batches.models import ApiToken, Batch, Role, Workspace
from tests.factories import make_workspace
from tests.web.conftest import make_member, signed_in
from tests.web.marked import JOB_ID, MARKS, marked_jobs
from tests.web.test_rights_walk import everything

pytestmark = pytest.mark.django_db

#: Addresses of the admin that ask for no permission: to get in and out, one's own password, words of its scripts.
ENTRANCE = {"login", "logout", "password_change", "password_change_done", "jsi18n"}
#: Staff without any permission see these, and nothing in them.
OPEN_TO_STAFF = {"index", *ENTRANCE}
METHODS = ("get", "post")


def patterns(found: Any = None, prefix: str = "") -> Iterator[tuple[str, URLPattern]]:
    """Every pattern of the admin with what leads to it."""
    for each in admin.site.get_urls() if found is None else found:
        if isinstance(each, URLResolver):
            yield from patterns(each.url_patterns, prefix + str(each.pattern))
        else:
            yield prefix, each


def addresses() -> Iterator[tuple[str, str]]:
    """Name and address; an object that there is, where one is asked for."""
    for prefix, pattern in patterns():
        model = next((m for m in admin.site._registry if prefix == f"{m._meta.app_label}/{m._meta.model_name}/"), None)
        newest = model._default_manager.order_by("-pk").first() if model else None
        given = {name: _argument(name, newest) for name in pattern.pattern.converters}
        if not pattern.name:  # the old address of an object, which leads to its page
            continue
        path = "/admin/" + prefix + _filled(str(pattern.pattern), given)
        yield pattern.name, path


def _argument(name: str, newest: Any) -> str:
    return str(newest.pk) if newest is not None and name == "object_id" else "1"


def _filled(route: str, given: dict[str, str]) -> str:
    for name, value in given.items():
        for kind in ("path", "int", "str", "slug"):
            route = route.replace(f"<{kind}:{name}>", value)
        route = route.replace(f"<{name}>", value)
    return route if "(?P" not in route else "auth/"


def test_the_admin_is_for_those_with_its_permissions_at_every_address(batch: Batch, workspace: Workspace) -> None:
    marked_jobs(batch)
    staff = User.objects.create_user("staff", is_staff=True)
    manager = make_member(workspace, "h.brandt", Role.MANAGER)
    clients = {"anonymous": Client(), "manager": signed_in(manager), "staff": signed_in(staff)}
    walked, before = 0, everything()
    for name, path in addresses():
        for who, client in clients.items():
            for method in METHODS:
                answer = getattr(client, method)(path)
                told = (who, method, path, answer.status_code)
                walked += 1
                if name in ENTRANCE or (who == "staff" and name in OPEN_TO_STAFF):
                    assert answer.status_code in (200, 302, 405), told
                elif who == "staff":
                    is_none_there = answer.status_code == 302 and answer["Location"] == reverse("admin:index")
                    assert is_none_there or answer.status_code in (403, 404, 405), told
                else:
                    is_led_away = answer.status_code == 302 and answer["Location"].startswith(reverse("admin:login"))
                    assert is_led_away or answer.status_code in (403, 404, 405), told
        if name == "logout":
            clients |= {"manager": signed_in(manager), "staff": signed_in(staff)}
    assert walked > 600
    assert everything() == before


def test_staff_in_the_group_of_a_role_read_its_rows_and_change_none(batch: Batch, admin_client: Client) -> None:
    marked_jobs(batch)
    staff = User.objects.create_user("staff", is_staff=True)
    staff.groups.add(Group.objects.get(name="Viewer"))
    client, before = signed_in(staff), everything()
    for name, path in addresses():
        model, _, page = name.rpartition("_")
        if name in ENTRANCE:
            continue
        if page in ("add", "delete") or (page == "change" and client.get(path).status_code == 200):
            assert client.post(path).status_code == 403, path
        if page in ("changelist", "change"):
            answer = client.get(path)
            assert answer.status_code in (200, 302, 403), path  # 302: there is none
            assert JOB_ID not in answer.text, (model, page)
    assert client.get(reverse("admin:batches_job_changelist")).status_code == 200
    assert client.get(reverse("admin:auth_user_changelist")).status_code == 403
    assert everything() == before


# --- the API ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def secrets(batch: Batch, workspace: Workspace) -> dict[str, str | None]:
    """A token of each kind of person; those of `ended` are no use any more."""
    marked_jobs(batch)
    now, made = timezone.now(), {}

    def token(person: User, where: Workspace = workspace, **more: Any) -> str:
        return tokens.issue(person, where, name="t", now=now, lifetime=more.get("lifetime", timedelta(days=1)))[1]

    for role in Role:
        made[role.value] = token(make_member(workspace, f"api-{role}", role))
    elsewhere = make_workspace()
    made["outsider"] = token(make_member(elsewhere, "api-outsider", Role.ADMIN), elsewhere)
    left, gone = make_member(workspace, "api-left", Role.ADMIN), make_member(workspace, "api-gone", Role.ADMIN)
    made |= {"left": token(left), "deactivated": token(gone), "expired": token(gone, lifetime=timedelta(seconds=-1))}
    made["revoked"] = token(User.objects.get(username="api-admin"))
    ApiToken.objects.filter(pk=ApiToken.objects.latest("pk").pk).update(revoked_at=now)
    left.memberships.all().delete()
    User.objects.filter(pk=gone.pk).update(is_active=False)
    return {"none": None, "invented": "rpb_" + "x" * 43, **made}


#: What each token gets of an operation on a batch: 401 for those that prove nobody.
REACHED = {"viewer": 200, "operator": 200, "manager": 200, "admin": 200, "outsider": 404}
#: Operations by their address in the description of the API. A new one needs a row; think before you write one.
OPERATIONS = {("get", "/api/v1/batches/{batch_id}"): REACHED}


def test_every_operation_has_a_row() -> None:
    paths = api.get_openapi_schema()["paths"]
    assert {(method, path) for path, methods in paths.items() for method in methods} == set(OPERATIONS)


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_each_token_gets_what_its_person_may_have(
    method: str, path: str, secrets: dict[str, str | None], batch: Batch, client: Client
) -> None:
    address, row = path.format(batch_id=batch.public_id), OPERATIONS[method, path]
    before = everything()
    for who, secret in secrets.items():
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        answer = getattr(client, method)(address, headers=headers)
        assert answer.status_code == row.get(who, 401), who
        held = {mark for mark in MARKS if mark in answer.text}
        assert held == ({JOB_ID} if who in ("operator", "manager", "admin") else set()), who
        for other in {"get", "post", "put", "patch", "delete"} - {each for each, at in OPERATIONS if at == path}:
            assert getattr(client, other)(address, headers=headers).status_code == 405, (who, other)
    assert everything() == before
    session = signed_in(User.objects.get(username="api-admin"))
    assert getattr(session, method)(address).status_code == 401  # a browser's session is no token
