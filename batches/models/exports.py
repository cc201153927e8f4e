"""Exports: files that are made of a batch in the background, and kept for some days to be fetched."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from batches.models.batches import Batch
from batches.models.checks import known_values, set_together
from batches.models.workspaces import Workspace


class ExportKind(models.TextChoices):
    ZIP = "zip", "ZIP of the PDFs"
    MERGED = "merged", "Merged PDF"
    CSV = "csv", "Results as CSV"
    JSONL = "jsonl", "Results as JSONL"
    XLSX = "xlsx", "Results as an Excel workbook"


#: Those that hold document content.
KINDS_WITH_CONTENT = (ExportKind.ZIP, ExportKind.MERGED)


class ExportState(models.TextChoices):
    """`queued` and `building` are the worker's turn; the others are ends, and a failed one may be built again."""

    QUEUED = "queued", "Queued"
    BUILDING = "building", "Building"
    READY = "ready", "Ready"
    FAILED = "failed", "Failed"  # `words` say why
    EXPIRED = "expired", "Expired"  # its files were deleted, the row tells that they were there
    CANCELLED = "cancelled", "Cancelled"


EXPORTS_AT_WORK = (ExportState.QUEUED, ExportState.BUILDING)


class Export(models.Model):
    """One order: this kind, of these rows as they were chosen, for this person.

    `selection` says how the rows were chosen, `rows` which they were then; None: all. `contents_sha256` names the files
    and rows that it holds (`archives.Plan.digest`). `stored_sha256` names the stored PDFs that its rows had when it was
    begun: others make it outdated. `seen_artifact` is the newest of all stored PDFs that it was compared with.
    """

    public_id = models.CharField(max_length=40)
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="exports")
    batch = models.ForeignKey(Batch, on_delete=models.PROTECT, related_name="exports")
    kind = models.CharField(max_length=10, choices=ExportKind.choices)
    options = models.JSONField(default=dict, blank=True)
    selection = models.JSONField(default=dict, blank=True)
    selection_words = models.CharField(max_length=400, blank=True, default="")
    rows = models.JSONField(null=True, blank=True, help_text="Positions of the chosen rows; empty: all.")
    order_sha256 = models.CharField(max_length=64, help_text="Of what was ordered, by whom: asked twice, built once.")
    with_ids = models.BooleanField(default=False, help_text="Whoever ordered it may see provider job ids whole.")
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="exports"
    )
    requester_words = models.CharField(max_length=150)
    from_where = models.CharField(max_length=100, blank=True, default="")
    state = models.CharField(max_length=10, choices=ExportState.choices, default=ExportState.QUEUED)
    words = models.TextField(blank=True, default="", help_text="Why it failed or waits, for staff.")
    documents_done = models.PositiveIntegerField(default=0)
    document_count = models.PositiveIntegerField(default=0)
    row_count = models.PositiveIntegerField(default=0)
    contents_sha256 = models.CharField(max_length=64, blank=True, default="")
    stored_sha256 = models.CharField(max_length=64, blank=True, default="")
    seen_artifact = models.BigIntegerField(default=0)
    outdated_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    begun_at = models.DateTimeField(null=True, blank=True, help_text="When building began; its files bear this time.")
    built_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    due_at = models.DateTimeField(null=True, blank=True, help_text="When a worker may take it; empty: not its turn.")
    waits_since = models.DateTimeField(
        null=True, blank=True, help_text="The store has kept it from going on since then; empty: it goes on."
    )
    tries = models.PositiveSmallIntegerField(default=0)
    token = models.PositiveIntegerField(default=0, help_text="Rises each time that a worker takes it.")
    lease_owner = models.CharField(max_length=80, null=True, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["public_id"], name="export_public_id_unique"),
            models.UniqueConstraint(
                fields=["batch", "order_sha256"],
                condition=models.Q(state__in=list(EXPORTS_AT_WORK)),
                name="export_order_once_at_work",
            ),
            known_values("kind", ExportKind, name="export_kind_known"),
            known_values("state", ExportState, name="export_state_known"),
            set_together("lease_owner", "lease_until", name="export_lease_pairs"),
            models.CheckConstraint(
                condition=models.Q(due_at__isnull=True) | models.Q(state__in=list(EXPORTS_AT_WORK)),
                name="export_due_in_the_workers_turn",
            ),
            models.CheckConstraint(
                condition=~models.Q(state="ready") | models.Q(built_at__isnull=False, expires_at__isnull=False),
                name="export_ready_expires",
            ),
        ]
        indexes = [
            models.Index(fields=["workspace", "-created_at", "-id"], name="export_list"),
            models.Index(fields=["batch", "-created_at", "-id"], name="export_of_batch"),
            models.Index(
                fields=["due_at"], condition=models.Q(state__in=list(EXPORTS_AT_WORK)), name="export_for_worker"
            ),
            models.Index(fields=["expires_at"], condition=models.Q(state="ready"), name="export_to_expire"),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.public_id}"


class ExportPart(models.Model):
    """One file of an export. Its row is there before its object, so that no object is ever without one.

    `token` is that of the worker that writes it. One that is not written under the export's own token is nobody's; one
    with `dropped_at` was built of what has changed since. `gone_at`: its object was removed. `placed` says of a merged
    file where each document begins, so that a later turn can list it (`engine/merging.py`).
    """

    export = models.ForeignKey(Export, on_delete=models.PROTECT, related_name="parts")
    number = models.PositiveIntegerField()
    token = models.PositiveIntegerField()
    name = models.CharField(max_length=255, blank=True, default="")
    storage_key = models.CharField(max_length=300)
    document_count = models.PositiveIntegerField(default=0)
    placed = models.JSONField(default=list, blank=True)
    sha256 = models.CharField(max_length=64, blank=True, default="")
    byte_count = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(default=timezone.now)
    written_at = models.DateTimeField(null=True, blank=True)
    dropped_at = models.DateTimeField(null=True, blank=True)
    gone_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["storage_key"], name="export_part_storage_key_unique"),
            models.UniqueConstraint(
                fields=["export", "number"],
                condition=models.Q(written_at__isnull=False, dropped_at__isnull=True),
                name="export_part_once_per_export",
            ),
            models.CheckConstraint(
                condition=models.Q(written_at__isnull=True) | ~models.Q(sha256=""), name="export_part_written_with_hash"
            ),
        ]
        indexes = [
            models.Index(fields=["created_at"], condition=models.Q(gone_at__isnull=True), name="export_part_left")
        ]

    def __str__(self) -> str:
        return self.storage_key
