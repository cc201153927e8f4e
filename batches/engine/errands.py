"""What a pump does beside the jobs it holds: the probes of held accounts, and the reads of the late watch.

Both are claimed in the database and run on the threads of status reads. Their rules are in `probes` and `latewatch`;
what goes wrong with one is left out, and no job of the pump waits for it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial

from batches.conf import EngineConf
from batches.engine import latewatch, mishaps, pacing, probes, steps
from batches.engine.accounts import Providers
from batches.engine.blocks import Blocks
from batches.engine.clock import Clock
from batches.engine.effects import AccountEffect
from batches.engine.threads import Threads
from batches.models import ProviderAccount
from batches.providers.base import Provider

#: After a read for which its thread woke too late, the next one is begun so soon.
SOON_AGAIN = timedelta(seconds=0.25)
#: Of an account, by id, what was learned about it and when.
Tell = Callable[[int, AccountEffect, datetime], None]


class Errands:
    """Only the pump's own thread uses it. An errand is under way from its claim until its result is settled."""

    def __init__(
        self, conf: EngineConf, threads: Threads, *, poll_slots: Blocks, clock: Clock, rng: random.Random
    ) -> None:
        self._conf = conf
        self._threads = threads
        self._poll_slots = poll_slots
        self._clock = clock
        self._rng = rng
        self._probing: set[int] = set()  # accounts
        self._probed: list[steps.Probed] = []
        self._watching: set[int] = set()  # submissions
        self._watched: list[steps.Watched] = []
        self._watch_at = clock.now()
        self._has_missed = False  # a read is begun anew at `_watch_at`

    @property
    def under_way(self) -> bool:
        return bool(self._probing or self._watching)

    @property
    def looks_again(self) -> bool:
        """A read was put off by a moment, and the pump is to stay for it."""
        return self._has_missed

    def take(self, result: steps.Probed | steps.Watched) -> None:
        """What a thread brought. It waits here until it is settled, which needs the database."""
        if isinstance(result, steps.Probed):
            self._probed.append(result)
        else:
            self._watched.append(result)

    # --- probes ---

    @property
    def has_probed(self) -> bool:
        return bool(self._probed)

    def probe(self, accounts: Iterable[ProviderAccount], providers: Providers, now: datetime) -> None:
        """Begin the probes that are due."""
        for account in accounts:
            if not probes.is_due(account, now=now):
                continue
            provider = providers.of(account)
            if account.pk in self._probing or not probes.claim(account, provider.capabilities, now=now):
                continue
            self._probing.add(account.pk)
            call = partial(self._probe, account.pk, provider)
            self._threads.start(self._threads.poll, call, account_id=account.pk)

    def _probe(self, account_id: int, provider: Provider) -> steps.Probed:
        return steps.probe(account_id, provider, now=self._clock.now())

    def settle_probes(self, now: datetime) -> None:
        while self._probed:
            result = self._probed[0]
            with mishaps.contained("a probe"):
                probes.settle(
                    result.account_id, result.error, hold=result.hold, balance=result.balance, now=now, rng=self._rng
                )
            self._probing.discard(self._probed.pop(0).account_id)

    # --- the late watch ---

    def settle_watches(self, accounts: Mapping[int, ProviderAccount], tell: Tell, now: datetime) -> None:
        """Write what was read; `tell` is given what it says about its account."""
        while self._watched:
            watched = self._watched[0]
            with mishaps.contained("a late read"):
                latewatch.settle(watched, now=now)
            account = accounts[watched.watch.account_id]
            tell(account.pk, latewatch.effect(watched, account, now=now, rng=self._rng), now)
            self._watching.discard(self._watched.pop(0).watch.submission_id)
            if not watched.not_read:
                self._poll_slots.met(account.pk)
            else:  # on a busy machine many slots are missed: soon again, and not at the next look
                self._poll_slots.missed(account.pk)
                self._watch_at = min(self._watch_at, now + SOON_AGAIN)
                self._has_missed = True

    def watch(self, accounts: Iterable[ProviderAccount], providers: Providers, now: datetime) -> None:
        """Begin the late reads that are due, now and then."""
        if now < self._watch_at or self._threads.halt.is_set():
            return
        self._watch_at = now + timedelta(seconds=self._conf.watch_look_seconds)
        self._has_missed = False
        for account in accounts:
            # A slot without a thread would only be missed.
            most = min(self._conf.watch_reads_most, self._threads.poll.free(account.pk))
            for watch in latewatch.claim_due(account, self._poll_slots, most=most, now=now):
                self._watching.add(watch.submission_id)
                limits = pacing.poll_limits(account)
                look = partial(steps.look_late, watch, providers.of(account), limits, self._clock, self._threads.halt)
                self._threads.start(self._threads.poll, look, account_id=account.pk)
