"""`manage.py results ID --format csv|jsonl`: one line per manifest row; `--failed`: the failed list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from batches import results
from batches.management import auditing, choosing
from batches.management.readiness import DatabaseCommand
from batches.models import Batch


class Command(DatabaseCommand):
    help = "Print the result manifest of a batch: one line per manifest row, whatever became of it."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", help="The batch's id, as in bat_…")
        parser.add_argument("--format", choices=("csv", "jsonl"), default="csv")
        parser.add_argument(
            "--failed",
            action="store_true",
            help="Only the failed rows that nobody dismissed, as they were given, each with its reason (CSV).",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        batch = choosing.batch(options["id"])
        if options["failed"] and options["format"] != "csv":
            raise choosing.refusal("The failed rows come as CSV; leave --format out.")
        action = "download_failed_list" if options["failed"] else "download_results"
        facts = {"format": options["format"]}
        auditing.record(action, f"batch {batch.public_id}", batch.workspace, now=timezone.now(), facts=facts)
        for line in results.failed_lines(batch) if options["failed"] else self._lines(batch, options["format"]):
            self.stdout.write(line, ending="")

    def _lines(self, batch: Batch, form: str) -> Iterator[str]:
        rows = results.rows(batch, with_ids=True)
        return results.csv_lines(results.COLUMNS, rows) if form == "csv" else results.jsonl_lines(rows)
