"""`manage.py check_store [--deep] [--repair] [--json]`: does the store hold what the rows say?"""

from __future__ import annotations

import json
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser
from django.utils import timezone

from batches import results
from batches.engine import storecheck, storeorphans, storerepair, storeslices
from batches.engine.clock import SystemClock
from batches.engine.storeslices import SliceReport
from batches.management import auditing, choosing, tables
from batches.management.readiness import DatabaseCommand
from batches.models import FindingKind, StoreFinding, SweepKind
from batches.storage import ArtifactStore, open_store

FINDINGS_SHOWN = 200


class Command(DatabaseCommand):
    help = (
        "Compare the whole store with the database. What is missing or damaged and still at the provider is fetched "
        "again. Orphaned objects, which the database does not name, and what cannot be read are only reported. Exits 0 "
        "when nothing is open, 3 when something is, 2 when the store cannot be checked."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--deep", action="store_true", help="Read every stored PDF and compare its digest.")
        parser.add_argument(
            "--repair",
            action="store_true",
            help="Take what is missing or damaged as lost even where it is suspiciously much, and remove orphaned "
            f"objects older than {storeorphans.ORPHAN_REMOVED_AGE.days} days. Files whose names this program does not "
            "give stay.",
        )
        parser.add_argument("--json", action="store_true", help="Print the result as one JSON document.")

    def handle(self, *args: Any, **options: Any) -> None:
        store = open_store(settings.STORAGE_URL)
        if options["repair"]:
            auditing.record("repair_store", "store", None, now=timezone.now())
        is_deep, is_repair = bool(options["deep"]), bool(options["repair"])
        check_objects = partial(storecheck.check_objects, is_deep=is_deep, by_person=True, is_repair=is_repair)
        check_orphans = partial(storeorphans.check_orphans, by_person=True, is_repair=is_repair)
        objects = _round(check_objects, store, SweepKind.OBJECTS)
        orphans = _round(check_orphans, store, SweepKind.ORPHANS)
        found = StoreFinding.objects.filter(resolved_at=None).order_by("kind", "storage_key")
        found = found.select_related("artifact__version__document", "artifact__version__job")
        facts = {
            "objects": objects.looked_at,
            "listed": orphans.looked_at,
            "listed_others": orphans.others,
            "open": {kind.value: found.filter(kind=kind).count() for kind in FindingKind},
            "trouble": " ".join(filter(None, (objects.trouble, orphans.trouble))) or None,
            "findings": [_finding(each) for each in found[:FINDINGS_SHOWN]],
        }
        if options["json"]:
            self.stdout.write(json.dumps(facts, ensure_ascii=False, indent=2))
        else:
            self._write(facts)
        if facts["trouble"]:
            raise SystemExit(choosing.REFUSED)
        if facts["findings"]:
            raise SystemExit(3)

    def _write(self, facts: dict[str, Any]) -> None:
        others = f" ({facts['listed_others']:,} of them manifests, inputs, requests or damaged PDFs kept aside)"
        listed = f"{facts['listed']:,} objects listed{others if facts['listed_others'] else ''}"
        self.stdout.write(f"{facts['objects']:,} stored PDFs looked at, {listed}.")
        if facts["trouble"]:
            self.stdout.write(tables.printable(facts["trouble"]))
        if not facts["findings"]:
            self.stdout.write("Nothing is open.")
            return
        self.stdout.write("Open: " + ", ".join(f"{count:,} {kind}" for kind, count in facts["open"].items() if count))
        for line in _happening(facts["findings"]):
            self.stdout.write(tables.printable(line))
        if facts["open"][FindingKind.ORPHANED]:
            days = storeorphans.ORPHAN_REMOVED_AGE.days
            self.stdout.write(f"What is orphaned stays until `--repair` removes what is older than {days} days.")
        rows = [(each["kind"], each["key"], each["document"] or "", each["words"]) for each in facts["findings"]]
        tables.write(self.stdout, ("kind", "key", "document", "what"), rows)
        if sum(facts["open"].values()) > len(rows):
            self.stdout.write(f"The first {len(rows)} are shown; the admin lists all under “Store findings”.")


def _round(check: Callable[..., SliceReport], store: ArtifactStore, kind: SweepKind) -> SliceReport:
    """Slice after slice from the first key to the last. Raises a refusal while another worker is in one."""
    storeslices.begin_anew(kind)
    clock, owner = SystemClock(), f"{socket.gethostname()[:30]}:{os.getpid()}:command"
    looked_at = others = 0
    while True:
        report = check(store, clock, owner=owner)
        if report.is_busy:
            raise choosing.refusal("The store is being checked by another process just now; try again in a minute.")
        looked_at += report.looked_at
        others += report.others
        if report.is_round_over or report.trouble:
            return replace(report, looked_at=looked_at, others=others)


def _finding(finding: StoreFinding) -> dict[str, Any]:
    version = finding.artifact.version if finding.artifact else None
    return {
        "kind": finding.kind,
        "key": finding.storage_key,
        "document": str(version) if version else None,
        "bytes": finding.byte_count,
        "words": finding.words,
        "what_follows": storerepair.what_follows(finding),
        "found_at": results.timestamp(finding.found_at),
    }


def _happening(findings: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What happens to the documents, counted; a key to put back stands on a line of its own."""
    about = Counter(each["what_follows"] for each in findings if each["document"])
    for what, count in about.items():
        yield f"{count:,} {'is' if count == 1 else 'are'} {what}."
