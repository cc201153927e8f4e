"""What the store's sweeps found: objects that rows name and the store lacks, and the other way round."""

from __future__ import annotations

from django.db import models

from batches.models.checks import known_values, one_open, set_together
from batches.models.documents import Artifact


class FindingKind(models.TextChoices):
    MISSING = "missing", "Missing"  # a row names it, the store has nothing there
    DAMAGED = "damaged", "Damaged"  # its size or its digest is not what the row says
    ORPHANED = "orphaned", "Orphaned"  # the store has it, no row names it
    UNREADABLE = "unreadable", "Unreadable"  # the store cannot say: the object, or a folder of the listing


class StoreFinding(models.Model):
    """One object that is not as the rows say. At most one is open per kind and key."""

    kind = models.CharField(max_length=10, choices=FindingKind.choices)
    storage_key = models.CharField(max_length=400)
    artifact = models.ForeignKey(
        Artifact, on_delete=models.PROTECT, null=True, blank=True, related_name="store_findings"
    )
    byte_count = models.BigIntegerField(null=True, blank=True)
    words = models.TextField()
    found_at = models.DateTimeField()
    seen_at = models.DateTimeField(
        null=True, blank=True, help_text="When the listing last met it; only of what no row names."
    )
    resolved_at = models.DateTimeField(null=True, blank=True)
    resolution = models.TextField(null=True, blank=True, help_text="What ended it, for staff.")

    class Meta:
        constraints = [
            one_open(["kind", "storage_key"], until="resolved_at", name="store_finding_one_open_per_key"),
            known_values("kind", FindingKind, name="store_finding_kind_known"),
            set_together("resolved_at", "resolution", name="store_finding_resolved_with_words"),
        ]
        indexes = [models.Index(fields=["-found_at", "-id"], name="store_finding_list")]

    def __str__(self) -> str:
        return f"{self.kind}: {self.storage_key}"


class SweepKind(models.TextChoices):
    OBJECTS = "objects", "Objects that rows name"
    ORPHANS = "orphans", "Objects that no row names"
    NOTICES = "notices", "PDFs that are worth a look"
    RETENTION = "retention", "What is kept no longer"
    COPIES = "copies", "Copies at providers"


class StoreSweep(models.Model):
    """How far a sweep through what is kept has come; one row per kind, for a pass that goes on."""

    kind = models.CharField(max_length=10, choices=SweepKind.choices)
    position = models.CharField(max_length=400, blank=True, default="", help_text="The last key that was looked at.")
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True, help_text="When the last whole round ended.")
    facts = models.JSONField(default=dict, blank=True, help_text="Counts of the round under way.")
    lease_owner = models.CharField(max_length=80, null=True, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["kind"], name="store_sweep_once_per_kind"),
            known_values("kind", SweepKind, name="store_sweep_kind_known"),
            set_together("lease_owner", "lease_until", name="store_sweep_lease_pairs"),
        ]

    def __str__(self) -> str:
        return self.get_kind_display()
