"""What the documents of a batch came to, kept once nothing of it moves any more."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import models

from batches.models.batches import Batch
from batches.models.checks import set_together


@dataclass(slots=True)
class CauseCount:
    """Items of one batch that failed alike at one account, and that nobody dismissed.

    Not frozen, which takes three times as long to make, and a page makes some thousand of them.
    """

    account_id: int
    cause: str
    failure_class: str
    code: str
    count: int
    first_at: datetime
    last_at: datetime

    def as_json(self) -> list[Any]:
        facts = (self.account_id, self.cause, self.failure_class, self.code, self.count)
        return [*facts, self.first_at.isoformat(), self.last_at.isoformat()]

    @classmethod
    def of_json(cls, kept: list[Any]) -> CauseCount:
        account_id, cause, failure_class, code, count, first, last = kept
        span = (datetime.fromisoformat(first), datetime.fromisoformat(last))
        return cls(account_id, cause, failure_class, code, count, *span)


class SettledCounts(models.Model):
    """The counters and the cost of one batch that has ended, so that no page counts 100,000 rows again.

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
    causes = models.JSONField(
        null=True,
        blank=True,
        help_text="Why those failed, as `CauseCount`; empty too where there are too many causes to be kept.",
    )
    delivered = models.PositiveIntegerField(
        null=True, blank=True, help_text="Submissions of its turns whose PDF was stored."
    )
    billed = models.DecimalField(
        max_digits=18, decimal_places=6, null=True, blank=True, help_text="What the provider says those cost together."
    )
    billed_count = models.PositiveIntegerField(
        null=True, blank=True, help_text="Of how many of them the provider says it."
    )

    class Meta:
        verbose_name_plural = "settled counts"
        constraints = [
            set_together("settled_at", "saved", name="settled_counts_with_saved"),
            set_together("settled_at", "failed", name="settled_counts_with_failed"),
            set_together("settled_at", "cancelled", name="settled_counts_with_cancelled"),
            set_together("settled_at", "attention", name="settled_counts_with_attention"),
            set_together("settled_at", "delivered", name="settled_counts_with_delivered"),
            set_together("settled_at", "billed", name="settled_counts_with_billed"),
            set_together("settled_at", "billed_count", name="settled_counts_with_billed_count"),
        ]

    def __str__(self) -> str:
        return f"counters of {self.batch}"
