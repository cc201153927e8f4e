"""Workspaces (tenants) and who may do what in them. A workspace is the scope of business ids."""

from __future__ import annotations

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from batches.models.checks import known_values

#: Far from where times in the database and in Python end.
KEEP_DAYS_MOST = 36_500
#: A provider repeats a webhook for days; its repeats are known by what is kept of the first.
KEEP_EVIDENCE_DAYS_LEAST = 30


def _keep_days(help_text: str, *, least: int = 1) -> models.PositiveIntegerField[int | None, int | None]:
    """Days for which something is kept; empty: for ever."""
    bounds = [MinValueValidator(least), MaxValueValidator(KEEP_DAYS_MOST)]
    return models.PositiveIntegerField(null=True, blank=True, validators=bounds, help_text=help_text)


class Workspace(models.Model):
    """A tenant. Archived, never deleted: submissions hang below it.

    `keep_…_days` are its retention policy, counted from the end of each document (`engine/retention.py`).
    """

    slug = models.SlugField(max_length=60)
    name = models.CharField(max_length=200)
    created_at = models.DateTimeField()
    archived_at = models.DateTimeField(null=True, blank=True)
    keep_inputs_days = _keep_days("Days for which inputs, requests and rows are kept; empty: for ever.")
    keep_outputs_days = _keep_days("Days for which stored PDFs are kept; empty: for ever.")
    keep_evidence_days = _keep_days(
        "Days for which facts of requests and bodies of webhooks are kept, 30 at least; empty: for ever.",
        least=KEEP_EVIDENCE_DAYS_LEAST,
    )

    class Meta:
        permissions = [
            ("view_health", "Can see the health of workers, queue and store"),
            ("manage_retention", "Can set for how long content is kept"),
        ]
        constraints = [models.UniqueConstraint(fields=["slug"], name="workspace_slug_unique")]

    def __str__(self) -> str:
        return self.name


class Role(models.TextChoices):
    VIEWER = "viewer", "Viewer"
    OPERATOR = "operator", "Operator"
    MANAGER = "manager", "Manager"
    ADMIN = "admin", "Admin"


class Membership(models.Model):
    """One person's role in one workspace."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=20, choices=Role.choices)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["workspace", "user"], name="membership_once_per_workspace"),
            known_values("role", Role, name="membership_role_known"),
        ]

    def __str__(self) -> str:
        return f"{self.user} is {self.role} in {self.workspace}"
