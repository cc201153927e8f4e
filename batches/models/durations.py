"""How long the provider took, one row per submission that ended: what polls and deadlines are learned from."""

from __future__ import annotations

from django.db import models

from batches.models.accounts import ProviderAccount
from batches.models.checks import known_values
from batches.models.jobs import Job, JobState, Submission


class Duration(models.Model):
    """The time of one submission, from its acceptance to its end. Append-only; seconds.

    `remote_seconds` ends when the provider's end was seen, `total_seconds` when the job reached `outcome` here. Both
    are too long by at most the wait between two status reads, which `seen_after_seconds` names.
    """

    account = models.ForeignKey(ProviderAccount, on_delete=models.PROTECT, related_name="durations")
    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="durations")
    submission = models.ForeignKey(Submission, on_delete=models.PROTECT, related_name="durations")
    outcome = models.CharField(max_length=20, choices=JobState.choices, help_text="The state that it ended in.")
    at = models.DateTimeField()
    remote_seconds = models.FloatField(null=True, blank=True, help_text="Empty when no end was ever seen there.")
    total_seconds = models.FloatField()
    seen_after_seconds = models.FloatField(default=0, help_text="Since the last status read that found it unfinished.")
    poll_count = models.PositiveIntegerField(default=0)
    request_bytes = models.PositiveBigIntegerField(default=0)
    batch_size = models.PositiveIntegerField(default=0, help_text="Items of the batch whose turn it took.")

    class Meta:
        constraints = [known_values("outcome", JobState, name="duration_outcome_known")]
        indexes = [models.Index(fields=["account", "outcome", "-id"], name="duration_latest")]

    def __str__(self) -> str:
        return f"{self.total_seconds:.1f} s to {self.outcome}"
