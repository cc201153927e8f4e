"""Webhook events, alerts and the audit log: what reached us, what needs a person, and who did what. Append-only."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from batches.models.accounts import ProviderAccount
from batches.models.batches import Batch
from batches.models.checks import known_values, one_open
from batches.models.jobs import Job
from batches.models.workspaces import Workspace


class WebhookOutcome(models.TextChoices):
    WAITING = "waiting", "Waiting"  # stored, not yet looked at
    WOKE = "woke", "Woke a job"
    UNMATCHED = "unmatched", "No job known yet"  # matched when the id is stored
    IGNORED = "ignored", "Nothing to do"


class WebhookEvent(models.Model):
    """One webhook that was proven and stored before it was answered. Its content is a hint, never the truth."""

    account = models.ForeignKey(ProviderAccount, on_delete=models.PROTECT, related_name="webhook_events")
    body = models.BinaryField()
    headers = models.JSONField(default=dict)
    body_sha256 = models.CharField(max_length=64)
    dedupe_key = models.CharField(max_length=100)
    signed_at = models.DateTimeField()
    received_at = models.DateTimeField(default=timezone.now)
    type = models.CharField(max_length=100, blank=True, default="")
    provider_job_id = models.CharField(max_length=200, blank=True, default="")
    outcome = models.CharField(max_length=20, choices=WebhookOutcome.choices, default=WebhookOutcome.WAITING)
    processed_at = models.DateTimeField(null=True, blank=True)
    repeat_count = models.PositiveIntegerField(default=0, help_text="How often the same bytes came again.")

    class Meta:
        permissions = [
            ("view_events", "Can read the webhook inbox"),
            ("replay_events", "Can replay webhook events"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["account", "dedupe_key"], name="webhook_event_dedupe_key_once_per_account"),
            known_values("outcome", WebhookOutcome, name="webhook_event_outcome_known"),
        ]
        indexes = [
            models.Index(fields=["account", "provider_job_id"], name="webhook_event_by_job"),
            models.Index(fields=["account", "type", "received_at"], name="webhook_event_by_type"),
            models.Index(fields=["account", "received_at"], name="webhook_event_latest"),
            models.Index(fields=["-received_at", "-id"], name="webhook_event_list"),
            models.Index(fields=["outcome", "-received_at", "-id"], name="webhook_event_list_by_outcome"),
            models.Index(
                fields=["account", "received_at"],
                condition=models.Q(outcome="unmatched"),
                name="webhook_event_unmatched",
            ),
            # Few rows at any time, for the sweep that looks for those that nobody settled.
            models.Index(
                fields=["received_at"], condition=models.Q(outcome="waiting"), name="webhook_event_left_waiting"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.type or 'event'} at {self.received_at:%Y-%m-%d %H:%M:%S}"


class WebhookRefusal(models.Model):
    """Deliveries of one hour that were not taken, counted by why. Nothing else of them is kept: anybody may send."""

    account = models.ForeignKey(ProviderAccount, on_delete=models.PROTECT, related_name="webhook_refusals")
    hour = models.DateTimeField()
    status = models.PositiveSmallIntegerField(help_text="What was answered.")
    words = models.CharField(max_length=200, help_text="Why, as it was answered last.")
    count = models.PositiveIntegerField(default=0)
    last_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["account", "hour", "status"], name="webhook_refusal_once_per_hour"),
        ]
        indexes = [models.Index(fields=["-hour"], name="webhook_refusal_latest")]

    def __str__(self) -> str:
        return f"{self.count} refused ({self.status}) in the hour from {self.hour:%Y-%m-%d %H:%M}"


class AlertKind(models.TextChoices):
    ACCOUNT_HELD = "account_held", "Account held"
    DEADLINE_EXCEEDED = "deadline_exceeded", "Deadline passed"
    UNKNOWN_OUTCOME = "unknown_outcome", "Not known if accepted"
    SURPLUS = "surplus", "Billed more than once"
    STORE = "store", "Store trouble"
    LINKS_AGEING = "links_ageing", "Downloads are late"
    BATCH_STOPPED = "batch_stopped", "Batch stopped itself"
    WEBHOOKS_SILENT = "webhooks_silent", "Webhooks do not come"
    DURATIONS = "durations", "Durations not recorded"
    MAIL = "mail", "E-mail is not sent"
    INTERNAL = "internal", "Internal error"


class Alert(models.Model):
    """Something that needs a person, with what to do. At most one is open per kind and subject."""

    kind = models.CharField(max_length=30, choices=AlertKind.choices)
    subject = models.CharField(max_length=80, help_text="account:3, batch:7, job:12 or store")
    account = models.ForeignKey(ProviderAccount, on_delete=models.PROTECT, null=True, blank=True)
    batch = models.ForeignKey(Batch, on_delete=models.PROTECT, null=True, blank=True)
    job = models.ForeignKey(Job, on_delete=models.PROTECT, null=True, blank=True)
    words = models.TextField()
    opened_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            one_open(["kind", "subject"], until="closed_at", name="alert_one_open_per_kind_and_subject"),
            known_values("kind", AlertKind, name="alert_kind_known"),
        ]
        indexes = [
            # Few rows at any time, for lists of what is open, the newest first.
            models.Index(fields=["-id"], condition=models.Q(closed_at__isnull=True), name="alert_open"),
        ]

    def __str__(self) -> str:
        return self.words[:80]


class AuditEntry(models.Model):
    """Who did what, on what, when, from where and why. Never document content, never a secret."""

    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, null=True, blank=True)
    at = models.DateTimeField()
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    actor_words = models.CharField(max_length=150, help_text="User name, command or token, as it was then.")
    action = models.CharField(max_length=60)
    subject = models.CharField(max_length=200)
    reason = models.TextField(blank=True, default="")
    from_where = models.CharField(max_length=100, blank=True, default="", help_text="Address, or 'command line'.")
    facts = models.JSONField(default=dict, blank=True)

    class Meta:
        verbose_name_plural = "audit entries"
        permissions = [("view_audit", "Can read the audit log")]
        indexes = [
            models.Index(fields=["-at", "-id"], name="audit_list"),
            models.Index(fields=["workspace", "-at", "-id"], name="audit_of_workspace"),
            models.Index(fields=["subject", "-id"], name="audit_of_subject"),
        ]

    def __str__(self) -> str:
        return f"{self.actor_words} {self.action} {self.subject}"
