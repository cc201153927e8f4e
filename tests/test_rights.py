"""The table of rights: what it gives by role, group and permission, and that docs and database agree with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.apps.registry import Apps
from django.contrib.auth.models import AnonymousUser, Group, Permission, User

from batches import rights, rolegroups
from batches.management.commands.rights import table
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


@pytest.mark.parametrize("who", PEOPLE)
def test_rights_of_all_workspaces_at_once_are_those_of_each(who: str) -> None:
    person, every = PEOPLE[who](), list(Workspace.objects.all())
    each = {workspace.pk: rights.rights(person, workspace) for workspace in every}
    assert rights.by_workspace(person, every) == each
    assert rights.somewhere(person) == {right for right in rights.RIGHTS if rights.may_somewhere(person, right)}


def test_more_workspaces_are_no_more_queries(django_assert_num_queries: Any) -> None:
    person, all_of_them = member(), list(Workspace.objects.all())
    with django_assert_num_queries(1):
        assert rights.PUBLISH_TEMPLATE in rights.somewhere(person)
        held = rights.by_workspace(person, all_of_them)
        assert all(rights.rights(person, each) == held[each.pk] for each in all_of_them)
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


def test_the_documentation_holds_the_table() -> None:
    """Not so? Put what `manage.py rights` prints between the two marks."""
    text = (Path(__file__).parent.parent / "docs" / "rights.md").read_text()
    assert f"compares -->\n{table()}\n<!-- end -->" in text


def test_the_group_of_a_role_gives_its_rights_in_every_workspace_of_a_person_and_no_other() -> None:
    person = User.objects.create_user("okoye")
    mine, other = make_workspace(), make_workspace()
    Membership.objects.create(workspace=mine, user=person, role=Role.VIEWER)
    person.groups.add(Group.objects.get(name="Operator"))
    assert rights.rights(person, mine) == rights.ROLE_RIGHTS[Role.OPERATOR]
    assert rights.rights(person, other) == frozenset()


def test_migrating_again_fills_groups_up_and_takes_nothing_away() -> None:
    group = Group.objects.get(name="Operator")
    added = Permission.objects.get(codename="view_audit")
    group.permissions.remove(Permission.objects.get(codename="retry_document"))
    group.permissions.add(added)
    Group.objects.get(name="Viewer").delete()
    for _ in range(2):
        rolegroups.after_migrate(apps.get_app_config("batches"), "default")
    found = {each.name: set(each.permissions.values_list("codename", flat=True)) for each in Group.objects.all()}
    assert found == {
        role.label: rolegroups.codenames(role) | ({"view_audit"} if role == Role.OPERATOR else set()) for role in Role
    }


def test_before_there_are_groups_migrating_goes_on() -> None:
    rolegroups.after_migrate(apps.get_app_config("batches"), "default", Apps())
