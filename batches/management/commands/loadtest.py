"""`manage.py loadtest`: small steps of concurrency against an account, until useful throughput stops rising.

Concurrency is the account's max_in_flight, which is set step by step and put back at the end, also after Ctrl-C or an
error. The documents are invented and lie in a workspace of their own; what was not sent in the end is cancelled. A
running cluster does the work: this command only offers and looks.

Exit codes: 0 done, 2 refused or nothing moves, 130 interrupted.
"""

from __future__ import annotations

import io
import json
import secrets
import signal
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from types import FrameType
from typing import Any, NoReturn

from django.conf import settings
from django.core.management.base import CommandParser
from django.db.models import Max, Min
from django.utils import timezone

from batches import storage, wording
from batches.engine import audit, intake, running
from batches.engine.audit import By
from batches.engine.clock import SystemClock
from batches.management import choosing
from batches.management import loadtest_rules as rules
from batches.management.loadtest_probes import Probes
from batches.management.readiness import DatabaseCommand
from batches.manifests import from_upload
from batches.models import (
    AccountHealth,
    Artifact,
    Batch,
    Exchange,
    ExchangeKind,
    Job,
    JobState,
    ProviderAccount,
    PumpSlot,
    Submission,
    Workspace,
)

WORKSPACE = "loadtest"
STEPS = "1,2,4,8,16,32"
STEP_SECONDS = 15.0
DOCUMENTS = 2000
MOST_DOCUMENTS = 100_000
#: Pumps read an account's limits once a second; what is in flight by then fills up.
SETTLE_SECONDS = 2.0
LOOK_SECONDS = 0.5
#: After this long without a pump there is no cluster: it rings for due work each two seconds.
PATIENCE_SECONDS = 20.0
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
        _refuse_held(account)
        if workspace.archived_at:
            raise choosing.refusal(f"The workspace {WORKSPACE} is archived; a load test needs it.")
        test = LoadTest(workspace, account, options["documents"])
        steps: list[rules.Step] = []
        stopped = interrupted = False
        with _sigterm_as_ctrl_c():
            try:
                with _limits_put_back(account), Probes() as probes:
                    for concurrency in options["steps"]:
                        step = test.step(concurrency, options["seconds_per_step"], probes)
                        steps.append(step)
                        if not options["json"]:
                            self._say(step, is_first=len(steps) == 1)
                        stopped = rules.has_stopped_rising([step.rate for step in steps])
                        if stopped or step.ran_dry:
                            break
            except KeyboardInterrupt:
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
                f"Latency is from sending to the stored PDF. max_in_flight is {account.max_in_flight} again."
            )
        if interrupted:
            self.stderr.write("Interrupted; the account's limits are as before and what was not sent is cancelled.")
            sys.exit(INTERRUPTED)


class LoadTest:
    """One run: offers documents and looks at what the cluster makes of them. Its clock is the engine's."""

    def __init__(self, workspace: Workspace, account: ProviderAccount, documents: int) -> None:
        self._workspace, self._account = workspace, account
        self._left = documents
        self._run = secrets.token_hex(4)
        self._batches: list[Batch] = []
        self._offered = 0
        self._rate = 0.0
        self._clock = SystemClock()
        self._clock.calibrate()
        self._store = storage.open_store(settings.STORAGE_URL)
        self._mine = Job.objects.filter(version__document__workspace=workspace, account=account)

    def step(self, concurrency: int, seconds: float, probes: Probes) -> rules.Step:
        """Let so many be in flight and measure for so long. Raises `CommandError` when nothing works on it."""
        ProviderAccount.objects.filter(pk=self._account.pk).update(max_in_flight=concurrency)
        self._watch(concurrency, SETTLE_SECONDS)
        if concurrency and not self._moves():
            raise choosing.refusal(
                "Nothing moves: no cluster works on this database. Start one with `manage.py runcluster` (or "
                "`manage.py runstack`) and run this again; the documents of this run are cancelled."
            )
        mark, begun_at = self._last_exchange(), self._clock.now()
        probes.take()
        oldest, ran_dry = self._watch(concurrency, seconds)
        wait, unit, memory = probes.take()
        ended_at = self._clock.now()
        latencies = self._latencies(begun_at, ended_at)
        submissions, retries = self._submissions(mark, self._last_exchange())
        step = rules.Step(
            concurrency=concurrency,
            seconds=(ended_at - begun_at).total_seconds(),
            completions=len(latencies),
            oldest_pending_seconds=oldest,
            latency_p50=rules.percentile(latencies, 0.50),
            latency_p95=rules.percentile(latencies, 0.95),
            latency_p99=rules.percentile(latencies, 0.99),
            submissions=submissions,
            retries=retries,
            database_wait=wait,
            database_wait_unit=unit,
            memory_megabytes=memory,
            ran_dry=ran_dry,
        )
        self._rate = step.rate
        return step

    def cancel_the_rest(self) -> None:
        """Give up what was not sent."""
        by = By(None, choosing.actor_words(), choosing.FROM_WHERE)
        for batch in self._batches:
            running.cancel(batch.pk, reason="The load test has ended.", by=by, now=self._clock.now())

    def _watch(self, concurrency: int, seconds: float) -> tuple[float, bool]:
        """Keep documents waiting for so long; the age of the oldest one seen, and whether they ran out."""
        ends_at = time.monotonic() + seconds
        oldest = 0.0
        while True:
            pending = self._mine.filter(state=JobState.PENDING)
            size = rules.batch_size(self._rate, concurrency, pending.count(), self._left)
            if size:
                self._offer(size)
            _refuse_held(ProviderAccount.objects.get(pk=self._account.pk))
            first = pending.aggregate(first=Min("created_at"))["first"]
            if first is not None:
                oldest = max(oldest, (self._clock.now() - first).total_seconds())
            elif not self._left:
                return oldest, True
            rest = ends_at - time.monotonic()
            if rest <= 0:
                return oldest, False
            time.sleep(min(LOOK_SECONDS, rest))

    def _offer(self, size: int) -> None:
        """A batch of small invented documents, by the real intake."""
        rows = [
            {
                "id": f"LOAD-{self._run}-{number:06}",
                "html_content": f"<h1>Invoice {number}</h1><p>For Lindqvist, of Okoye. Due: {number % 997}.50 EUR.</p>",
            }
            for number in range(self._offered, self._offered + size)
        ]
        source = from_upload(io.BytesIO(json.dumps(rows).encode()), f"loadtest-{self._run}.json")
        check = intake.check(source, workspace=self._workspace, account=self._account, on_conflict="refuse")
        with check.manifest:
            batch = intake.start(
                check,
                name=f"Load test {self._run}, part {len(self._batches) + 1}",
                actor=None,
                actor_words=choosing.actor_words(),
                from_where=choosing.FROM_WHERE,
                creation_key=secrets.token_urlsafe(32),
                store=self._store,
                now=self._clock.now(),
            )
        self._batches.append(batch)
        self._offered += size
        self._left -= size

    def _moves(self) -> bool:
        """Whether a pump was alive just now, or becomes so while we wait."""
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        while not PumpSlot.objects.filter(lease_until__gt=self._clock.now()).exists():
            if time.monotonic() > give_up_at:
                return False
            time.sleep(LOOK_SECONDS)
        return True

    def _latencies(self, begun_at: datetime, ended_at: datetime) -> list[float]:
        """Seconds from the first send to the stored PDF, of what was stored between."""
        stored = Artifact.objects.filter(
            version__document__workspace=self._workspace,
            submission__account=self._account,
            stored_at__gte=begun_at,
            stored_at__lt=ended_at,
        ).values_list("stored_at", "submission__first_sent_at")
        return [max(0.0, (stored_at - sent_at).total_seconds()) for stored_at, sent_at in stored]

    def _last_exchange(self) -> int:
        return Exchange.objects.aggregate(last=Max("pk"))["last"] or 0

    def _submissions(self, mark: int, until: int) -> tuple[int, int]:
        """Submissions that the account made between two exchanges, and how many of them were repeats."""
        sent = Exchange.objects.filter(account=self._account, kind=ExchangeKind.SUBMIT)
        made = sent.filter(pk__gt=mark, pk__lte=until)
        logical = Submission.objects.filter(pk__in=made.values("submission"))
        begun_before = sent.filter(pk__lte=mark, submission__in=logical.values("pk")).values("submission").distinct()
        count = made.count()
        return count, max(0, count - (logical.count() - begun_before.count()))


def _refuse_held(account: ProviderAccount) -> None:
    if account.health == AccountHealth.HELD:
        what = wording.HOLD_WHAT_TO_DO[account.hold_reason]
        raise choosing.refusal(f"{account.slug} is held: {wording.sentence(account.hold_words)} {what}")


@contextmanager
def _limits_put_back(account: ProviderAccount) -> Iterator[None]:
    """Whatever happens in the block, max_in_flight is afterwards what it was; both ends stand in the audit log."""
    _record(account, "start_load_test")
    try:
        yield
    finally:
        ProviderAccount.objects.filter(pk=account.pk).update(max_in_flight=account.max_in_flight)
        _record(account, "end_load_test")


def _record(account: ProviderAccount, action: str) -> None:
    audit.record(
        action,
        subject=f"account {account.slug}",
        workspace=account.workspace,
        actor=None,
        actor_words=choosing.actor_words(),
        from_where=choosing.FROM_WHERE,
        now=timezone.now(),
        facts={"max_in_flight": account.max_in_flight},
    )


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    def end_in_order(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end_in_order)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _steps(text: str) -> list[int]:
    try:
        steps = [int(part) for part in text.split(",")]
    except ValueError:
        steps = []
    if not steps or steps[0] < 1 or steps != sorted(set(steps)):
        raise ArgumentTypeError(f"{text!r} are no steps; give rising whole numbers such as {STEPS}.")
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
