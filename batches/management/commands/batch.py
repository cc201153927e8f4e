"""`manage.py batch ID [--json]`: a batch's state and counters; pause it, let it go on, or cancel it."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from batches import selectors, wording
from batches.engine import running
from batches.engine.errors import SpendCapReached
from batches.management import auditing, choosing, tables
from batches.management.readiness import DatabaseCommand
from batches.models import Batch


class Command(DatabaseCommand):
    help = (
        "Show a batch: its state, its counters and what became of each document; pause it, let it go on, or cancel it. "
        "Exits 0 in any state, and where there is nothing to do; 2 where a cancelled batch is to be resumed."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", help="The batch's id, as in bat_…")
        parser.add_argument("--json", action="store_true", help="Print the batch as one JSON document.")
        what = parser.add_mutually_exclusive_group()
        what.add_argument(
            "--pause", action="store_true", help="Send nothing new of it; what the provider has is still saved."
        )
        what.add_argument("--resume", action="store_true", help="Let a paused batch go on; harmless when not paused.")
        what.add_argument(
            "--cancel", action="store_true", help="Give up what was not sent, for good; what the provider has is saved."
        )
        parser.add_argument(
            "--spend-cap", type=choosing.amount, metavar="AMOUNT", help="With --resume: raise its spend cap to this."
        )
        parser.add_argument("--reason", default="", help="Why; needed with --pause and --cancel.")

    def handle(self, *args: Any, **options: Any) -> None:
        changes = options["pause"] or options["resume"] or options["cancel"]
        batch = (choosing.open_batch if changes else choosing.batch)(options["id"])
        done = _change(batch, options)
        batch = choosing.batch(batch.public_id)
        if done:  # beside the one document of --json
            (self.stderr if options["json"] else self.stdout).write(done)
        if options["json"]:
            self.stdout.write(json.dumps(selectors.batch_json(batch), ensure_ascii=False, indent=2))
        else:
            tables.write_batch(self.stdout, batch)


def _change(batch: Batch, options: dict[str, Any]) -> str:
    """Do what was asked for; what was done, in words, or nothing where nothing was asked."""
    reason = options["reason"].strip()
    if options["spend_cap"] is not None and not options["resume"]:
        raise choosing.refusal("--spend-cap goes with --resume.")
    if options["pause"]:
        return _pause(batch, _given(reason))
    if options["cancel"]:
        return _cancel(batch, _given(reason))
    if options["resume"]:
        return _resume(batch, reason, options["spend_cap"])
    if reason:
        raise choosing.refusal("--reason goes with --pause, --resume or --cancel.")
    return ""


def _given(reason: str) -> str:
    if not reason:
        raise choosing.refusal("Say why with --reason; the words are kept with what was done.")
    return reason


def _pause(batch: Batch, reason: str) -> str:
    if _has_ended(batch):
        return "It has ended already; nothing was paused."
    if not running.pause(batch.pk, reason=reason, by=auditing.by(), now=timezone.now()):
        return "It was paused or cancelled already; that stays as it is."
    return (
        "Paused: nothing new of it is sent. What the provider has is still saved, and what may have left is settled "
        f"under its own key. Let it go on with: {wording.resume_command(batch.public_id)}"
    )


def _resume(batch: Batch, reason: str, spend_cap: Decimal | None) -> str:
    try:
        if running.resume(batch.pk, reason=reason, by=auditing.by(), now=timezone.now(), spend_cap=spend_cap):
            return wording.RELEASED if batch.waits_for_release else "Resumed."
    except SpendCapReached as reached:
        raise choosing.refusal(reached.words) from reached
    if batch.cancelled_at is not None:
        raise choosing.refusal("It is cancelled for good; nothing was resumed.")
    return "It was not paused."


def _cancel(batch: Batch, reason: str) -> str:
    if _has_ended(batch):
        return "It has ended already; nothing was cancelled."
    if not running.cancel(batch.pk, reason=reason, by=auditing.by(), now=timezone.now()):
        return "It was cancelled already."
    return "Cancelled: what was not sent is given up; what the provider has is still saved."


def _has_ended(batch: Batch) -> bool:
    return selectors.progress(batch).state in wording.ENDED_STATES
