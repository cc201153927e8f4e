"""What one pump holds: the claims by job, how long their leases last, and which of them a thread is at.

Only memory. As far as this pump knows they are its own; the database has the last word, by the token in every write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial

from batches.conf import EngineConf
from batches.engine import pacing, shares, steps
from batches.engine.claims import Claim
from batches.engine.threads import Pool, Threads


class Holdings:
    """Only the pump's own thread uses it, but for what `lease_of` gives out."""

    def __init__(self, conf: EngineConf, threads: Threads) -> None:
        self._conf = conf
        self._threads = threads
        self._claims: dict[int, Claim] = {}
        self._leases: dict[int, datetime] = {}
        self._busy: set[int] = set()  # a thread has it

    def __len__(self) -> int:
        return len(self._claims)

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._claims

    def __iter__(self) -> Iterator[int]:
        return iter(self._claims)

    def take(self, claimed: Iterable[Claim], now: datetime) -> None:
        for claim in claimed:
            self._claims[claim.job_id] = claim
            self._leases[claim.job_id] = self._lease_from(now)

    def put(self, claim: Claim) -> None:
        """The job as it stands now, under the lease that it has."""
        self._claims[claim.job_id] = claim

    def let_go(self, job_id: int) -> None:
        self._claims.pop(job_id, None)
        self._leases.pop(job_id, None)

    def is_mine(self, claim: Claim) -> bool:
        held = self._claims.get(claim.job_id)
        return held is not None and held.token == claim.token

    def accounts(self, *, among: Collection[int]) -> Collection[int]:
        """Those of all accounts that have a job here."""
        if len(among) == 1:
            return among if self._claims else ()  # nobody to look for
        return {claim.account_id for claim in self._claims.values()}

    def room(self, account_id: int, *, among: Collection[int]) -> int:
        """How many more jobs of the account may be held, so that a large one leaves room for the others of `among`."""
        if all(other == account_id for other in among):
            return self._conf.held_most - len(self._claims)  # nobody to count for
        held = Counter(claim.account_id for claim in self._claims.values())
        return shares.room(account_id, held, among, most=self._conf.held_most, least=shares.HELD_LEAST)

    # --- leases ---

    def lease_of(self, job_id: int) -> Callable[[], datetime]:
        """Asked by a thread at the last moment, so that a renewal meanwhile counts."""
        return lambda: self._leases.get(job_id, pacing.EPOCH)

    def renewed(self, kept: Collection[int], now: datetime) -> list[int]:
        """The leases of `kept` last longer now. Returns the others, without those that a thread is at."""
        lost = []
        for job_id in self._claims:
            if job_id in kept:
                self._leases[job_id] = self._lease_from(now)
            elif job_id not in self._busy:
                lost.append(job_id)
        return lost

    def _lease_from(self, now: datetime) -> datetime:
        return now + timedelta(seconds=self._conf.lease_seconds)

    # --- threads ---

    def begin(
        self,
        claim: Claim,
        pool: Pool,
        step: Callable[..., steps.Result],
        *given: object,
        instead: steps.Result | None = None,
    ) -> bool:
        """Run a step on a thread, unless the pump is ending; `instead` comes back when its turn comes only then."""
        instead = instead or steps.NotBegun(claim)
        run = partial(steps.guarded, claim, step, *given)
        has_begun = self._threads.start(pool, run, instead=instead, account_id=claim.account_id)
        if has_begun:
            self._busy.add(claim.job_id)
        return has_begun

    def ended(self, job_id: int) -> None:
        """Its step has come back."""
        self._busy.discard(job_id)

    def is_free(self, claim: Claim) -> bool:
        """Mine, and no thread is at it."""
        return self.is_mine(claim) and claim.job_id not in self._busy

    @property
    def has_busy(self) -> bool:
        return bool(self._busy)

    def idle(self) -> list[int]:
        """What no thread is at, so that it can be given back."""
        return [job_id for job_id in self._claims if job_id not in self._busy]
