"""Pump slots: how many pumps may run at once, and who is alive. And what the periodic pass did last."""

from __future__ import annotations

from django.db import models

from batches.models.checks import set_together


class PumpSlot(models.Model):
    """One place for one pump. A pump without a slot ends at once, so doubled wake-ups are harmless."""

    number = models.PositiveIntegerField()
    owner = models.CharField(max_length=80, null=True, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    heartbeat_at = models.DateTimeField(null=True, blank=True, help_text="When the last pump here was seen alive.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["number"], name="pump_slot_number_unique"),
            set_together("owner", "lease_until", name="pump_slot_lease_pairs"),
        ]

    def __str__(self) -> str:
        return f"slot {self.number}"


class SweepRun(models.Model):
    """The last pass of the periodic sweep, and the last one that found something to do. One row."""

    name = models.CharField(max_length=20)
    ran_at = models.DateTimeField()
    facts = models.JSONField(default=dict, help_text="What the last pass did, in rows and files.")
    found_at = models.DateTimeField(null=True, blank=True)
    found = models.JSONField(default=dict, blank=True, help_text="The same of the last pass that did anything.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["name"], name="sweep_run_once_per_name")]

    def __str__(self) -> str:
        return f"{self.name} at {self.ran_at:%Y-%m-%d %H:%M:%S}"
