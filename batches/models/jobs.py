"""Jobs, submissions, exchanges and job events: our debt for one version, and the proof of all that was done for it.

Only `engine/transitions.py` writes `Job.state`. Nothing in this file is ever deleted.
"""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from batches.models.accounts import ProviderAccount
from batches.models.checks import known_values, one_unless, set_together
from batches.models.documents import DocumentVersion


class JobState(models.TextChoices):
    PENDING = "pending", "Waiting"  # not sent; a pump takes it when the account's pace allows
    SUBMITTING = "submitting", "Submitting"  # intent committed; a pump sends, or sends again with the same key
    ACCEPTED = "accepted", "Rendering"  # the provider has it; a pump polls until deadline_at
    RENDERED = "rendered", "Fetching"  # finished there; a pump downloads, verifies and stores
    SAVED = "saved", "Saved"  # stored and verified; nothing leaves it but a missing object
    FAILED = "failed", "Failed"  # will not move by itself
    UNKNOWN = "unknown", "Not known if accepted"  # nothing is sent by itself; a person looks at the provider
    DEADLINE_EXCEEDED = "deadline_exceeded", "Deadline passed"  # the id is kept and read on, slowly
    EXPIRED = "expired", "Expired at the provider"  # the link died before we had the bytes
    CANCELLED = "cancelled", "Cancelled"  # never sent, no live item needs it


#: A pump moves these on.
ACTIVE_STATES = (JobState.PENDING, JobState.SUBMITTING, JobState.ACCEPTED, JobState.RENDERED)
#: Counted as failed on every face (docs/architecture.md, "Counters").
FAILED_STATES = (JobState.FAILED, JobState.UNKNOWN, JobState.DEADLINE_EXCEEDED, JobState.EXPIRED)
#: Every other than what most jobs are in at last.
UNSAVED_STATES = (*ACTIVE_STATES, *FAILED_STATES, JobState.CANCELLED)
#: What a document that was sent comes to by itself.
OUTCOME_STATES = (*FAILED_STATES, JobState.SAVED)
#: At the provider, by all that we know: counted against max_in_flight.
IN_FLIGHT_STATES = (JobState.SUBMITTING, JobState.ACCEPTED)


class FailureClass(models.TextChoices):
    """Why an item counts as failed; docs/architecture.md, "Failure classes", says what follows."""

    TRANSIENT = "transient", "Service trouble"
    RATE_LIMITED = "rate_limited", "Rate limited"
    INVALID_INPUT = "invalid_input", "Invalid input"
    AUTH = "auth", "Key refused"
    INSUFFICIENT_CREDIT = "insufficient_credit", "No credit"
    IDEMPOTENCY_CONFLICT = "idempotency_conflict", "Key conflict"
    RENDER_FAILED = "render_failed", "Rendering failed"
    DEADLINE_EXCEEDED = "deadline_exceeded", "Deadline passed"
    JOB_NOT_FOUND = "job_not_found", "Job not found"
    EXPIRED = "expired", "Expired at the provider"
    BAD_OUTPUT = "bad_output", "Bad output"
    UNKNOWN_OUTCOME = "unknown_outcome", "Not known if accepted"
    INTERNAL = "internal", "Internal error"


class Job(models.Model):
    """The debt: one PDF for one document version, shared by every batch that names the version.

    `fencing_token` grows with each claim; a write that carries an older one is refused.
    """

    version = models.OneToOneField(DocumentVersion, on_delete=models.PROTECT, related_name="job")
    account = models.ForeignKey(ProviderAccount, on_delete=models.PROTECT, related_name="jobs")
    lead_batch = models.ForeignKey(
        "Batch",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="led_jobs",
        help_text="The batch whose turn it takes: of those that need it, one that runs, the oldest first.",
    )
    state = models.CharField(max_length=20, choices=JobState.choices, default=JobState.PENDING)
    failure_class = models.CharField(max_length=30, choices=FailureClass.choices, blank=True, default="")
    failure_code = models.CharField(max_length=100, blank=True, default="", help_text="The provider's own code.")
    failure_words = models.TextField(blank=True, default="")
    failure_cause = models.CharField(
        max_length=16,
        blank=True,
        default="",
        help_text="Digest of class, code and normalised words: jobs that failed alike share it (engine/causes.py).",
    )
    due_at = models.DateTimeField(default=timezone.now)
    put_off_until = models.DateTimeField(
        null=True,
        blank=True,
        help_text="The due_at that the budget for repeats gave it; it waits for the budget while both are equal.",
    )
    deadline_at = models.DateTimeField(null=True, blank=True)
    lease_owner = models.CharField(max_length=80, null=True, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    fencing_token = models.BigIntegerField(default=0)
    poll_count = models.PositiveIntegerField(default=0)
    fetch_count = models.PositiveIntegerField(
        default=0, help_text="Downloads tried since the provider last said finished."
    )
    provider_status = models.CharField(
        max_length=100, blank=True, default="", help_text="The provider's last word for it."
    )
    provider_status_at = models.DateTimeField(null=True, blank=True)
    state_changed_at = models.DateTimeField(default=timezone.now)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            known_values("state", JobState, name="job_state_known"),
            set_together("lease_owner", "lease_until", name="job_lease_pairs"),
            models.CheckConstraint(
                condition=models.Q(state__in=list(FAILED_STATES), failure_class__in=list(FailureClass.values))
                | (~models.Q(state__in=list(FAILED_STATES)) & models.Q(failure_class="")),
                name="job_failed_has_class",
            ),
            models.CheckConstraint(
                condition=~models.Q(state="accepted") | models.Q(deadline_at__isnull=False),
                name="job_accepted_has_deadline",
            ),
        ]
        indexes = [
            models.Index(
                fields=["account", "state", "due_at", "id"],
                condition=models.Q(state__in=list(ACTIVE_STATES)),
                name="job_due_for_pump",
            ),
            models.Index(
                fields=["account", "lead_batch", "due_at", "id"],
                condition=models.Q(state="pending"),
                name="job_due_by_batch",
            ),
            models.Index(
                fields=["lease_until"],
                condition=models.Q(lease_until__isnull=False),
                name="job_lease_for_sweep",
            ),
            models.Index(fields=["state", "-state_changed_at", "-id"], name="job_by_state"),
            # Few of many, so that the failed ones of a batch are found without a look at all the others.
            models.Index(
                fields=["version"], condition=models.Q(state__in=list(FAILED_STATES)), name="job_failed_by_version"
            ),
            # With all that is counted by: how far a batch of 100,000 has come is told without a look at its jobs.
            models.Index(
                fields=["version", "state", "account", "lead_batch"],
                condition=models.Q(state__in=list(UNSAVED_STATES)),
                name="job_unsaved_by_version",
            ),
            # Few of a million, for the lists of what needs a person.
            models.Index(
                fields=["-state_changed_at", "-id"],
                condition=models.Q(state__in=list(FAILED_STATES)),
                name="job_failed_latest",
            ),
        ]

    def __str__(self) -> str:
        return f"job {self.pk} ({self.state})"


class JobEvent(models.Model):
    """One transition, or one thing that arrived and was ignored (then both states are equal). Append-only."""

    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="events")
    at = models.DateTimeField()
    from_state = models.CharField(max_length=20)
    to_state = models.CharField(max_length=20)
    reason = models.CharField(max_length=60)
    words = models.TextField(blank=True, default="")
    actor = models.CharField(max_length=150, default="engine")

    class Meta:
        constraints = [
            known_values("from_state", JobState, name="job_event_from_known"),
            known_values("to_state", JobState, name="job_event_to_known"),
        ]
        indexes = [models.Index(fields=["job", "id"], name="job_event_timeline")]

    def __str__(self) -> str:
        return f"{self.from_state} → {self.to_state} ({self.reason})"


class SubmissionOutcome(models.TextChoices):
    OPEN = "open", "Open"  # sent or about to be; accepted as soon as provider_job_id is set
    REFUSED = "refused", "Refused"  # every try was definitely refused: nothing exists there
    RENDER_FAILED = "render_failed", "Rendering failed"  # the provider job ended in failure
    DELIVERED = "delivered", "Delivered"  # its PDF is the stored one
    SURPLUS = "surplus", "Surplus"  # finished too, after another submission's PDF was stored
    SUPERSEDED = "superseded", "Given up, not known"  # another one was finished first; it may be billed all the same


#: Of submissions: nothing of it exists at the provider. Each try so far was definitely refused, or never left.
NOTHING_THERE = models.Q(in_doubt=False, provider_job_id=None)
#: Of submissions: it may be at the provider, and no job was named. Each answer so far was lost, or proves nothing.
MAYBE_THERE = models.Q(in_doubt=True, provider_job_id=None)
#: Of submissions: its PDF is the stored one. Said as the conditions of both indexes say it.
DELIVERED = models.Q(outcome=SubmissionOutcome.DELIVERED)
#: Of submissions: read as failed and not billed, twice, a longest poll wait apart.
PROVEN_UNBILLED = models.Q(outcome=SubmissionOutcome.RENDER_FAILED, failed_again_at__isnull=False)


class Submission(models.Model):
    """One logical send of a job with one idempotency key: the intent, committed before the first byte leaves.

    The exact request bytes lie in the row when small, else in the store under `body_key`. `in_doubt` is sticky: true
    once any try may have arrived, until a provider job id or a definite answer settles it.
    """

    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="submissions")
    account = models.ForeignKey(ProviderAccount, on_delete=models.PROTECT, related_name="submissions")
    batch = models.ForeignKey(
        "Batch",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="submissions",
        help_text="The batch in whose turn it was sent: what it may cost counts there.",
    )
    sequence = models.PositiveIntegerField()
    idempotency_key = models.CharField(max_length=64)
    route = models.CharField(max_length=100)
    request_sha256 = models.CharField(max_length=64)
    body_inline = models.BinaryField(null=True)
    body_key = models.CharField(max_length=300, null=True, blank=True)
    body_deleted_at = models.DateTimeField(null=True, blank=True, help_text="When retention took the bytes away.")
    first_sent_at = models.DateTimeField()
    last_sent_at = models.DateTimeField()
    resend_until = models.DateTimeField(null=True, blank=True, help_text="Empty where the provider takes no key.")
    try_count = models.PositiveIntegerField(default=0, help_text="Tries that were spent; a 429 spends none.")
    in_doubt = models.BooleanField(default=True)
    provider_job_id = models.CharField(max_length=200, null=True, blank=True)
    accepted_at = models.DateTimeField(null=True, blank=True)
    result = models.JSONField(
        null=True, blank=True, help_text="Where the finished PDF lies, as last read: url, size, expiry."
    )
    billed_amount = models.DecimalField(
        max_digits=12,
        decimal_places=6,
        null=True,
        blank=True,
        help_text="What the provider says that it billed, in the account's currency; empty where it does not say.",
    )
    outcome = models.CharField(max_length=20, choices=SubmissionOutcome.choices, default=SubmissionOutcome.OPEN)
    closed_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(
        null=True, blank=True, help_text="Of a draft at the provider: when we last set about having it begun."
    )
    failed_at = models.DateTimeField(
        null=True, blank=True, help_text="When the provider first said that its job had failed and was not billed."
    )
    failed_again_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="When it said so once more, a longest wait later: nothing was billed, by all that can be known.",
    )
    watch_at = models.DateTimeField(
        null=True, blank=True, help_text="Next slow status read, of a job that nobody waits for any more."
    )
    watch_until = models.DateTimeField(null=True, blank=True, help_text="When the provider's retention ends.")
    rescue_count = models.PositiveSmallIntegerField(
        default=0, help_text="How often it was said to be finished late, and was fetched."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job", "sequence"], name="submission_sequence_once_per_job"),
            models.UniqueConstraint(fields=["account", "idempotency_key"], name="submission_key_once_per_account"),
            models.UniqueConstraint(
                fields=["account", "provider_job_id"],
                condition=models.Q(provider_job_id__isnull=False),
                name="submission_provider_job_once_per_account",
            ),
            models.UniqueConstraint(
                fields=["job"], condition=models.Q(outcome="open"), name="submission_one_open_per_job"
            ),
            one_unless("body_inline", "body_key", "body_deleted_at", name="submission_body_in_one_place"),
            set_together("provider_job_id", "accepted_at", name="submission_accepted_with_id"),
            known_values("outcome", SubmissionOutcome, name="submission_outcome_known"),
            models.CheckConstraint(
                condition=models.Q(outcome="open", closed_at__isnull=True)
                | (~models.Q(outcome="open") & models.Q(closed_at__isnull=False)),
                name="submission_closed_with_time",
            ),
            models.CheckConstraint(
                condition=models.Q(watch_at__isnull=True)
                | models.Q(watch_until__isnull=False, provider_job_id__isnull=False),
                name="submission_watched_with_id_and_end",
            ),
        ]
        indexes = [
            models.Index(
                fields=["account", "watch_at"],
                condition=models.Q(watch_at__isnull=False),
                name="submission_watch_due",
            ),
            models.Index(
                fields=["account", "-id"],
                condition=models.Q(billed_amount__isnull=False),
                name="submission_billed_lately",
            ),
            # What a batch may have cost is told by an index alone for what was delivered, and of the few other rows.
            models.Index(
                fields=["batch", "billed_amount"],
                condition=models.Q(outcome="delivered"),
                name="submission_delivered_of_batch",
            ),
            models.Index(fields=["batch"], condition=~models.Q(outcome="delivered"), name="submission_other_of_batch"),
        ]

    def __str__(self) -> str:
        return f"submission {self.sequence} of job {self.job_id}"

    @property
    def is_maybe_there(self) -> bool:
        """As `MAYBE_THERE`, of a row that was read."""
        return self.in_doubt and self.provider_job_id is None


class ExchangeKind(models.TextChoices):
    SUBMIT = "submit", "Submission"
    POLL = "poll", "Status read"
    DOWNLOAD = "download", "Download"
    DELETE = "delete", "Deletion"
    LOOK_UP = "look_up", "Look-up"
    WEBHOOK = "webhook", "Webhook setting"
    ACCOUNT = "account", "Account check"


class Exchange(models.Model):
    """One HTTP request and its answer, redacted: no key, no document, no working link. Append-only."""

    account = models.ForeignKey(ProviderAccount, on_delete=models.PROTECT, related_name="exchanges")
    job = models.ForeignKey(Job, on_delete=models.PROTECT, null=True, blank=True, related_name="exchanges")
    submission = models.ForeignKey(
        Submission, on_delete=models.PROTECT, null=True, blank=True, related_name="exchanges"
    )
    kind = models.CharField(max_length=10, choices=ExchangeKind.choices)
    at = models.DateTimeField()
    duration_ms = models.PositiveIntegerField()
    status = models.PositiveIntegerField(null=True, blank=True)
    error_class = models.CharField(max_length=40, blank=True, default="")
    request = models.JSONField(default=dict, blank=True)
    response = models.JSONField(default=dict, blank=True)

    class Meta:
        constraints = [known_values("kind", ExchangeKind, name="exchange_kind_known")]
        indexes = [models.Index(fields=["job", "id"], name="exchange_timeline")]

    def __str__(self) -> str:
        return f"{self.kind} at {self.at:%Y-%m-%d %H:%M:%S}"
