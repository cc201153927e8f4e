"""Verbs that staff apply to documents, and bulk actions: one verb over many items, planned, confirmed and carried out.

What a verb may do to what is `engine/verbs.py`; a bulk action's state is derived from its times, never stored.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from batches.models.batches import Batch, BatchItem
from batches.models.checks import known_values, set_together
from batches.models.jobs import JobState
from batches.models.workspaces import Workspace


class Verb(models.TextChoices):
    """What a person may do to a document; the same words on pages, in the API, on the command line and in the log."""

    CHECK_AGAIN = "check_again", "Check again"  # one status read
    FETCH_AGAIN = "fetch_again", "Fetch again"  # one download of what is finished at the provider
    RETRY = "retry", "Retry"  # the same version: its submission again, or another one where nothing is there
    REGENERATE = "regenerate", "Regenerate"  # a new version
    RECONCILE = "reconcile", "Reconcile"  # what is known of it, and what follows
    CANCEL = "cancel", "Cancel"  # never send it
    DISMISS = "dismiss", "Dismiss"  # it stays failed, and needs nobody any more
    REOPEN = "reopen", "Reopen"  # takes a dismissal or a cancellation back


class BulkAction(models.Model):
    """One verb over the items that a filter matched when it was planned: those and no others, whatever matches later.

    Without `batch` it is over items of several batches of its workspace: rights are a workspace's, so none reaches
    across two. Planned with `planned_at`, confirmed by a person with `confirmed_at`; then the workers carry it out in
    slices until `finished_at`. `plan` is what the person was shown: items by reason, most renders, cost.
    """

    public_id = models.CharField(max_length=40)
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="bulk_actions")
    batch = models.ForeignKey(
        Batch,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="bulk_actions",
        help_text="Empty: it is over several batches of the workspace.",
    )
    verb = models.CharField(max_length=20, choices=Verb.choices)
    filter = models.JSONField(default=dict, help_text="What the items were chosen by, as in the address of the page.")
    options = models.JSONField(default=dict, blank=True, help_text="What the verb was told besides.")
    plan = models.JSONField(default=dict, help_text="What confirming it would do, as shown before.")
    reason = models.TextField(blank=True, default="")
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    actor_words = models.CharField(max_length=150, help_text="User name, command or token, as it was then.")
    from_where = models.CharField(max_length=100, blank=True, default="", help_text="Address, or 'command line'.")
    creation_key = models.CharField(max_length=64, help_text="The same key never makes a second one in a workspace.")
    planned_at = models.DateTimeField(default=timezone.now)
    confirmed_at = models.DateTimeField(null=True, blank=True)
    aborted_at = models.DateTimeField(null=True, blank=True)
    aborted_by = models.CharField(max_length=150, blank=True, default="")
    finished_at = models.DateTimeField(null=True, blank=True)
    results = models.JSONField(
        null=True, blank=True, help_text="Items by result, once it is finished: nobody counts 100,000 rows again."
    )
    lease_owner = models.CharField(max_length=80, null=True, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["public_id"], name="bulk_action_public_id_unique"),
            models.UniqueConstraint(
                fields=["workspace", "creation_key"], name="bulk_action_creation_key_once_per_workspace"
            ),
            known_values("verb", Verb, name="bulk_action_verb_known"),
            set_together("lease_owner", "lease_until", name="bulk_action_lease_pairs"),
            models.CheckConstraint(
                condition=models.Q(finished_at__isnull=True)
                | models.Q(confirmed_at__isnull=False)
                | models.Q(aborted_at__isnull=False),
                name="bulk_action_finished_after_confirmed",
            ),
        ]
        indexes = [
            models.Index(fields=["workspace", "-planned_at", "-id"], name="bulk_action_list"),
            models.Index(fields=["-planned_at", "-id"], name="bulk_action_latest"),
            models.Index(fields=["batch", "verb", "-id"], name="bulk_action_of_batch"),
            models.Index(
                fields=["confirmed_at"],
                condition=models.Q(confirmed_at__isnull=False, finished_at__isnull=True),
                name="bulk_action_for_worker",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.get_verb_display()} {self.public_id}"


class ItemResult(models.TextChoices):
    WAITING = "waiting", "Waiting"  # eligible when planned, not yet done
    DONE = "done", "Done"
    SKIPPED = "skipped", "Skipped"  # not eligible, when planned or when its turn came
    FAILED = "failed", "Failed"  # a fault of ours while it was done
    ABORTED = "aborted", "Not done"  # the action was aborted before its turn


class BulkActionItem(models.Model):
    """One item of a bulk action, frozen when it was planned: `version` is the one that the item named then."""

    action = models.ForeignKey(BulkAction, on_delete=models.PROTECT, related_name="items")
    position = models.PositiveIntegerField(help_text="Its place in the action, from 0.")
    item = models.ForeignKey(BatchItem, on_delete=models.PROTECT, related_name="bulk_action_items")
    version = models.ForeignKey("DocumentVersion", on_delete=models.PROTECT, related_name="+")
    cause = models.CharField(max_length=16, blank=True, default="", help_text="Job.failure_cause when it was planned.")
    job_state = models.CharField(max_length=20, choices=JobState.choices, help_text="Its job's when it was planned.")
    to_confirm = models.TextField(blank=True, default="", help_text="What its confirmation accepted, as planned.")
    renders_most = models.PositiveSmallIntegerField(default=0, help_text="Renders that may be billed, as planned.")
    result = models.CharField(max_length=10, choices=ItemResult.choices, default=ItemResult.WAITING)
    words = models.TextField(blank=True, default="")
    at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["action", "position"], name="bulk_action_item_position_once"),
            models.UniqueConstraint(fields=["action", "item"], name="bulk_action_item_once_per_action"),
            known_values("result", ItemResult, name="bulk_action_item_result_known"),
            known_values("job_state", JobState, name="bulk_action_item_state_known"),
        ]
        indexes = [
            models.Index(fields=["action", "result", "position"], name="bulk_action_item_by_result"),
            models.Index(fields=["item", "-id"], name="bulk_action_item_of_item"),
        ]

    def __str__(self) -> str:
        return f"item {self.position} of {self.action_id}"
