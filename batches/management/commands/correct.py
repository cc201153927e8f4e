"""`manage.py correct ID FILE --reason WHY`: corrected rows take the place of the failed ones that they name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, BinaryIO, cast

from django.conf import settings
from django.core.management.base import CommandParser
from django.utils import timezone

from batches import figures, manifests, rownumbers, sentences, storage, wording
from batches.engine import correcting, drafts, intake, templates
from batches.engine.correcting import Correction
from batches.engine.errors import IntakeRefused
from batches.engine.orders import Order
from batches.management import auditing, choosing, reading, refusals
from batches.management.readiness import DatabaseCommand
from batches.management.tables import printable
from batches.manifests import ManifestRefused, ManifestSource, from_path
from batches.manifests.choices import Choices
from batches.models import Batch
from batches.storage import ArtifactStore, StoreError

#: Outcomes in their order, with what is said of each; rows of the others are counted only.
OUTCOMES = {
    "corrected": "corrected: rendered as the next version",
    "unchanged": "unchanged: what failed before, nothing is sent",
    "left_alone": "left alone: not failed",
    "refused": "refused",
}
NAMED = ("refused", "left_alone")
ROWS_NAMED = 10


class Command(DatabaseCommand):
    help = (
        "Replace the failed rows of a batch that FILE names, by their ids, with the rows of FILE: mostly the batch's "
        "own list of failed rows (failed.csv), edited. Each that differs becomes the next version, and bills 1; rows "
        "that are not failed, or that FILE does not name, stay as they are. Exits 2 where nothing can be replaced."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", help="The batch's id, as in bat_…")
        parser.add_argument("file", metavar="FILE|FOLDER")
        reading.add_arguments(parser)
        parser.add_argument("--reason", default="", help="Why, for the audit log; needed.")
        parser.add_argument("--confirm", action="store_true", help="Go on where a row asks for confirmation.")
        parser.add_argument("--dry-run", action="store_true", help="Only say what would be done, and what it may bill.")
        parser.add_argument("--json", action="store_true", help="Print one JSON document.")

    def handle(self, *args: Any, **options: Any) -> None:
        if not options["reason"].strip() and not options["dry_run"]:
            raise choosing.refusal("Correcting rows asks for a reason: --reason '…'.")
        batch = choosing.open_batch(options["id"])
        store = storage.open_store(settings.STORAGE_URL)
        now = timezone.now()
        try:
            with _read(batch, from_path(options["file"]), options, store, now=now) as correction:
                self._carry_out(correction, options, store, now=now)
        except ManifestRefused as refused:
            self._print(batch, refused.report() | {"ok": False}, options, is_done=False)
            raise choosing.refusal("The file was refused; see above.") from refused
        except StoreError as error:
            raise choosing.refusal(f"The store does not answer, so nothing was done. {error.words}") from error

    def _carry_out(
        self, correction: Correction, options: dict[str, Any], store: ArtifactStore, *, now: datetime
    ) -> None:
        batch, report = correction.plan.batch, correction.report()
        words = "" if report["ok"] else _why_not(report)
        is_dry = options["dry_run"]
        if not words and not is_dry:
            if correction.plan.needs_confirmation and not options["confirm"]:
                words = "The notices above need a confirmation; give --confirm to go on all the same."
            else:
                words = _replaced(correction, options, store, now=now)
        self._print(batch, report, options, is_done=not words and not is_dry)
        if words:
            raise choosing.refusal(words)

    def _print(self, batch: Batch, report: dict[str, Any], options: dict[str, Any], *, is_done: bool) -> None:
        if options["json"]:
            told = {"batch": batch.public_id, "dry_run": options["dry_run"], "done": is_done}
            self.stdout.write(json.dumps(told | report, ensure_ascii=False, indent=2))
        refusals.write_report(self.stderr, report)
        if options["json"] or "rows_by_outcome" not in report:
            return
        renders = figures.documents(report["renders"])
        cost = report["estimate"]["cost"]
        price = f", about {cost} {report['estimate']['currency']}".rstrip() if cost else ""
        does = ("is" if report["renders"] == 1 else "are") + " rendered" if is_done else "would be rendered"
        self.stdout.write(f"{renders} of {batch.public_id} {does}: bills {report['renders']:,} at most{price}.")
        for outcome, meaning in OUTCOMES.items():
            count = report["summary"][outcome]
            if count:
                self.stdout.write(f"{count:,} {meaning}")
            for row in report["rows_by_outcome"][outcome][:ROWS_NAMED] if outcome in NAMED else ():
                self.stdout.write(
                    printable(f"    row {rownumbers.said(row['row'])} (line {row['line']}) {row['id']}: {row['words']}")
                )


@contextmanager
def _read(
    batch: Batch, source: ManifestSource, options: dict[str, Any], store: ArtifactStore, *, now: datetime
) -> Iterator[Correction]:
    """The file, read as the batch's own was as far as the command line says nothing else."""
    choices = _choices(batch, source, options)
    with correcting.read(
        source, batch, choices=choices, may_regenerate_final=False, store=store, now=now, progress=intake.unheard
    ) as correction:
        yield correction


def _choices(batch: Batch, source: ManifestSource, options: dict[str, Any]) -> Choices:
    kept = correcting.remembered_choices(batch)
    if not options["template"] and kept.template:
        version = options["template_version"] or kept.template_version
        at_provider = kept.are_provider_templates
        options = options | {
            "template": kept.template,
            "template_version": version,
            "template_at_provider": at_provider,
        }
    chosen = reading.choices_of(options, source, batch.workspace)
    if chosen.mapping is not None:
        return chosen
    seen = manifests.look(source, choices=chosen, templates=templates.of(batch.workspace))
    fitting = correcting.fitting_choices(batch, seen.as_dict())
    return replace(chosen, mapping=fitting.mapping, encoding=chosen.encoding or fitting.encoding)


def _why_not(report: dict[str, Any]) -> str:
    if report["errors"]:
        return "The file was refused; see above."
    if report["summary"]["refused"]:
        return correcting.ALL_REFUSED
    return wording.NOTHING_TO_REPLACE


def _replaced(correction: Correction, options: dict[str, Any], store: ArtifactStore, *, now: datetime) -> str:
    """Keep the file as evidence and replace the rows; why it was not done, or nothing."""
    batch, by, reason = correction.plan.batch, auditing.by(), options["reason"].strip()
    upload = drafts.Upload(
        cast(BinaryIO, correction.manifest.upload),
        correction.manifest.filename,
        workspace=batch.workspace,
        account=batch.account,
        name=sentences.correction_name(batch),
        target=batch,
        reason=reason,
    )
    draft = drafts.receive(upload, by=by, store=store, now=now)
    order = Order(by, reason=reason, is_confirmed=options["confirm"])
    try:
        correcting.replace_rows(correction, key=draft.public_id, order=order, store=store, now=now)
    except IntakeRefused as refused:
        drafts.discard(draft.pk, by=by, store=store, now=now)
        return refused.words
    drafts.note_done(draft.pk, now=now)
    return ""
