"""One run: the real engine among a simulated vendor, store, network, clock and people, all from one seed."""

from __future__ import annotations

import hashlib
import logging
import random
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

from django.db import InterfaceError, OperationalError, connection

from batches.conf import ENGINE, EngineConf
from batches.engine import latewatch, slots, storecheck
from batches.engine.pump import Pump
from batches.models import ProviderAccount, Workspace
from tests.factories import NOW
from tests.simulation import actors, budgets, checks, database, endings
from tests.simulation.network import OneProvider, RemoteProvider
from tests.simulation.plan import Plan, plan_of
from tests.simulation.remote import Remote, RemoteJob
from tests.simulation.scheduler import Killed, Overrun, Process, ProcessClock, Scheduler
from tests.simulation.store import AtOnce, SimulatedChecker, SimulatedStore, StoreOfProcess
from tests.simulation.threads import Threads

#: After the trouble everything must come to its end within this; the longest single waits are a deadline (120 s) and
#: a submission that is tried six times with growing pauses.
CALM_SECONDS = 1800.0
#: Leases of whoever is gone have run out by then.
AFTERWARDS_SECONDS = 90.0
#: The late watch, in minutes instead of hours.
WATCHING = replace(ENGINE, watch_first_seconds=20.0, watch_most_seconds=60.0)


@dataclass
class Outcome:
    """What a run came to. `digest` is over everything that happened in it."""

    seed: int
    violations: list[str]
    digest: str
    turns: int
    virtual_seconds: float
    kinds: frozenset[str]
    trace: list[str] = field(repr=False)


class ErrorsAreViolations(logging.Handler):
    """The engine logs an error only for faults of its own, and none are put into it here."""

    def __init__(self, report: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        trace = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else ""
        self._report(f"the engine logged an error: {record.getMessage()}\n{trace}".rstrip())


class World:
    """See the module. `run` does it all."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        rng = random.Random(f"run {plan.seed}")
        self.rng = rng
        self.scheduler = Scheduler(random.Random(f"order {plan.seed}"), start=NOW)
        self.scheduler.guard = self._assert_no_transaction
        self.violations: list[str] = []
        self.lines: list[tuple[int, str, tuple[object, ...]]] = []
        self.store = SimulatedStore(self.scheduler, random.Random(f"store {plan.seed}"), plan, folder)
        self.remote = Remote(
            scheduler=self.scheduler,
            rng=random.Random(f"remote {plan.seed}"),
            plan=plan,
            report=self.report,
            on_job=lambda job: actors.deliver_webhooks(self, job),
            intent_is_committed=self._intent_is_committed,
            trace=self.trace,
        )
        self.commits = checks.CommitChecks(self.store, self.report)
        self.limits: list[tuple[int, dict[str, Any]]] = [(0, plan.account)]
        self.commits.cap = self._cap
        self.remote.trial = lambda: self.commits.trial
        self.commits.follows_trials = plan.has("topups")
        self.provider = RemoteProvider(self.remote)
        self.checker = SimulatedChecker()
        self.kill_share = rng.choice((0.002, 0.01, 0.03)) if plan.has("commit_kills") else 0.0
        self.statement_kill_share = rng.choice((0.0005, 0.003)) if plan.has("kills") else 0.0
        self.clock_offset_us = 0
        self.database_is_away = False
        self.is_calm = False
        self.calm_us = 0
        self.lost_versions: set[int] = set()
        self.forgetful: set[str] = set()
        self.is_closing = False
        self.cluster_is_off = False
        self.all_handed_over = False
        self.pumps: list[Process] = []
        self.stopping: set[str] = set()
        self.handed_over: dict[int, int] = {}
        self.contents: dict[str, int] = {}
        self._pump_count = 0
        self.is_watching = False
        self._may_be_over: bool | None = None  # what the rows said; None after a commit

    # --- what is seen ---

    def report(self, words: str) -> None:
        self.trace("VIOLATION", words)
        self.violations.append(f"{self.scheduler.now_us / 1e6:.3f} s, {self.scheduler.process}: {words}")

    def trace(self, what: str, *facts: object) -> None:
        self.lines.append((self.scheduler.now_us, f"{self.scheduler.process} {what}", facts))

    def _assert_no_transaction(self) -> None:
        if connection.in_atomic_block:
            self.report("a wait or a call outside happens inside a transaction")

    def _intent_is_committed(self, key: str, digest: str) -> bool:
        return bool(
            database.read(
                "SELECT 1 FROM batches_submission WHERE idempotency_key = ? AND request_sha256 = ?", key, digest
            )
        )

    @property
    def calm_for_us(self) -> int:
        return self.scheduler.now_us - self.calm_us if self.is_calm else 0

    @property
    def grace_us(self) -> int:
        """New limits hold after this long: a pump reads them again by then, and has used up what it was given."""
        return int((self.plan.refresh_seconds + 1.0) * 1e6)

    def set_limits(self, limits: dict[str, Any]) -> None:
        self.trace("limits", limits)
        self.limits.append((self.scheduler.now_us, limits))

    def _cap(self) -> int:
        """The most that may be in flight just now: the largest cap of the last moments."""
        since = self.scheduler.now_us - self.grace_us
        ends = [at for at, _limits in self.limits[1:]] + [self.scheduler.now_us]
        in_force = (each for (_at, each), end in zip(self.limits, ends, strict=True) if end >= since)
        return max(int(each["max_in_flight"]) for each in in_force)

    # --- faults at commit boundaries: see `database.Faults` ---

    def before_statement(self) -> None:
        process = self.scheduler.process
        if not process.alive:
            raise Killed
        if not process.is_mortal:
            return
        self._maybe_kill(self.statement_kill_share, "between statements")
        if self.database_is_away:
            raise database.away()

    def before_commit(self) -> None:
        process = self.scheduler.process
        if not process.alive:
            raise Killed
        if process.is_mortal:
            self._maybe_kill(self.kill_share, "before a commit")
            if self.database_is_away:
                raise database.away()

    def after_commit(self) -> None:
        process = self.scheduler.process
        self._may_be_over = None
        for move in self.commits.look(process.name) if self.is_watching else ():
            self.trace("moved", *move)
        if process.is_mortal:
            self._maybe_kill(self.kill_share, "after a commit")
            if self.database_is_away or (self._has_trouble("database_away") and self.rng.random() < 0.005):
                self.trace("commit answer lost")
                raise database.away("the commit was done, its answer was lost")

    def _has_trouble(self, kind: str) -> bool:
        return not self.is_calm and self.plan.has(kind)

    def _maybe_kill(self, share: float, where: str) -> None:
        if share and not self.is_calm and self.rng.random() < share:
            process = self.scheduler.process
            self.trace("killed", where)
            self.scheduler.kill(process)
            raise Killed

    # --- people ---

    def let_go_on(self, dice: random.Random, batch_id: int) -> None:
        budgets.let_go_on(self, dice, batch_id)

    # --- pumps ---

    def start_pump(self) -> None:
        """One message of the doorbell, taken by a worker."""
        self._pump_count += 1
        process = Process(f"pump-{self._pump_count}", is_mortal=True)
        self.pumps = [other for other in self.pumps if other.alive and other.tasks]
        self.pumps.append(process)
        clock = ProcessClock(self.scheduler, offset_us=self.clock_offset_us)
        self.scheduler.spawn(process, lambda: self._run_pump(process, clock), after=self.rng.uniform(0, 0.3))

    def _run_pump(self, process: Process, clock: ProcessClock) -> None:
        owner = process.name
        try:
            slot = slots.acquire(owner, now=clock.now())
            if slot is None:
                return
            pump = Pump(
                owner=owner,
                clock=clock,
                rng=random.Random(f"{self.plan.seed} {owner}"),
                providers=OneProvider(self.provider),
                store=StoreOfProcess(self.store),  # type: ignore[arg-type]  # it passes everything on
                checker=self.checker,  # type: ignore[arg-type]  # it has the same one question
                stopping=lambda: self.is_closing or owner in self.stopping,
                slot=slot,
                conf=self._conf(),
                threads=lambda conf: Threads(self.scheduler, process, conf),  # type: ignore[arg-type, return-value]
            )
            self.trace("begins")
            pump.run()
            self.trace("ends", pump.tally)
            if len(pump._outbox):
                self.forgetful.add(owner)
            slots.release(slot, owner, now=clock.now())
        except (OperationalError, InterfaceError):
            self.forgetful.add(owner)
            self.trace("ends: no database")  # the queue's task failed; the doorbell rings again
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what the run is for
            self.report(f"a pump fell: {error!r}\n{traceback.format_exc()}")

    def _conf(self) -> EngineConf:
        return replace(
            ENGINE,
            claim_interval_seconds=self.plan.claim_seconds,
            account_refresh_seconds=self.plan.refresh_seconds,
            events_seconds=self.plan.events_seconds,
        )

    # --- the run ---

    def run(self) -> Outcome:
        log = logging.getLogger("batches")
        handler, level = ErrorsAreViolations(self.report), log.level
        log.addHandler(handler)
        log.setLevel(logging.ERROR)
        log.propagate = False
        try:
            with ExitStack() as stack:
                stack.enter_context(mock.patch.object(storecheck, "ThreadPoolExecutor", AtOnce))
                stack.enter_context(mock.patch.object(latewatch, "ENGINE", WATCHING))
                stack.enter_context(database.watched(self))
                self._live()
        except Overrun as error:
            self.report(f"it does not come to rest: {error}")
        except Exception as error:  # noqa: BLE001 - a run that falls is a failing seed, not the end of all
            self.report(f"it fell: {error!r}\n{traceback.format_exc()}")
        finally:
            log.removeHandler(handler)
            log.setLevel(level)
            log.propagate = True
            self.scheduler.close()
        lines = [f"{at / 1e6:10.3f} {what} {' '.join(map(str, facts))}" for at, what, facts in self.lines]
        return Outcome(
            self.plan.seed,
            self.violations,
            hashlib.sha256("\n".join(lines).encode()).hexdigest(),
            self.scheduler.turns,
            self.scheduler.now_us / 1e6,
            self.plan.kinds,
            lines,
        )

    def _live(self) -> None:
        self.workspace = Workspace.objects.get()
        self.account = ProviderAccount.objects.get()
        for name, value in self.plan.account.items():
            setattr(self.account, name, value)
        self.account.webhook_secret = "whsec_invented" if self.plan.has("webhooks") else ""
        self.account.price_per_job = budgets.PRICE if self.plan.has("caps") else None
        self.account.save()
        slots.ensure(self.plan.pump_slots)
        self.is_watching = True
        actors.set_up(self)
        trouble_us = int(self.plan.trouble_seconds * 1e6)
        self.scheduler.run(until_us=trouble_us, is_over=lambda: bool(self.violations) or self._is_over())
        self._calm_down()
        ends_us = self.scheduler.now_us + int(CALM_SECONDS * 1e6)
        while not self.violations and self.scheduler.now_us < ends_us:
            self.is_closing = False
            self.scheduler.run(until_us=ends_us, is_over=lambda: bool(self.violations) or self._is_over())
            self.is_closing = True  # whoever is still under way may bring evidence, and with it work
            until_us = self.scheduler.now_us + int(AFTERWARDS_SECONDS * 1e6)
            self.scheduler.run(until_us=until_us, is_over=lambda: bool(self.violations))
            self._check_store()
            if self._is_over():
                break
        if not self.violations:
            actors.sweep_once(self)
            endings.check_end(self)

    def _check_store(self) -> None:
        """Every object is read once more; what is amiss is work again."""
        if not self.plan.has("lost_objects"):
            return
        while not self.violations and actors.check_store(self, owner="a person", is_deep=True).is_busy:
            until_us = self.scheduler.now_us + 60_000_000  # a checker was killed, and its lease runs out
            self.scheduler.run(until_us=until_us, is_over=lambda: bool(self.violations))

    def _calm_down(self) -> None:
        """The trouble is over: what people and time mend is mended."""
        self.trace("calm")
        self.calm_us = self.scheduler.now_us
        self._may_be_over = None
        self.is_calm = self.remote.is_calm = self.store.is_calm = True
        self.remote.outage = ""
        if not self.plan.has("topups"):
            self.remote.credit = None  # else its actor tops it up for good
        self.remote.key_is_good = True
        self.store.is_full = self.store.is_away = False
        self.database_is_away = self.cluster_is_off = False
        for process in self.pumps:
            process.suspended_until_us = min(process.suspended_until_us, self.scheduler.now_us)

    def _is_over(self) -> bool:
        if not self.all_handed_over:
            return False
        if self._may_be_over is None:
            self._may_be_over = not self.has_work() and not (self.is_calm and self.is_watched())
        return self._may_be_over

    def is_watched(self) -> bool:
        """Is there a submission, given up on, whose job was finished after all, as its next read will show?"""
        watched = database.read("SELECT provider_job_id FROM batches_submission WHERE watch_at IS NOT NULL")
        return any(self.remote.has_finished(job_id) for (job_id,) in watched)

    def has_work(self) -> bool:
        """Is there a job that a pump could move on, now or later?"""
        return bool(
            database.read(
                "SELECT 1 FROM batches_job WHERE state IN ('pending', 'submitting', 'accepted', 'rendered') LIMIT 1"
            )
        )


class Simulator:
    """Runs seeds one after the other on one snapshot."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._snapshot = database.Snapshot(_prepare)

    def run(self, seed: int) -> Outcome:
        self._snapshot.restore()
        return World(plan_of(seed), self._folder).run()


def _prepare() -> None:
    Workspace.objects.create(slug="workspace", name="Workspace", created_at=NOW)
    ProviderAccount.objects.create(
        slug="account",
        name="Account",
        base_url="http://127.0.0.1:9",
        api_key="pdf_live_invented",
        created_at=NOW,
    )


__all__ = ["Outcome", "RemoteJob", "Simulator", "World"]
