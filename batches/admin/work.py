"""What people handed over, in the admin: batches and their items, drafts, bulk actions, documents, templates.

All of it is read-only. What can be done about it is planned here and confirmed on the product's pages (`planning.py`).
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from batches import rownumbers
from batches.admin.kinds import Evidence
from batches.admin.planning import ITEM_ACTIONS, plan_retry_of_failed
from batches.admin.searching import OfAccount, OfWorkspace
from batches.models import (
    Artifact,
    Batch,
    BatchItem,
    BulkAction,
    BulkActionItem,
    ColumnMapping,
    Document,
    DocumentNote,
    DocumentVersion,
    Draft,
    Export,
    ExportPart,
    Template,
    TemplateVersion,
    Workspace,
)


@admin.register(Batch)
class BatchAdmin(Evidence):
    hidden = ("report",)
    finds = {"batch": "pk", "user": "created_by"}
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
    list_filter = (OfWorkspace, OfAccount)
    list_select_related = ("workspace", "account", "created_by")
    actions = (plan_retry_of_failed,)


@admin.register(BatchItem)
class BatchItemAdmin(Evidence):
    hidden = ("original_row",)  # the row as it was given is content
    finds = {"batch": "batch", "document": "document"}
    list_display = ("batch", "row_number", "document", "version", "intake_outcome", "cancelled_at", "dismissed_at")
    list_select_related = ("batch", "document", "version__document")
    actions = ITEM_ACTIONS

    @admin.display(description="row")
    def row_number(self, row: Any) -> int:
        return rownumbers.said(row.position)

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        """What was searched for in the order of the index that begins with the batch: it may hold a million."""
        return ("batch", "position") if request.GET.get("q") else ("-pk",)


@admin.register(Draft)
class DraftAdmin(Evidence):
    hidden = ("look", "choices", "report", "upload_key")
    finds = {"draft": "pk", "user": "created_by"}
    list_display = ("public_id", "filename", "workspace", "state", "created_by", "created_at", "touched_at")
    list_filter = (OfWorkspace,)
    list_select_related = ("workspace", "created_by")


@admin.register(ColumnMapping)
class ColumnMappingAdmin(Evidence):
    list_display = ("workspace", "header_sha256", "used_at")
    list_filter = (OfWorkspace,)
    list_select_related = ("workspace",)


@admin.register(Export)
class ExportAdmin(Evidence):
    hidden = ("rows",)
    content = ("selection", "selection_words")  # a search, or a cell of the manifest
    finds = {"export": "pk", "batch": "batch", "user": "requested_by"}
    list_display = ("public_id", "kind", "state", "batch", "requester_words", "created_at", "built_at", "expires_at")
    list_filter = (OfWorkspace,)
    list_select_related = ("batch", "workspace")

    def workspace_of(self, row: Any) -> Workspace | None:
        return row.workspace if row else None


@admin.register(ExportPart)
class ExportPartAdmin(Evidence):
    content = ("name",)  # a merged file is named by its group
    finds = {"export": "export", "batch": "export__batch"}
    list_display = ("export", "number", "document_count", "byte_count", "written_at", "dropped_at", "gone_at")
    list_select_related = ("export__workspace",)

    def workspace_of(self, row: Any) -> Workspace | None:
        return row.export.workspace if row else None


@admin.register(BulkAction)
class BulkActionAdmin(Evidence):
    content = ("filter",)  # a search
    finds = {"action": "pk", "batch": "batch"}
    list_display = ("public_id", "verb", "batch", "actor_words", "planned_at", "confirmed_at", "finished_at")
    list_filter = (OfWorkspace,)
    list_select_related = ("batch", "workspace")

    def workspace_of(self, row: Any) -> Workspace | None:
        return row.workspace if row else None


@admin.register(BulkActionItem)
class BulkActionItemAdmin(Evidence):
    finds = {"action": "action", "document": "version__document"}
    list_display = ("action", "position", "item", "version", "result", "words", "at")
    list_select_related = ("action__batch", "item__batch", "version__document")

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        """As that of a batch's items."""
        return ("action", "position") if request.GET.get("q") else ("-pk",)


@admin.register(Document)
class DocumentAdmin(Evidence):
    finds = {"document": "pk"}
    list_display = ("business_id", "public_id", "workspace", "current_version", "is_final", "created_at")
    list_filter = (OfWorkspace,)
    list_select_related = ("workspace", "current_version__document")


@admin.register(DocumentNote)
class DocumentNoteAdmin(Evidence):
    finds = {"document": "document", "user": "author"}
    list_display = ("document", "at", "author_words")
    list_select_related = ("document",)


@admin.register(DocumentVersion)
class DocumentVersionAdmin(Evidence):
    hidden = ("input_inline", "template_data")
    finds = {"document": "document"}
    list_display = ("document", "number", "kind", "input_bytes", "input_sha256", "created_by", "created_at")
    list_select_related = ("document", "created_by")


@admin.register(Template)
class TemplateAdmin(Evidence):
    finds = {"template": "pk"}
    list_display = ("name", "slug", "workspace", "created_at", "archived_at")
    list_filter = (OfWorkspace,)
    list_select_related = ("workspace", "published__template")


@admin.register(TemplateVersion)
class TemplateVersionAdmin(Evidence):
    hidden = ("source", "fields")
    finds = {"template": "template"}
    list_display = ("template", "number", "filename", "sha256", "created_by", "created_at")
    list_select_related = ("template", "created_by")


@admin.register(Artifact)
class ArtifactAdmin(Evidence):
    finds = {"document": "version__document", "artifact": "pk"}
    list_display = ("version", "page_count", "byte_count", "sha256", "stored_at", "local_deleted_at")
    list_select_related = ("version__document",)
