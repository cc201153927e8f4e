"""Who may apply which verb where: a role's table, and Django permissions beside it. Every face asks here first, and
the engine before it carries on with what somebody confirmed."""

from __future__ import annotations

from collections.abc import Mapping

from django.contrib.auth.models import AnonymousUser, User
from django.db.models import QuerySet

from batches.models import Membership, Role, Verb, Workspace

Person = User | AnonymousUser

#: Rights that are no verb of their own.
ADOPT = "adopt"
FINALISE = "finalise"
REGENERATE_FINAL = "regenerate_final"
#: Of a batch as a whole: what runs, and what does not.
PAUSE_BATCH = "pause_batch"
CANCEL_BATCH = "cancel_batch"
#: Upload, publish, roll back and archive templates.
PUBLISH_TEMPLATE = "publish_template"

_FREE = frozenset({Verb.CHECK_AGAIN, Verb.FETCH_AGAIN, Verb.RECONCILE, Verb.DISMISS, Verb.REOPEN, Verb.CANCEL})
_OPERATOR: frozenset[str] = frozenset({*_FREE, Verb.RETRY, PAUSE_BATCH, CANCEL_BATCH})
_MANAGER: frozenset[str] = _OPERATOR | {Verb.REGENERATE, ADOPT, FINALISE, PUBLISH_TEMPLATE}
#: What a role may do in its workspace, beside seeing it. A permission of Django, `batches.<right>_document`, held by
#: the person or one of their groups, adds to it in every workspace that they are a member of.
ROLE_RIGHTS: Mapping[Role, frozenset[str]] = {
    Role.VIEWER: frozenset(),
    Role.OPERATOR: _OPERATOR,
    Role.MANAGER: _MANAGER,
    Role.ADMIN: _MANAGER | {REGENERATE_FINAL},
}
#: Who may start a batch there, and see what is masked.
STARTING_ROLES = (Role.OPERATOR, Role.MANAGER, Role.ADMIN)
#: Who may read the audit log of their workspace: it says what colleagues did, and from which address.
AUDITING_ROLES = (Role.MANAGER, Role.ADMIN)
#: Rights whose permission is called as they are.
_OWN_CODENAMES = (PAUSE_BATCH, CANCEL_BATCH, PUBLISH_TEMPLATE)
#: Every right there is.
RIGHTS: tuple[str, ...] = (*Verb.values, ADOPT, FINALISE, REGENERATE_FINAL, *_OWN_CODENAMES)


def rights(person: Person, workspace: Workspace) -> frozenset[str]:
    """The rights of a person in a workspace: none where they are no member of it, or it is archived."""
    if isinstance(person, AnonymousUser) or not person.is_active or workspace.archived_at is not None:
        return frozenset()
    if person.is_superuser:
        return frozenset(RIGHTS)
    role = Membership.objects.filter(workspace=workspace, user=person).values_list("role", flat=True).first()
    return frozenset() if role is None else ROLE_RIGHTS[Role(role)] | _given(person)


def _given(person: User) -> frozenset[str]:
    """What permissions add in every workspace of a person."""
    return frozenset(right for right in RIGHTS if person.has_perm(f"batches.{codename(right)}"))


def workspaces_with(person: Person, right: str) -> list[Workspace]:
    """Where `rights` would hold that one, by name; asked for all of them at once."""
    living = Workspace.objects.filter(archived_at=None).order_by("name", "pk")
    if isinstance(person, AnonymousUser) or not person.is_active:
        return []
    if person.is_superuser:
        return list(living)
    roles = dict(Membership.objects.filter(user=person).values_list("workspace_id", "role"))
    given = _given(person)
    return [each for each in living.filter(pk__in=roles) if right in ROLE_RIGHTS[Role(roles[each.pk])] | given]


def codename(right: str) -> str:
    """Of the permission that gives the right beside a role."""
    return right if right in _OWN_CODENAMES else f"{right}_document"


def may(person: Person, right: str, workspace: Workspace) -> bool:
    return right in rights(person, workspace)


def may_start(person: Person, workspace: Workspace) -> bool:
    """Whether the person may start a batch there; an archived workspace takes none."""
    if isinstance(person, AnonymousUser) or not person.is_active or workspace.archived_at is not None:
        return False
    mine = Membership.objects.filter(workspace=workspace, user=person, role__in=STARTING_ROLES)
    return person.is_superuser or mine.exists()


def may_audit(person: Person, workspace: Workspace) -> bool:
    return audited_workspaces(person).filter(pk=workspace.pk).exists()


def audited_workspaces(person: Person) -> QuerySet[Workspace]:
    """The workspaces whose audit log a person may read, archived ones too; a superuser those of the installation."""
    if isinstance(person, AnonymousUser) or not person.is_active:
        return Workspace.objects.none()
    if person.is_superuser:
        return Workspace.objects.all()
    mine = Membership.objects.filter(user=person, role__in=AUDITING_ROLES)
    return Workspace.objects.filter(pk__in=mine.values("workspace"))
