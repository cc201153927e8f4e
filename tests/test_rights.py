"""Rights over many workspaces at once are those of each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, Permission, User

from batches import rights
from batches.models import Membership, Role, Workspace
from tests.factories import NOW, make_workspace

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
    "a member with a permission": lambda: member("publish_template", "retry_document"),
    "an inactive member": lambda: member(is_active=False),
    "a superuser": lambda: member(is_superuser=True),
    "nobody": AnonymousUser,
}


@pytest.mark.parametrize("who", PEOPLE)
@pytest.mark.parametrize("right", rights.RIGHTS)
def test_workspaces_with_a_right_are_those_where_it_holds(who: str, right: str) -> None:
    person = PEOPLE[who]()
    found = rights.workspaces_with(person, right)
    every = Workspace.objects.order_by("name", "pk")
    assert found == [each for each in every if rights.may(person, right, each)]


def test_more_workspaces_are_no_more_queries(django_assert_num_queries: Any) -> None:
    person = member()
    person.get_all_permissions()
    with django_assert_num_queries(2):
        assert len(rights.workspaces_with(person, rights.PUBLISH_TEMPLATE)) == 2
