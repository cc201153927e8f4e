"""Rights over many workspaces at once are those of each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, Permission, User

from batches import rights
from batches.models import Membership, Role, Workspace
from tests.factories import NOW, make_account, make_workspace

pytestmark = pytest.mark.django_db


def member(*permissions: str, **fields: Any) -> User:
    """Of a workspace for each role, of one that is archived, and of none of the last one."""
    user = User.objects.create_user("okoye", **fields)
    for role in Role:
        Membership.objects.create(workspace=make_workspace(name=role.value), user=user, role=role)
    archived = make_workspace(name="archived", archived_at=NOW)
    Membership.objects.create(workspace=archived, user=user, role=Role.ADMIN)
    make_workspace(name="of others")
    user.user_permissions.add(*Permission.objects.filter(codename__in=permissions))
    return user


PEOPLE: dict[str, Callable[[], rights.Person]] = {
    "a member": member,
    "a member with a permission": lambda: member("publish_template", "retry_document", "view_audit"),
    "an inactive member": lambda: member(is_active=False),
    "a superuser": lambda: member(is_superuser=True),
    "nobody": AnonymousUser,
}


@pytest.mark.parametrize("who", PEOPLE)
@pytest.mark.parametrize("right", rights.RIGHTS)
def test_workspaces_with_a_right_are_those_where_it_holds(who: str, right: str) -> None:
    person = PEOPLE[who]()
    found = set(rights.workspaces(person, right))
    assert found == {each for each in Workspace.objects.all() if rights.may(person, right, each)}


def test_more_workspaces_are_no_more_queries(django_assert_num_queries: Any) -> None:
    person = member()
    person.get_all_permissions()
    with django_assert_num_queries(1):
        assert len(rights.workspaces(person, rights.PUBLISH_TEMPLATE)) == 2


def test_a_shared_account_is_not_a_managers_by_the_role_in_one_workspace() -> None:
    person, shared = member(), make_account()
    own = make_account(workspace=Workspace.objects.get(name="manager"))
    assert rights.may_with_account(person, rights.MANAGE_ACCOUNT, own)
    assert not rights.may_with_account(person, rights.MANAGE_ACCOUNT, shared)
    person.user_permissions.add(Permission.objects.get(codename="manage_account"))
    given = User.objects.get(pk=person.pk)
    assert rights.may_with_account(given, rights.MANAGE_ACCOUNT, shared)
    assert not rights.may_with_account(given, rights.HOLD_ACCOUNT, shared)
    assert not rights.may_with_account(AnonymousUser(), rights.MANAGE_ACCOUNT, own)


def test_each_role_has_what_the_one_before_has_and_every_permission_exists() -> None:
    below: frozenset[str] = frozenset()
    for role in Role:
        assert below <= rights.ROLE_RIGHTS[role]
        below = rights.ROLE_RIGHTS[role]
    assert below == set(rights.RIGHTS)
    codenames = {rights.codename(right) for right in rights.RIGHTS}
    assert len(codenames) == len(rights.RIGHTS)
    assert codenames == set(Permission.objects.filter(codename__in=codenames).values_list("codename", flat=True))
