"""`manage.py rotate_field_keys [--make-key | --dry-run] [--json]`: secrets under a new key, so that the old can go."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from cryptography.fernet import Fernet
from django.conf import settings
from django.core.management.base import CommandParser
from django.utils import timezone

from batches.engine import fieldkeys
from batches.management import auditing, tables
from batches.management.readiness import DatabaseCommand

UNREADABLE_SHOWN = 50
REMAINS = 3


class Command(DatabaseCommand):
    help = (
        "Encrypt every stored secret under the first of FIELD_KEYS. Put a new key before the old one, restart every "
        "process, run this, and then take the old key away. Exits 0 when the first key opens everything, 3 when "
        "something remains."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        only = parser.add_mutually_exclusive_group()
        only.add_argument("--make-key", action="store_true", help="Print a new key for FIELD_KEYS and do nothing else.")
        only.add_argument("--dry-run", action="store_true", help="Count by key, and change nothing.")
        parser.add_argument("--json", action="store_true", help="Print the result as one JSON document.")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["make_key"]:
            self.stdout.write(Fernet.generate_key().decode())
            return
        keys = list(settings.FIELD_KEYS)
        if not options["dry_run"]:
            done = fieldkeys.encrypt_anew(keys)
            if count := sum(each.encrypted_anew for each in done):
                auditing.record("rotate_field_keys", "secrets", None, now=timezone.now(), facts={"count": count})
        else:
            done = []
        # Looked at again: a process that was not restarted may have written under the older key meanwhile.
        found = fieldkeys.look(keys)
        anew = {each.name: each.encrypted_anew for each in done}
        for each in found:
            each.encrypted_anew = anew.get(each.name, 0)
        if options["json"]:
            self.stdout.write(json.dumps({"keys": len(keys), "columns": [_facts(each) for each in found]}, indent=2))
        else:
            self._write(found, keys)
        if any(each.older or each.unreadable for each in found):
            raise SystemExit(REMAINS)

    def _write(self, found: list[fieldkeys.ColumnReport], keys: list[str]) -> None:
        headings = ("column", "encrypted anew", "first key", "older keys", "no key")
        rows = [
            (each.name, *(f"{count:,}" for count in (each.encrypted_anew, each.by_key[0], each.older)), _count(each))
            for each in found
        ]
        tables.write(self.stdout, headings, rows)
        unreadable = [f"{each.name}: {row}" for each in found for row in each.unreadable]
        for line in unreadable[:UNREADABLE_SHOWN]:
            self.stdout.write(tables.printable(f"No key of FIELD_KEYS opens {line}. Put its key back, or set it anew."))
        if len(unreadable) > UNREADABLE_SHOWN:
            self.stdout.write(f"{len(unreadable) - UNREADABLE_SHOWN:,} more rows cannot be opened.")
        if any(each.older for each in found):
            self.stdout.write("Older keys are still needed. Restart every process, then run this without --dry-run.")
        elif len(keys) > 1 and not unreadable:
            self.stdout.write("The first key opens everything: the others can be taken out of FIELD_KEYS.")


def _count(report: fieldkeys.ColumnReport) -> str:
    return f"{len(report.unreadable):,}"


def _facts(report: fieldkeys.ColumnReport) -> dict[str, Any]:
    facts = asdict(report)
    del facts["by_key"]
    return facts | {"first_key": report.by_key[0], "older_keys": report.older}
