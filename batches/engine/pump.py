"""The pump: claims due jobs, runs their next step on threads, writes the outcomes together, until its time is up.

It decides in which order things are done and hands each claim from one part to the next: what waits to be sent
(`departures`), read (`polls`, `reads`), fetched (`fetches`) and written (`outbox`), and what is beside (`errands`).
Only the thread that runs `run` touches the database; steps run on pools and know only providers and the store.
Nothing that matters is in memory alone: whatever a pump holds when it dies is claimed again when its leases end.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from batches.conf import ENGINE, EngineConf
from batches.engine import (
    answers,
    claims,
    health,
    judging,
    latewatch,
    links,
    mishaps,
    outliers,
    pacing,
    polling,
    slots,
    steps,
    stopping,
)
from batches.engine.accounts import Providers, hears
from batches.engine.batchsizes import BatchSizes
from batches.engine.changes import Change, FollowStep
from batches.engine.claims import Claim
from batches.engine.clock import Clock
from batches.engine.departures import SLICE_LEAST, Departures
from batches.engine.effects import NO_EFFECT
from batches.engine.errands import Errands
from batches.engine.fetches import Fetches
from batches.engine.holdings import Holdings
from batches.engine.outage import LOOK_SECONDS, Outage
from batches.engine.outbox import Outbox
from batches.engine.pdfcheck import PdfChecker
from batches.engine.polls import Polls
from batches.engine.reads import Reads
from batches.engine.threads import Threads
from batches.engine.wakeups import Wakeups
from batches.models import AccountHealth, HoldReason, JobState, LearnedDeadline, ProviderAccount, PumpSlot
from batches.storage import ArtifactStore

log = logging.getLogger(__name__)


@dataclass
class Tally:
    """What one pump did, for the log and for tests."""

    claimed: int = 0
    accepted: int = 0
    saved: int = 0
    polls: int = 0
    slots_missed: int = 0
    stale: int = 0

    def count(self, result: steps.JobResult) -> None:
        self.accepted += isinstance(result, steps.Answered)
        self.saved += isinstance(result, steps.Fetched)
        self.slots_missed += isinstance(result, steps.NotSentYet | steps.NotReadYet)


@dataclass
class Pump:
    """One run. `stopping` is asked once a round; true ends the pump early and gives back what it holds."""

    owner: str
    clock: Clock
    rng: random.Random
    providers: Providers
    store: ArtifactStore
    checker: PdfChecker
    stopping: Callable[[], bool]
    slot: PumpSlot | None = None
    conf: EngineConf = ENGINE
    threads: Callable[[EngineConf], Threads] = Threads
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self._threads = self.threads(self.conf)
        self._accounts: dict[int, ProviderAccount] = {}
        self._known: list[int] = []  # those that are not archived
        self._crowded: set[int] = set()
        self._saved: set[int] = set()  # versions, until their batches are looked at for odd ones
        self._held = Holdings(self.conf, self._threads)
        self._departures = Departures(self.conf, self._threads, self._held, store=self.store, clock=self.clock)
        self._polls = Polls(self.conf, self.rng)
        self._reads = Reads(self.conf, self._threads, self._held, self._polls, store=self.store, clock=self.clock)
        given = (self.conf, self._threads, self._held, self.store, self.checker, self.clock)
        self._fetches = Fetches(*given, link_slots=self._reads.slots)
        self._wakeups = Wakeups(self.conf)
        self._errands = Errands(self.conf, self._threads, poll_slots=self._reads.slots, clock=self.clock, rng=self.rng)
        self._outbox = Outbox(self.conf)
        self._outage = Outage(self.clock, self.rng)
        self._claim_due = partial(claims.claim_due, owner=self.owner, sizes=BatchSizes())
        self._claim_at = self._refresh_at = self._renew_at = self._busy_at = self.clock.now()
        self._ends_at = self._claim_at + timedelta(seconds=self.conf.pump_budget_seconds)

    # --- the loop ---

    def run(self) -> Tally:
        try:
            while not self._is_over(self.clock.now()):
                self._round()
                self.clock.wait(self._threads.wake, self._seconds_to_next(self.clock.now()))
                self._threads.wake.clear()
            self._drain()
        finally:
            self._threads.close()
        self._take_results(self.clock.now())
        self._outage.cut_short()
        self._outage.attempt(self._give_back)  # what a slow thread learned last: an id is never dropped
        if len(self._outbox):
            log.warning("pump %s ends with %d outcomes that could not be written", self.owner, len(self._outbox))
        return self.tally

    def _round(self) -> None:
        now = self.clock.now()
        self._threads.fit(now, self.clock.cpu_seconds())
        self._take_results(now)
        self._outage.attempt(
            self._flush_if_due,
            self._settle_probes,
            self._renew_if_due,
            self._refresh_if_due,
            self._claim_if_due,
            self._learn,
            self._send_ready,
            self._read_and_fetch,
            self._watch_late,
        )

    def _is_over(self, now: datetime) -> bool:
        if self.stopping() or now >= self._ends_at:
            return True
        if self._held or len(self._outbox) or self._errands.under_way or self._errands.looks_again:
            self._busy_at = now
        return now >= self._busy_at + timedelta(seconds=self.conf.pump_idle_seconds)

    def _seconds_to_next(self, now: datetime) -> float:
        if seconds_left := self._outage.seconds_left(now):
            return min(LOOK_SECONDS, seconds_left)
        due = [self._claim_at, *self._departures.due(self._accounts, now)]
        due += filter(None, (self._outbox.due_at(), self._reads.due_at(), self._fetches.due_at()))
        return max(0.001, min(LOOK_SECONDS, (min(due) - now).total_seconds()))

    # --- leases, accounts, claims ---

    def _renew_if_due(self, now: datetime) -> None:
        if now < self._renew_at:
            return
        self._renew_at = now + timedelta(seconds=self.conf.renew_seconds)
        self._outbox.bring_forward(now)  # status reads that changed nothing are written now, so that pages show them
        if self.slot is not None and not slots.renew(self.slot, self.owner, now=now):
            log.warning("pump %s lost its slot; it ends", self.owner)
            self._ends_at = now
        if self._held:
            kept = claims.renew(self.owner, list(self._held), now=now)
            for job_id in self._held.renewed(kept, now):
                self._let_go(job_id)
        self._look_at_saved()

    def _refresh_if_due(self, now: datetime) -> None:
        if now < self._refresh_at:
            return
        self._refresh_at = now + timedelta(seconds=self.conf.account_refresh_seconds)
        readable = health.usable_accounts(self.providers.of, now=now)
        for account_id in self._accounts.keys() - readable.keys():
            # It is held by now. What is at the provider is still read, with the key as it was.
            self._accounts[account_id].health = AccountHealth.HELD
            self._accounts[account_id].hold_reason = HoldReason.AUTH
        self._accounts |= readable
        self._known = [account.pk for account in self._accounts.values() if account.archived_at is None]
        is_paced = not all(pacing.is_unpaced(self._accounts[account_id]) for account_id in self._known)
        self._threads.know(self._known, is_paced=is_paced)
        self._crowded = links.crowded(self._accounts, most=self.conf.fetch_backlog_most)
        self._errands.probe(self._accounts.values(), self.providers, now)

    def _settle_probes(self, now: datetime) -> None:
        if self._errands.has_probed:
            self._refresh_at = now
            self._errands.settle_probes(now)

    def _claim_if_due(self, now: datetime) -> None:
        is_regular = now >= self._claim_at
        if is_regular:
            self._claim_at = now + timedelta(seconds=self.conf.claim_interval_seconds)
        for account in self._accounts.values():
            if is_regular or self._departures.is_hungry(account.pk):
                self._begin(account, self._claim(account, now, is_regular=is_regular), now)

    def _claim(self, account: ProviderAccount, now: datetime, *, is_regular: bool) -> list[Claim]:
        """What is in progress and has no holder, and as many pending ones as may soon be sent."""
        room = self._held.room(account.pk, among=self._known)
        claimed: list[Claim] = []
        if is_regular:
            claimed += self._claim_due(account, claims.IN_PROGRESS_STATES, now=now, most=min(room, 500))
        if account.health != AccountHealth.OPEN or account.pk in self._crowded:
            return claimed
        wanted = min(room - len(claimed), self._departures.wanted(account))
        if is_regular or wanted >= SLICE_LEAST:
            pending = self._claim_due(account, (JobState.PENDING,), now=now, most=wanted)
            self._departures.claimed(account.pk, count=len(pending), wanted=wanted)
            claimed += pending
        return claimed

    def _begin(self, account: ProviderAccount, claimed: list[Claim], now: datetime) -> None:
        """Every claimed job goes to its next step."""
        if not claimed:
            return
        self.tally.claimed += len(claimed)
        self._held.take(claimed, now)
        for change in self._departures.prepare(account, self.providers.of(account), claimed, now):
            self._queue(self._polls.with_deadline(change, account), now)
        for claim in claimed:
            if claim.state is JobState.ACCEPTED:
                self._polls.schedule(claim, now)
            elif claim.state is JobState.RENDERED:
                self._fetches.wait(claim, now)

    # --- submitting ---

    def _send_ready(self, now: datetime) -> None:
        for departure in self._departures.leave(self._accounts, self.providers, now):
            for job_id in departure.lost:
                self._let_go(job_id)
            for change in departure.changes:
                self._queue(change, now)
            stopping.at_cap(departure.capped, now=now)

    # --- status reads and downloads ---

    def _learn(self, now: datetime) -> None:
        told = [pk for pk, account in self._accounts.items() if hears(account)]
        with mishaps.contained("a look at the webhook events"):
            self._polls.wake_all(self._wakeups.news(now, told), now)
        busy = self._held.accounts(among=self._accounts.keys())
        strict = [pk for pk, account in self._accounts.items() if account.learned_deadline == LearnedDeadline.ON]
        self._polls.learn_if_due(now, list(busy), told=told, strict=strict)

    def _watch_late(self, now: datetime) -> None:
        self._errands.settle_watches(self._accounts, self._outbox.add_effect, now)
        self._errands.watch(self._accounts.values(), self.providers, now)

    def _read_and_fetch(self, now: datetime) -> None:
        self.tally.polls += self._reads.begin(self._accounts, self.providers, now)
        self._fetches.begin(self._accounts, self.providers, now)

    def _fetch_early(self, change: Change, now: datetime) -> Change:
        """What was read as finished is fetched while that is on its way to the database.

        The outbox writes both together, or in their order. A claim that turns out stale has both refused; the PDF then
        lies in its place for whoever holds the job. What was finished at once waits: its provider job id comes first.
        """
        after, follow = change.after, change.follow
        if after is None or follow is None or follow.step is not FollowStep.FETCH or self._outage.seconds_left(now):
            return change
        if change.claim.state is not JobState.ACCEPTED or not self._held.is_mine(change.claim):
            return change
        if not self._fetches.begin_at_once(after, self._accounts[after.account_id], self.providers, now):
            return change
        self._held.put(after)
        return replace(change, follow=replace(follow, step=FollowStep.FETCHING))

    # --- results ---

    def _take_results(self, now: datetime) -> None:
        for result in self._threads.results():
            try:
                self._judge(result, now)
            except mishaps.DATABASE_AWAY:
                raise
            except Exception as error:
                trace = mishaps.without_row(error)
                log.exception("a result (%s) could not be judged", type(result).__name__, exc_info=trace)
                if isinstance(result, steps.JobResult):
                    account = self._accounts[result.claim.account_id]
                    self._queue(answers.judge_nothing(result, error, account, now=now), now)

    def _judge(self, result: steps.Result, now: datetime) -> None:
        """One step's result becomes one change, or the next step."""
        if not isinstance(result, steps.JobResult):
            self._errands.take(result)
            return
        claim = result.claim
        self._held.ended(claim.job_id)
        self._departures.ended(claim)
        self._fetches.ended(claim)
        self.tally.count(result)
        self._learn_lead(result)
        account = self._accounts[claim.account_id]
        context = polling.PollContext(account, now, self.rng, self._polls.plan(claim))
        match result:
            case steps.NotBegun():
                pass  # given back with all that is held
            case steps.PreparedDone(prepared=prepared):
                self._departures.prepared(prepared)
            case steps.NotReadYet():
                self._polls.schedule(claim, now)
            case steps.NotSentYet():
                self._departures.missed(result)
            case steps.NotFetchedYet(trail=trail):
                self._fetches.wait(claim, now, trail)
            case steps.OnTheTrail(trail=trail, link_is_dead=is_dead):
                self._fetches.wait(claim, now, trail, needs_link=is_dead)
            case _:
                change = judging.judge(result, context, self._polls)
                self._fetches.heard(claim.account_id, change.effect)
                self._queue(change, now)

    def _learn_lead(self, result: steps.JobResult) -> None:
        """Whether threads are awake when their slots come says how far ahead the next ones are taken."""
        account_id = result.claim.account_id
        match result:
            case steps.Answered() | steps.SendFailed():
                self._departures.met(account_id)
            case steps.StatusRead() | steps.StatusFailed() | steps.Started() | steps.StartFailed():
                self._reads.slots.met(account_id)
            case steps.NotReadYet():
                self._reads.slots.missed(account_id)
            case steps.Fetched() | steps.FetchMissed():
                self._fetches.slots.met(account_id)
            case steps.NotFetchedYet():
                self._fetches.slots.missed(account_id)

    # --- writing ---

    def _queue(self, change: Change, now: datetime) -> None:
        if change.move is None and change.follow is not None and change.follow.step is not FollowStep.START:
            assert change.after is not None
            self._held.put(change.after)
            self._polls.schedule(change.after, change.follow.due_at)
            if change.effect == NO_EFFECT and not change.submission_fields:
                self._outbox.set_aside(change)
                return
        account = self._accounts[change.claim.account_id]
        change = self._fetch_early(change, now)
        self._outbox.add(latewatch.begun(change, partial(self.providers.of, account), account=account), now)

    def _flush_if_due(self, now: datetime) -> None:
        if self._outbox.is_due(now):
            self._flush(now)

    def _flush(self, now: datetime) -> None:
        for group, stale in self._outbox.write(now):
            self.tally.stale += len(stale)
            for change in group:
                job_id = change.claim.job_id
                if change.artifact is not None and job_id not in stale:
                    self._saved.add(change.claim.version_id)
                if job_id in stale or change.follow is None:
                    self._let_go(job_id)
                elif job_id in self._held and (change.move is not None or change.follow.step is FollowStep.START):
                    self._go_on(change, now)
        if self._outbox.take_held_back():
            self._refresh_at = now
            for lane in (self._reads.slots, self._fetches.slots):
                lane.forget()

    def _look_at_saved(self) -> None:
        with mishaps.contained("the look for odd ones among what was saved"):
            outliers.look_at_versions(self._saved)
        self._saved = set()

    def _go_on(self, change: Change, now: datetime) -> None:
        assert change.after is not None
        assert change.follow is not None
        if change.follow.step is FollowStep.FETCHING:
            return
        self._held.put(change.after)
        if change.follow.step is FollowStep.FETCH:
            self._fetches.wait(change.after, now)
        else:
            self._polls.schedule(change.after, change.follow.due_at)

    def _let_go(self, job_id: int) -> None:
        self._held.let_go(job_id)
        self._polls.forget(job_id)

    # --- the end ---

    def _drain(self) -> None:
        """Wait for what is under way, write it, and give back the rest so that another pump goes on at once."""
        self._threads.halt.set()
        give_up_at = self.clock.now() + timedelta(seconds=self.conf.read_timeout + self.conf.connect_timeout)
        while self.clock.now() < give_up_at and (self._held.has_busy or self._errands.under_way):
            self.clock.wait(self._threads.wake, 0.1)
            self._threads.wake.clear()
            self._take_results(self.clock.now())
            self._outage.attempt(self._flush, self._settle_probes, self._watch_late, self._renew_if_due)
        self._outage.attempt(self._give_back)

    def _give_back(self, now: datetime) -> None:
        for change in self._departures.never_left(now):
            self._queue(change, now)
        for change in self._fetches.untold(now):
            self._queue(change, now)
        for change in self._polls.unwritten(now):
            self._outbox.set_aside(change)
        self._outbox.bring_forward(now, let_go=True)
        self._flush(now)
        # What a thread still has keeps its lease until the thread's answer is written, or the lease runs out.
        idle = self._held.idle()
        claims.release(self.owner, idle, now=now)
        for job_id in idle:
            self._held.let_go(job_id)
        self._look_at_saved()
