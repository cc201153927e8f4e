"""`manage.py loadtest`: small steps of concurrency against an account, until useful throughput stops rising.

Refuses what costs, runs the steps (`loadtest_run.py`) and prints what they saw. The documents are invented and lie in
a workspace of their own.

Exit codes: 0 done, 2 refused or nothing moves, 130 interrupted.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentTypeError
from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from batches.management import choosing, loadtest_run
from batches.management import loadtest_rules as rules
from batches.management.loadtest_probes import Probes
from batches.management.loadtest_run import LoadTest
from batches.management.readiness import DatabaseCommand
from batches.models import ProviderAccount, Workspace
from batches.models.accounts import IN_FLIGHT_MOST

WORKSPACE = "loadtest"
STEPS = "1,2,4,8,16,32"
STEP_SECONDS = 15.0
DOCUMENTS = 2000
MOST_DOCUMENTS = 100_000
INTERRUPTED = 130


class Command(DatabaseCommand):
    help = "Find out how many documents at once are worth it: steps of concurrency against the sandbox."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--account", metavar="SLUG", help="The account to test; the default one if not given.")
        parser.add_argument(
            "--steps", type=_steps, default=STEPS, metavar="N,N", help="Concurrencies, rising (default %(default)s)."
        )
        parser.add_argument("--seconds-per-step", type=_seconds, default=STEP_SECONDS, metavar="S")
        parser.add_argument(
            "--documents", type=_count, default=DOCUMENTS, metavar="N", help="Most documents in all (%(default)s)."
        )
        parser.add_argument("--json", action="store_true", help="Print the result as one JSON document.")
        parser.add_argument("--yes", action="store_true", help="Spend money: test an account that is not a sandbox.")

    def handle(self, *args: Any, **options: Any) -> None:
        workspace = Workspace.objects.get_or_create(
            slug=WORKSPACE, defaults={"name": "Load test", "created_at": timezone.now()}
        )[0]
        account = choosing.account_for(workspace, options["account"])
        self._refuse_what_costs(account, options["documents"], confirmed=options["yes"])
        loadtest_run.refuse_held(account)
        if workspace.archived_at:
            raise choosing.refusal(f"The workspace {WORKSPACE} is archived; a load test needs it.")
        if loadtest_run.repair(account):
            self.stderr.write(f"A load test was killed before; max_in_flight is {account.max_in_flight} again.")
        steps: list[rules.Step] = []
        stopped = interrupted = False
        with loadtest_run.stops_noted() as stops:
            test = LoadTest(workspace, account, options["documents"], stops)
            try:
                with loadtest_run.limits_put_back(account, options["steps"]) as limit, Probes() as probes:
                    for concurrency in options["steps"]:
                        step = test.step(concurrency, options["seconds_per_step"], probes, limit)
                        steps.append(step)
                        if not options["json"]:
                            self._say(step, is_first=len(steps) == 1)
                        stopped = rules.has_stopped_rising([step.rate for step in steps])
                        if stopped or step.ran_dry:
                            break
            except loadtest_run.StopAsked:
                interrupted = True
            finally:
                test.cancel_the_rest()
        self._conclude(account, steps, stopped=stopped, interrupted=interrupted, as_json=options["json"])

    def _refuse_what_costs(self, account: ProviderAccount, documents: int, *, confirmed: bool) -> None:
        if rules.is_test_address(account.base_url):
            return
        price = rules.price_words(documents, account.price_per_job, account.price_currency)
        if not confirmed:
            raise choosing.refusal(
                f"{account.slug} is no sandbox ({account.base_url}), so this would be billed: {price}. "
                "Give --yes to spend that, or --documents for fewer."
            )
        self.stderr.write(f"This is billed by {account.base_url}: {price}.")

    def _say(self, step: rules.Step, *, is_first: bool) -> None:
        if is_first:
            self.stdout.write(
                f"{'at once':>8}{'saved/s':>9}{'saved':>7}{'oldest':>9}{'p50':>8}{'p95':>8}{'p99':>8}"
                f"{'retries':>9}{'memory':>9}   database waits ({step.database_wait_unit})"
            )
        latencies = "".join(
            f"{_or_dash(value, '{:.2f} s'):>8}" for value in (step.latency_p50, step.latency_p95, step.latency_p99)
        )
        self.stdout.write(
            f"{step.concurrency:>8}{step.rate:>9.1f}{step.completions:>7}{step.oldest_pending_seconds:>7.1f} s"
            f"{latencies}{100 * step.retry_share:>7.1f} %{_or_dash(step.memory_megabytes, '{:.0f} MB'):>9}"
            f"   {_or_dash(step.database_wait, '{:.1f}')}{'   documents ran out' if step.ran_dry else ''}"
        )
        self.stdout.flush()

    def _conclude(
        self, account: ProviderAccount, steps: list[rules.Step], *, stopped: bool, interrupted: bool, as_json: bool
    ) -> None:
        account.refresh_from_db(fields=["max_in_flight"])
        pace = rules.pace_allows(account.submit_interval_ms)
        words = rules.verdict(steps, stopped=stopped, pace=pace) if steps else "It ended before the first step did."
        if as_json:
            found = {
                "account": account.slug,
                "steps": [step.as_dict() for step in steps],
                "best_concurrency": rules.best(steps).concurrency if steps else None,
                "stopped_rising": stopped,
                "interrupted": interrupted,
                "words": words,
            }
            self.stdout.write(json.dumps(found, ensure_ascii=False, indent=2))
        else:
            self.stdout.write(words)
            self.stdout.write(
                f"Latency is from sending to the stored PDF. max_in_flight is now {account.max_in_flight}."
            )
        if interrupted:
            self.stderr.write("Interrupted; the account's limits are as before and what was not sent is cancelled.")
            sys.exit(INTERRUPTED)


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _steps(text: str) -> list[int]:
    try:
        steps = [int(part) for part in text.split(",")]
    except ValueError:
        steps = []
    if not steps or steps[0] < 1 or steps != sorted(set(steps)) or steps[-1] > IN_FLIGHT_MOST:
        raise ArgumentTypeError(
            f"{text!r} are no steps; give rising whole numbers up to {IN_FLIGHT_MOST}, such as {STEPS}."
        )
    return steps


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 3600:
        raise ArgumentTypeError(f"{text!r} is no length of a step; give seconds from 1 to 3600.")
    return seconds


def _count(text: str) -> int:
    count = int(text) if text.isdecimal() else 0
    if not 1 <= count <= MOST_DOCUMENTS:
        raise ArgumentTypeError(f"{text!r} is no number of documents; give 1 to {MOST_DOCUMENTS}.")
    return count
