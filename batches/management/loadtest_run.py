"""The running of a load test: documents are offered, a step is watched, and the account's limits are put back.

Concurrency is the account's max_in_flight, which is set step by step and put back at the end, also after Ctrl-C,
SIGTERM or an error; what was not sent by then is cancelled. A running cluster does the work: this only offers and
looks. What the numbers mean is `loadtest_rules.py`, what is seen beside the documents `loadtest_probes.py`.
"""

from __future__ import annotations

import io
import json
import secrets
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import Max, Min
from django.utils import timezone

from batches import sentences, storage
from batches.engine import intake, running
from batches.engine.clock import SystemClock
from batches.management import auditing, choosing
from batches.management import loadtest_rules as rules
from batches.management.loadtest_probes import Probes
from batches.manifests import from_upload
from batches.models import (
    AccountHealth,
    Artifact,
    AuditEntry,
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
from batches.processes import SignalPipe

#: Pumps read an account's limits once a second; what is in flight by then fills up.
SETTLE_SECONDS = 2.0
LOOK_SECONDS = 0.5
#: After this long without a pump there is no cluster: it rings for due work each two seconds.
PATIENCE_SECONDS = 20.0


class StopAsked(Exception):
    """SIGTERM or Ctrl-C arrived."""


class LoadTest:
    """One run: offers documents and looks at what the cluster makes of them. Its clock is the engine's."""

    def __init__(self, workspace: Workspace, account: ProviderAccount, documents: int, stops: SignalPipe) -> None:
        self._workspace, self._account, self._stops = workspace, account, stops
        self._left = documents
        self._run = secrets.token_hex(4)
        self._batches: list[Batch] = []
        self._offered = 0
        self._rate = 0.0
        self._clock = SystemClock()
        self._clock.calibrate()
        self._store = storage.open_store(settings.STORAGE_URL)
        self._mine = Job.objects.filter(version__document__workspace=workspace, account=account)

    def step(self, concurrency: int, seconds: float, probes: Probes, limit: Borrowed) -> rules.Step:
        """Let so many be in flight and measure for so long.

        Raises `CommandError` when nothing works on it, `StopAsked` when that was asked.
        """
        limit.set(concurrency)
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
        self._end_if_asked()
        return step

    def cancel_the_rest(self) -> None:
        """Give up what was not sent."""
        for batch in self._batches:
            running.cancel(batch.pk, reason="The load test has ended.", by=auditing.by(), now=self._clock.now())

    def _watch(self, concurrency: int, seconds: float) -> tuple[float, bool]:
        """Keep documents waiting for so long; the age of the oldest one seen, and whether they ran out."""
        ends_at = time.monotonic() + seconds
        oldest = 0.0
        while True:
            pending = self._mine.filter(state=JobState.PENDING)
            size = rules.batch_size(self._rate, concurrency, pending.count(), self._left)
            if size:
                self._offer(size)
            self._end_if_asked()
            refuse_held(ProviderAccount.objects.get(pk=self._account.pk))
            first = pending.aggregate(first=Min("created_at"))["first"]
            if first is not None:
                oldest = max(oldest, (self._clock.now() - first).total_seconds())
            elif not self._left:
                return oldest, True
            rest = ends_at - time.monotonic()
            if rest <= 0:
                return oldest, False
            self._pause(min(LOOK_SECONDS, rest))

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
                actor_words=auditing.actor_words(),
                from_where=auditing.FROM_WHERE,
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
            self._pause(LOOK_SECONDS)
        return True

    def _pause(self, seconds: float) -> None:
        self._stops.wait(seconds)
        self._end_if_asked()

    def _end_if_asked(self) -> None:
        if self._stops.take():
            raise StopAsked

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


def refuse_held(account: ProviderAccount) -> None:
    if account.health == AccountHealth.HELD:
        raise choosing.refusal(sentences.held_account(account))


class Borrowed:
    """The account's max_in_flight while a test sets it. Only what the test itself wrote is ever written over."""

    def __init__(self, account: ProviderAccount) -> None:
        self._account = account
        self._mine = account.max_in_flight

    def set(self, value: int) -> None:
        if not self._replace(value):
            raise choosing.refusal("Somebody changed max_in_flight meanwhile; that stays, and the load test ends.")

    def put_back(self) -> None:
        self._replace(self._account.max_in_flight)

    def _replace(self, value: int) -> bool:
        row = ProviderAccount.objects.filter(pk=self._account.pk, max_in_flight=self._mine)
        self._mine = value
        return bool(row.update(max_in_flight=value))


@contextmanager
def limits_put_back(account: ProviderAccount, steps: Sequence[int]) -> Iterator[Borrowed]:
    """Whatever happens in the block, max_in_flight is afterwards what it was; both ends stand in the audit log.

    What a kill -9 leaves behind is put back by `repair`, from what the first entry says.
    """
    borrowed = Borrowed(account)
    _record(account, "start_load_test", {"max_in_flight": account.max_in_flight, "steps": list(steps)})
    try:
        yield borrowed
    finally:
        borrowed.put_back()
        _record(account, "end_load_test", {"max_in_flight": account.max_in_flight})


def repair(account: ProviderAccount) -> bool:
    """Put max_in_flight back where a load test of the account was killed before it could; whether there was one.

    A value that is none of its steps is a person's, and stays.
    """
    told = AuditEntry.objects.filter(subject=_subject(account), action__in=("start_load_test", "end_load_test"))
    last = told.order_by("-pk").first()
    if last is None or last.action != "start_load_test":
        return False
    before, steps = last.facts.get("max_in_flight"), last.facts.get("steps", [])
    left = ProviderAccount.objects.filter(pk=account.pk, max_in_flight__in=steps)
    is_left = isinstance(before, int) and bool(left.update(max_in_flight=before))
    _record(account, "end_load_test", {"max_in_flight": before, "repaired": is_left})
    account.refresh_from_db(fields=["max_in_flight"])
    return is_left


def _subject(account: ProviderAccount) -> str:
    return f"account {account.slug}"


def _record(account: ProviderAccount, action: str, facts: dict[str, Any]) -> None:
    auditing.record(action, _subject(account), account.workspace, now=timezone.now(), facts=facts)


@contextmanager
def stops_noted() -> Iterator[SignalPipe]:
    """SIGTERM and Ctrl-C end a wait at once and nothing else, so that a second one cannot end the putting back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    stops = SignalPipe(*before)
    try:
        yield stops
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        stops.close()
