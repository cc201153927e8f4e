"""Batches and their items: what one person handed over at once. A batch's state is derived, never stored."""

from __future__ import annotations

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils import timezone

from batches import rownumbers
from batches.models.accounts import ProviderAccount
from batches.models.checks import known_values, set_together
from batches.models.documents import Document, DocumentVersion
from batches.models.workspaces import Workspace


class ConflictPolicy(models.TextChoices):
    """What happens to a row whose business id is known with other content."""

    REFUSE = "refuse", "Refuse the rows and start nothing"
    NEW_VERSION = "new-version", "Make new versions"


class Batch(models.Model):
    """One manifest, handed over once. The file itself is kept byte for byte under `manifest_key`.

    With `writing_at` its rows are still being written (`engine/writing.py`): it is paused until all of them are there.
    """

    public_id = models.CharField(max_length=40)
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="batches")
    account = models.ForeignKey(ProviderAccount, on_delete=models.PROTECT, related_name="batches")
    name = models.CharField(max_length=200)
    manifest_name = models.CharField(max_length=255)
    manifest_key = models.CharField(max_length=300)
    manifest_sha256 = models.CharField(max_length=64)
    manifest_bytes = models.BigIntegerField()
    report = models.JSONField(default=dict, blank=True, help_text="What the check said: warnings and the plan.")
    left_out_key = models.CharField(
        max_length=300, null=True, blank=True, help_text="Where the rows that were left out lie, as they were given."
    )
    on_conflict = models.CharField(max_length=20, choices=ConflictPolicy.choices, default=ConflictPolicy.REFUSE)
    creation_key = models.CharField(max_length=64, help_text="The same key never makes a second batch in a workspace.")
    terms = models.JSONField(
        default=dict, blank=True, help_text="The account's data terms and price, as they stood when it was started."
    )
    rows_deleted_at = models.DateTimeField(
        null=True, blank=True, help_text="Nothing reads its file and its rows from then on: retention deletes them."
    )
    notify = models.JSONField(
        default=dict, blank=True, help_text='Who wants to hear of its events: {"users": [primary keys]}.'
    )
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="batches"
    )
    created_at = models.DateTimeField(default=timezone.now)
    paused_at = models.DateTimeField(null=True, blank=True)
    pause_reason = models.TextField(blank=True, default="", help_text="Why it is paused, for staff.")
    cancelled_at = models.DateTimeField(null=True, blank=True)
    writing_at = models.DateTimeField(
        null=True, blank=True, help_text="When rows were last added while they are written; empty once all are there."
    )

    sample_of = models.OneToOneField(
        "self",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="sample",
        help_text="The batch that waits until somebody has looked at these few documents of it.",
    )
    waits_for_release = models.BooleanField(
        default=False, help_text="Paused since its start, until somebody who has looked at its sample releases it."
    )
    spend_cap = models.DecimalField(
        max_digits=12,
        decimal_places=4,
        null=True,
        blank=True,
        validators=[MinValueValidator(0)],
        help_text="Most that it may cost, in the account's currency; then it pauses by itself.",
    )

    weight = models.PositiveSmallIntegerField(
        default=1,
        validators=[MinValueValidator(1), MaxValueValidator(100)],
        help_text="Its share of the submissions beside other running batches: 2 gets twice as many as 1.",
    )
    turn = models.BigIntegerField(default=0, help_text="How far its turns have come (engine/turns.py).")
    stop_after_failures = models.PositiveIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1)], help_text="Pause by itself after so many failures."
    )
    stop_after_percent = models.PositiveSmallIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(100)],
        help_text="Pause by itself when so many per cent of the finished documents have failed.",
    )
    stop_counts_from = models.DateTimeField(
        null=True, blank=True, help_text="Failures before this were accepted by the person who resumed it."
    )

    class Meta:
        verbose_name_plural = "batches"
        permissions = [
            ("start_batch", "Can upload, check and start batches (bills 1 for each document)"),
            ("export", "Can download results, lists and archives"),
            ("pause_batch", "Can pause and resume batches (free)"),
            ("cancel_batch", "Can cancel batches (free)"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["public_id"], name="batch_public_id_unique"),
            models.UniqueConstraint(fields=["workspace", "creation_key"], name="batch_creation_key_once_per_workspace"),
            known_values("on_conflict", ConflictPolicy, name="batch_on_conflict_known"),
            models.CheckConstraint(condition=models.Q(weight__gte=1, weight__lte=100), name="batch_weight_in_range"),
            models.CheckConstraint(
                condition=models.Q(waits_for_release=False) | models.Q(paused_at__isnull=False),
                name="batch_waits_for_release_paused",
            ),
        ]
        indexes = [models.Index(fields=["workspace", "-created_at", "-id"], name="batch_list")]

    def __str__(self) -> str:
        return self.name


class BatchItem(models.Model):
    """One manifest row of a batch. `position` counts from 0. Its state is its cancellation, else its job's state."""

    # No index of its own: three that are wider begin with it.
    batch = models.ForeignKey(Batch, on_delete=models.PROTECT, related_name="items", db_index=False)
    position = models.PositiveIntegerField()
    document = models.ForeignKey(Document, on_delete=models.PROTECT, related_name="items")
    version = models.ForeignKey(DocumentVersion, on_delete=models.PROTECT, related_name="items")
    original_row = models.JSONField(default=dict, help_text="The row as it was given, without document content.")
    intake_outcome = models.CharField(max_length=30, help_text="What the plan said of this row.")
    cancelled_at = models.DateTimeField(null=True, blank=True)
    dismissed_at = models.DateTimeField(null=True, blank=True)
    dismissed_note = models.TextField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["batch", "position"], name="item_position_once_per_batch"),
            models.UniqueConstraint(fields=["batch", "document"], name="item_document_once_per_batch"),
            set_together("dismissed_at", "dismissed_note", name="item_dismissed_with_note"),
        ]
        indexes = [
            models.Index(fields=["batch", "version"], name="item_version_of_batch"),
            models.Index(
                fields=["batch"], condition=models.Q(cancelled_at__isnull=False), name="item_cancelled_of_batch"
            ),
            models.Index(
                fields=["batch"], condition=models.Q(dismissed_at__isnull=False), name="item_dismissed_of_batch"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.batch} row {rownumbers.said(self.position)}"
