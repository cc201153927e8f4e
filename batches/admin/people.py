"""Workspaces, who belongs to them, and their API tokens in the admin."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from batches import tokens
from batches.admin.kinds import Evidence, Kept
from batches.models import ApiToken, Membership, Workspace
from batches.views.access import record


class MembershipInline(admin.TabularInline):
    model = Membership
    extra = 1
    autocomplete_fields = ("user",)


@admin.register(Workspace)
class WorkspaceAdmin(Kept):
    list_display = ("name", "slug", "created_at", "archived_at")
    search_fields = ("name", "slug")
    inlines = (MembershipInline,)
    readonly_fields = ("created_at",)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        # The slug is part of storage keys.
        return ("created_at", "slug") if obj else ("created_at",)

    def save_model(self, request: HttpRequest, obj: Workspace, form: Any, change: bool) -> None:
        if not change:
            obj.created_at = timezone.now()
        super().save_model(request, obj, form, change)
        record(request, "change_workspace" if change else "add_workspace", f"workspace {obj.slug}", obj)


@admin.register(Membership)
class MembershipAdmin(admin.ModelAdmin):
    list_display = ("user", "workspace", "role")
    list_filter = ("role",)
    list_select_related = ("user", "workspace")
    search_fields = ("user__username", "workspace__slug")
    autocomplete_fields = ("user", "workspace")


@admin.register(ApiToken)
class ApiTokenAdmin(Evidence):
    """Made by `manage.py api_token`, which shows the secret once; here they can be seen and ended."""

    hidden = ("secret_sha256",)
    list_display = ("name", "prefix", "user", "workspace", "created_at", "expires_at", "last_used_at", "revoked_at")
    list_select_related = ("user", "workspace")
    search_fields = ("name", "prefix", "user__username")
    actions = ("revoke",)

    @admin.action(description="End these tokens", permissions=["revoke"])
    def revoke(self, request: HttpRequest, found: QuerySet[ApiToken]) -> None:
        ended = 0
        for token in found:
            if tokens.revoke(token, now=timezone.now()):
                record(request, "revoke_api_token", f"token {token.prefix}…", token.workspace)
                ended += 1
        self.message_user(request, f"{ended} ended, {len(found) - ended} were ended before.", messages.SUCCESS)

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("batches.change_apitoken")
