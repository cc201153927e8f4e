"""The pump: claims due jobs, runs their next step on threads, writes the outcomes together, until its time is up.

Only the thread that runs `run` touches the database; steps run on pools and know only providers and the store.
Nothing that matters is in memory alone: whatever a pump holds when it dies is claimed again when its leases end.
"""

from __future__ import annotations

import logging
import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from django.db import connection

from batches.conf import ENGINE, EngineConf
from batches.engine import (
    answers,
    breaker,
    changes,
    claims,
    collection,
    health,
    latewatch,
    links,
    mishaps,
    outliers,
    pacing,
    polling,
    probes,
    retries,
    shares,
    slots,
    steps,
    submission,
)
from batches.engine.accounts import Providers
from batches.engine.batchsizes import BatchSizes
from batches.engine.blocks import Blocks
from batches.engine.changes import Change, FollowStep
from batches.engine.claims import Claim
from batches.engine.clock import Clock
from batches.engine.effects import NO_EFFECT
from batches.engine.outbox import Outbox
from batches.engine.pdfcheck import PdfChecker
from batches.engine.polls import Polls
from batches.engine.threads import Pool, Threads
from batches.engine.wakeups import Wakeups
from batches.models import AccountHealth, HoldReason, JobState, Lane, LearnedDeadline, ProviderAccount, PumpSlot
from batches.storage import ArtifactStore

log = logging.getLogger(__name__)

#: Status reads that fall due this soon take their slots together.
POLL_GATHER = timedelta(seconds=0.05)
#: Pending jobs that wait in memory for a slot, so that no slot is missed for want of a prepared request.
READY_SECONDS = 1.0
READY_MOST = 128


@dataclass
class Tally:
    """What one pump did, for the log and for tests."""

    claimed: int = 0
    accepted: int = 0
    saved: int = 0
    polls: int = 0
    slots_missed: int = 0
    stale: int = 0


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
        self._accounts: dict[int, ProviderAccount] = {}
        self._known: list[int] = []  # those that are not archived
        self._held: dict[int, Claim] = {}
        self._leases: dict[int, datetime] = {}
        self._busy: set[int] = set()  # a thread has it
        self._sending: dict[int, int] = {}  # of those, what waits for its slot or its answer: job → account
        self._preparing: dict[int, int] = {}  # job → account
        self._ready: dict[int, deque[submission.Prepared]] = defaultdict(deque)
        self._ask_again: dict[int, datetime] = {}
        self._hungry: set[int] = set()  # accounts whose last slice of waiting jobs was full
        self._polls = Polls(self.conf, self.rng)
        self._poll_slots = Blocks(Lane.POLL, self.conf)
        self._outbox = Outbox(self.conf)
        self._claim_due = partial(claims.claim_due, owner=self.owner, sizes=BatchSizes())
        self._crowded: set[int] = set()
        self._saved: set[int] = set()  # versions, until their batches are looked at for odd ones
        self._wakeups = Wakeups(self.conf)
        self._watching: set[int] = set()
        self._watched: list[steps.Watched] = []
        self._watch_at = self.clock.now()
        self._probing: set[int] = set()
        self._probed: list[steps.Probed] = []
        self._claim_at = self._refresh_at = self._renew_at = self._busy_at = self.clock.now()
        self._ends_at = self._claim_at + timedelta(seconds=self.conf.pump_budget_seconds)
        self._database_pause_until: datetime | None = None
        self._database_failures = 0

    # --- the loop ---

    def run(self) -> Tally:
        self._threads = self.threads(self.conf)
        try:
            while not self._is_over(self.clock.now()):
                self._round()
                self.clock.wait(self._threads.wake, self._seconds_to_next(self.clock.now()))
                self._threads.wake.clear()
            self._drain()
        finally:
            self._threads.close()
        self._take_results(self.clock.now())
        self._database_pause_until = None
        self._with_database(self._give_back)  # what a slow thread learned last: an id is never dropped
        if len(self._outbox):
            log.warning("pump %s ends with %d outcomes that could not be written", self.owner, len(self._outbox))
        return self.tally

    def _round(self) -> None:
        self._take_results(self.clock.now())
        self._with_database(
            self._flush_if_due,
            self._settle_probes,
            self._renew_if_due,
            self._refresh_if_due,
            self._claim_if_due,
            self._learn,
            self._send_ready,
            self._start_polls,
            self._watch_late,
        )

    def _with_database(self, *parts: Callable[[datetime], None]) -> None:
        """Run parts that need the database; when it does not answer, pause and keep everything in memory."""
        now = self.clock.now()
        if self._database_pause_until and now < self._database_pause_until:
            return
        try:
            for part in parts:
                part(self.clock.now())
        except mishaps.DATABASE_AWAY as error:
            self._pause_for_database(error, now)
        else:
            self._database_failures = 0
            self._database_pause_until = None

    def _pause_for_database(self, error: Exception, now: datetime) -> None:
        """Nothing is sent while nothing can be committed; outcomes stay in memory until it is back."""
        if not self._database_failures:
            log.warning("the database does not answer; outcomes wait in memory", exc_info=error)
        self._database_failures += 1
        self._database_pause_until = now + retries.backoff(min(self._database_failures, 3), self.rng)
        connection.close()

    def _is_over(self, now: datetime) -> bool:
        if self.stopping() or now >= self._ends_at:
            return True
        if self._held or len(self._outbox) or self._probing or self._watching:
            self._busy_at = now
        return now >= self._busy_at + timedelta(seconds=self.conf.pump_idle_seconds)

    def _seconds_to_next(self, now: datetime) -> float:
        if self._database_pause_until and now < self._database_pause_until:
            return min(0.25, (self._database_pause_until - now).total_seconds())
        due = [self._claim_at]
        if outbox_due_at := self._outbox.due_at():
            due.append(outbox_due_at)
        if poll_at := self._polls.next_at():
            due.append(poll_at - POLL_GATHER / 2)
        for account_id, ready in self._ready.items():
            account = self._accounts.get(account_id)
            # Without a free thread a result has to come first, and wakes the pump.
            if ready and account is not None and self._free_for(account_id, pacing.submit_limits(account)):
                due.append(self._ask_again.get(account_id, now))
        return max(0.001, min(0.25, (min(due) - now).total_seconds()))

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
            until = now + timedelta(seconds=self.conf.lease_seconds)
            for job_id in list(self._held):
                if job_id in kept:
                    self._leases[job_id] = until
                elif job_id not in self._busy:
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
        self._threads.know(self._known)
        self._crowded = links.crowded(self._accounts, most=self.conf.fetch_backlog_most)
        for account in self._accounts.values():
            if probes.is_due(account, now=now):
                self._probe(account, now)

    def _probe(self, account: ProviderAccount, now: datetime) -> None:
        provider = self.providers.of(account)
        if account.pk in self._probing or not probes.claim(account, provider.capabilities, now=now):
            return
        self._probing.add(account.pk)
        self._threads.start(
            self._threads.poll,
            lambda: steps.probe(account.pk, provider, now=self.clock.now()),
            account_id=account.pk,
        )

    def _claim_if_due(self, now: datetime) -> None:
        regular = now >= self._claim_at
        if regular:
            self._claim_at = now + timedelta(seconds=self.conf.claim_interval_seconds)
        for account in self._accounts.values():
            room = self._room_for(account.pk) if regular or account.pk in self._hungry else 0
            claimed: list[Claim] = []
            if regular:
                claimed += self._claim_due(account, claims.IN_PROGRESS_STATES, now=now, most=min(room, 500))
            may_send = account.health == AccountHealth.OPEN and account.pk not in self._crowded
            if may_send and (regular or account.pk in self._hungry):
                waiting = len(self._ready[account.pk]) + list(self._preparing.values()).count(account.pk)
                wanted = min(READY_MOST, pacing.slots_in(pacing.submit_limits(account), READY_SECONDS) + 1) - waiting
                wanted = min(room - len(claimed), wanted)
                if regular or wanted >= READY_MOST // 2:
                    pending = self._claim_due(account, (JobState.PENDING,), now=now, most=wanted)
                    # A full slice: there is more, so it is asked for as soon as there is room, not a while later.
                    (self._hungry.add if 0 < wanted == len(pending) else self._hungry.discard)(account.pk)
                    claimed += pending
            self._begin(account, claimed, now)

    def _room_for(self, account_id: int) -> int:
        """How many more jobs of the account may be held here, so that a large one leaves room for the others."""
        if len(self._accounts) == 1:
            return self.conf.held_most - len(self._held)  # nobody to count for
        held = Counter(claim.account_id for claim in self._held.values())
        return shares.room(account_id, held, self._known, most=self.conf.held_most, least=shares.HELD_LEAST)

    def _begin(self, account: ProviderAccount, claimed: list[Claim], now: datetime) -> None:
        """Every claimed job goes to its next step."""
        if not claimed:
            return
        self.tally.claimed += len(claimed)
        until = now + timedelta(seconds=self.conf.lease_seconds)
        for claim in claimed:
            self._held[claim.job_id] = claim
            self._leases[claim.job_id] = until
        pending = [claim for claim in claimed if claim.state is JobState.PENDING]
        again = [claim for claim in claimed if claim.state is JobState.SUBMITTING]
        self._prepare(account, pending)
        self._prepare_again(account, again, now)
        for claim in claimed:
            if claim.state is JobState.ACCEPTED:
                self._polls.schedule(claim, now)
            elif claim.state is JobState.RENDERED:
                self._fetch(claim)

    # --- submitting ---

    def _prepare(self, account: ProviderAccount, pending: list[Claim]) -> None:
        fresh = [claim for claim in pending if claim.submission is None]
        inputs = submission.read_inputs([claim.version_id for claim in fresh]) if fresh else {}
        provider = self.providers.of(account)
        for claim in fresh:
            given = inputs[claim.version_id]
            self._preparing[claim.job_id] = account.pk
            self._work(claim, self._threads.prepare, steps.prepare, claim, given, provider, self.store)
        refused = [claim for claim in pending if claim.submission is not None]
        self._load_bodies(refused)

    def _prepare_again(self, account: ProviderAccount, again: list[Claim], now: datetime) -> None:
        """A submission that may be there: the same bytes, if the provider still knows the key, else a person."""
        sendable = []
        for claim in again:
            assert claim.submission is not None, "a submitting job has an open submission"
            if claim.submission.provider_job_id:
                self._queue(answers.judge_id_known(claim, account, now=now), now)
            elif claim.submission.in_doubt and not retries.may_resend(claim.submission.resend_until, now):
                self._queue(answers.judge_window_closed(claim, now=now), now)
            elif account.health == AccountHealth.HELD:
                self._queue(answers.judge_held(claim, now=now), now)
            else:
                sendable.append(claim)
        self._load_bodies(sendable)

    def _load_bodies(self, again: list[Claim]) -> None:
        bodies = submission.read_bodies([claim.submission.id for claim in again if claim.submission]) if again else {}
        for claim in again:
            assert claim.submission is not None
            self._preparing[claim.job_id] = claim.account_id
            body = bodies.get(claim.submission.id)
            self._work(claim, self._threads.prepare, steps.prepare_again, claim, claim.submission, body, self.store)

    def _send_ready(self, now: datetime) -> None:
        for account_id, ready in self._ready.items():
            account = self._accounts.get(account_id)
            if not ready or account is None:
                continue
            if account.health == AccountHealth.HELD:
                self._put_back(ready, now)
                continue
            if now < self._ask_again.get(account_id, now):
                continue
            mine = [item for item in ready if self._is_mine(item.claim)]
            limits = pacing.submit_limits(account)
            free = self._free_for(account_id, limits)
            if not free:
                continue  # a slot without a thread would only be lost to the other pumps
            provider = self.providers.of(account)
            intents = submission.commit_intents(account, mine, now=now, capabilities=provider.capabilities, most=free)
            self._ask_again[account_id] = intents.ask_again_at
            gone = intents.lost | {sending.prepared.claim.job_id for sending in intents.sendings}
            gone |= {stopped.claim.job_id for stopped in intents.stopped}
            self._ready[account_id] = deque(item for item in mine if item.claim.job_id not in gone)
            for job_id in intents.lost:
                self._let_go(job_id)
            for stopped in intents.stopped:
                self._queue(answers.judge_never_left(stopped.claim, now=now), now)
            for sending in intents.sendings:
                claim = sending.prepared.claim
                self._held[claim.job_id] = claim
                self._sending[claim.job_id] = account_id
                self._work(
                    claim,
                    self._threads.submit,
                    steps.send,
                    sending,
                    provider,
                    limits,
                    self.clock,
                    self._threads.halt,
                    self._lease_of(claim.job_id),
                    instead=steps.NotSentYet(claim, sending),
                )

    def _free_for(self, account_id: int, limits: pacing.Limits) -> int:
        """How many intents may be committed now. Without a pace no slot is lost by waiting in line: larger blocks."""
        if not limits.unpaced:
            return self._threads.submit.free(account_id)
        waiting = list(self._sending.values()).count(account_id)
        free = self.conf.submit_threads + self.conf.submit_line - waiting
        return free if free >= self.conf.submit_line else 0

    def _is_mine(self, claim: Claim) -> bool:
        """As far as this pump knows; the database has the last word."""
        held = self._held.get(claim.job_id)
        return held is not None and held.token == claim.token

    def _lease_of(self, job_id: int) -> Callable[[], datetime]:
        return lambda: self._leases.get(job_id, pacing.EPOCH)

    def _put_back(self, ready: deque[submission.Prepared], now: datetime) -> None:
        """The account was held while these waited for a slot."""
        while ready:
            prepared = ready.popleft()
            if not prepared.is_resend:
                self._queue(Change(claim=prepared.claim, at=now), now)
            elif prepared.doubt_before:
                self._queue(answers.judge_held(prepared.claim, now=now), now)
            else:
                self._queue(answers.judge_never_left(prepared.claim, now=now), now)

    # --- status reads and downloads ---

    def _learn(self, now: datetime) -> None:
        told = [pk for pk, account in self._accounts.items() if account.webhook_secret]
        with mishaps.contained("a look at the webhook events"):
            self._polls.wake_all(self._wakeups.news(now, told), now)
        busy = {claim.account_id for claim in self._held.values()} if len(self._accounts) > 1 else self._accounts.keys()
        strict = [pk for pk, account in self._accounts.items() if account.learned_deadline == LearnedDeadline.ON]
        self._polls.learn_if_due(now, [pk for pk in busy if self._held], told=told, strict=strict)

    def _watch_late(self, now: datetime) -> None:
        while self._watched:
            with mishaps.contained("a late read"):
                latewatch.settle(self._watched[0], now=now)
            self._watching.discard(self._watched.pop(0).watch.submission_id)
        if now < self._watch_at or self._threads.halt.is_set():
            return
        self._watch_at = now + timedelta(seconds=self.conf.watch_look_seconds)
        for account in list(self._accounts.values()):
            for watch in latewatch.claim_due(account, self._poll_slots, most=self.conf.watch_reads_most, now=now):
                self._watching.add(watch.submission_id)
                look = partial(steps.look_late, watch, self.providers.of(account), self.clock, self._threads.halt)
                self._threads.start(self._threads.poll, look, account_id=account.pk)

    def _start_polls(self, now: datetime) -> None:
        for account_id, waiting in self._polls.due(now + POLL_GATHER).items():
            reads = [
                claim
                for claim in waiting
                if self._is_mine(claim) and claim.state is JobState.ACCEPTED and claim.job_id not in self._busy
            ]
            account = self._accounts.get(account_id)
            if account is None or not reads:
                continue
            reservation = self._poll_slots.take(account_id, pacing.poll_limits(account), wanted=len(reads), now=now)
            provider = self.providers.of(account)
            for claim, slot in zip(reads, reservation.slots, strict=False):
                self.tally.polls += 1
                self._work(claim, self._threads.poll, steps.poll, claim, provider, slot, self.clock, self._threads.halt)
            for claim in reads[len(reservation.slots) :]:
                self._polls.schedule(claim, max(reservation.ask_again_at, now + timedelta(milliseconds=10)))

    def _fetch(self, claim: Claim) -> None:
        account = self._accounts[claim.account_id]
        provider = self.providers.of(account)
        self._work(claim, self._threads.fetch, steps.fetch, claim, provider, self.store, self.checker, self.clock)

    # --- threads and their results ---

    def _work(
        self,
        claim: Claim,
        pool: Pool,
        step: Callable[..., steps.Result],
        *given: object,
        instead: steps.Result | None = None,
    ) -> None:
        """Run a step on a thread; `instead` is what comes back when its turn comes only while the pump is ending."""
        instead = instead or steps.NotBegun(claim)
        run = partial(steps.guarded, claim, step, *given)
        if self._threads.start(pool, run, instead=instead, account_id=claim.account_id):
            self._busy.add(claim.job_id)

    def _take_results(self, now: datetime) -> None:
        for result in self._threads.results():
            try:
                self._judge(result, now)
            except mishaps.DATABASE_AWAY:
                raise
            except Exception as error:
                log.exception("a result (%s) could not be judged", type(result).__name__)
                if isinstance(result, steps.JobResult):
                    self._outbox.add(answers.judge_nothing(result, error, now=now), now)

    def _judge(self, result: steps.Result, now: datetime) -> None:
        """One step's result becomes one change, or the next step."""
        if isinstance(result, steps.Probed):
            self._probed.append(result)
            return
        if isinstance(result, steps.Watched):
            self._watched.append(result)
            return
        claim = result.claim
        self._busy.discard(claim.job_id)
        self._sending.pop(claim.job_id, None)
        account = self._accounts[claim.account_id]
        context = polling.PollContext(account, now, self.rng, self._polls.plan(claim))
        self._preparing.pop(claim.job_id, None)
        match result:
            case steps.NotBegun():
                pass  # given back with all that is held
            case steps.PreparedDone(prepared=prepared):
                self._ready[claim.account_id].append(prepared)
            case steps.PrepareFailed(error=error):
                self._queue(answers.judge_unpreparable(claim, error, now=now, rng=self.rng), now)
            case steps.NotSentYet(sending=sending):
                self.tally.slots_missed += 1
                missed = replace(sending.prepared, claim=claim, has_token=sending.prepared.doubt_before)
                self._ready[claim.account_id].appendleft(missed)
            case steps.WindowClosed():
                self._queue(answers.judge_window_closed(claim, now=now), now)
            case steps.Answered(sending=sending, answer=answer):
                self.tally.accepted += 1
                change = answers.judge_answer(sending, answer, account, now=result.at)
                self._queue(self._polls.timed(change, account), now)
            case steps.SendFailed(sending=sending, error=error):
                self._queue(answers.judge_error(sending, error, account, now=result.at, rng=self.rng), now)
            case steps.StatusRead(status=status):
                change = polling.judge_status(claim, status, context)
                if change.after is not None:
                    self._polls.saw_end(change.after, now)
                self._queue(change, now)
            case steps.StatusFailed(error=error):
                self._queue(polling.judge_error(claim, error, context), now)
            case steps.Fetched(collected=collected):
                self.tally.saved += 1
                change = collection.judge_collected(claim, collected, now=now)
                self._queue(breaker.with_download(change, account), now)
            case steps.FetchMissed(missed=missed):
                change = collection.judge_not_collected(claim, missed, now=now, rng=self.rng)
                self._queue(breaker.with_download(change, account, missed.words), now)
            case steps.Crashed(words=words):
                self._queue(changes.parking(claim, words, now=now), now)

    def _settle_probes(self, now: datetime) -> None:
        while self._probed:
            with mishaps.contained("a probe"):
                self._after_probe(self._probed[0], now)
            self._probing.discard(self._probed.pop(0).account_id)

    def _after_probe(self, result: steps.Probed, now: datetime) -> None:
        self._refresh_at = now
        probes.settle(result.account_id, result.error, hold=result.hold, balance=result.balance, now=now, rng=self.rng)

    # --- writing ---

    def _queue(self, change: Change, now: datetime) -> None:
        if change.move is None and change.follow is not None:
            assert change.after is not None
            self._held[change.claim.job_id] = change.after
            self._polls.schedule(change.after, change.follow.due_at)
            if change.effect == NO_EFFECT and not change.submission_fields:
                self._outbox.set_aside(change)
                return
        account = self._accounts[change.claim.account_id]
        self._outbox.add(latewatch.begun(change, partial(self.providers.of, account)), now)

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
                elif job_id in self._held and change.move is not None:
                    self._go_on(change)
        if self._outbox.take_held_back():
            self._refresh_at = now
            self._poll_slots.forget()

    def _look_at_saved(self) -> None:
        with mishaps.contained("the look for odd ones among what was saved"):
            outliers.look_at_versions(self._saved)
        self._saved = set()

    def _go_on(self, change: Change) -> None:
        assert change.after is not None
        assert change.follow is not None
        self._held[change.claim.job_id] = change.after
        if change.follow.step is FollowStep.FETCH:
            self._fetch(change.after)
            return
        self._polls.schedule(change.after, change.follow.due_at)

    def _let_go(self, job_id: int) -> None:
        self._held.pop(job_id, None)
        self._leases.pop(job_id, None)
        self._polls.forget(job_id)

    # --- the end ---

    def _drain(self) -> None:
        """Wait for what is under way, write it, and give back the rest so that another pump goes on at once."""
        self._threads.halt.set()
        give_up_at = self.clock.now() + timedelta(seconds=self.conf.read_timeout + self.conf.connect_timeout)
        while self.clock.now() < give_up_at and (self._busy or self._probing or self._watching):
            self.clock.wait(self._threads.wake, 0.1)
            self._threads.wake.clear()
            self._take_results(self.clock.now())
            self._with_database(self._flush, self._settle_probes, self._watch_late, self._renew_if_due)
        self._with_database(self._give_back)

    def _give_back(self, now: datetime) -> None:
        for ready in self._ready.values():
            for prepared in ready:
                if prepared.is_resend and not prepared.doubt_before:
                    self._queue(answers.judge_never_left(prepared.claim, now=now), now)
        self._ready.clear()
        for change in self._polls.unwritten(now):
            self._outbox.set_aside(change)
        self._outbox.bring_forward(now, let_go=True)
        self._flush(now)
        # What a thread still has keeps its lease until the thread's answer is written, or the lease runs out.
        claims.release(self.owner, [job_id for job_id in self._held if job_id not in self._busy], now=now)
        self._held = {job_id: claim for job_id, claim in self._held.items() if job_id in self._busy}
        self._look_at_saved()
