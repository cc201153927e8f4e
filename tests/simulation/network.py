"""The network of a simulated world: the adapter that the engine calls, and the way of each call to the vendor and back.

A request that has left is a task of nobody's: it arrives whether or not its sender still lives. What the vendor makes
of it is said in `remote.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import BinaryIO

from batches.conf import ENGINE
from batches.engine.accounts import Providers
from batches.models import ProviderAccount
from batches.providers import errors
from batches.providers.base import (
    Accepted,
    AccountState,
    Capabilities,
    Deleted,
    Downloaded,
    Finished,
    JobStatus,
    LookedUp,
    PreparedRequest,
    Provider,
    ResultRef,
)
from tests.engine.vendor import Vendor, name_in
from tests.simulation.remote import UNBILLED_CODES, Remote
from tests.simulation.scheduler import Event

#: A request that left arrives within the engine's own timeout or not at all.
SLOWEST_WAY = ENGINE.read_timeout - 1.0


class RemoteProvider(Vendor):
    """See `providers.base.Provider`."""

    capabilities = Capabilities(
        client_key=True,
        key_retention_seconds=3600,
        link_lifetime_seconds=24 * 3600,
        topup_events=frozenset({"wallet.topup"}),
        unbilled_failure_codes=UNBILLED_CODES,
    )

    def __init__(self, remote: Remote) -> None:
        self.remote = remote
        self._scheduler = remote.scheduler
        self.capabilities = replace(
            RemoteProvider.capabilities,
            client_key=not remote.plan.has("keyless") and not remote.plan.has("drafts"),
            drafts=remote.plan.has("drafts"),
            resend_is_harmless=remote.plan.has("drafts"),
            look_up=remote.plan.has("look_up"),
        )

    def submit(
        self, request: PreparedRequest, *, idempotency_key: str, now: datetime, gate: Callable[[], None]
    ) -> Accepted | Finished:
        remote, wait = self.remote, self._scheduler.sleep
        wait(remote.rng.uniform(0, 0.02))
        if remote.outage == "refused" or remote.meets("not_sent", 0.6):
            raise remote.error("submit", errors.NotSent)
        gate()
        remote.departures_us.append(self._scheduler.now_us)
        remote.trace("left", name_in(request.body), idempotency_key[:6])
        self._maybe_suspend()
        answered = Event(self._scheduler)
        reply: list[Accepted | Finished | errors.ProviderError] = []
        self._travel(lambda: remote.arrive(request.body, idempotency_key), answered, reply)
        if remote.meets("double_jobs", 5):
            # Long enough for another holder to send it again, and to be given another job for the same key.
            self._scheduler.suspend(self._scheduler.process, remote.rng.uniform(16, 40))
        with self._alone_on_trial():
            if not self._scheduler.wait(answered, ENGINE.read_timeout):
                raise remote.error("submit", errors.AnswerLost)
        if isinstance(reply[0], errors.ProviderError):
            raise reply[0]
        remote.told[reply[0].provider_job_id] = self._scheduler.process
        return reply[0]

    @contextmanager
    def _alone_on_trial(self) -> Iterator[None]:
        """After a top-up one submission at a time finds out whether there is credit."""
        remote, now = self.remote, self._scheduler.now_us
        trial = remote.trial()
        longest_us = int((ENGINE.read_timeout + ENGINE.connect_timeout) * 1e6)
        if trial and any(each == trial and now < since + longest_us for each, since in remote.under_way):
            remote.report("two submissions are under way while one is to show whether there is credit")
        mine = (trial, now)
        remote.under_way.add(mine)
        try:
            yield
        finally:
            remote.under_way.discard(mine)

    def start(
        self,
        provider_job_id: str,
        request: PreparedRequest,
        *,
        idempotency_key: str,
        now: datetime,
        gate: Callable[[], None],
    ) -> Accepted:
        remote = self.remote
        self._scheduler.sleep(remote.rng.uniform(0, 0.02))
        if remote.outage == "refused" or remote.meets("not_sent", 0.6):
            raise remote.error("submit", errors.NotSent)
        gate()
        remote.trace("told to begin", name_in(request.body), provider_job_id)
        self._maybe_suspend()
        answered = Event(self._scheduler)
        reply: list[Accepted | Finished | errors.ProviderError] = []
        self._travel(lambda: remote.begin(provider_job_id), answered, reply)
        if not self._scheduler.wait(answered, ENGINE.read_timeout):
            raise remote.error("submit", errors.AnswerLost)
        if not isinstance(reply[0], Accepted):
            assert isinstance(reply[0], errors.ProviderError)
            raise reply[0]
        return reply[0]

    def _travel(
        self,
        arrive: Callable[[], Accepted | Finished],
        answered: Event,
        reply: list[Accepted | Finished | errors.ProviderError],
    ) -> None:
        """The request's way there and the answer's way back, whatever becomes of the sender meanwhile."""
        remote = self.remote
        there = remote.rng.uniform(1, SLOWEST_WAY) if remote.meets("slow_network") else remote.rng.uniform(0.001, 0.05)
        is_lost = remote.outage == "silent" or remote.meets("lost_answers", 0.5)
        back = remote.rng.uniform(0.001, 0.05)
        loses_answer = remote.meets("lost_answers")
        resets = remote.rng.random() < 0.7  # the loss shows at once, or only by the timeout
        breaks = remote.meets("server_faults", 0.7)

        def way() -> None:
            answer: Accepted | Finished | errors.ProviderError
            if is_lost:
                if resets:
                    reply.append(remote.error("submit", errors.AnswerLost))
                    answered.set()
                return
            try:
                answer = arrive()
                if breaks:
                    answer = remote.error("submit", remote.rng.choice((errors.ServerFault, errors.ContractBroken)), 500)
            except errors.ProviderError as refused:
                answer = refused
            self._scheduler.sleep(back)
            if loses_answer:
                self._maybe_go_dark()
                answer = remote.error("submit", errors.AnswerLost)
                if not resets:
                    return
            reply.append(answer)
            answered.set()

        self._scheduler.spawn(self._scheduler.nobody, way, after=there)

    def _maybe_go_dark(self) -> None:
        """An answer is often lost because the vendor is going down: for about as long as it knows its keys."""
        remote = self.remote
        if remote.is_calm or remote.outage or not remote.plan.has("outages") or remote.rng.random() > 0.3:
            return
        remote.outage = mood = remote.rng.choice(("refused", "silent", "5xx", "429"))
        seconds = min(300.0, remote.plan.retention_seconds) * remote.rng.uniform(0.5, 1.5)
        remote.trace("goes dark", mood, seconds)

        def light() -> None:
            if remote.outage == mood:
                remote.outage = ""

        self._scheduler.spawn(self._scheduler.nobody, light, after=seconds)

    def _maybe_suspend(self) -> None:
        """The caller's whole process stands still while its call is under way, often for longer than its leases."""
        remote = self.remote
        if remote.meets("suspensions", 0.3):
            # Just past the end of a lease is where two holders are likeliest to meet.
            seconds = remote.rng.choice((remote.rng.uniform(10, 20), remote.rng.uniform(10, 45)))
            remote.trace("suspended in a call", seconds)
            self._scheduler.suspend(self._scheduler.process, seconds)

    def fetch_status(self, provider_job_id: str, *, now: datetime) -> JobStatus:
        self._call("poll")
        return self.remote.status(provider_job_id)

    def find_submission(self, idempotency_key: str, *, first_sent_at: datetime, now: datetime) -> LookedUp | None:
        if not self.capabilities.look_up:
            return None
        self._call("look_up")
        return self.remote.found_by(idempotency_key)

    def download(self, ref: ResultRef, sink: BinaryIO, *, max_bytes: int, now: datetime) -> Downloaded:
        self._call("download")
        content, content_type, announced = self.remote.file(ref.provider_job_id)
        sink.write(content)
        self._scheduler.sleep(self.remote.rng.uniform(0.001, 0.1))
        declared = tuple(size for size in (announced, ref.size_bytes) if size is not None)
        return Downloaded(len(content), content_type, declared, self.remote.exchange("download", 200))

    def delete_remote(self, ref: ResultRef, *, now: datetime) -> Deleted:
        self._call("delete")
        return Deleted(already_gone=False, exchange=self.remote.exchange("delete", 204))

    def check_account(self, *, now: datetime) -> AccountState:
        self._call("account")
        if not self.remote.key_is_good:
            raise self.remote.error("account", errors.Unauthorized, 401)
        if self.remote.outage_of_reads == "5xx":
            raise self.remote.error("account", errors.ServerFault, 502)
        return AccountState(
            plan="simulated",
            rate_tier="",
            exchange=self.remote.exchange("account", 200),
            balance=self._balance(),
        )

    def _balance(self) -> Decimal | None:
        """Named in the runs in which somebody tops up."""
        if self.remote.credit is None or not self.remote.plan.has("topups"):
            return None
        return Decimal(self.remote.credit)

    def _call(self, call: str) -> None:
        """The way there and back of a call that changes nothing."""
        remote = self.remote
        self._maybe_suspend()
        self._scheduler.sleep(remote.rng.uniform(0.001, 0.05))
        if remote.outage_of_reads == "refused" or remote.meets("not_sent", 0.4):
            raise remote.error(call, errors.NotSent)
        if remote.outage_of_reads == "silent" or remote.meets("lost_answers", 0.3):
            self._scheduler.sleep(remote.rng.choice((0.1, ENGINE.read_timeout)))
            raise remote.error(call, errors.AnswerLost)


class OneProvider(Providers):
    """Every account is served by the simulated vendor."""

    def __init__(self, provider: Provider) -> None:
        super().__init__()
        self._provider = provider

    def of(self, account: ProviderAccount) -> Provider:
        return self._provider

    def close(self) -> None:
        """The vendor outlives a pump."""
