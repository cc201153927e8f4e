"""Our own templates: HTML in Liquid that data rows fill. Versions are immutable; which one is used is published."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from batches.models.workspaces import Workspace


class Template(models.Model):
    """A template of a workspace. Rows name it by `slug`; one that pins no version gets the `published` one.

    `marking_after`: documents behind this one are still to be examined, whether the published version leaves them
    stale; null where none are. `marking_before` is the version that was published before.
    """

    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="templates")
    slug = models.SlugField(max_length=60)
    name = models.CharField(max_length=200)
    published = models.ForeignKey("TemplateVersion", on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    archived_at = models.DateTimeField(null=True, blank=True)
    marking_after = models.BigIntegerField(null=True, blank=True)
    marking_before = models.ForeignKey(
        "TemplateVersion", on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )

    class Meta:
        permissions = [("publish_template", "Can upload and publish templates")]
        constraints = [
            models.UniqueConstraint(fields=["workspace", "slug"], name="template_slug_once_per_workspace"),
        ]

    def __str__(self) -> str:
        return self.name


class TemplateVersion(models.Model):
    """What was uploaded, number 1, 2, …; rows are never updated.

    `source` is the Liquid text with its pictures, fonts and style sheets inside; `fields` are the paths it reads from
    a row (`customer.name`), each with the lines that name it. `given_key` is the upload, byte for byte, in the store.
    """

    template = models.ForeignKey(Template, on_delete=models.PROTECT, related_name="versions")
    number = models.PositiveIntegerField()
    source = models.TextField()
    sha256 = models.CharField(max_length=64, help_text="Of `source`.")
    fields = models.JSONField(default=list, blank=True)
    filename = models.CharField(max_length=255, blank=True, default="", help_text="Name of the uploaded file.")
    given_key = models.CharField(max_length=300, blank=True, default="")
    note = models.TextField(blank=True, default="", help_text="What changed, in the uploader's words.")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["template", "number"], name="template_version_number_once"),
            models.CheckConstraint(condition=models.Q(number__gte=1), name="template_version_number_from_one"),
        ]

    def __str__(self) -> str:
        return f"{self.template} v{self.number}"
