"""`manage.py durations [--account SLUG] [--json]`: how long documents took, and the deadline that this suggests."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandParser

from batches.engine import deadlines
from batches.management import choosing
from batches.management.readiness import DatabaseCommand
from batches.models import JobState, ProviderAccount


class Command(DatabaseCommand):
    help = "Show how long documents took, by account, outcome and size, and the deadline that this suggests."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--account", help="Only this account, by its slug.")
        parser.add_argument("--json", action="store_true", help="Print one JSON document.")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["account"]:
            accounts = [choosing.account(options["account"])]
        else:
            accounts = list(
                ProviderAccount.objects.only("slug", "deadline_seconds", "learned_deadline").order_by("slug")
            )
        if options["json"]:
            self.stdout.write(json.dumps([_facts(account) for account in accounts], ensure_ascii=False, indent=2))
            return
        for account in accounts:
            self._write(account)

    def _write(self, account: ProviderAccount) -> None:
        rows = deadlines.table(account.pk)
        self.stdout.write(f"{account.slug}: deadline {account.deadline_seconds} s, learned: {account.learned_deadline}")
        if not rows:
            self.stdout.write("  No durations yet. They are recorded as documents end: start a batch, then look again.")
            return
        head = f"  {'outcome':<26}{'size':<34}{'count':>7}{'p50 s':>9}{'p95 s':>9}{'worst s':>9}{'polls':>7}"
        self.stdout.write(head)
        for row in rows:
            self.stdout.write(
                f"  {JobState(row.outcome).label:<26}{deadlines.size_words(row.size_class):<34}{row.count:>7}"
                f"{row.p50:>9.1f}{row.p95:>9.1f}{row.worst:>9.1f}{row.polls:>7.2f}"
            )
        found = deadlines.suggestions(account.pk)
        for suggestion in found.values():
            self.stdout.write(f"  {suggestion.words}")
        if not found:
            least = deadlines.SAMPLES_LEAST
            self.stdout.write(f"  No deadline is suggested yet: that takes {least} saved documents.")


def _facts(account: ProviderAccount) -> dict[str, Any]:
    return {
        "account": account.slug,
        "deadline_seconds": account.deadline_seconds,
        "learned_deadline": account.learned_deadline,
        "durations": [
            asdict(row) | {"size": deadlines.size_words(row.size_class)} for row in deadlines.table(account.pk)
        ],
        "suggestions": [asdict(suggestion) for suggestion in deadlines.suggestions(account.pk).values()],
    }
