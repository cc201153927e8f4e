"""Read-only queries over drafts for their pages: whose they are, a page of them, and what can be chosen for one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import F, Prefetch, Q, QuerySet

from batches import cursors, rights, selectors
from batches.cursors import Page
from batches.models import (
    ACCOUNT_SECRETS,
    Draft,
    DraftState,
    Template,
    TemplateVersion,
    Workspace,
)
from batches.selectors import Person

DRAFTS_PER_PAGE = 50
#: States in which a draft waits for somebody or for the worker; the others are over.
LIVING = (DraftState.OPEN, DraftState.CHECKING, DraftState.CHECKED, DraftState.STARTING)
#: What a list does not show, and may be megabytes.
HEAVY = ("look", "choices", "report")


def visible_drafts(person: Person) -> QuerySet[Draft]:
    """Drafts of the workspaces in which the person may start a batch, and the person's own; viewers see none."""
    mine = Q(workspace__in=selectors.writable_workspaces(person))
    if not person.is_anonymous:
        mine |= Q(created_by=person.pk, workspace__in=selectors.visible_workspaces(person))
    drafts = Draft.objects.filter(mine).select_related("workspace", "account", "batch", "target", "created_by")
    return drafts.defer(*(f"account__{name}" for name in ACCOUNT_SECRETS))


def may_change(person: Person, draft: Draft) -> bool:
    """A draft is its uploader's alone: colleagues of the workspace may look at it, and upload the file themselves."""
    return draft.created_by_id == person.pk and rights.may(person, rights.START, draft.workspace)


def drafts_page(person: Person, *, is_over: bool = False, after: str = "", before: str = "") -> Page[Draft]:
    """Newest first; those that are over on a page of their own. `is_ready`: what was checked can be started."""
    found = visible_drafts(person).annotate(is_ready=F("report__ok"))
    found = found.defer(*HEAVY, *(f"account__{name}" for name in ACCOUNT_SECRETS))
    found = found.exclude(state__in=LIVING) if is_over else found.filter(state__in=LIVING)
    return cursors.page(found, "created_at", after=after, before=before, limit=DRAFTS_PER_PAGE)


def living_count(person: Person) -> int:
    """How many drafts of the person's own are not over."""
    return visible_drafts(person).filter(created_by=person.pk, state__in=LIVING).count()


@dataclass(frozen=True)
class OfferedTemplate:
    """A template of the workspace with its versions, newest first; `published` is None where none is."""

    slug: str
    name: str
    published: int | None
    versions: Sequence[int]


def offered_templates(workspace: Workspace) -> list[OfferedTemplate]:
    templates = Template.objects.filter(workspace=workspace, archived_at=None).select_related("published")
    numbers = Prefetch("versions", TemplateVersion.objects.only("template", "number"))  # never their texts
    return [
        OfferedTemplate(
            template.slug,
            template.name,
            template.published.number if template.published else None,
            sorted((version.number for version in template.versions.all()), reverse=True),
        )
        for template in templates.defer("published__source").order_by("name", "pk").prefetch_related(numbers)
    ]
