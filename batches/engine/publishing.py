"""Which version of a template rows get that pin none, and whether it may be used at all: publish, roll back, archive.

Nothing is made, sent or billed by it. Documents that exist keep their text; what another version would make of them is
`staleness.py`.
"""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from batches import queue
from batches.engine import audit
from batches.engine.audit import By
from batches.engine.contention import again_after_deadlock
from batches.engine.errors import TemplateRule
from batches.engine.template_uploads import subject
from batches.models import Template, TemplateVersion, Workspace

PUBLISH, UNPUBLISH, ARCHIVE, RESTORE = "publish_template", "unpublish_template", "archive_template", "restore_template"


@again_after_deadlock
@transaction.atomic
def publish(template_id: int, number: int, *, by: By, now: datetime, reason: str = "") -> bool:
    """Make this version the one that rows get; an older one rolls back to it. True when this call did it.

    Raises `TemplateRule`.
    """
    template = _locked(template_id)
    if template.archived_at is not None:
        raise TemplateRule(f"The template {template.slug} is archived. Take it back first.")
    version = template.versions.filter(number=number).defer("source").first()
    if version is None:
        raise TemplateRule(f"The template {template.slug} has no version {number}.")
    if template.published_id == version.pk:
        return False
    before = template.published
    Template.objects.filter(pk=template.pk).update(published=version, marking_before=before, marking_after=0)
    _record(PUBLISH, template, by, now, reason, version=version.number, before=before.number if before else None)
    queue.ring_staleness(template.pk)
    return True


@again_after_deadlock
@transaction.atomic
def unpublish(template_id: int, *, by: By, now: datetime, reason: str = "") -> bool:
    """No version is published any more: rows have to pin one. True when this call did it."""
    template = _locked(template_id)
    before = template.published
    if before is None:
        return False
    Template.objects.filter(pk=template.pk).update(published=None, marking_after=None)
    _record(UNPUBLISH, template, by, now, reason, before=before.number)
    return True


@again_after_deadlock
@transaction.atomic
def archive(template_id: int, *, is_archived: bool, by: By, now: datetime, reason: str = "") -> bool:
    """Put a template away, so that no new row gets it, or take it back. Its versions stay, and so do the documents."""
    template = _locked(template_id)
    if (template.archived_at is not None) == is_archived:
        return False
    Template.objects.filter(pk=template.pk).update(archived_at=now if is_archived else None)
    _record(ARCHIVE if is_archived else RESTORE, template, by, now, reason)
    return True


def _locked(template_id: int) -> Template:
    """The template, under the lock of its workspace: uploads and other changes of it wait."""
    workspace_id = Template.objects.values_list("workspace_id", flat=True).get(pk=template_id)
    Workspace.objects.select_for_update(no_key=True).get(pk=workspace_id)
    return Template.objects.select_related("workspace", "published").defer("published__source").get(pk=template_id)


def _record(action: str, template: Template, by: By, now: datetime, reason: str, **facts: int | None) -> None:
    told = {name: value for name, value in facts.items() if value is not None}
    audit.record(
        action, subject=subject(template), workspace=template.workspace, by=by, now=now, reason=reason, facts=told
    )


def latest(template: Template) -> TemplateVersion | None:
    return template.versions.order_by("-number").defer("source").first()
