"""`manage.py submit FILE`: hand a manifest over, and wait for its PDFs if asked to.

Exit codes (docs/architecture.md, "Stable interfaces"): 0 complete (or stored, without --wait), 2 refused, 3 partly
complete or cancelled, 4 failed, 5 still running at the timeout.
"""

from __future__ import annotations

import json
import secrets
import sys
import threading
import time
from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from django.utils import timezone

from batches import figures, filenames, selectors, sentences, storage, wording
from batches.engine import intake, samples, spending, stopping, versions
from batches.engine.errors import IntakeRefused
from batches.management import auditing, choosing, reading, refusals, tables
from batches.management.readiness import DatabaseCommand
from batches.manifests import Code, ManifestRefused, from_path
from batches.models import SAMPLE_MOST, Batch, ConflictPolicy, TakeRows
from batches.wording import BatchState

EXIT_CODES = {
    BatchState.COMPLETE: 0,
    BatchState.PARTIALLY_COMPLETE: 3,
    BatchState.CANCELLED: 3,
    BatchState.FAILED: 4,
}
STILL_RUNNING = 5
WAIT_SECONDS = 3600.0
LONGEST_WAIT_SECONDS = 30 * 86400
LOOK_EVERY_SECONDS = 0.25
#: A huge batch takes its time to count; looking takes at most a fifth of the waiting.
LOOK_SHARE = 4


class Command(DatabaseCommand):
    help = "Hand over a manifest: a table (CSV, Excel), JSON or JSONL, a ZIP with its files, or a folder."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE|FOLDER")
        parser.add_argument(
            "--name", help="What people call the batch; the file's name without its ending if not given."
        )
        parser.add_argument("--account", metavar="SLUG", help="The provider account; the default one if not given.")
        parser.add_argument("--workspace", metavar="SLUG")
        parser.add_argument(
            "--on-conflict",
            choices=ConflictPolicy.values,
            default=ConflictPolicy.REFUSE,
            help="What to do with an id that is known with other content.",
        )
        _add_rules(parser)
        parser.add_argument(
            "--take",
            choices=TakeRows.values,
            default=TakeRows.ALL,
            help="What to do when rows are wrong: refuse all, or start the good ones and list the others.",
        )
        reading.add_arguments(parser)
        parser.add_argument(
            "--notify",
            action="append",
            default=[],
            metavar="USER",
            help="Tell this user, by e-mail and on the page Notices, when it has finished, needs a person or is held; "
            "may be given more than once.",
        )
        parser.add_argument("--wait", action="store_true", help="Return when the batch has ended.")
        parser.add_argument(
            "--timeout",
            type=_seconds,
            metavar="S",
            help=f"Longest wait, in seconds, with --wait; {WAIT_SECONDS:g} if not given.",
        )
        parser.add_argument("--confirm", action="store_true", help="Start although the check asks for a confirmation.")
        parser.add_argument("--creation-key", metavar="KEY", help="The same key never makes a second batch.")
        parser.add_argument(
            "--dry-run", action="store_true", help="Only check it: what starting it would do, take and cost."
        )
        parser.add_argument(
            "--json",
            action="store_true",
            help="Print the batch as one JSON document; with --dry-run, or where it is refused, the check's answer.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["dry_run"] and options["wait"]:
            raise choosing.refusal("--dry-run starts nothing, so there is nothing to --wait for.")
        if options["timeout"] is not None and not options["wait"]:
            raise choosing.refusal("--timeout says how long --wait waits; give --wait as well, or leave it out.")
        if not 0 <= options["sample"] <= SAMPLE_MOST:
            raise choosing.refusal(f"--sample takes a number from 0 to {SAMPLE_MOST}.")
        timeout = WAIT_SECONDS if options["timeout"] is None else options["timeout"]
        batch = self._started(options)
        if batch is None:
            return
        if not options["json"]:
            self._say_started(batch)
        progress = self._ended(batch, timeout) if options["wait"] else selectors.progress(batch)
        if options["json"]:
            self.stdout.write(json.dumps(selectors.batch_json(batch), ensure_ascii=False, indent=2))
        elif options["wait"]:
            tables.write_batch(self.stdout, batch)
        code = EXIT_CODES.get(progress.state, STILL_RUNNING) if options["wait"] else 0
        if code:
            sys.exit(code)

    def _started(self, options: dict[str, Any]) -> Batch | None:
        """Check and start, or (None) only check; a refusal is printed whole and ends the command with exit code 2."""
        workspace = choosing.workspace(options["workspace"])
        account = choosing.account_for(workspace, options["account"])
        people = choosing.listeners(workspace, options["notify"])
        try:
            _refuse_an_empty_folder(Path(options["file"]))
            source = from_path(options["file"])
            check = intake.check(
                source,
                workspace=workspace,
                account=account,
                on_conflict=options["on_conflict"],
                choices=reading.choices_of(options, source, workspace),
                take=options["take"],
            )
        except ManifestRefused as refused:
            raise self._refusal(refused.report(), as_json=options["json"]) from refused
        with check.manifest:
            versions.note_offered(check, now=timezone.now())
            if not check.ok:
                raise self._refusal(check.report(), as_json=options["json"])
            refusals.write_report(self.stderr, check.report())
            if check.left_out_count:
                self.stderr.write(f"{check.left_out_count:,} of {check.manifest.row_count:,} rows are left out.")
            if options["dry_run"]:
                self._say_plan(check, options)
                return None
            if check.plan.needs_confirmation and not options["confirm"]:
                raise choosing.refusal("The notices above need a confirmation; give --confirm to start all the same.")
            try:
                return intake.start(
                    check,
                    name=options["name"] or filenames.batch_name(check.manifest.filename),
                    actor=None,
                    actor_words=auditing.actor_words(),
                    from_where=auditing.FROM_WHERE,
                    creation_key=options["creation_key"] or secrets.token_urlsafe(32),
                    store=storage.open_store(settings.STORAGE_URL),
                    now=timezone.now(),
                    confirmed=options["confirm"],
                    rules=stopping.Rules(
                        options["weight"], options["stop_after_failures"], options["stop_after_percent"]
                    ),
                    spend_cap=options["spend_cap"],
                    sample_size=options["sample"],
                    notify=people,
                )
            except IntakeRefused as refused:
                raise choosing.refusal(refused.words) from refused

    def _refusal(self, report: dict[str, Any], *, as_json: bool) -> CommandError:
        if as_json:
            self.stdout.write(json.dumps({"refused": True} | report, ensure_ascii=False, indent=2))
        refusals.write_report(self.stderr, report)
        return choosing.refusal("The manifest was refused; see above.")

    def _say_plan(self, check: intake.Check, options: dict[str, Any]) -> None:
        """What starting it would do, and what that takes and costs. Ends the command where the cap forbids it."""
        report = check.report()
        if options["json"]:
            self.stdout.write(json.dumps(report, ensure_ascii=False, indent=2))
        else:
            self.stdout.write("Nothing was started. Starting it:")
            for outcome, count in report["summary"].items():
                if count:
                    self.stdout.write(f"    {count:,} {outcome.replace('_', ' ')}")
            estimate = check.estimate
            if estimate is not None and estimate.renders:
                cost = f", and costs about {estimate.cost_words}" if estimate.cost_words else ""
                renders = figures.documents(estimate.renders)
                self.stdout.write(f"Sends {renders} to {check.account.name}; that takes {estimate.duration}{cost}.")
                self.stdout.write(f"Time: {estimate.seconds_basis}. Cost: {estimate.basis}.")
        try:
            spending.refuse_to_start(check.account, options["spend_cap"], check.render_count)
        except IntakeRefused as refused:
            raise choosing.refusal(refused.words) from refused

    def _say_started(self, batch: Batch) -> None:
        """The batch's id on a line of its own, then what there is to do and what was done before."""
        counts = selectors.batch_counts(batch)
        self.stdout.write(batch.public_id)
        if counts.saved:
            self.stdout.write(f"{counts.saved:,} already saved")
        if counts.failed:
            its = "it" if counts.failed == 1 else "them"
            self.stdout.write(f"{counts.failed:,} failed before: nothing is sent for {its}")
        waiting = counts.in_progress + counts.held
        if waiting:
            held = (
                f" (account {batch.account.slug} is held: {wording.sentence(batch.account.hold_words)})"
                if counts.held
                else ""
            )
            self.stdout.write(f"{figures.documents(waiting)} to go{held}")
        sample = samples.of(batch)
        if sample is not None:
            how = wording.resume_command(batch.public_id)
            first = figures.documents(selectors.batch_counts(sample).total)
            named = f"{first} of them rendered first, as batch {sample.public_id}"
            self.stdout.write(f"{named}; release the others with: {how}")
        elif "sample_words" in batch.report:
            self.stdout.write(batch.report["sample_words"])

    def _ended(self, batch: Batch, timeout: float) -> selectors.Progress:
        """Look until the batch has ended or the time is up; say once on the way when it waits for a person."""
        until = time.monotonic() + timeout
        never = threading.Event()
        held_said = paused_said = False
        while True:
            begun = time.monotonic()
            progress = selectors.progress(batch)
            if progress.state in wording.ENDED_STATES or time.monotonic() >= until:
                return progress
            if progress.state == BatchState.HELD and not held_said:
                held_said = True
                for account in selectors.held_accounts(batch, progress):
                    self.stderr.write(f"Account {sentences.held_account(account)}")
            if progress.state == BatchState.PAUSED and not paused_said:
                paused_said = True
                reason = Batch.objects.values_list("pause_reason", flat=True).get(pk=batch.pk)
                self.stderr.write(f"The batch is paused: {wording.sentence(reason or 'no reason was given')}")
            pause = max(LOOK_EVERY_SECONDS, LOOK_SHARE * (time.monotonic() - begun))
            never.wait(min(pause, max(0.0, until - time.monotonic())))


def _add_rules(parser: CommandParser) -> None:
    """How fast it goes, how much of it at first, and when it stops by itself."""
    parser.add_argument(
        "--weight", type=int, default=1, metavar="W", help="Its share beside other running batches, 1 to 100."
    )
    parser.add_argument("--stop-after-failures", type=int, metavar="N", help="Pause by itself after N failures.")
    parser.add_argument(
        "--stop-after-percent",
        type=int,
        metavar="P",
        help="Pause by itself when P per cent of the finished documents have failed.",
    )
    parser.add_argument(
        "--sample",
        type=int,
        default=0,
        metavar="N",
        help=f"Render N documents first, at most {SAMPLE_MOST}; the others wait for their release.",
    )
    parser.add_argument(
        "--spend-cap",
        type=choosing.amount,
        metavar="AMOUNT",
        help="Pause by itself before it may have cost more, in the account's currency.",
    )


def _refuse_an_empty_folder(path: Path) -> None:
    """Raises `ManifestRefused` for what the check could only call by another name."""
    try:
        is_empty = path.is_dir() and not any(path.iterdir())
    except OSError:  # the check says why it cannot be read
        return
    if is_empty:
        raise ManifestRefused(
            Code.NO_MANIFEST,
            f"The folder {path} is empty.",
            "Put a manifest (manifest.json, manifest.csv or manifest.xlsx) into it, beside the files that it names.",
        )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= LONGEST_WAIT_SECONDS:
        raise ArgumentTypeError(f"{text!r} is no length of time; give seconds from 0 to {LONGEST_WAIT_SECONDS}.")
    return seconds
