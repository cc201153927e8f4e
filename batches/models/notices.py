"""Notices: what happened to a batch that somebody wants to hear of, and what became of telling them.

Facts are written once and never changed; what changes is how far the telling is. Who writes: `engine/notices.py`.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from batches.models.batches import Batch
from batches.models.checks import known_values


class NoticeEvent(models.TextChoices):
    FINISHED = "finished", "Finished"  # nothing of it moves any more; once in the life of a batch
    NEEDS_PERSON = "needs_person", "Needs a person"  # something failed while the rest still runs; once
    HELD = "held", "Held"  # its account is held, it paused by itself, or its sample is to be looked at
    IMPROVED = "improved", "More was saved"  # after it had finished: a late result, or a repair


class NoticeWatch(models.Model):
    """A batch that somebody wants to hear of (`Batch.notify` says who), as long as something of it can be told.

    With `due_at` empty nothing is looked at any more. The sweep asks for rows that are due, never for batches.
    """

    batch = models.OneToOneField(Batch, on_delete=models.PROTECT, related_name="notice_watch")
    looked_at = models.DateTimeField(help_text="What changed before this was looked at already.")
    due_at = models.DateTimeField(null=True, blank=True, help_text="When it is looked at next; empty: never again.")

    class Meta:
        verbose_name_plural = "notice watches"
        indexes = [
            models.Index(fields=["due_at"], condition=models.Q(due_at__isnull=False), name="notice_watch_due"),
        ]

    def __str__(self) -> str:
        return f"watch of {self.batch}"


class Notice(models.Model):
    """One event of one batch for one person. At most one row for each, however often it is looked at.

    `occasion` tells events apart that can happen again, such as a second hold. `facts` are what was so at that moment;
    no document content, no provider job id. Rows with the same `message_id` are one letter: it is set before anything
    leaves, and a repeat carries it again. `doubt_count` are sends of which nobody knows whether they arrived.
    """

    batch = models.ForeignKey(Batch, on_delete=models.PROTECT, related_name="notices")
    recipient = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="notices")
    event = models.CharField(max_length=20, choices=NoticeEvent.choices)
    occasion = models.CharField(max_length=60, blank=True, default="")
    facts = models.JSONField(default=dict)
    happened_at = models.DateTimeField(default=timezone.now)
    seen_at = models.DateTimeField(null=True, blank=True, help_text="When the person saw it on a page.")
    message_id = models.CharField(max_length=100, blank=True, default="")
    attempts = models.PositiveSmallIntegerField(default=0)
    doubt_count = models.PositiveSmallIntegerField(default=0)
    next_try_at = models.DateTimeField(null=True, blank=True, help_text="Empty: nothing is mailed any more.")
    sent_at = models.DateTimeField(null=True, blank=True)
    last_error = models.TextField(blank=True, default="", help_text="Why no mail went out, for staff.")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["batch", "event", "occasion", "recipient"], name="notice_once_per_event_and_person"
            ),
            known_values("event", NoticeEvent, name="notice_event_known"),
            models.CheckConstraint(
                condition=models.Q(sent_at__isnull=True) | models.Q(next_try_at__isnull=True),
                name="notice_sent_is_not_tried",
            ),
        ]
        indexes = [
            models.Index(fields=["recipient", "-id"], name="notice_list"),
            models.Index(fields=["recipient", "sent_at"], name="notice_sent_lately"),
            models.Index(
                fields=["next_try_at"], condition=models.Q(next_try_at__isnull=False), name="notice_to_be_mailed"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.get_event_display()}: {self.batch}"
