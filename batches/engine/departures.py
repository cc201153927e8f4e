"""What one pump has that waits to be sent: being prepared, ready and without a slot, or on a thread for its slot.

It says how many more are worth a claim, has their bytes made, commits the intents of as many as may leave and has
threads send them. It writes no outcome and lets go of no job: it names both, and the pump does it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from batches.conf import ENGINE, EngineConf
from batches.engine import answers, pacing, preparing, retries, spending, steps, submission
from batches.engine.accounts import Providers
from batches.engine.changes import Change
from batches.engine.claims import Claim, OpenSubmission
from batches.engine.clock import Clock
from batches.engine.holdings import Holdings
from batches.engine.threads import Threads
from batches.models import AccountHealth, JobState, ProviderAccount
from batches.providers.base import Provider
from batches.storage import ArtifactStore

#: Pending jobs that wait in memory for a slot, so that no slot is missed for want of a prepared request.
READY_SECONDS = 1.0
READY_MOST = 128
#: Fewer are not worth a claim of their own between two regular ones.
SLICE_LEAST = READY_MOST // 2


@dataclass(frozen=True)
class Departure:
    """What is left to do after one account's turn: the jobs to let go, which are somebody else's, the changes, and the
    batches to pause, whose spend cap lets nothing more leave."""

    lost: Collection[int] = ()
    changes: Sequence[Change] = ()
    capped: Collection[int] = ()


@dataclass
class _Line:
    """One account's. `is_hungry`: its last slice of waiting jobs was full, so there are more."""

    ready: deque[preparing.Prepared] = field(default_factory=deque)
    preparing: set[int] = field(default_factory=set)
    sending: set[int] = field(default_factory=set)  # for their slot or their answer
    ask_again_at: datetime = pacing.EPOCH
    is_hungry: bool = False
    lead: pacing.Lead = field(default_factory=pacing.Lead)


class Departures:
    """By account. Only the pump's own thread uses it."""

    def __init__(
        self, conf: EngineConf, threads: Threads, held: Holdings, *, store: ArtifactStore, clock: Clock
    ) -> None:
        self._conf = conf
        self._threads = threads
        self._held = held
        self._store = store
        self._clock = clock
        self._lines: dict[int, _Line] = defaultdict(_Line)
        self._purse = spending.Purse()

    # --- how many to claim ---

    def is_hungry(self, account_id: int) -> bool:
        return account_id in self._lines and self._lines[account_id].is_hungry

    def wanted(self, account: ProviderAccount) -> int:
        """How many more pending jobs should be here."""
        line = self._lines[account.pk]
        enough = min(READY_MOST, pacing.slots_in(pacing.submit_limits(account), READY_SECONDS) + 1)
        return enough - len(line.ready) - len(line.preparing)

    def claimed(self, account_id: int, *, count: int, wanted: int) -> None:
        """A full slice: there is more, so it is asked for as soon as there is room, not a while later."""
        self._lines[account_id].is_hungry = 0 < wanted == count

    # --- preparing ---

    def prepare(
        self, account: ProviderAccount, provider: Provider, claimed: Sequence[Claim], now: datetime
    ) -> Iterator[Change]:
        """Have the bytes made of what is pending or submitting; what is not to be sent again becomes a change."""
        pending = [claim for claim in claimed if claim.state is JobState.PENDING]
        self._prepare(account, provider, [claim for claim in pending if claim.submission is None])
        self._prepare_again([claim for claim in pending if claim.submission is not None])
        sendable = []
        for claim in claimed:
            if claim.state is JobState.SUBMITTING:
                change = _instead_of_again(account, claim, now)
                if change is not None:
                    yield change
                else:
                    sendable.append(claim)
        self._prepare_again(sendable)

    def _prepare(self, account: ProviderAccount, provider: Provider, fresh: Sequence[Claim]) -> None:
        inputs = preparing.read_inputs([claim.version_id for claim in fresh]) if fresh else {}
        for claim in fresh:
            self._lines[account.pk].preparing.add(claim.job_id)
            given = inputs[claim.version_id]
            self._held.begin(claim, self._threads.prepare, steps.prepare, claim, given, provider, self._store)

    def _prepare_again(self, again: Sequence[Claim]) -> None:
        bodies = preparing.read_bodies([claim.submission.id for claim in again if claim.submission]) if again else {}
        for claim in again:
            assert claim.submission is not None
            self._lines[claim.account_id].preparing.add(claim.job_id)
            known, body = claim.submission, bodies.get(claim.submission.id)
            self._held.begin(claim, self._threads.prepare, steps.prepare_again, claim, known, body, self._store)

    # --- results ---

    def ended(self, claim: Claim) -> None:
        """A step of the job has come back, whatever it brought."""
        line = self._lines[claim.account_id]
        line.preparing.discard(claim.job_id)
        line.sending.discard(claim.job_id)

    def prepared(self, prepared: preparing.Prepared) -> None:
        self._lines[prepared.claim.account_id].ready.append(prepared)

    def missed(self, result: steps.NotSentYet) -> None:
        """It missed its slot and is the first to get another."""
        before = result.sending.prepared
        missed = replace(before, claim=result.claim, missed_slot=True)
        line = self._lines[result.claim.account_id]
        line.ready.appendleft(missed)
        line.lead.missed()

    def met(self, account_id: int) -> None:
        """A request has left in its slot."""
        self._lines[account_id].lead.met()

    # --- sending ---

    def due(self, accounts: Mapping[int, ProviderAccount], now: datetime) -> Iterator[datetime]:
        """When slots should be asked for next, of each account that could use one."""
        for account_id, line in self._lines.items():
            account = accounts.get(account_id)
            # Without a free thread a result has to come first, and wakes the pump.
            if line.ready and account is not None and self._free_for(account_id, pacing.submit_limits(account)):
                yield max(now, line.ask_again_at)

    def leave(
        self, accounts: Mapping[int, ProviderAccount], providers: Providers, now: datetime
    ) -> Iterator[Departure]:
        """One account after the other: commit the intents of what may leave now, and have threads send it.

        What a departure says is done before the next is asked for, since the database may go away in between.
        """
        for account_id, line in self._lines.items():
            account = accounts.get(account_id)
            if not line.ready or account is None:
                continue
            if account.health == AccountHealth.HELD:
                yield Departure(changes=_put_back(line, now))
                continue
            free = self._free_for(account_id, pacing.submit_limits(account)) if now >= line.ask_again_at else 0
            if free:  # a slot without a thread would only be lost to the other pumps
                yield self._commit(account, line, providers.of(account), free=free, now=now)

    def _commit(
        self, account: ProviderAccount, line: _Line, provider: Provider, *, free: int, now: datetime
    ) -> Departure:
        mine = [prepared for prepared in line.ready if self._held.is_mine(prepared.claim)]
        intents = submission.commit_intents(
            account,
            mine,
            now=now,
            capabilities=provider.capabilities,
            most=free,
            purse=self._purse,
            lead=line.lead.ahead,
        )
        line.ask_again_at = intents.ask_again_at
        gone = intents.lost | {sending.prepared.claim.job_id for sending in intents.sendings}
        gone |= {stopped.claim.job_id for stopped in intents.stopped}
        line.ready = deque(prepared for prepared in mine if prepared.claim.job_id not in gone)
        limits = pacing.submit_limits(account)
        for sending in intents.sendings:
            line.sending.add(sending.prepared.claim.job_id)
            self._send(sending, provider, limits)
        stopped = [answers.judge_never_left(prepared.claim, now=now) for prepared in intents.stopped]
        return Departure(intents.lost, stopped, intents.capped)

    def _send(self, sending: submission.Sending, provider: Provider, limits: pacing.Limits) -> None:
        claim = sending.prepared.claim
        self._held.put(claim)
        self._held.begin(
            claim,
            self._threads.submit,
            steps.send,
            sending,
            provider,
            limits,
            self._clock,
            self._threads.halt,
            self._held.lease_of(claim.job_id),
            instead=steps.NotSentYet(claim, sending),
        )

    def _free_for(self, account_id: int, limits: pacing.Limits) -> int:
        """How many intents may be committed now. Without a pace no slot is lost by waiting in line: larger blocks."""
        if not limits.unpaced:
            return self._threads.submit.free(account_id)
        free = self._conf.submit_threads + self._conf.submit_line - len(self._lines[account_id].sending)
        return free if free >= self._conf.submit_line else 0

    def never_left(self, now: datetime) -> Iterator[Change]:
        """At the end: what has an intent of which no byte has left, as never sent. The others wait as they are."""
        for line in self._lines.values():
            while line.ready:
                prepared = line.ready.popleft()
                if prepared.is_resend and not prepared.doubt_before:
                    yield answers.judge_never_left(prepared.claim, now=now)
                elif prepared.missed_slot:
                    yield answers.judge_missed(prepared.claim, now=now)


def _instead_of_again(account: ProviderAccount, claim: Claim, now: datetime) -> Change | None:
    """A submission that may be there: the same bytes, if the provider still knows the key (None), else a person."""
    known = claim.submission
    assert known is not None, "a submitting job has an open submission"
    if known.provider_job_id:
        return answers.judge_id_known(claim, account, now=now)
    if known.in_doubt and not retries.may_resend(known.resend_until, now):
        return answers.judge_window_closed(claim, account, now=now)
    if known.in_doubt and known.try_count >= ENGINE.submit_tries_most and not _is_asked_for(claim, known):
        return answers.judge_tries_used(claim, account, now=now)
    if account.health == AccountHealth.HELD:
        return answers.judge_held(claim, now=now)
    return None


def _is_asked_for(claim: Claim, known: OpenSubmission) -> bool:
    """A person had it sent once more, and it was not yet."""
    return known.last_sent_at is not None and claim.state_changed_at > known.last_sent_at


def _put_back(line: _Line, now: datetime) -> list[Change]:
    """The account was held while these waited for a slot."""
    changes = []
    while line.ready:
        prepared = line.ready.popleft()
        if not prepared.is_resend:
            changes.append(Change(claim=prepared.claim, at=now))
        elif prepared.doubt_before:
            changes.append(answers.judge_held(prepared.claim, now=now, missed_slot=prepared.missed_slot))
        else:
            changes.append(answers.judge_never_left(prepared.claim, now=now))
    return changes
