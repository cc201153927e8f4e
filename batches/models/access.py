"""API tokens: what a script shows instead of a password. Only a digest is stored."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from batches.models.workspaces import Workspace


class ApiToken(models.Model):
    """A token of one person for one workspace. The secret is 256 random bits, shown once, stored as SHA-256."""

    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="api_tokens")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=16, help_text="The first characters, to tell tokens apart.")
    secret_sha256 = models.CharField(max_length=64)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["secret_sha256"], name="api_token_secret_unique")]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"
