"""Views of a list that somebody keeps under a name of their own: the filters as the address of the page says them."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from batches.models.checks import known_values


class ViewPage(models.TextChoices):
    """The lists that can be kept so."""

    BATCHES = "batches", "Batches"
    FAILED = "failed", "Needs a person"
    ACTIONS = "actions", "Bulk actions"


class SavedView(models.Model):
    """One person's own; nobody else sees it, and it gives no right: its query is asked again as whoever opens it."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_views")
    page = models.CharField(max_length=20, choices=ViewPage.choices)
    name = models.CharField(max_length=60)
    query = models.CharField(
        max_length=1000, blank=True, default="", help_text="As it stands behind the ? of the page."
    )
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "page", "name"], name="saved_view_name_once_per_user_and_page"),
            known_values("page", ViewPage, name="saved_view_page_known"),
        ]

    def __str__(self) -> str:
        return self.name
