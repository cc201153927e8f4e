"""What the commands of the verbs share: which items are meant, the plan, doing it, and what is printed of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar

from django.core.management.base import CommandError, CommandParser
from django.db.models import F
from django.utils import timezone

from batches import figures, listings
from batches.engine import applying, commanded, standings, verbs
from batches.engine.bulk_actions import Judged
from batches.engine.commanded import Commanded
from batches.engine.orders import Order, Result
from batches.engine.verbs import Answer, Asked
from batches.management import auditing, choosing, tables
from batches.management.readiness import DatabaseCommand
from batches.models import FAILED_STATES, BatchItem, Document, ItemResult, JobState, Verb
from batches.wording import Group

#: Items of one question: SQLite takes so many values in a statement.
ITEMS_AT_ONCE = 500
DOCUMENTS_NAMED = 5
UNASKED = Answer(None)


@dataclass(frozen=True)
class Row:
    """One item with what was said of it. `result` is `eligible` until the verb is applied."""

    item_id: int
    job_id: int
    version_id: int
    batch: str
    position: int
    business_id: str
    state: str
    cause: str
    version: int
    answer: Answer = UNASKED
    result: str = ""
    words: str = ""

    @property
    def judged(self) -> Judged:
        state = JobState(self.state)
        cause = self.cause if state in FAILED_STATES else ""
        return Judged(self.item_id, self.version_id, cause, state, self.answer)


class VerbCommand(DatabaseCommand):
    """One verb over a batch or over named documents. Exits 0 when something was done or would be, 2 when refused."""

    verb: ClassVar[Verb]

    def add_arguments(self, parser: CommandParser) -> None:
        which = parser.add_argument_group("which documents")
        which.add_argument("--batch", metavar="ID", help="All documents of this batch, or those named beside it.")
        which.add_argument(
            "--document", nargs="+", action="extend", metavar="BUSINESS_ID", help="The current versions of these."
        )
        which.add_argument(
            "--state",
            choices=Group.values,
            metavar="STATE",
            help=f"Of the batch's those of this counter, as on its page: {', '.join(Group.values)}.",
        )
        which.add_argument("--workspace", metavar="SLUG", help="Where the documents are, if there are several.")
        needed = "; needed" if self.verb in verbs.NEEDS_REASON else ""
        parser.add_argument("--reason", default="", help=f"Why, for the audit log{needed}.")
        parser.add_argument("--confirm", action="store_true", help="Go on where a document asks for confirmation.")
        parser.add_argument("--dry-run", action="store_true", help="Only say what would be done, and what it may bill.")
        parser.add_argument("--json", action="store_true", help="Print one JSON document.")

    def order(self, options: dict[str, Any], rows: Sequence[Row]) -> Order:
        """What is handed to the engine; a verb that is told more than a reason adds it."""
        return Order(auditing.by(), reason=options["reason"].strip(), is_confirmed=options["confirm"])

    def asked(self, options: dict[str, Any], rows: Sequence[Row]) -> Asked:
        """What the plan takes for asked for beside the verb. Raises a refusal."""
        return Asked()

    def facts(self, rows: Sequence[Row], renders: int) -> dict[str, Any]:
        """What the report of this verb holds besides; `renders` that may be billed at most."""
        return {}

    def handle(self, *args: Any, **options: Any) -> None:
        if self.verb in verbs.NEEDS_REASON and not options["reason"].strip() and not options["dry_run"]:
            raise choosing.refusal(f"{self.verb.label} asks for a reason: --reason '…'.")
        now = timezone.now()
        chosen = chosen_items(options)
        asked = self.asked(options, chosen)
        rows = plan(self.verb, chosen, asked, is_confirmed=options["confirm"], now=now)
        if not options["dry_run"]:
            rows = self._applied(rows, options, now=now)
        report = _report(self.verb, rows, is_dry_run=options["dry_run"])
        report |= self.facts(rows, report["renders_most"])
        if options["json"]:
            self.stdout.write(json.dumps(report, ensure_ascii=False, indent=2))
        else:
            self.write(report)
        if report["failed"]:
            raise CommandError("Some failed through a fault of ours; the log has the trace.", returncode=1)
        if not report["done"] and not report["eligible"]:
            raise choosing.refusal("Nothing was done: no document is eligible.")

    def _applied(self, rows: Sequence[Row], options: dict[str, Any], *, now: datetime) -> list[Row]:
        eligible = [row.item_id for row in rows if row.result == "eligible"]
        order = self.order(options, rows)
        results = applying.apply(self.verb, eligible, order=order, now=now)
        if options["batch"]:
            self._keep(rows, results, options, order, now=now)
        return [
            replace(row, result=str(results[row.item_id].result), words=results[row.item_id].words)
            if row.item_id in results
            else row
            for row in rows
        ]

    def _keep(
        self,
        rows: Sequence[Row],
        results: Mapping[int, Result],
        options: dict[str, Any],
        order: Order,
        *,
        now: datetime,
    ) -> None:
        """Let the batch's page show what was done, beside its own bulk actions: to what had failed, or was eligible."""
        if not any(result.is_done for result in results.values()):
            return
        kept = [row for row in rows if row.item_id in results or row.state in FAILED_STATES]
        chosen_by = {"state": options["state"]} if options["state"] else {"everything": "1"}
        if options["document"]:
            chosen_by = {"rows": ",".join(str(row.position) for row in kept)}
        commanded.keep(
            choosing.batch(options["batch"]),
            self.verb,
            [Commanded(row.judged, results.get(row.item_id, Result(ItemResult.SKIPPED, row.words))) for row in kept],
            chosen_by=chosen_by,
            order=order,
            now=now,
        )

    def write(self, report: dict[str, Any]) -> None:
        """Tell a person; a verb whose words of each document matter adds them."""
        count = report["eligible"] if report["dry_run"] else report["done"]
        does = "would be done for" if report["dry_run"] else "is done for"
        self.stdout.write(f"{self.verb.label} {does} {figures.documents(count)}: {report['price']}.")
        if len(report["states"]) > 1:
            by_state = (f"{count:,} {JobState(state).label.lower()}" for state, count in report["states"].items())
            self.stdout.write(f"Of these {'are' if report['dry_run'] else 'were'} {', '.join(by_state)}.")
        for name in ("skipped", "failed"):
            if report[name]:
                self.stdout.write(f"{name.capitalize()}: {figures.documents(report[name])}.")
        for reason in report["reasons"]:
            self.stdout.write(f"  {reason['count']:,} × {tables.printable(reason['words'])}")


def plan(verb: Verb, items: Sequence[Row], asked: Asked, *, is_confirmed: bool, now: datetime) -> list[Row]:
    """Each item with the rule table's answer, as it stands now; nothing is written."""
    rows: list[Row] = []
    for start in range(0, len(items), ITEMS_AT_ONCE):
        part = items[start : start + ITEMS_AT_ONCE]
        found = standings.of_items(BatchItem.objects.filter(pk__in=[row.item_id for row in part]))
        for row in part:
            answer = verbs.answer(verb, found[row.item_id], now=now, asked=asked)
            if answer.allowed and answer.to_confirm and not is_confirmed:
                answer = Answer(None, f"{answer.to_confirm} Go on with --confirm.")
            result = "eligible" if answer.allowed else ItemResult.SKIPPED.value
            rows.append(replace(row, answer=answer, result=result, words=answer.words))
    return rows


def chosen_items(options: dict[str, Any]) -> list[Row]:
    """The items that the arguments name. Raises a refusal."""
    names = list(dict.fromkeys(options["document"] or ()))
    if options["batch"]:
        batch = choosing.open_batch(options["batch"])
        items = listings.items_matching(batch, group=options["state"] or "")
        known = set(items.filter(document__business_id__in=names).values_list("document__business_id", flat=True))
        where = f"batch {batch.public_id}"
        if names:
            items = items.filter(document__business_id__in=names)
    elif options["state"]:
        raise choosing.refusal("--state goes with --batch: it is a counter of a batch.")
    elif names:
        workspace = choosing.workspace(options["workspace"])
        documents = Document.objects.filter(workspace=workspace, business_id__in=names)
        known = set(documents.values_list("business_id", flat=True))
        where = f"workspace {workspace.slug}"
        items = BatchItem.objects.filter(document__in=documents.values("pk"), version=F("document__current_version"))
    else:
        raise choosing.refusal("Say which documents: --batch ID, --document BUSINESS_ID …, or both.")
    if missing := [name for name in names if name not in known]:
        shown = ", ".join(repr(name) for name in missing[:DOCUMENTS_NAMED])
        more = f" and {len(missing) - DOCUMENTS_NAMED:,} more" if len(missing) > DOCUMENTS_NAMED else ""
        raise choosing.refusal(f"{where.capitalize()} has no document {shown}{more}.")
    columns = ("pk", "version__job", "version", "batch__public_id", "position", "document__business_id")
    job = ("version__job__state", "version__job__failure_cause")
    found = items.order_by("batch", "position").values_list(*columns, *job, "version__number")
    return [Row(*values) for values in found]


def _report(verb: Verb, rows: Sequence[Row], *, is_dry_run: bool) -> dict[str, Any]:
    counts = Counter(row.result for row in rows)
    # A job that several batches share is rendered once.
    prices = {row.job_id: row.answer.price for row in rows if row.result in ("eligible", ItemResult.DONE)}
    least = sum(price.renders_least for price in prices.values() if price)
    most = sum(price.renders_most for price in prices.values() if price)
    states = Counter(row.state for row in rows if row.result in ("eligible", ItemResult.DONE))
    reasons = Counter(row.words for row in rows if row.result in (ItemResult.SKIPPED, ItemResult.FAILED))
    return {
        "verb": verb.value,
        "dry_run": is_dry_run,
        "eligible": counts["eligible"],
        "done": counts[ItemResult.DONE],
        "skipped": counts[ItemResult.SKIPPED],
        "failed": counts[ItemResult.FAILED],
        "renders_least": least,
        "renders_most": most,
        "price": verbs.bills(least, most),
        "states": dict(states.most_common()),
        "reasons": [{"words": words, "count": count} for words, count in reasons.most_common()],
        "items": [
            {
                "batch": row.batch,
                "position": row.position,
                "business_id": row.business_id,
                "version": row.version,
                "result": row.result,
                "words": row.words,
            }
            for row in rows
        ],
    }
