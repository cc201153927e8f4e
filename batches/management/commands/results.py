"""`manage.py results ID --format csv|jsonl`: one line per manifest row on standard output."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from batches import results
from batches.management import choosing
from batches.management.readiness import DatabaseCommand


class Command(DatabaseCommand):
    help = "Print the result manifest of a batch: one line per manifest row, whatever became of it."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", help="The batch's id, as in bat_…")
        parser.add_argument("--format", choices=("csv", "jsonl"), default="csv")

    def handle(self, *args: Any, **options: Any) -> None:
        rows = results.rows(choosing.batch(options["id"]))
        lines = results.csv_lines(results.COLUMNS, rows) if options["format"] == "csv" else results.jsonl_lines(rows)
        for line in lines:
            self.stdout.write(line, ending="")
