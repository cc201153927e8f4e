"""Workspaces (tenants) and who may do what in them. A workspace is the scope of business ids."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from batches.models.checks import known_values


class Workspace(models.Model):
    """A tenant. Archived, never deleted: submissions hang below it."""

    slug = models.SlugField(max_length=60)
    name = models.CharField(max_length=200)
    created_at = models.DateTimeField()
    archived_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        permissions = [("view_health", "Can see the health of workers, queue and store")]
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
