"""`manage.py reconcile (--batch ID | --document BUSINESS_ID …) [--adopt PROVIDER_JOB_ID]`: what is known; free."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser
from django.db.models import F
from django.utils import timezone

from batches.engine import adoption, applying, reconcile, standings, verbs
from batches.engine.adoption import Adoption
from batches.engine.orders import Order, Result
from batches.management import auditing, choosing, tables
from batches.management.readiness import DatabaseCommand
from batches.models import BatchItem, ItemResult, Verb
from batches.storage import open_store

#: Items of one question: SQLite takes so many values in a statement.
ITEMS_AT_ONCE = 500


class Command(DatabaseCommand):
    help = (
        "Ask the provider about documents whose end is not certain, and write what that proves; free. With --adopt, "
        "look at a provider job that may be a document's, and with --confirm give it to the document. Exits 2 when "
        "nothing could be done."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("--batch", metavar="ID", help="All documents of this batch.")
        which.add_argument("--document", nargs="+", metavar="BUSINESS_ID", help="The current versions of these.")
        parser.add_argument("--workspace", metavar="SLUG", help="Where the documents are, if there are several.")
        parser.add_argument("--adopt", metavar="PROVIDER_JOB_ID", help="The job of the one document named.")
        parser.add_argument("--confirm", action="store_true", help="Adopt it, knowing what is proven and what is not.")
        parser.add_argument("--reason", default="", help="Why, for the audit log.")
        parser.add_argument("--dry-run", action="store_true", help="Only say what may be reconciled, or is proven.")
        parser.add_argument("--json", action="store_true", help="Print one JSON document.")

    def handle(self, *args: Any, **options: Any) -> None:
        items = _chosen(options)
        is_confirmed = options["confirm"] and not options["dry_run"]
        order = Order(auditing.by(), reason=options["reason"].strip(), is_confirmed=is_confirmed)
        if options["adopt"] is not None:
            self._adopt(items, order, options)
            return
        results = _planned(items)
        if not options["dry_run"]:
            eligible = [pk for pk, each in results.items() if each.result is ItemResult.WAITING]
            results |= applying.apply(Verb.RECONCILE, eligible, order=order, now=timezone.now())
        self._tell(items, results, as_json=options["json"])
        if all(each.result is ItemResult.SKIPPED for each in results.values()):
            raise choosing.refusal("Nothing was done: nothing about these documents is uncertain.")

    def _tell(self, items: Sequence[BatchItem], results: dict[int, Result], *, as_json: bool) -> None:
        rows = [(item.document.business_id, results[item.pk]) for item in items]
        if as_json:
            told = [{"business_id": name, "result": str(each.result.value), "words": each.words} for name, each in rows]
            self.stdout.write(json.dumps({"verb": "reconcile", "items": told}, ensure_ascii=False, indent=2))
            return
        for name, each in rows:
            if each.result is not ItemResult.SKIPPED:
                words = each.words or "may be reconciled; free."
                self.stdout.write(f"{tables.printable(name)}: {tables.printable(words)}")

    def _adopt(self, items: Sequence[BatchItem], order: Order, options: dict[str, Any]) -> None:
        if len({item.version_id for item in items}) != 1:
            raise choosing.refusal("--adopt takes one document: name it with --document.")
        adopted = _adopted(items[0], options["adopt"], order)
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


def _chosen(options: dict[str, Any]) -> list[BatchItem]:
    """The items that the arguments name, without their inputs. Raises a refusal."""
    items = BatchItem.objects.select_related("document").order_by("batch", "position")
    if options["batch"]:
        return list(items.filter(batch=choosing.batch(options["batch"])))
    workspace = choosing.workspace(options["workspace"])
    names = options["document"]
    found = list(
        items.filter(
            document__workspace=workspace,
            document__business_id__in=names,
            version=F("document__current_version"),
        )
    )
    missing = sorted(set(names) - {item.document.business_id for item in found})
    if missing:
        raise choosing.refusal(f"Workspace {workspace.slug} has no document {missing[0]!r}.")
    return found


def _planned(items: Sequence[BatchItem]) -> dict[int, Result]:
    """Waiting where the verb may be applied as it stands now, else skipped with the sentence."""
    now = timezone.now()
    results: dict[int, Result] = {}
    for start in range(0, len(items), ITEMS_AT_ONCE):
        part = BatchItem.objects.filter(pk__in=[item.pk for item in items[start : start + ITEMS_AT_ONCE]])
        for pk, standing in standings.of_items(part).items():
            answer = verbs.answer(Verb.RECONCILE, standing, now=now)
            results[pk] = Result(ItemResult.WAITING if answer.allowed else ItemResult.SKIPPED, answer.words)
    return results


def _adopted(item: BatchItem, pasted: str, order: Order) -> Adoption:
    with reconcile.tools() as (providers, checker):
        provider = reconcile.provider_of(item.pk, providers)
        if provider is None:
            raise choosing.refusal("The account's key cannot be read, so the provider cannot be asked.")
        return adoption.adopt(
            item.version.job.pk,
            pasted,
            order=order,
            provider=provider,
            store=open_store(settings.STORAGE_URL),
            checker=checker,
            now=timezone.now(),
        )
