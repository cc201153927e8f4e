"""The Django app. Nothing here starts a thread or opens a connection: the cluster forks after this has run."""

from __future__ import annotations

from django.apps import AppConfig
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate

from batches.postgres_sessions import answer_alone
from batches.sqlite_turns import take_turns


class BatchesConfig(AppConfig):
    name = "batches"
    verbose_name = "PDF batches"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from batches import (
            checks,  # noqa: F401 - importing registers them; they need the settings
            rolegroups,  # it needs the models
        )

        connection_created.connect(take_turns)
        connection_created.connect(answer_alone)
        post_migrate.connect(rolegroups.after_migrate, sender=self)
