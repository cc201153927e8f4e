"""What one pump has that waits to be downloaded: takes slots for it, and has threads fetch it.

Downloads have a lane of their own, and the one status read for another link takes a slot of the status reads. Without
a pace a download begins at once; a pause that an answer asks for holds back also those that wait for a thread by then.
What a download means is `collection`'s. It writes no outcome.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from batches.conf import EngineConf
from batches.engine import collection, fetched, pacing, steps
from batches.engine.accounts import Providers
from batches.engine.blocks import Blocks
from batches.engine.changes import Change
from batches.engine.claims import Claim
from batches.engine.clock import Clock
from batches.engine.collection import NO_TRAIL, Trail
from batches.engine.effects import AccountEffect
from batches.engine.holdings import Holdings
from batches.engine.pacing import Limits
from batches.engine.pdfcheck import PdfChecker
from batches.engine.threads import Threads
from batches.models import Lane, ProviderAccount
from batches.providers.base import Provider
from batches.storage import ArtifactStore

#: Before a lane is asked again that had no thread or no slot: a thread that becomes free brings the round forward.
AGAIN = timedelta(seconds=0.05)
#: Where the lane itself says when it has a slot: not in a hot loop all the same.
LEAST_WAIT = timedelta(seconds=0.01)


@dataclass(frozen=True)
class _Waiting:
    """`needs_link`: its link is dead, and another one is asked for first."""

    claim: Claim
    trail: Trail
    needs_link: bool


class Fetches:
    """Only the pump's own thread uses it, but for what `steps.Leaving` asks. `link_slots` are the poll lane's."""

    def __init__(
        self,
        conf: EngineConf,
        threads: Threads,
        held: Holdings,
        store: ArtifactStore,
        checker: PdfChecker,
        clock: Clock,
        *,
        link_slots: Blocks,
    ) -> None:
        self.slots = Blocks(Lane.DOWNLOAD, conf)
        self._link_slots = link_slots
        self._threads = threads
        self._held = held
        self._store = store
        self._checker = checker
        self._clock = clock
        self._lines: dict[int, deque[_Waiting]] = {}  # by account
        self._ask_at: dict[int, datetime] = {}
        self._begun: dict[int, set[int]] = {}  # jobs by account, without a pace, so that a pause has to reach them
        self._paused_until: dict[tuple[int, Lane], datetime] = {}

    def due_at(self) -> datetime | None:
        """When to look again; None when nothing waits."""
        return min((self._ask_at.get(account_id, pacing.EPOCH) for account_id in self._lines), default=None)

    def wait(self, claim: Claim, now: datetime, trail: Trail = NO_TRAIL, *, needs_link: bool = False) -> None:
        """Fetch it when its turn comes."""
        needs_link = needs_link or collection.is_link_dead(claim, trail, now=now)
        self._lines.setdefault(claim.account_id, deque()).append(_Waiting(claim, trail, needs_link))

    def begin_at_once(self, claim: Claim, account: ProviderAccount, providers: Providers, now: datetime) -> bool:
        """Begin it, if nothing waits before it and there is a slot; false when it did not begin."""
        if account.pk in self._lines or collection.is_link_dead(claim, NO_TRAIL, now=now):
            return False
        return bool(self._begin(account, providers.of(account), [_Waiting(claim, NO_TRAIL, False)], now))

    def begin(self, accounts: Mapping[int, ProviderAccount], providers: Providers, now: datetime) -> None:
        """Begin what there are slots for, and learn of pauses that concern what waits for a thread."""
        for account_id in self._begun.keys() - self._lines.keys():
            self._slots_of(accounts[account_id], 1, now)
        for account_id in [each for each in self._lines if now >= self._ask_at.get(each, pacing.EPOCH)]:
            account = accounts[account_id]
            mine = [each for each in self._lines.pop(account_id) if self._held.is_free(each.claim)]
            self._ask_at.pop(account_id, None)
            asking = [each for each in mine if each.needs_link]
            fetching = [each for each in mine if not each.needs_link]
            rest = asking[self._ask(account, providers.of(account), asking, now) :]
            rest += fetching[self._begin(account, providers.of(account), fetching, now) :]
            if rest:
                self._lines[account_id] = deque(rest)

    def ended(self, claim: Claim) -> None:
        """A step of this job came back, whatever it brought."""
        begun = self._begun.get(claim.account_id)
        if begun is not None:
            begun.discard(claim.job_id)
            if not begun:
                del self._begun[claim.account_id]

    def heard(self, account_id: int, effect: AccountEffect) -> None:
        """An answer has asked for a pause: it holds here at once, and for the others once it is written."""
        if effect.cool_down_until is not None:
            self._pause(account_id, effect.cool_down_lane, effect.cool_down_until)

    def untold(self, now: datetime) -> list[Change]:
        """What was asked on the way to downloads that this pump does not begin any more."""
        waiting = [each for line in self._lines.values() for each in line if each.trail.exchanges]
        self._lines.clear()
        return [fetched.untold(each.claim, each.trail, now=now) for each in waiting if self._held.is_free(each.claim)]

    # --- slots and threads ---

    def _begin(self, account: ProviderAccount, provider: Provider, some: list[_Waiting], now: datetime) -> int:
        """Begin the first of these that there are slots for; how many."""
        if not some:
            return 0
        limits = pacing.download_limits(account)
        # A slot without a thread would be missed; without a pace there is none to miss.
        most = len(some) if limits.unpaced else min(len(some), self._threads.fetch.free(account.pk))
        begun = 0
        for waiting, slot in zip(some, self._slots_of(account, most, now), strict=False):
            leaving = self._leaving(account.pk, Lane.DOWNLOAD, limits, slot)
            given = (provider, self._store, self._checker, leaving, waiting.trail)
            instead = steps.NotFetchedYet(waiting.claim, waiting.trail)
            if not self._held.begin(
                waiting.claim, self._threads.fetch, steps.fetch, waiting.claim, *given, instead=instead
            ):
                break
            if limits.unpaced:
                self._begun.setdefault(account.pk, set()).add(waiting.claim.job_id)
            begun += 1
        if begun < len(some):
            self._ask_at.setdefault(account.pk, now + AGAIN)
        return begun

    def _ask(self, account: ProviderAccount, provider: Provider, some: list[_Waiting], now: datetime) -> int:
        """The same of the status reads for another link."""
        if not some:
            return 0
        limits = pacing.poll_limits(account)
        most = min(len(some), self._threads.poll.free(account.pk))
        reservation = self._link_slots.take(account.pk, limits, wanted=most, now=now)
        begun = 0
        for waiting, slot in zip(some, reservation.slots, strict=False):
            leaving = self._leaving(account.pk, Lane.POLL, limits, slot)
            given = (waiting.claim, provider, leaving, waiting.trail)
            instead = steps.NotFetchedYet(waiting.claim, waiting.trail)
            if not self._held.begin(waiting.claim, self._threads.poll, steps.ask_for_link, *given, instead=instead):
                break
            begun += 1
        if begun < len(some):
            self._ask_at.setdefault(account.pk, now + AGAIN)
        return begun

    def _slots_of(self, account: ProviderAccount, wanted: int, now: datetime) -> tuple[datetime, ...]:
        """Slots of the lane. Where it gives none, the account waits; without a pace it is paused, which is learned."""
        until = self._paused_until.get((account.pk, Lane.DOWNLOAD), now)
        if until > now:
            self._ask_at[account.pk] = until
            return ()
        limits = pacing.download_limits(account)
        reservation = self.slots.take(account.pk, limits, wanted=wanted, now=now)
        if len(reservation.slots) < wanted:
            self._ask_at[account.pk] = max(reservation.ask_again_at, now + LEAST_WAIT)
            if limits.unpaced:
                self._pause(account.pk, Lane.DOWNLOAD, reservation.ask_again_at)
        return reservation.slots

    def _pause(self, account_id: int, lane: Lane, until: datetime) -> None:
        known = self._paused_until.get((account_id, lane), until)
        self._paused_until[account_id, lane] = max(known, until)

    def _leaving(self, account_id: int, lane: Lane, limits: Limits, slot: datetime) -> steps.Leaving:
        def paused_until() -> datetime:
            return self._paused_until.get((account_id, lane), pacing.EPOCH)

        return steps.Leaving(slot, limits, self._clock, self._threads.halt, paused_until)
