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
        if options["failed"]:
            self._write_failed(batch)
            return
        for line in self._lines(batch, options["format"]):
            self.stdout.write(line, ending="")

    def _write_failed(self, batch: Batch) -> None:
        """In the encoding of what was handed over, whatever this shell's is: the list is to be handed over again."""
        lines = results.failed_lines(batch)
        stream = getattr(self.stdout._out, "buffer", None)
        if stream is None:  # somebody who calls the command reads text
            self.stdout.write("".join(lines), ending="")
            return
        for piece in results.Written.as_given(batch).encoded(lines):
            stream.write(piece)

    def _lines(self, batch: Batch, form: str) -> Iterator[str]:
        rows = results.rows(batch, with_ids=True)
        return results.csv_lines(results.COLUMNS, rows) if form == "csv" else results.jsonl_lines(rows)
