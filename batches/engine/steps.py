"""What runs on a pump's threads: one step of one job, without the database, its result as a value.

A step never raises. What it could not foresee becomes `Crashed`, and the job is parked where a person sees it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from batches.conf import ENGINE
from batches.engine import collection, drafting, pacing, polling, preparing, retries, submission
from batches.engine.claims import Claim, OpenSubmission
from batches.engine.clock import Clock
from batches.engine.collection import Collected, LinkDead, NotCollected, Trail
from batches.engine.pdfcheck import PdfChecker
from batches.models import HoldReason
from batches.providers import errors
from batches.providers.base import Accepted, Finished, JobStatus, Provider
from batches.storage import ArtifactStore, StoreError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class JobResult:
    claim: Claim


@dataclass(frozen=True)
class NotBegun(JobResult):
    """The pump was ending before this step's turn came: nothing has happened, and the job is given back as it is."""


@dataclass(frozen=True)
class PreparedDone(JobResult):
    prepared: preparing.Prepared


@dataclass(frozen=True)
class PrepareFailed(JobResult):
    error: errors.ProviderError | StoreError


@dataclass(frozen=True)
class NotSentYet(JobResult):
    """The slot was missed, or the lease too short: no byte left, and the job waits for another slot."""

    sending: submission.Sending


@dataclass(frozen=True)
class WindowClosed(JobResult):
    """A resend that came too late for the key's retention: no byte left."""


@dataclass(frozen=True)
class Answered(JobResult):
    sending: submission.Sending
    answer: Accepted | Finished
    at: datetime


@dataclass(frozen=True)
class SendFailed(JobResult):
    sending: submission.Sending
    error: errors.ProviderError
    at: datetime


@dataclass(frozen=True)
class NotReadYet(JobResult):
    """The slot of a status read was missed: nothing was asked, and the job waits for another slot."""


@dataclass(frozen=True)
class StatusRead(JobResult):
    status: JobStatus


@dataclass(frozen=True)
class StatusFailed(JobResult):
    error: errors.ProviderError


@dataclass(frozen=True)
class Started(JobResult):
    """Its draft was begun."""

    answer: Accepted


@dataclass(frozen=True)
class StartFailed(JobResult):
    """`StoreError`: its bytes could not be read back, so nothing has left."""

    error: errors.ProviderError | StoreError


@dataclass(frozen=True)
class Fetched(JobResult):
    collected: Collected


@dataclass(frozen=True)
class FetchMissed(JobResult):
    missed: NotCollected


@dataclass(frozen=True)
class NotFetchedYet(JobResult):
    """A slot was missed, or its lane is paused, or the pump ends: nothing was asked, and the job waits for another."""

    trail: Trail


@dataclass(frozen=True)
class OnTheTrail(JobResult):
    """Its link was dead and is to be asked for, or was asked for just now and is to be fetched from."""

    trail: Trail
    link_is_dead: bool


@dataclass(frozen=True)
class Crashed(JobResult):
    words: str


@dataclass(frozen=True)
class Probed:
    """A single probe of a held account: what went wrong with it, if anything; else `balance` is what it named."""

    account_id: int
    error: errors.ProviderError | None
    hold: HoldReason | None = None
    balance: Decimal | None = None


@dataclass(frozen=True)
class Watch:
    """One late status read that this pump alone makes (`latewatch.py`), in its slot."""

    submission_id: int
    job_id: int
    account_id: int
    provider_job_id: str
    business_id: str
    slot: datetime
    next_at: datetime | None  # of the read after it, as its row says since it was claimed


@dataclass(frozen=True)
class Watched:
    """What it brought: a status or an error, or neither. `not_read`: the slot was missed, or the pump ended first."""

    watch: Watch
    status: JobStatus | None = None
    error: errors.ProviderError | None = None
    not_read: bool = False


Result = JobResult | Probed | Watched


def guarded(claim: Claim, step: Callable[..., Result], *given: object) -> Result:
    """Run a step; a fault of ours ends at this job.

    Not `mishaps.contained`: a step that was begun owes a result, and no step touches the database.
    """
    try:
        return step(*given)
    except Exception as error:
        log.exception("step %s of job %s failed", step.__name__, claim.job_id)
        return Crashed(claim, f"An internal error stopped it ({type(error).__name__}); the log has the trace.")


def prepare(claim: Claim, given: preparing.Input, provider: Provider, store: ArtifactStore) -> Result:
    try:
        return PreparedDone(claim, preparing.prepare(claim, given, provider, store))
    except (errors.ProviderError, StoreError) as error:
        return PrepareFailed(claim, error)


def prepare_again(claim: Claim, known: OpenSubmission, body: bytes | None, store: ArtifactStore) -> Result:
    try:
        return PreparedDone(claim, preparing.prepare_again(claim, known, body, store))
    except StoreError as error:
        return PrepareFailed(claim, error)


class _SlotMissed(Exception):
    """The gate stayed shut: the slot was missed, the lease is too short, or the pump ends. No byte left."""


class _WindowClosed(Exception):
    """The gate stayed shut: the provider may no longer know the key. No byte left."""


def send(
    sending: submission.Sending,
    provider: Provider,
    limits: pacing.Limits,
    clock: Clock,
    halt: threading.Event,
    lease_until: Callable[[], datetime],
) -> Result:
    """Make everything ready, wait for the slot, look once more whether the bytes may still leave, and send them."""
    claim = sending.prepared.claim

    def gate() -> None:
        # Waiting here, with the connection open, keeps what lies between the slot and the wire as short as it can be.
        halted = clock.wait(halt, (sending.slot - clock.now()).total_seconds())
        now = clock.now()
        if halted or not pacing.may_still_leave(sending.slot, limits, now):
            raise _SlotMissed
        if now + timedelta(seconds=ENGINE.lease_margin_seconds) > lease_until():
            raise _SlotMissed
        if sending.prepared.doubt_before and not retries.may_resend(sending.submission.resend_until, now):
            raise _WindowClosed

    try:
        answer = submission.send(sending, provider, now=sending.slot, gate=gate)
    except _SlotMissed:
        return NotSentYet(claim, sending)
    except _WindowClosed:
        return WindowClosed(claim)
    except errors.ProviderError as error:
        return SendFailed(claim, sending, error, clock.now())
    return Answered(claim, sending, answer, clock.now())


def poll(
    claim: Claim, provider: Provider, slot: datetime, limits: pacing.Limits, clock: Clock, halt: threading.Event
) -> Result:
    if clock.wait(halt, (slot - clock.now()).total_seconds()):
        return NotBegun(claim)
    if not pacing.may_still_leave(slot, limits, clock.now()):
        return NotReadYet(claim)
    try:
        return StatusRead(claim, polling.read(claim, provider, now=clock.now()))
    except errors.ProviderError as error:
        return StatusFailed(claim, error)


def start(
    claim: Claim,
    inline: bytes | None,
    provider: Provider,
    store: ArtifactStore,
    slot: datetime,
    limits: pacing.Limits,
    clock: Clock,
    halt: threading.Event,
    lease_until: Callable[[], datetime],
) -> Result:
    """Have the draft begun of which it is committed that this is tried, in a slot of the status reads."""
    assert claim.submission is not None
    assert claim.submission.provider_job_id is not None

    def gate() -> None:
        # As in `send`: a connection that is only made in the slot would miss it each time.
        halted = clock.wait(halt, (slot - clock.now()).total_seconds())
        now = clock.now()
        is_leased = now + timedelta(seconds=ENGINE.lease_margin_seconds) <= lease_until()
        if halted or not is_leased or not pacing.may_still_leave(slot, limits, now):
            raise _SlotMissed
        if not drafting.may_leave(claim, now):
            raise _SlotMissed

    if halt.is_set():
        return NotReadYet(claim)
    try:
        prepared = preparing.prepare_again(claim, claim.submission, inline, store)
        answer = provider.start(
            claim.submission.provider_job_id,
            prepared.request,
            idempotency_key=claim.submission.idempotency_key,
            now=clock.now(),
            gate=gate,
        )
    except _SlotMissed:
        return NotReadYet(claim)
    except (errors.ProviderError, StoreError) as error:
        return StartFailed(claim, error)
    return Started(claim, answer)


@dataclass(frozen=True)
class Leaving:
    """The slot of one request, asked by its thread at the last moment. `paused_until`: what was learned since."""

    slot: datetime
    limits: pacing.Limits
    clock: Clock
    halt: threading.Event
    paused_until: Callable[[], datetime]

    def may_leave(self) -> bool:
        """Wait for the slot; false when it was missed, or its lane was paused, or the pump ends."""
        now = self.clock.now()
        if now < self.slot:
            if self.clock.wait(self.halt, (self.slot - now).total_seconds()):
                return False
            now = self.clock.now()
        return now >= self.paused_until() and pacing.may_still_leave(self.slot, self.limits, now)


def fetch(
    claim: Claim,
    provider: Provider,
    store: ArtifactStore,
    checker: PdfChecker,
    leaving: Leaving,
    trail: Trail,
) -> Result:
    """One download in its slot. Its first step of all may be to ask for a link, if the one it has is dead."""
    if not leaving.may_leave():
        return NotFetchedYet(claim, trail)
    outcome = collection.collect(claim, provider, store, checker, now=leaving.clock.now(), trail=trail)
    match outcome:
        case Collected():
            return Fetched(claim, outcome)
        case LinkDead(trail=so_far):
            return OnTheTrail(claim, so_far, link_is_dead=True)
    return FetchMissed(claim, outcome)


def ask_for_link(claim: Claim, provider: Provider, leaving: Leaving, trail: Trail) -> Result:
    """One status read for another link, in a slot of that lane."""
    if not leaving.may_leave():
        return NotFetchedYet(claim, trail)
    found = collection.ask_for_link(claim, provider, now=leaving.clock.now(), trail=trail)
    return FetchMissed(claim, found) if isinstance(found, NotCollected) else OnTheTrail(claim, found, False)


def probe(account_id: int, provider: Provider, *, now: datetime) -> Probed:
    """One free, authenticated call. A key that is refused is a different trouble than a service that is away.

    A fault of ours says nothing about the service, so the account stays held and is probed again.
    """
    try:
        return Probed(account_id, None, balance=provider.check_account(now=now).balance)
    except errors.ProviderError as error:
        return Probed(account_id, error, HoldReason.AUTH if isinstance(error, errors.Unauthorized) else None)
    except Exception:  # as in `guarded`: the pump waits for a result, or the account is never probed again
        log.exception("the probe of account %s failed", account_id)
        return Probed(account_id, errors.ContractBroken("An internal error stopped the probe; the log has the trace."))


def look_late(watch: Watch, provider: Provider, limits: pacing.Limits, clock: Clock, halt: threading.Event) -> Watched:
    """One read of a job that nobody waits for. What goes wrong costs nothing: the next has its time already."""
    halted = clock.wait(halt, (watch.slot - clock.now()).total_seconds())
    if halted or not pacing.may_still_leave(watch.slot, limits, clock.now()):
        return Watched(watch, not_read=True)
    try:
        return Watched(watch, status=provider.fetch_status(watch.provider_job_id, now=clock.now()))
    except errors.ProviderError as error:
        return Watched(watch, error=error)
    except Exception:  # as in `guarded`: the pump waits for a result
        log.exception("the late read of job %s failed", watch.job_id)
        return Watched(watch)
