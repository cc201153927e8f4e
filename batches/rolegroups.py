"""A Django group for each role, kept in step with `rights.TABLE` after every `migrate`. Takes nothing away.

A membership gives a role's rights in its one workspace, by the table alone. Whoever is put into the group of a role has
its permissions, and so the same rights in every workspace that they are a member of; with staff status, the group's
rows in the admin besides (docs/decisions/0031-roles-groups-memberships.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.apps import AppConfig
from django.apps import apps as installed
from django.contrib.auth.management import create_permissions

from batches import rights
from batches.models import Role

_OPEN_EVIDENCE = [
    "workspace",
    "batch",
    "batchitem",
    "document",
    "documentversion",
    "artifact",
    "job",
    "jobevent",
    "submission",
    "exchange",
    "alert",
    "bulkaction",
    "bulkactionitem",
]
_SET_UP = ["provideraccount", "pacinglane", "pumpslot", "webhookevent", "membership"]
#: Which rows a role's group may see in the admin, each with what the ones before it see.
ROLE_VIEWS: Mapping[Role, list[str]] = {
    Role.VIEWER: _OPEN_EVIDENCE,
    Role.OPERATOR: _OPEN_EVIDENCE,
    Role.MANAGER: _OPEN_EVIDENCE + _SET_UP,
    Role.ADMIN: [*_OPEN_EVIDENCE, *_SET_UP, "apitoken", "auditentry"],
}


def codenames(role: Role) -> set[str]:
    """The permissions that the group of a role holds at least."""
    return {f"view_{name}" for name in ROLE_VIEWS[role]} | {
        rights.codename(right) for right in rights.ROLE_RIGHTS[role]
    }


def keep_in_step(using: str = "default", apps: Any = installed) -> None:
    """Make the four groups and give each what its role has by now; what a person gave a group besides stays."""
    groups, permissions = apps.get_model("auth", "Group"), apps.get_model("auth", "Permission")
    for role in Role:
        group, _ = groups.objects.using(using).get_or_create(name=role.label)
        wanted = permissions.objects.using(using).filter(
            content_type__app_label="batches", codename__in=codenames(role)
        )
        group.permissions.add(*wanted)


def after_migrate(sender: AppConfig, using: str, apps: Any = installed, **told: Any) -> None:
    """The receiver of `post_migrate`. Its permissions are made first: Django's own receiver may come after this one."""
    try:
        apps.get_model("auth", "Group")
    except LookupError:  # a part of the migrations, before there are groups
        return
    create_permissions(sender, verbosity=0, using=using, apps=apps)
    keep_in_step(using, apps)
