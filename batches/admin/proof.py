"""Jobs and the proof of what was done for them, in the admin: events, submissions, exchanges, webhooks, durations.

Append-only tables, the largest that there are: their lists begin with the newest and are searched by whole ids.
"""

from __future__ import annotations

import json
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from batches import wording
from batches.admin.kinds import Evidence
from batches.admin.searching import OfAccount
from batches.models import (
    Deletion,
    Duration,
    Exchange,
    Job,
    JobEvent,
    Submission,
    WebhookEvent,
    WebhookRefusal,
    Workspace,
)


@admin.register(Job)
class JobAdmin(Evidence):
    content = ("failure_words",)
    finds = {"document": "version__document", "batch": "lead_batch", "job": "pk"}
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
    list_filter = ("state", OfAccount)
    list_select_related = ("version__document", "account", "lead_batch")

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        """Of one state in the order of the index that begins with it."""
        return ("-state_changed_at", "-pk") if "state__exact" in request.GET else ("-pk",)

    def workspace_of(self, row: Any) -> Workspace | None:
        return row.version.document.workspace if row else None

    @admin.display(description="document")
    def document(self, job: Job) -> str:
        return job.version.document.business_id

    @admin.display(description="version")
    def number(self, job: Job) -> int:
        return job.version.number


class OfAJob(Evidence):
    """Rows that hang on a job: their lists name its document, since a job's own name is a number."""

    finds = {"document": "job__version__document", "job": "job"}

    @admin.display(description="document")
    def document(self, row: Any) -> str:
        return str(row.job.version) if row.job else "–"

    def workspace_of(self, row: Any) -> Workspace | None:
        return row.job.version.document.workspace if row.job else None


@admin.register(JobEvent)
class JobEventAdmin(OfAJob):
    content = ("words",)
    list_display = ("at", "document", "from_state", "to_state", "reason", "actor")
    list_select_related = ("job__version__document",)


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
    finds = {**OfAJob.finds, "submission": "pk"}
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
    list_filter = (OfAccount,)
    list_select_related = ("job__version__document", "account")


@admin.register(Exchange)
class ExchangeAdmin(OfAJob):
    hidden = ("request", "response")
    unread = ()
    content = ("what_was_asked", "what_came_back")
    list_display = ("at", "kind", "status", "error_class", "duration_ms", "account", "document")
    list_filter = (OfAccount,)
    list_select_related = ("account", "job__version__document")
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
    finds = {"event": "pk"}
    list_display = ("received_at", "account", "type", "provider_job", "outcome", "processed_at")
    list_filter = (OfAccount,)
    list_select_related = ("account",)


@admin.register(Deletion)
class DeletionAdmin(Evidence):
    finds = {"document": "version__document", "batch": "batch"}
    list_display = ("requested_at", "what", "where", "of", "state", "rule", "by", "settled_at")
    list_filter = ("state", "where")
    list_select_related = ("version__document", "submission__job__version__document", "batch")

    def workspace_of(self, row: Any) -> Workspace | None:
        return row.workspace if row else None

    @admin.display(description="of")
    def of(self, row: Deletion) -> str:
        return str(row.version or row.batch or (row.submission and row.submission.job.version))


@admin.register(WebhookRefusal)
class WebhookRefusalAdmin(Evidence):
    finds = {"account": "account"}
    list_display = ("hour", "account", "status", "words", "count", "last_at")
    list_select_related = ("account",)


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
    list_filter = (OfAccount,)
    list_select_related = ("job__version__document", "account")


def _json(value: Any) -> SafeString:
    return format_html("<pre>{}</pre>", json.dumps(value, ensure_ascii=False, indent=2))
