"""`manage.py runcluster`: the workers, in the foreground, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from batches import cluster, tasks


class Command(BaseCommand):
    help = (
        "Run the workers in the foreground. They start again by themselves after any crash; SIGTERM or Ctrl-C lets "
        "running work reach a safe point and stops them. CLUSTER_WORKERS sets how many there are."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        self.stderr.write(f"{settings.CLUSTER_WORKERS} workers; stop with Ctrl-C or SIGTERM")
        sys.exit(cluster.Supervisor(ring=tasks.ensure_pumps).run())
