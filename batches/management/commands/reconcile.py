"""`manage.py reconcile (--batch ID | --document BUSINESS_ID …) [--adopt PROVIDER_JOB_ID]`: what is known; free."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser
from django.utils import timezone

from batches.engine import adoption, reconcile
from batches.engine.adoption import Adoption
from batches.engine.orders import Order
from batches.management import choosing, tables
from batches.management.verbs import Row, VerbCommand, chosen_items
from batches.models import ItemResult, Verb
from batches.storage import open_store


class Command(VerbCommand):
    verb = Verb.RECONCILE
    help = (
        "Ask the provider about documents whose end is not certain, and write what that proves; free. With --adopt, "
        "look at a provider job that may be a document's, and with --confirm give it to the document. Exits 2 when "
        "nothing could be done."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--adopt", metavar="PROVIDER_JOB_ID", help="The job of the one document named.")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["adopt"] is None:
            super().handle(*args, **options)
        else:
            self._adopt(options)

    def write(self, report: dict[str, Any]) -> None:
        super().write(report)
        for item in report["items"]:
            if item["result"] == ItemResult.DONE:
                self.stdout.write(f"{tables.printable(item['business_id'])}: {tables.printable(item['words'])}")

    def _adopt(self, options: dict[str, Any]) -> None:
        rows = chosen_items(options)
        if len({row.job_id for row in rows}) != 1:
            raise choosing.refusal("--adopt takes one document: name it with --document.")
        order = self.order(options, rows)
        if options["dry_run"]:
            order = replace(order, is_confirmed=False)
        adopted = _adopted(rows[0], options["adopt"], order)
        seen, is_done = adopted.inspection, adopted.result.is_done
        lists = {"against": seen.against, "proven": seen.proven, "not_proven": seen.not_proven}
        if options["json"]:
            told = {"verb": "adopt", "result": adopted.result.result.value, "words": adopted.result.words, **lists}
            self.stdout.write(json.dumps(told, ensure_ascii=False, indent=2))
        elif not seen.refusal:
            for title, sentences in lists.items():
                for each in sentences:
                    self.stdout.write(f"{title.replace('_', ' ').capitalize()}: {tables.printable(each)}")
            self.stdout.write("Adopted; it is fetched by itself." if is_done else "Adopt it with --confirm; free.")
        if seen.refusal:
            raise choosing.refusal(seen.refusal)


def _adopted(row: Row, pasted: str, order: Order) -> Adoption:
    with reconcile.tools() as (providers, checker):
        provider = reconcile.provider_of(row.item_id, providers)
        if provider is None:
            raise choosing.refusal("The account's key cannot be read, so the provider cannot be asked.")
        return adoption.adopt(
            row.job_id,
            pasted,
            order=order,
            provider=provider,
            store=open_store(settings.STORAGE_URL),
            checker=checker,
            now=timezone.now(),
        )
