"""The Django admin over every model. Evidence is read-only, secrets can be set and never seen, and nothing here bills:
django-q2's own admin, which can send a task again, is taken out.
"""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django_q import admin as queue_admin

from batches import selectors, sentences, tokens, wording
from batches.engine import deadlines, health
from batches.models import (
    Alert,
    ApiToken,
    Artifact,
    AuditEntry,
    Batch,
    BatchItem,
    Document,
    DocumentVersion,
    Duration,
    Exchange,
    HoldReason,
    Job,
    JobEvent,
    LearnedDeadline,
    Membership,
    PacingLane,
    ProviderAccount,
    PumpSlot,
    StoreFinding,
    StoreSweep,
    Submission,
    WebhookEvent,
    Workspace,
)
from batches.views.access import record

admin.site.site_header = "RelayPDF Batches"
admin.site.site_title = "RelayPDF Batches"
admin.site.index_title = "Administration"

# Imported above, so that it has registered its models before they are taken out again.
for queue_model in [model for model in admin.site._registry if model.__module__.startswith(queue_admin.__package__)]:
    admin.site.unregister(queue_model)


class Evidence(admin.ModelAdmin):
    """Rows that prove what happened: to be read, never added, changed or deleted.

    `hidden` names fields that hold documents, working links or digests of secrets. `unread` are the columns that no
    page reads: the hidden ones, unless a subclass shows something made of them.
    """

    hidden: tuple[str, ...] = ()
    unread: tuple[str, ...] | None = None
    actions: tuple[str, ...] | None = None
    show_full_result_count = False
    list_per_page = 50
    view_on_site = False

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        shown = [field.name for field in self.model._meta.fields if field.name not in self.hidden]
        return [*shown, *(name for name in self.readonly_fields if name not in shown)]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request).defer(*(self.hidden if self.unread is None else self.unread))
        if "account" not in {field.name for field in self.model._meta.fields}:
            return rows
        return rows.select_related("account").defer(*(f"account__{name}" for name in selectors.ACCOUNT_SECRETS))


class Kept(admin.ModelAdmin):
    """Rows that staff may change and that are archived, never deleted: submissions hang below them."""

    actions: tuple[str, ...] | None = None
    view_on_site = False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


# --- workspaces, accounts, tokens ------------------------------------------------------------------------------------


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


class SecretInput(forms.PasswordInput):
    """A field that can be filled and never shows what it holds."""

    def __init__(self) -> None:
        super().__init__(render_value=False, attrs={"autocomplete": "new-password", "class": "vTextField"})


class AccountForm(forms.ModelForm):
    """Secrets are fields of the form and not of its model, so that none is read to show the page; `save_model` sets
    those that were typed."""

    api_key = forms.CharField(required=False, widget=SecretInput(), help_text="Leave empty to keep what is set.")
    webhook_secret = forms.CharField(required=False, widget=SecretInput(), help_text="Leave empty to keep it.")
    webhook_secret_previous = forms.CharField(
        required=False, widget=SecretInput(), help_text="Still accepted while rotating. Leave empty to keep it."
    )

    class Meta:
        model = ProviderAccount
        exclude = selectors.ACCOUNT_SECRETS  # noqa: DJ006 - the admin's fieldsets decide about the others

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        for name in selectors.ACCOUNT_SECRETS:
            cleaned[name] = (cleaned.get(name) or "").strip()
            if any(not 33 <= ord(character) <= 126 for character in cleaned[name]):
                self.add_error(name, "It holds a space, a line break or a character that no header may carry.")
        return cleaned


@admin.register(ProviderAccount)
class ProviderAccountAdmin(Kept):
    form = AccountForm
    list_display = ("name", "slug", "kind", "health", "hold_reason", "pace", "max_in_flight", "archived_at")
    list_filter = ("health", "kind")
    search_fields = ("name", "slug", "base_url")
    actions = ("hold", "resume")
    readonly_fields = (
        "health",
        "hold_reason",
        "hold_words",
        "held_at",
        "probe_at",
        "transport_failure_count",
        "created_at",
        "secrets",
        "suggested_deadlines",
    )
    fieldsets = (
        (None, {"fields": ("name", "slug", "workspace", "kind", "base_url", "download_hosts", "archived_at")}),
        (
            "Health",
            {"fields": ("health", "hold_reason", "hold_words", "held_at", "probe_at", "transport_failure_count")},
        ),
        ("Secrets", {"fields": ("secrets", "api_key", "webhook_secret", "webhook_secret_previous")}),
        (
            "Pace and limits",
            {
                "fields": (
                    "submit_interval_ms",
                    "submit_burst",
                    "submit_windows",
                    "max_in_flight",
                    "poll_interval_ms",
                    "poll_initial_ms",
                    "poll_max_ms",
                    "deadline_seconds",
                    "learned_deadline",
                    "suggested_deadlines",
                    "key_retention_seconds",
                    "key_retention_source",
                )
            },
        ),
        (
            "Price and data",
            {"fields": ("price_per_job", "price_currency", "price_source", "data_terms")},
        ),
    )

    @admin.display(description="pace", ordering="submit_interval_ms")
    def pace(self, account: ProviderAccount) -> str:
        return wording.pace(sentences.interval_ms(account))

    @admin.display(description="suggested deadline")
    def suggested_deadlines(self, account: ProviderAccount) -> str:
        if account.learned_deadline == LearnedDeadline.OFF:
            return "None: the learned deadline is off."
        found = deadlines.suggestions(account.pk) if account.pk else {}
        least = deadlines.SAMPLES_LEAST
        return "\n".join(each.words for each in found.values()) or f"None yet: that takes {least} saved documents."

    @admin.display(description="what is set")
    def secrets(self, account: ProviderAccount) -> str:
        names = {"api_key": "API key", "webhook_secret": "webhook secret", "webhook_secret_previous": "previous one"}
        return ", ".join(words for name, words in names.items() if selectors.is_set(account, name)) or "nothing"

    def get_queryset(self, request: HttpRequest) -> QuerySet[ProviderAccount]:
        return super().get_queryset(request).defer(*selectors.ACCOUNT_SECRETS)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        if obj is None:
            return self.readonly_fields
        # An address that has a submission is fixed: the same key sent elsewhere would bill again.
        fixed = ("slug", "kind", "base_url") if obj.submissions.exists() else ("slug",)
        return (*self.readonly_fields, *fixed)

    def save_model(self, request: HttpRequest, obj: ProviderAccount, form: Any, change: bool) -> None:
        for name in selectors.ACCOUNT_SECRETS:
            if form.cleaned_data[name]:
                setattr(obj, name, form.cleaned_data[name])
        super().save_model(request, obj, form, change)
        action = "change_account" if change else "add_account"
        record(request, action, f"account {obj.slug}", obj.workspace, fields=sorted(form.changed_data))

    @admin.action(description="Hold: send nothing new", permissions=["change"])
    def hold(self, request: HttpRequest, accounts: QuerySet[ProviderAccount]) -> None:
        words = f"Held by {request.user.get_username()} in the admin."
        done = 0
        for account in accounts:
            if health.hold(account.pk, reason=HoldReason.PERSON, words=words, now=timezone.now()):
                record(request, "hold_account", f"account {account.slug}", account.workspace)
                done += 1
        self.message_user(request, f"{done} held, {len(accounts) - done} were held already.", messages.SUCCESS)

    @admin.action(description="Resume: let waiting documents go on", permissions=["change"])
    def resume(self, request: HttpRequest, accounts: QuerySet[ProviderAccount]) -> None:
        done = 0
        for account in accounts:
            if health.resume(account.pk, now=timezone.now()):
                record(request, "resume_account", f"account {account.slug}", account.workspace)
                done += 1
        self.message_user(request, f"{done} resumed, {len(accounts) - done} were not held.", messages.SUCCESS)


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


# --- batches, documents -----------------------------------------------------------------------------------------------


@admin.register(Batch)
class BatchAdmin(Evidence):
    hidden = ("report",)
    list_display = (
        "name",
        "public_id",
        "workspace",
        "account",
        "created_by",
        "created_at",
        "paused_at",
        "cancelled_at",
    )
    list_select_related = ("workspace", "account", "created_by")
    search_fields = ("name", "public_id", "manifest_sha256")
    date_hierarchy = "created_at"


@admin.register(BatchItem)
class BatchItemAdmin(Evidence):
    list_display = ("batch", "position", "document", "version", "intake_outcome", "cancelled_at", "dismissed_at")
    list_select_related = ("batch", "document", "version__document")
    search_fields = ("batch__public_id", "document__business_id")


@admin.register(Document)
class DocumentAdmin(Evidence):
    list_display = ("business_id", "public_id", "workspace", "current_version", "is_final", "created_at")
    list_select_related = ("workspace", "current_version__document")
    search_fields = ("business_id", "public_id")


@admin.register(DocumentVersion)
class DocumentVersionAdmin(Evidence):
    hidden = ("input_inline",)
    list_display = ("document", "number", "kind", "input_bytes", "input_sha256", "created_by", "created_at")
    list_select_related = ("document", "created_by")
    search_fields = ("document__business_id", "input_sha256")


@admin.register(Artifact)
class ArtifactAdmin(Evidence):
    list_display = ("version", "page_count", "byte_count", "sha256", "stored_at", "local_deleted_at")
    list_select_related = ("version__document",)
    search_fields = ("storage_key", "sha256", "version__document__business_id")


# --- jobs and their proof -----------------------------------------------------------------------------------------


@admin.register(Job)
class JobAdmin(Evidence):
    list_display = ("version", "state", "failure_class", "account", "due_at", "deadline_at", "state_changed_at")
    list_filter = ("state", "failure_class")
    list_select_related = ("version__document", "account")
    search_fields = ("version__document__business_id",)


@admin.register(JobEvent)
class JobEventAdmin(Evidence):
    list_display = ("at", "job", "from_state", "to_state", "reason", "actor")
    list_select_related = ("job",)
    search_fields = ("job__version__document__business_id",)


class MaskedProviderJob(Evidence):
    """At RelayPDF the job id alone fetches the file: it is shown on the document's page, where that is written down."""

    readonly_fields = ("provider_job",)

    @admin.display(description="provider job")
    def provider_job(self, row: Any) -> str:
        return wording.masked(row.provider_job_id or "") or "–"


@admin.register(Submission)
class SubmissionAdmin(MaskedProviderJob):
    hidden = ("body_inline", "result", "provider_job_id")
    unread = ("body_inline", "result")
    list_display = ("job", "sequence", "account", "outcome", "in_doubt", "try_count", "provider_job", "last_sent_at")
    list_filter = ("outcome", "in_doubt")
    list_select_related = ("job", "account")
    search_fields = ("provider_job_id", "idempotency_key", "job__version__document__business_id")


@admin.register(Exchange)
class ExchangeAdmin(Evidence):
    hidden = ("request", "response")
    unread = ()
    list_display = ("at", "kind", "status", "error_class", "duration_ms", "account", "job")
    list_filter = ("kind", "error_class")
    list_select_related = ("account", "job")
    search_fields = ("job__version__document__business_id",)
    readonly_fields = ("what_was_asked", "what_came_back")

    @admin.display(description="request")
    def what_was_asked(self, exchange: Exchange) -> SafeString:
        return _json(exchange.request)

    @admin.display(description="response")
    def what_came_back(self, exchange: Exchange) -> SafeString:
        return _json(exchange.response)


@admin.register(WebhookEvent)
class WebhookEventAdmin(MaskedProviderJob):
    hidden = ("body", "headers", "provider_job_id")
    unread = ("body", "headers")
    list_display = ("received_at", "account", "type", "provider_job", "outcome", "processed_at")
    list_filter = ("outcome", "type")
    list_select_related = ("account",)
    search_fields = ("provider_job_id", "body_sha256")


@admin.register(Alert)
class AlertAdmin(Evidence):
    list_display = ("opened_at", "kind", "subject", "words", "closed_at")
    list_filter = ("kind", ("closed_at", admin.EmptyFieldListFilter))
    search_fields = ("subject", "words")
    actions = ("close",)

    @admin.action(description="Close selected alerts", permissions=["close"])
    def close(self, request: HttpRequest, found: QuerySet[Alert]) -> None:
        closed = 0
        for alert in found:
            if Alert.objects.filter(pk=alert.pk, closed_at=None).update(closed_at=timezone.now()):
                record(request, "close_alert", f"alert {alert.pk} about {alert.subject}", _workspace(alert))
                closed += 1
        self.message_user(request, f"{closed} closed, {len(found) - closed} were closed before.", messages.SUCCESS)

    def has_close_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("batches.change_alert")


def _workspace(alert: Alert) -> Workspace | None:
    """Whose alert it is; an account's belongs to its workspace, a shared account's to none."""
    if alert.batch:
        return alert.batch.workspace
    if alert.job:
        return alert.job.version.document.workspace
    return alert.account.workspace if alert.account else None


@admin.register(AuditEntry)
class AuditEntryAdmin(Evidence):
    list_display = ("at", "actor_words", "action", "subject", "workspace", "from_where", "reason")
    list_filter = ("action",)
    list_select_related = ("workspace",)
    search_fields = ("actor_words", "subject", "action")
    ordering = ("-at", "-id")


@admin.register(PacingLane)
class PacingLaneAdmin(Evidence):
    list_display = ("account", "lane", "next_slot_us", "cool_down_until_us", "revision")
    list_select_related = ("account",)


@admin.register(PumpSlot)
class PumpSlotAdmin(Evidence):
    list_display = ("number", "owner", "lease_until", "heartbeat_at")


@admin.register(Duration)
class DurationAdmin(Evidence):
    list_display = ("at", "account", "outcome", "remote_seconds", "total_seconds", "poll_count", "batch_size")
    list_filter = ("outcome", "account")
    list_select_related = ("account",)


@admin.register(StoreFinding)
class StoreFindingAdmin(Evidence):
    list_display = ("found_at", "kind", "storage_key", "words", "resolved_at")
    list_filter = ("kind", ("resolved_at", admin.EmptyFieldListFilter))
    search_fields = ("storage_key",)


@admin.register(StoreSweep)
class StoreSweepAdmin(Evidence):
    list_display = ("kind", "position", "started_at", "finished_at")


def _json(value: Any) -> SafeString:
    return format_html("<pre>{}</pre>", json.dumps(value, ensure_ascii=False, indent=2))
