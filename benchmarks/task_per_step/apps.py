"""The baseline's app; its one table is made by `migrate --run-syncdb`."""

from __future__ import annotations

from django.apps import AppConfig


class TaskPerStepConfig(AppConfig):
    name = "benchmarks.task_per_step"
    label = "task_per_step"
    default_auto_field = "django.db.models.BigAutoField"
