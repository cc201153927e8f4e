"""`manage.py batch ID [--json]`: a batch's state and counters."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandParser

from batches import selectors
from batches.management import choosing, tables
from batches.management.readiness import DatabaseCommand


class Command(DatabaseCommand):
    help = "Show a batch: its state, its counters and what became of each document. Exits 0 in any state."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", help="The batch's id, as in bat_…")
        parser.add_argument("--json", action="store_true", help="Print the batch as one JSON document.")

    def handle(self, *args: Any, **options: Any) -> None:
        batch = choosing.batch(options["id"])
        if options["json"]:
            self.stdout.write(json.dumps(selectors.batch_json(batch), ensure_ascii=False, indent=2))
        else:
            tables.write_batch(self.stdout, batch)
