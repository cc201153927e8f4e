"""`manage.py webhook ACCOUNT`: our address at the provider: register it, list, rotate its secret, delete one.

Exit codes: 0 done, 2 refused or not done to its end; then a sentence says what to do.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser
from django.utils import timezone

from batches.engine import webhook_health, webhook_setup
from batches.management import auditing, choosing
from batches.management.readiness import DatabaseCommand
from batches.management.tables import printable
from batches.models import ProviderAccount

PUBLIC_URL = "PUBLIC_URL"


class Command(DatabaseCommand):
    help = "Register this site for an account's webhooks at its provider, list, rotate or delete that."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("account")
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument(
            "--register",
            nargs="?",
            const=PUBLIC_URL,
            metavar="URL",
            help="Have webhooks sent to this site, reached under URL; the setting PUBLIC_URL if not given.",
        )
        what.add_argument("--list", action="store_true", help="What the provider sends this account's webhooks to.")
        what.add_argument("--rotate", action="store_true", help="A new secret; the old one is taken for another hour.")
        what.add_argument("--delete", metavar="ID", help="Have nothing more sent to the address with this id.")
        parser.add_argument("--reason", default="", help="Why; kept in the audit log.")
        parser.add_argument("--json", action="store_true", help="Print the answer as one JSON document.")

    def handle(self, *args: Any, **options: Any) -> None:
        account = choosing.account(options["account"])
        try:
            if options["list"]:
                self._list(account, as_json=options["json"])
                return
            words = self._change(account, options)
        except webhook_setup.Refused as error:
            raise choosing.refusal(error.words) from error
        if options["json"]:
            self.stdout.write(json.dumps({"account": account.slug, "done": words}, ensure_ascii=False))
        else:
            self.stdout.write(words)

    def _change(self, account: ProviderAccount, options: dict[str, Any]) -> str:
        by, reason, now = auditing.by(), options["reason"].strip(), timezone.now()
        if options["register"]:
            url = settings.PUBLIC_URL if options["register"] == PUBLIC_URL else options["register"]
            if not url:
                raise choosing.refusal("Say under which address this site is reached: --register URL, or PUBLIC_URL.")
            return webhook_setup.register(account.pk, url, by=by, reason=reason, now=now)
        if options["rotate"]:
            return webhook_setup.rotate(account.pk, by=by, reason=reason, now=now)
        return webhook_setup.delete(account.pk, options["delete"], by=by, reason=reason, now=now)

    def _list(self, account: ProviderAccount, *, as_json: bool) -> None:
        listed = webhook_setup.listed(account.pk, now=timezone.now())
        if as_json:
            rows = [asdict(each) for each in listed]
            self.stdout.write(json.dumps({"account": account.slug, "endpoints": rows}, ensure_ascii=False, indent=2))
            return
        self.stdout.write(webhook_health.words(webhook_health.of(account.pk)))
        for each in listed:
            whose = "ours" if each.is_ours else "leads here, not ours" if each.leads_here else "not ours"
            self.stdout.write(f"  {printable(each.id)}  {printable(each.url) or '-'}  ({whose})")
        if not listed:
            self.stdout.write("  No address is registered at the provider.")
