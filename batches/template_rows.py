"""Read-only queries behind the pages of templates: which there are, one with its versions, what of a document is old.

The text of a version may be megabytes: lists never read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Count, Max, QuerySet

from batches import rights, selectors
from batches.models import Template, TemplateVersion, Workspace
from batches.selectors import Person

#: Templates and versions on one page; a workspace has a few of the first.
MOST = 500


@dataclass(frozen=True)
class TemplateRow:
    """One template of the list. `versions` is how many it has, `newest` the number of the last one."""

    template: Template
    versions: int
    newest: int | None

    @property
    def published(self) -> int | None:
        return self.template.published.number if self.template.published else None


def visible_templates(person: Person) -> QuerySet[Template]:
    """Templates of the workspaces that a person may see."""
    found = Template.objects.filter(workspace__in=selectors.visible_workspaces(person))
    return found.select_related("workspace", "published").defer("published__source")


def template_rows(person: Person, *, is_archived: bool) -> Sequence[TemplateRow]:
    """By name; those that are put away apart."""
    found = visible_templates(person).filter(archived_at__isnull=not is_archived)
    counted = found.annotate(count=Count("versions"), newest=Max("versions__number")).order_by("name", "pk")
    return [TemplateRow(each, each.count, each.newest) for each in counted[:MOST]]


def versions(template: Template) -> Sequence[TemplateVersion]:
    """Newest first, without their texts."""
    found = template.versions.select_related("created_by").defer("source")
    return list(found.order_by("-number")[:MOST])


def numbers(template: Template, *, besides: int) -> Sequence[int]:
    """Of its latest other versions, newest first."""
    found = template.versions.exclude(number=besides).order_by("-number")
    return list(found.values_list("number", flat=True)[:20])


def publishing_workspaces(person: Person) -> Sequence[Workspace]:
    """Workspaces whose templates a person may upload and publish."""
    return list(rights.workspaces(person, rights.PUBLISH_TEMPLATE).order_by("name", "pk"))
