"""What happened, in the admin: batches, documents, jobs and their proof, alerts, the audit log, the engine's own rows.

All of it is read-only; an alert can be closed.
"""

from __future__ import annotations

import json
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from batches import wording
from batches.admin.kinds import Evidence
from batches.models import (
    Alert,
    Artifact,
    AuditEntry,
    Batch,
    BatchItem,
    BulkAction,
    BulkActionItem,
    ColumnMapping,
    Document,
    DocumentVersion,
    Draft,
    Duration,
    Exchange,
    Export,
    ExportPart,
    Job,
    JobEvent,
    Notice,
    NoticeWatch,
    PacingLane,
    PumpSlot,
    StoreFinding,
    StoreSweep,
    Submission,
    Template,
    TemplateVersion,
    WebhookEvent,
    Workspace,
)
from batches.views.access import record

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


@admin.register(Draft)
class DraftAdmin(Evidence):
    hidden = ("look", "choices", "report", "upload_key")
    list_display = ("public_id", "filename", "workspace", "state", "created_by", "created_at", "touched_at")
    list_filter = ("state",)
    list_select_related = ("workspace", "created_by")
    search_fields = ("public_id", "filename", "upload_sha256")


@admin.register(ColumnMapping)
class ColumnMappingAdmin(Evidence):
    list_display = ("workspace", "header_sha256", "used_at")
    list_select_related = ("workspace",)


@admin.register(Export)
class ExportAdmin(Evidence):
    hidden = ("rows",)
    list_display = ("public_id", "kind", "state", "batch", "requester_words", "created_at", "built_at", "expires_at")
    list_select_related = ("batch",)
    list_filter = ("state", "kind")
    search_fields = ("public_id", "batch__public_id")
    date_hierarchy = "created_at"


@admin.register(ExportPart)
class ExportPartAdmin(Evidence):
    list_display = ("export", "number", "name", "byte_count", "written_at", "dropped_at", "gone_at")
    list_select_related = ("export",)
    search_fields = ("export__public_id", "storage_key")


@admin.register(BulkAction)
class BulkActionAdmin(Evidence):
    list_display = ("public_id", "verb", "batch", "actor_words", "planned_at", "confirmed_at", "finished_at")
    list_filter = ("verb", ("finished_at", admin.EmptyFieldListFilter))
    list_select_related = ("batch",)
    search_fields = ("public_id", "batch__public_id", "actor_words")


@admin.register(BulkActionItem)
class BulkActionItemAdmin(Evidence):
    list_display = ("action", "position", "item", "version", "result", "words", "at")
    list_filter = ("result",)
    list_select_related = ("action", "item__batch", "version__document")
    search_fields = ("action__public_id", "version__document__business_id")


@admin.register(Document)
class DocumentAdmin(Evidence):
    list_display = ("business_id", "public_id", "workspace", "current_version", "is_final", "created_at")
    list_select_related = ("workspace", "current_version__document")
    search_fields = ("business_id", "public_id")


@admin.register(DocumentVersion)
class DocumentVersionAdmin(Evidence):
    hidden = ("input_inline", "template_data")
    list_display = ("document", "number", "kind", "input_bytes", "input_sha256", "created_by", "created_at")
    list_select_related = ("document", "created_by")
    search_fields = ("document__business_id", "input_sha256")


@admin.register(Template)
class TemplateAdmin(Evidence):
    list_display = ("name", "slug", "workspace", "created_at", "archived_at")
    list_select_related = ("workspace",)
    search_fields = ("name", "slug")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Template]:
        return super().get_queryset(request).select_related("published__template").defer("published__source")


@admin.register(TemplateVersion)
class TemplateVersionAdmin(Evidence):
    hidden = ("source", "fields")
    list_display = ("template", "number", "filename", "sha256", "created_by", "created_at")
    list_select_related = ("template", "created_by")
    search_fields = ("template__slug", "template__name", "sha256")


@admin.register(Artifact)
class ArtifactAdmin(Evidence):
    list_display = ("version", "page_count", "byte_count", "sha256", "stored_at", "local_deleted_at")
    list_select_related = ("version__document",)
    search_fields = ("storage_key", "sha256", "version__document__business_id")


# --- jobs and their proof -----------------------------------------------------------------------------------------


@admin.register(Job)
class JobAdmin(Evidence):
    list_display = (
        "document",
        "number",
        "state",
        "lead_batch",
        "account",
        "state_changed_at",
        "failure_class",
        "due_at",
    )
    list_filter = ("state", "failure_class")
    list_select_related = ("version__document", "account", "lead_batch")
    search_fields = ("version__document__business_id",)

    @admin.display(description="document", ordering="version__document__business_id")
    def document(self, job: Job) -> str:
        return job.version.document.business_id

    @admin.display(description="version", ordering="version__number")
    def number(self, job: Job) -> int:
        return job.version.number


class OfAJob(Evidence):
    """Rows that hang on a job: their lists name its document, since a job's own name is a number."""

    @admin.display(description="document", ordering="job__version__document__business_id")
    def document(self, row: Any) -> str:
        return str(row.job.version) if row.job else "–"


@admin.register(JobEvent)
class JobEventAdmin(OfAJob):
    list_display = ("at", "document", "from_state", "to_state", "reason", "words", "actor")
    list_select_related = ("job__version__document",)
    search_fields = ("job__version__document__business_id",)


class MaskedProviderJob(Evidence):
    """At RelayPDF the job id alone fetches the file: it is shown on the document's page, where that is written down."""

    readonly_fields = ("provider_job",)

    @admin.display(description="provider job")
    def provider_job(self, row: Any) -> str:
        return wording.masked(row.provider_job_id or "") or "–"


@admin.register(Submission)
class SubmissionAdmin(MaskedProviderJob, OfAJob):
    hidden = ("body_inline", "result", "provider_job_id")
    unread = ("body_inline", "result")
    list_display = (
        "document",
        "sequence",
        "account",
        "outcome",
        "in_doubt",
        "try_count",
        "provider_job",
        "last_sent_at",
    )
    list_filter = ("outcome", "in_doubt")
    list_select_related = ("job__version__document", "account")
    search_fields = ("provider_job_id", "idempotency_key", "job__version__document__business_id")


@admin.register(Exchange)
class ExchangeAdmin(OfAJob):
    hidden = ("request", "response")
    unread = ()
    list_display = ("at", "kind", "status", "error_class", "duration_ms", "account", "document")
    list_filter = ("kind", "error_class")
    list_select_related = ("account", "job__version__document")
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


@admin.register(Notice)
class NoticeAdmin(Evidence):
    list_display = ("happened_at", "event", "batch", "recipient", "sent_at", "attempts", "last_error")
    list_select_related = ("batch", "recipient")
    list_filter = (("next_try_at", admin.EmptyFieldListFilter),)
    search_fields = ("batch__public_id__exact", "recipient__username__exact")


@admin.register(NoticeWatch)
class NoticeWatchAdmin(Evidence):
    list_display = ("batch", "looked_at", "due_at")
    list_select_related = ("batch",)
    search_fields = ("batch__public_id__exact",)


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
class DurationAdmin(OfAJob):
    list_display = (
        "at",
        "document",
        "account",
        "outcome",
        "remote_seconds",
        "total_seconds",
        "poll_count",
        "batch_size",
    )
    list_filter = ("outcome", "account")
    list_select_related = ("job__version__document", "account")


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
