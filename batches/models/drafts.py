"""Drafts: an upload on its way to a batch, and what a person chose for it. Nothing of one is ever sent."""

from __future__ import annotations

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils import timezone

from batches.models.accounts import ProviderAccount
from batches.models.batches import Batch, ConflictPolicy
from batches.models.checks import known_values, set_together
from batches.models.workspaces import Workspace


class DraftState(models.TextChoices):
    """`checking` and `starting` are the worker's turn, the others a person's; `started` and `swept` are ends."""

    OPEN = "open", "Open"  # choices may change; not checked as they stand
    CHECKING = "checking", "Checking"
    CHECKED = "checked", "Checked"  # `report` says what was found, with these choices
    STARTING = "starting", "Starting"
    STARTED = "started", "Started"
    SWEPT = "swept", "Swept"  # nobody came back: the upload is gone, the row tells that it was there


#: The worker's turn.
WORKING_STATES = (DraftState.CHECKING, DraftState.STARTING)
#: Over, and no evidence: corrected rows are read from nothing else.
UPLOAD_IS_UNNEEDED = models.Q(state="swept") | models.Q(state="started", target=None)
#: Documents that are rendered and looked at first, at most.
SAMPLE_MOST = 20


class TakeRows(models.TextChoices):
    """What happens when some rows are wrong."""

    ALL = "all", "All rows or none"
    GOOD = "good", "The good rows; the others are listed"


class Draft(models.Model):
    """One upload, kept byte for byte under `upload_key` until it is started or swept.

    `look` is what its first bytes showed (`manifests.look`), `choices` what the person chose of it
    (`manifests.Choices`), `report` the validation answer. `generation` rises with every change of a choice: the result
    of a check of an older one is dropped. In the worker's turn `due_at` says when it may be taken. With `target` its
    rows replace that batch's failed ones.
    """

    public_id = models.CharField(max_length=40)
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="drafts")
    account = models.ForeignKey(ProviderAccount, on_delete=models.PROTECT, related_name="drafts")
    target = models.ForeignKey(Batch, on_delete=models.PROTECT, null=True, blank=True, related_name="corrections")
    batch = models.OneToOneField(Batch, on_delete=models.PROTECT, null=True, blank=True, related_name="draft")
    state = models.CharField(max_length=10, choices=DraftState.choices, default=DraftState.OPEN)
    name = models.CharField(max_length=200, blank=True, default="")
    filename = models.CharField(max_length=255)
    upload_key = models.CharField(max_length=300)
    upload_sha256 = models.CharField(max_length=64)
    upload_bytes = models.BigIntegerField()
    upload_deleted_at = models.DateTimeField(
        null=True, blank=True, help_text="When its own copy of the file was deleted, once it was over."
    )
    look = models.JSONField(default=dict, blank=True)
    choices = models.JSONField(default=dict, blank=True)
    report = models.JSONField(null=True, blank=True)
    words = models.TextField(blank=True, default="", help_text="Why it could not be checked or started, for staff.")
    rows_done = models.PositiveIntegerField(default=0, help_text="How far the worker is.")
    generation = models.PositiveIntegerField(default=0)
    on_conflict = models.CharField(max_length=20, choices=ConflictPolicy.choices, default=ConflictPolicy.REFUSE)
    take = models.CharField(max_length=10, choices=TakeRows.choices, default=TakeRows.ALL)
    sample_size = models.PositiveSmallIntegerField(
        default=0,
        validators=[MaxValueValidator(SAMPLE_MOST)],
        help_text="Documents that are rendered and looked at first.",
    )
    stop_after_failures = models.PositiveIntegerField(null=True, blank=True, validators=[MinValueValidator(1)])
    stop_after_percent = models.PositiveSmallIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1), MaxValueValidator(100)]
    )
    spend_cap = models.DecimalField(
        max_digits=12, decimal_places=4, null=True, blank=True, validators=[MinValueValidator(0)]
    )
    wants_notices = models.BooleanField(default=False, help_text="Its starter wants to hear of the batch's events.")
    reason = models.TextField(blank=True, default="", help_text="Why rows are corrected, where a batch is the target.")
    is_confirmed = models.BooleanField(default=False, help_text="The person saw the notices that ask for it.")
    renders_shown = models.PositiveIntegerField(null=True, blank=True, help_text="Renders that the person agreed to.")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="drafts",
        help_text="Nobody: it came from the command line, which does all of it at once.",
    )
    from_where = models.CharField(max_length=100, blank=True, default="")
    created_at = models.DateTimeField(default=timezone.now)
    touched_at = models.DateTimeField(default=timezone.now, help_text="When a person last did something to it.")
    due_at = models.DateTimeField(null=True, blank=True, help_text="When the worker may take it; empty: not its turn.")
    tries = models.PositiveSmallIntegerField(default=0, help_text="How often the worker took it since it was asked to.")
    lease_owner = models.CharField(max_length=80, null=True, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["public_id"], name="draft_public_id_unique"),
            known_values("state", DraftState, name="draft_state_known"),
            known_values("take", TakeRows, name="draft_take_known"),
            known_values("on_conflict", ConflictPolicy, name="draft_on_conflict_known"),
            set_together("lease_owner", "lease_until", name="draft_lease_pairs"),
            models.CheckConstraint(
                condition=models.Q(due_at__isnull=True) | models.Q(state__in=list(WORKING_STATES)),
                name="draft_due_in_the_workers_turn",
            ),
        ]
        indexes = [
            models.Index(fields=["workspace", "-created_at", "-id"], name="draft_list"),
            models.Index(
                fields=["due_at"], condition=models.Q(state__in=list(WORKING_STATES)), name="draft_for_worker"
            ),
            models.Index(fields=["touched_at"], condition=~models.Q(state="swept"), name="draft_to_sweep"),
            models.Index(
                fields=["id"],
                condition=models.Q(UPLOAD_IS_UNNEEDED, upload_deleted_at=None),
                name="draft_upload_left",
            ),
        ]

    def __str__(self) -> str:
        return self.name or self.filename


class ColumnMapping(models.Model):
    """What a workspace mapped the columns of such a header to, last time: offered again, never taken silently."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="column_mappings")
    header_sha256 = models.CharField(max_length=64, help_text="Of the columns' names in their order (`manifests`).")
    mapping = models.JSONField(default=dict)
    used_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "header_sha256"], name="column_mapping_once_per_workspace_and_header"
            ),
        ]

    def __str__(self) -> str:
        return f"{len(self.mapping)} columns in {self.workspace}"
