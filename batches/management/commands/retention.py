"""`manage.py retention [--dry-run] [--workspace SLUG] [--json]`: delete what the workspaces keep no longer."""

from __future__ import annotations

import json
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser
from django.utils import timezone

from batches import figures
from batches.engine import retaining, retention
from batches.engine.clock import SystemClock
from batches.engine.retention import Survey, Tally
from batches.engine.retention_rules import LABELS, Part
from batches.management import auditing, choosing, tables
from batches.management.readiness import DatabaseCommand
from batches.models import Workspace
from batches.storage import open_store

BATCHES = "Files and rows of batches"


class Command(DatabaseCommand):
    help = (
        "Delete what is older than its workspace keeps it: inputs, stored PDFs, evidence. Jobs, submissions, hashes, "
        "keys and ids are never deleted. Says also what is old enough and kept all the same, and why."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="Say what would be deleted, and delete nothing.")
        parser.add_argument("--workspace", metavar="SLUG", help="Only of this workspace; an archived one too.")
        parser.add_argument("--json", action="store_true", help="Print the result as one JSON document.")

    def handle(self, *args: Any, **options: Any) -> None:
        chosen = Workspace.objects.filter(slug=options["workspace"]) if options["workspace"] else None
        if chosen is not None and not chosen.exists():
            raise choosing.refusal(f"There is no workspace {options['workspace']!r}.")
        known = retention.policies(chosen)
        clock = SystemClock()
        clock.calibrate()
        is_dry = bool(options["dry_run"])
        if is_dry:
            facts = as_dict(retention.survey(known, now=clock.now()))
        else:
            report = retaining.run(known, open_store(settings.STORAGE_URL), clock, by=auditing.actor_words())
            facts = as_dict(report.survey) | {"settled": report.deleted}
            auditing.record("run_retention", "retention", None, now=timezone.now(), facts={"settled": report.deleted})
        facts = {"dry_run": is_dry, "policies": len(known)} | facts
        if options["json"]:
            self.stdout.write(json.dumps(facts, ensure_ascii=False, indent=2))
        else:
            self._write(facts)

    def _write(self, facts: dict[str, Any]) -> None:
        if not facts["policies"]:
            self.stdout.write("Nothing is deleted: everything is kept for ever.")
            return
        verb = "would be deleted" if facts["dry_run"] else "deleted"
        for part in facts["parts"]:
            oldest = f", the oldest of {part['oldest'][:10]}" if part["oldest"] else ""
            size = f" ({figures.size(part['bytes'])})" if part["bytes"] else ""
            self.stdout.write(f"{part['label']}: {part['count']:,} {verb}{size}{oldest}.")
            for reason, count in part["kept"].items():
                self.stdout.write(tables.printable(f"  {count:,} kept: {reason}."))


def as_dict(survey: Survey) -> dict[str, Any]:
    """JSON values; the same of a dry run and of a run."""
    return {"parts": [_part(part, tally) for part, tally in survey.parts.items()]}


def _part(part: Part | None, tally: Tally) -> dict[str, Any]:
    return {
        "part": part.value if part else "batches",
        "label": LABELS[part] if part else BATCHES,
        "count": tally.count,
        "bytes": tally.byte_count,
        "oldest": tally.oldest.isoformat() if tally.oldest else None,
        "kept": dict(sorted(tally.kept.items())),
    }
