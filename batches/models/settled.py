"""What the documents of a batch came to, kept once nothing of it moves any more."""

from __future__ import annotations

from django.db import models

from batches.models.batches import Batch
from batches.models.checks import set_together


class SettledCounts(models.Model):
    """The counters of one batch that has ended, so that no page counts 100,000 rows again.

    Only a copy: `engine/settled.py` alone writes it, and everything that changes what it counts voids it in the same
    transaction. Empty counters, or no row at all, mean that the rows are counted.
    """

    batch = models.OneToOneField(Batch, on_delete=models.CASCADE, primary_key=True, related_name="settled_counts")
    token = models.CharField(max_length=32, help_text="Another one whenever something changed that is counted here.")
    seen_at = models.DateTimeField(
        null=True, blank=True, help_text="When the batch was first seen at rest under this token."
    )
    settled_at = models.DateTimeField(null=True, blank=True)
    saved = models.PositiveIntegerField(null=True, blank=True)
    failed = models.PositiveIntegerField(null=True, blank=True)
    cancelled = models.PositiveIntegerField(null=True, blank=True)
    attention = models.PositiveIntegerField(null=True, blank=True, help_text="Failed, and dismissed by nobody.")

    class Meta:
        verbose_name_plural = "settled counts"
        constraints = [
            set_together("settled_at", "saved", name="settled_counts_with_saved"),
            set_together("settled_at", "failed", name="settled_counts_with_failed"),
            set_together("settled_at", "cancelled", name="settled_counts_with_cancelled"),
            set_together("settled_at", "attention", name="settled_counts_with_attention"),
        ]

    def __str__(self) -> str:
        return f"counters of {self.batch}"
