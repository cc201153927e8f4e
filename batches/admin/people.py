"""People, workspaces, who belongs to them, and their API tokens in the admin. What is changed reaches the audit log."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from batches import tokens
from batches.admin.kinds import Bounded, Evidence, Kept, Labelled
from batches.admin.searching import OfWorkspace
from batches.models import ApiToken, Membership, Role, SavedView, Workspace
from batches.views import sessions
from batches.views.access import record

#: What a role is for, beside its name where it is given; the whole table is `rights.TABLE`.
ROLE_WORDS = {
    Role.VIEWER: "sees states, counts and causes, no content",
    Role.OPERATOR: "starts batches, sees content, downloads, retries",
    Role.MANAGER: "also regenerates, publishes templates, reads the audit log, runs accounts",
    Role.ADMIN: "also regenerates what is marked final",
}


class Audited(Labelled):
    """Writes into our audit log what Django's admin writes into its own: names of fields, never their values."""

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        self._record(request, "add", obj, message)
        return super().log_addition(request, obj, message)

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        self._record(request, "change", obj, message)
        return super().log_change(request, obj, message)

    def log_deletions(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        for obj in queryset:
            self._record(request, "delete", obj, [])
        return super().log_deletions(request, queryset)

    def _record(self, request: HttpRequest, done: str, obj: Any, message: Any) -> None:
        kind = self.model._meta.model_name
        workspace = obj if isinstance(obj, Workspace) else getattr(obj, "workspace", None)
        name = obj.slug if isinstance(obj, Workspace) else obj
        changes = [_change(part) for part in message] if isinstance(message, list) else [str(message)]
        record(request, f"{done}_{kind}", f"{kind} {name}", workspace, changes=[part for part in changes if part])


def _change(part: dict[str, Any]) -> str:
    """`changed membership “m.okoye in north”: role`, of what the admin says about one form or one inline row."""
    words = []
    for done, what in part.items():
        of_whom = " ".join(filter(None, (what.get("name", ""), f"“{what['object']}”" if what.get("object") else "")))
        fields = ", ".join(map(str, what.get("fields", ())))
        words.append(": ".join(filter(None, (f"{done} {of_whom}".strip(), fields))))
    return "; ".join(words)


admin.site.unregister(User)
admin.site.unregister(Group)


class RoleInline(admin.TabularInline):
    """The workspaces that a person belongs to, on the person's page; each with what its role lets them do."""

    model = Membership
    extra = 1
    autocomplete_fields = ("workspace",)
    verbose_name = "role in a workspace"
    verbose_name_plural = "roles in workspaces"

    def formfield_for_choice_field(self, db_field: Any, request: HttpRequest, **given: Any) -> Any:
        field = super().formfield_for_choice_field(db_field, request, **given)
        if field is not None and db_field.name == "role":
            field.widget.attrs["aria-label"] = "Role"  # a row of a table has no label of its own
            field.choices = [("", "Choose a role"), *((role.value, _told(role)) for role in Role)]
        return field


def _told(role: Role) -> str:
    return f"{role.label}: {ROLE_WORDS[role]}"


@admin.register(User)
class AuditedUserAdmin(Audited, UserAdmin):
    list_display = ("username", "first_name", "last_name", "roles", "is_active", "is_staff", "is_superuser")
    fieldsets = (
        (None, {"fields": ("username", "password")}),
        ("Personal info", {"fields": ("first_name", "last_name", "email")}),
        (
            "Permissions",
            {
                "description": "What a person may do with batches follows from the roles at the end of this page. "
                "Groups and permissions only say what somebody with staff status may see and change in this admin.",
                "fields": ("is_active", "is_staff", "is_superuser", "groups", "user_permissions"),
            },
        ),
        ("Important dates", {"fields": ("last_login", "date_joined")}),
    )
    inlines = (RoleInline,)
    actions = ("sign_out",)

    @admin.action(description="Sign these people out on every device", permissions=["change"])
    def sign_out(self, request: HttpRequest, found: QuerySet[User]) -> None:
        for person in found:
            sessions.end_sessions(person, now=timezone.now())
            record(request, "sign_out_everywhere", f"user {person.username}", None)
        self.message_user(request, f"{len(found)} signed out everywhere.", messages.SUCCESS)

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        return super().get_queryset(request).prefetch_related("memberships__workspace")

    def get_inlines(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.inlines if obj else ()  # a new person first gets a name and a password

    @admin.display(description="Roles in workspaces")
    def roles(self, person: User) -> str:
        if person.is_superuser:
            return "everything, everywhere"
        told = sorted(f"{each.workspace}: {Role(each.role).label}" for each in person.memberships.all())
        return ", ".join(told) or "none: sees nothing"


@admin.register(Group)
class AuditedGroupAdmin(Audited, GroupAdmin):
    pass


class MembershipInline(RoleInline):
    """The same rows, on the workspace's page."""

    autocomplete_fields = ("user",)
    verbose_name = "person with a role"
    verbose_name_plural = "people and their roles"


@admin.register(Workspace)
class WorkspaceAdmin(Audited, Kept):
    list_display = ("name", "slug", "created_at", "archived_at")
    search_fields = ("name", "slug")
    search_help_text = "Finds by part of the name, or of the name in its address."
    inlines = (MembershipInline,)
    readonly_fields = ("created_at",)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        # The slug is part of storage keys.
        return ("created_at", "slug") if obj else ("created_at",)

    def save_model(self, request: HttpRequest, obj: Workspace, form: Any, change: bool) -> None:
        if not change:
            obj.created_at = timezone.now()
        super().save_model(request, obj, form, change)


@admin.register(Membership)
class MembershipAdmin(Audited, Bounded):
    list_display = ("user", "workspace", "role")
    list_filter = ("role", OfWorkspace)
    list_select_related = ("user", "workspace")
    search_fields = ("user__username", "workspace__slug")
    search_help_text = "Finds by part of the user's name, or of the workspace's."
    autocomplete_fields = ("user", "workspace")


@admin.register(SavedView)
class SavedViewAdmin(Evidence):
    """A person's own filters; they are made and dropped on the list that they are of."""

    finds = {"user": "user"}
    list_display = ("user", "page", "name", "created_at")
    list_select_related = ("user",)


@admin.register(ApiToken)
class ApiTokenAdmin(Evidence):
    """Made by `manage.py api_token`, which shows the secret once; here they can be seen and ended."""

    hidden = ("secret_sha256",)
    list_display = ("name", "prefix", "user", "workspace", "created_at", "expires_at", "last_used_at", "revoked_at")
    list_filter = (OfWorkspace,)
    list_select_related = ("user", "workspace")
    search_fields = ("name", "prefix", "user__username")
    search_help_text = "Finds by part of the name, the first characters of the token, or the user."
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
