"""What one pump has that waits to be read: takes what is due, slots for it, and has threads ask for its status.

When a job's read is due is `polls`' to know, and what an answer means is `polling`'s. It writes no outcome.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from batches.conf import EngineConf
from batches.engine import drafting, pacing, preparing, steps
from batches.engine.accounts import Providers
from batches.engine.blocks import Blocks
from batches.engine.claims import Claim
from batches.engine.clock import Clock
from batches.engine.holdings import Holdings
from batches.engine.polls import Polls
from batches.engine.threads import Threads
from batches.models import JobState, Lane, ProviderAccount
from batches.storage import ArtifactStore

#: Status reads that fall due this soon take their slots together.
GATHER = timedelta(seconds=0.05)


class Reads:
    """Only the pump's own thread uses it. `slots` are the poll lane's, for whoever else reads.

    A draft that is to be begun takes its turn here: its last status read is what allows it.
    """

    def __init__(
        self, conf: EngineConf, threads: Threads, held: Holdings, polls: Polls, *, store: ArtifactStore, clock: Clock
    ) -> None:
        self.slots = Blocks(Lane.POLL, conf)
        self._threads = threads
        self._held = held
        self._polls = polls
        self._store = store
        self._clock = clock

    def due_at(self) -> datetime | None:
        """When to look again, so that what falls due together is begun together; None when nothing waits."""
        next_at = self._polls.next_at()
        return next_at - GATHER / 2 if next_at else None

    def begin(self, accounts: Mapping[int, ProviderAccount], providers: Providers, now: datetime) -> int:
        """Begin the reads that are due; how many."""
        begun = 0
        for account_id, waiting in self._polls.due(now + GATHER).items():
            reads = [claim for claim in waiting if claim.state is JobState.ACCEPTED and self._held.is_free(claim)]
            account = accounts.get(account_id)
            if account is not None and reads:
                begun += self._begin(account, providers, reads, now)
        return begun

    def _begin(self, account: ProviderAccount, providers: Providers, reads: list[Claim], now: datetime) -> int:
        limits, provider = pacing.poll_limits(account), providers.of(account)
        # A slot without a thread would be missed; without a pace there is none to miss.
        most = len(reads) if limits.unpaced else min(len(reads), self._threads.poll.free(account.pk))
        reservation = self.slots.take(account.pk, limits, wanted=most, now=now)
        slotted = list(zip(reads, reservation.slots, strict=False))
        bodies = _bodies_of_drafts([claim for claim, _slot in slotted if claim.starts_draft], now)
        for claim, slot in slotted:
            timing = (slot, limits, self._clock, self._threads.halt)
            if claim.job_id in bodies:
                lease = self._held.lease_of(claim.job_id)
                given = (claim, bodies[claim.job_id], provider, self._store, *timing, lease)
                self._held.begin(claim, self._threads.poll, steps.start, *given)
            else:
                read = drafting.not_begun(claim) if claim.starts_draft else claim
                self._held.begin(read, self._threads.poll, steps.poll, read, provider, *timing)
        for claim in reads[len(reservation.slots) : most]:
            self._polls.schedule(claim, max(reservation.ask_again_at, now + timedelta(milliseconds=10)))
        for claim in reads[most:]:
            self._polls.schedule(claim, now + GATHER)  # the next round, which a free thread brings forward
        return len(reservation.slots)


def _bodies_of_drafts(claims: Sequence[Claim], now: datetime) -> dict[int, bytes | None]:
    """By job, the request bytes (None: they lie in the store) of the drafts that may be begun, as it stands now.

    Not those whose last status read is too old by now, or whose account was held since. They are read again.
    """
    fresh = {one.submission.id: one.job_id for one in claims if one.submission and drafting.may_leave(one, now)}
    bodies = preparing.read_draft_bodies(list(fresh)) if fresh else {}
    return {fresh[submission_id]: body for submission_id, body in bodies.items()}
