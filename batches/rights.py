"""Who may do what where. `TABLE` is the one table of rights, actions and roles; `docs/rights.md` is made from it.

Every face asks here first, and the engine before it carries on with what somebody confirmed. Whoever is a member of a
workspace sees states, counts and causes there; everything else is a right of the table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from django.contrib.auth.models import AnonymousUser, Permission, User
from django.db.models import DateTimeField, IntegerField, Q, QuerySet, Value

from batches.models import Membership, ProviderAccount, Role, Verb, Workspace

Person = User | AnonymousUser

#: Rights that are no verb of their own.
ADOPT = "adopt"
FINALISE = "finalise"
REGENERATE_FINAL = "regenerate_final"
#: Write a note on a document.
NOTE = "note"
#: Upload, check and start a batch.
START = "start_batch"
#: Of a batch as a whole: what runs, and what does not.
PAUSE_BATCH = "pause_batch"
CANCEL_BATCH = "cancel_batch"
#: Document content: PDF, HTML, row data, thumbnails, previews, differences; and whatever holds it, as a ZIP does.
VIEW_CONTENT = "view_content"
#: A provider's job id or link whole, which at RelayPDF fetches the file without a key. Each reveal is written down.
REVEAL = "reveal"
#: Take lists and files out of the product; those with content need `VIEW_CONTENT` besides.
EXPORT = "export"
#: Upload, publish, roll back and archive templates.
PUBLISH_TEMPLATE = "publish_template"
#: Settings, limits and secrets of a provider account; and stopping and releasing what leaves through it.
MANAGE_ACCOUNT = "manage_account"
HOLD_ACCOUNT = "hold_account"
#: What providers told us by webhook, and having it worked through again.
VIEW_EVENTS = "view_events"
REPLAY_EVENTS = "replay_events"
#: What colleagues did, and from which address.
VIEW_AUDIT = "view_audit"
#: For how long inputs, PDFs and evidence are kept.
MANAGE_RETENTION = "manage_retention"
#: Whether workers, store and queue are well.
VIEW_HEALTH = "view_health"


@dataclass(frozen=True)
class Right:
    """One row: `least` is the lowest role that has the right in its workspace, `words` what it lets a person do.

    `codename` is that of the permission, `batches.<codename>`, which gives the right beside a role. What is only read
    (`is_reading`) stays readable when its workspace is archived.
    """

    name: str
    least: Role
    words: str
    codename: str
    bills: str = "nothing"
    is_reading: bool = False


def _of_document(name: str, least: Role, words: str, bills: str = "nothing") -> Right:
    return Right(name, least, words, f"{name}_document", bills)


def _other(name: str, least: Role, words: str, bills: str = "nothing") -> Right:
    return Right(name, least, words, name, bills)


def _reading(name: str, least: Role, words: str) -> Right:
    return Right(name, least, words, name, is_reading=True)


#: In the order of the page that shows it.
TABLE: tuple[Right, ...] = (
    _other(START, Role.OPERATOR, "Upload, check and start a batch", "1 for each document"),
    _other(PAUSE_BATCH, Role.OPERATOR, "Pause, resume and release a batch"),
    _other(CANCEL_BATCH, Role.OPERATOR, "Cancel a batch"),
    _of_document(Verb.CHECK_AGAIN, Role.OPERATOR, "Check again with the provider"),
    _of_document(Verb.FETCH_AGAIN, Role.OPERATOR, "Fetch a finished file again"),
    _of_document(Verb.RECONCILE, Role.OPERATOR, "Reconcile what is not known"),
    _of_document(Verb.DISMISS, Role.OPERATOR, "Dismiss what failed"),
    _of_document(Verb.REOPEN, Role.OPERATOR, "Reopen what was dismissed or cancelled"),
    _of_document(Verb.CANCEL, Role.OPERATOR, "Cancel documents that were not sent"),
    _of_document(Verb.RETRY, Role.OPERATOR, "Retry the same version", "0 or 1"),
    _of_document(NOTE, Role.OPERATOR, "Write a note on a document"),
    _reading(VIEW_CONTENT, Role.OPERATOR, "See content: PDF, HTML, row data, previews, differences"),
    _reading(REVEAL, Role.OPERATOR, "Reveal a provider’s job id (written down each time)"),
    _reading(EXPORT, Role.OPERATOR, "Download results, lists and archives (content needs the right to see it)"),
    _reading(VIEW_HEALTH, Role.OPERATOR, "See the health of workers, queue and store"),
    _of_document(Verb.REGENERATE, Role.MANAGER, "Regenerate as a new version, and hand in corrected rows", "1"),
    _of_document(ADOPT, Role.MANAGER, "Adopt a provider job for a document"),
    _of_document(FINALISE, Role.MANAGER, "Mark a document final, and take the mark off"),
    _other(PUBLISH_TEMPLATE, Role.MANAGER, "Upload, publish, roll back and archive templates"),
    _other(HOLD_ACCOUNT, Role.MANAGER, "Hold and release a provider account"),
    _other(MANAGE_ACCOUNT, Role.MANAGER, "Change limits and settings of a provider account"),
    _reading(VIEW_EVENTS, Role.MANAGER, "Read the webhook inbox"),
    _other(REPLAY_EVENTS, Role.MANAGER, "Replay webhook events"),
    _reading(VIEW_AUDIT, Role.MANAGER, "Read the audit log"),
    _other(MANAGE_RETENTION, Role.ADMIN, "Set for how long inputs, PDFs and evidence are kept"),
    _of_document(REGENERATE_FINAL, Role.ADMIN, "Regenerate a document that is marked final", "1"),
)
_ROW: Mapping[str, Right] = {row.name: row for row in TABLE}
_RANK: Mapping[Role, int] = {role: rank for rank, role in enumerate(Role)}

#: Every right there is.
RIGHTS: tuple[str, ...] = tuple(_ROW)
#: What a role may do in its workspace, beside seeing it: each role has what the one before has, and more.
ROLE_RIGHTS: Mapping[Role, frozenset[str]] = {
    role: frozenset(row.name for row in TABLE if _RANK[row.least] <= _RANK[role]) for role in Role
}
#: Rights that hold in an archived workspace too: nothing changes there any more.
READING = frozenset(row.name for row in TABLE if row.is_reading)


def rights(person: Person, workspace: Workspace) -> frozenset[str]:
    """The rights of a person in a workspace: none where they are no member, only those to read where it is archived."""
    if isinstance(person, AnonymousUser) or not person.is_active:
        return frozenset()
    held = frozenset(RIGHTS) if person.is_superuser else _held(person, workspace)
    return held if workspace.archived_at is None else held & READING


def by_workspace(person: Person, workspaces: Iterable[Workspace]) -> dict[int, frozenset[str]]:
    """`rights` of several workspaces by their keys, asked for all of them at once."""
    if isinstance(person, AnonymousUser) or not person.is_active:
        return {each.pk: frozenset() for each in workspaces}
    return {each.pk: rights(person, each) for each in workspaces}


def _held(person: User, workspace: Workspace) -> frozenset[str]:
    standing = _standing(person)
    role = standing.roles.get(workspace.pk)
    return frozenset() if role is None else ROLE_RIGHTS[role] | standing.given


def _given(person: User) -> frozenset[str]:
    """What permissions, held directly or through a group, add in every workspace of a person."""
    return frozenset(RIGHTS) if person.is_active and person.is_superuser else _standing(person).given


@dataclass(frozen=True)
class _Standing:
    """What is written down of a person: the role in each workspace, by its key, and the rights that permissions add."""

    roles: Mapping[int, Role]
    archived: frozenset[int]
    given: frozenset[str]


def _standing(person: User) -> _Standing:
    """In one query, since every page asks for it, and then remembered on the person's object as Django remembers
    permissions there. It lives as long as a request; whoever has to know it anew, as the engine has under its locks,
    reads the person anew."""
    known: _Standing | None = person.__dict__.get("_standing")
    if known is None:
        known = person.__dict__["_standing"] = _read(person)
    return known


def _read(person: User) -> _Standing:
    """Permissions as Django's `ModelBackend` finds them, the only one that gives any here."""
    memberships = Membership.objects.filter(user=person).order_by()
    permissions = Permission.objects.filter(
        Q(user=person) | Q(group__user=person),
        content_type__app_label="batches",
        codename__in=[row.codename for row in TABLE],
    ).order_by()
    nowhere, never = Value(0, IntegerField()), Value(None, DateTimeField())
    rows = memberships.values_list("workspace_id", "role", "workspace__archived_at").union(
        permissions.annotate(nowhere=nowhere, never=never).values_list("nowhere", "codename", "never")
    )
    roles: dict[int, Role] = {}
    archived, held = set(), set()
    for key, named, archived_at in rows:
        if not key:
            held.add(named)
            continue
        roles[key] = Role(named)
        archived |= {key} if archived_at is not None else set()
    given = frozenset(row.name for row in TABLE if row.codename in held)
    return _Standing(roles, frozenset(archived), given if person.is_active else frozenset())


def given_rows(person: User) -> list[Right]:
    """The same, as rows of the table."""
    given = _given(person)
    return [row for row in TABLE if row.name in given]


def codename(right: str) -> str:
    """Of the permission that gives the right beside a role."""
    return _ROW[right].codename


def may(person: Person, right: str, workspace: Workspace) -> bool:
    return right in rights(person, workspace)


def refusal(right: str) -> str:
    """Why somebody without the right is turned away, and which role has it."""
    row = _ROW[right]
    return f"{row.words}: your role does not include that. Ask an administrator for the role {row.least.label}."


def whom_to_ask(held: Collection[str], workspace: Workspace) -> str:
    """To whoever may apply no verb there: who can see to what failed. Empty for all others."""
    if any(verb in held for verb in Verb):
        return ""
    if workspace.archived_at is not None:
        return f"{workspace.name} is archived: nothing is done there any more."
    least = min((_ROW[verb].least for verb in Verb), key=lambda role: _RANK[role])
    return f"You may look at it. Ask somebody with the role {least.label} in {workspace.name}, who can act on it."


def sees_ids(held: Collection[str]) -> bool:
    """Whether these rights show provider job ids whole: whoever has one can fetch the file, so content goes with it."""
    return REVEAL in held and VIEW_CONTENT in held


def workspaces(person: Person, right: str) -> QuerySet[Workspace]:
    """Where `rights` would hold that one; asked for all of them at once, in one query."""
    if isinstance(person, AnonymousUser) or not person.is_active:
        return Workspace.objects.none()
    found = Workspace.objects.all() if right in READING else Workspace.objects.filter(archived_at=None)
    if person.is_superuser:
        return found
    standing = _standing(person)
    mine = [key for key, role in standing.roles.items() if right in standing.given or right in ROLE_RIGHTS[role]]
    return found.filter(pk__in=mine)


def somewhere(person: Person) -> frozenset[str]:
    """Every right for which `may_somewhere` holds: what the frame of a page asks for all of its links at once."""
    if isinstance(person, AnonymousUser) or not person.is_active:
        return frozenset()
    if person.is_superuser:
        # All of them, workspaces or none: but a batch begins in one.
        return frozenset(RIGHTS) if may_somewhere(person, START) else frozenset(RIGHTS) - {START}
    standing, held = _standing(person), set[str]()
    for key, role in standing.roles.items():
        here = ROLE_RIGHTS[role] | standing.given
        held |= here & READING if key in standing.archived else here
    return frozenset(held)


def may_somewhere(person: Person, right: str) -> bool:
    return workspaces(person, right).exists()


def may_with_account(person: Person, right: str, account: ProviderAccount) -> bool:
    """Whether the right holds for an account. One that every workspace shares is nobody's by their role in one of them:
    it takes the permission itself, held directly or through a group."""
    return right in rights_with_account(person, account)


def rights_with_account(person: Person, account: ProviderAccount) -> frozenset[str]:
    """As `may_with_account`, all of them at once."""
    if isinstance(person, AnonymousUser) or not person.is_active:
        return frozenset()
    return _given(person) if account.workspace is None else rights(person, account.workspace)
