"""Deletions: what of a document's content was deleted, where, by which rule, and whether that is proven. Append-only.

A row is committed before anything is deleted for it, and is settled once; it is never taken away. It is the one record
of a deletion: the marks on versions, submissions, batches and artifacts only say that nothing reads the content there.
"""

from __future__ import annotations

from django.db import models

from batches.models.batches import Batch
from batches.models.checks import known_values
from batches.models.documents import DocumentVersion
from batches.models.jobs import Exchange, Submission
from batches.models.workspaces import Workspace


class DeletionWhat(models.TextChoices):
    """Of a version, a submission (`request`, `pdf` at the provider) or a batch (`manifest`: its file and rows)."""

    INPUT = "input", "Input"
    REQUEST = "request", "Request as it was sent"
    MANIFEST = "manifest", "File and rows of the batch"
    PDF = "pdf", "PDF"
    EVIDENCE = "evidence", "Facts of requests, bodies of webhooks"


class DeletionWhere(models.TextChoices):
    HERE = "here", "Here"
    PROVIDER = "provider", "At the provider"


class DeletionState(models.TextChoices):
    """All but the first are ends."""

    REQUESTED = "requested", "Requested"  # decided and not proven yet; a sweep goes on with it
    CONFIRMED = "confirmed", "Confirmed"  # it is there no more: deleted here, or the provider was asked and has it not
    FAILED = "failed", "Not confirmed"  # the words say why nobody can tell
    NOT_OFFERED = "not_offered", "Not offered"  # the provider deletes nothing on request


class Deletion(models.Model):
    """One deletion of one thing in one place. `sha256` and `byte_count` are those of what went, where they are known.

    Exactly one of `version`, `submission` and `batch` says whose it is. While `requested`, `due_at` says when the
    sweep goes on with it.
    """

    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="deletions")
    version = models.ForeignKey(
        DocumentVersion, on_delete=models.PROTECT, null=True, blank=True, related_name="deletions"
    )
    submission = models.ForeignKey(
        Submission, on_delete=models.PROTECT, null=True, blank=True, related_name="deletions"
    )
    batch = models.ForeignKey(Batch, on_delete=models.PROTECT, null=True, blank=True, related_name="deletions")
    what = models.CharField(max_length=10, choices=DeletionWhat.choices)
    where = models.CharField(max_length=10, choices=DeletionWhere.choices)
    rule = models.CharField(max_length=200, help_text="Why, such as: inputs are kept for 30 days.")
    by = models.CharField(max_length=150, help_text="Who ran it, as it was then: the sweep, or a command.")
    state = models.CharField(max_length=12, choices=DeletionState.choices, default=DeletionState.REQUESTED)
    requested_at = models.DateTimeField()
    settled_at = models.DateTimeField(null=True, blank=True)
    words = models.TextField(blank=True, default="", help_text="What came of it, or why it waits, for staff.")
    sha256 = models.CharField(max_length=64, blank=True, default="")
    byte_count = models.BigIntegerField(null=True, blank=True)
    exchange = models.ForeignKey(
        Exchange,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text="The request to the provider whose answer settled it, or the last one.",
    )
    due_at = models.DateTimeField(null=True, blank=True)
    tries = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["version", "what", "where"], name="deletion_once_per_version"),
            models.UniqueConstraint(fields=["submission", "what", "where"], name="deletion_once_per_submission"),
            models.UniqueConstraint(fields=["batch", "what", "where"], name="deletion_once_per_batch"),
            models.CheckConstraint(
                condition=models.Q(version__isnull=False, submission__isnull=True, batch__isnull=True)
                | models.Q(version__isnull=True, submission__isnull=False, batch__isnull=True)
                | models.Q(version__isnull=True, submission__isnull=True, batch__isnull=False),
                name="deletion_of_one_thing",
            ),
            known_values("what", DeletionWhat, name="deletion_what_known"),
            known_values("where", DeletionWhere, name="deletion_where_known"),
            known_values("state", DeletionState, name="deletion_state_known"),
            models.CheckConstraint(
                condition=models.Q(state="requested", settled_at__isnull=True, due_at__isnull=False)
                | (~models.Q(state="requested") & models.Q(settled_at__isnull=False, due_at__isnull=True)),
                name="deletion_settled_with_time",
            ),
        ]
        indexes = [
            # Few rows at any time: what a sweep goes on with.
            models.Index(fields=["where", "due_at"], condition=models.Q(state="requested"), name="deletion_due"),
            models.Index(fields=["workspace", "-id"], name="deletion_list"),
        ]

    def __str__(self) -> str:
        return f"{self.get_what_display()} ({self.get_where_display().lower()}): {self.get_state_display().lower()}"
