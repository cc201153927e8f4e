"""Everybody but the pumps: the doorbell, the sweep, people, and whoever breaks things. Each is one task."""

from __future__ import annotations

import hashlib
import json
import random
from functools import partial
from typing import TYPE_CHECKING, Any

from django.db import IntegrityError, InterfaceError, OperationalError

from batches.engine import storecheck, storeslices, sweep, work
from batches.engine.storeslices import SliceReport
from batches.models import ProviderAccount, SweepKind, WebhookEvent
from batches.storage import StoreError
from tests.simulation import budgets, handing, people
from tests.simulation.database import read
from tests.simulation.people import now_of, while_troubled
from tests.simulation.plan import limits_of
from tests.simulation.remote import RemoteJob
from tests.simulation.scheduler import Process, ProcessClock
from tests.simulation.store import StoreOfProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.world import World


#: Jobs, late watches and probes that may be due.
DUE = (
    "SELECT 1 FROM batches_job WHERE state IN ('pending', 'submitting', 'accepted', 'rendered')"
    " AND due_at <= :now AND (lease_until IS NULL OR lease_until <= :now)"
    " UNION ALL SELECT 1 FROM batches_submission WHERE watch_at <= :now"
    " UNION ALL SELECT 1 FROM batches_provideraccount WHERE probe_at <= :now LIMIT 1"
)


def set_up(world: World) -> None:
    """Let everybody begin."""

    def begin(name: str, act: Callable[[World, random.Random], None], *, after: float = 0.0) -> None:
        dice = random.Random(f"{name} {world.plan.seed}")
        world.scheduler.spawn(Process(name), lambda: act(world, dice), after=after)

    begin("uploads", _uploads)
    begin("doorbell", _doorbell, after=0.1)
    begin("sweep", _sweep, after=30)
    begin("operator", people.operate, after=5)
    for name, act in ACTORS.items():
        if world.plan.has(name):
            begin(name, act)


# --- the house itself ---


def _uploads(world: World, dice: random.Random) -> None:
    """The batches are handed over one after the other; a later one may name documents of an earlier one again."""
    for number, count in enumerate(world.plan.documents):
        if number:
            world.scheduler.sleep(dice.uniform(0, world.plan.trouble_seconds / 2))
        known = list(world.contents)
        names = [f"INV-{len(known) + index + 1}" for index in range(count)]
        if known:
            names += dice.sample(known, dice.randint(0, len(known)))
        for name in names:
            if name not in world.contents:
                world.contents[name] = 1
                if world.plan.has("invalid_documents") and dice.random() < 0.3:
                    world.remote.invalid.add(f"{name}-1")
            elif dice.random() < 0.3:
                world.contents[name] += 1
        rows = [{"id": name, "html": f"<h1>{name}-{world.contents[name]}</h1>"} for name in names]
        while True:
            try:
                handing.hand_over(world, rows)
            except StoreError:
                world.scheduler.sleep(dice.uniform(5, 20))  # the person is told, and tries again
            else:
                break
    world.all_handed_over = True


def _doorbell(world: World, dice: random.Random) -> None:
    """Rings for as many pumps as would find work, as intake, pumps and the schedule do."""
    while True:
        if not world.cluster_is_off and not world.is_closing and _is_anything_due(world):
            wanted = work.pumps_wanted(now=now_of(world))
            if wanted and not world.is_calm and world.plan.has("double_rings") and dice.random() < 0.3:
                wanted *= 2
            for _ in range(wanted):
                world.start_pump()
        world.scheduler.sleep(dice.uniform(2, 8))


def _is_anything_due(world: World) -> bool:
    """False only where the engine's own question, which takes longer to ask, would find nothing either."""
    now = now_of(world).replace(tzinfo=None).isoformat(sep=" ")
    return bool(read(DUE, {"now": now}))


def _sweep(world: World, dice: random.Random) -> None:
    while True:
        if not world.cluster_is_off:
            sweep_once(world)
        world.scheduler.sleep(dice.uniform(80, 240))


def sweep_once(world: World) -> None:
    sweep.sweep(world.store, now=now_of(world))


# --- those who break things ---


def _outages(world: World, dice: random.Random) -> None:
    of_reads = random.Random(f"reads {world.plan.seed}")
    while while_troubled(world, dice, 1, 60):
        world.remote.outage = dice.choice(("refused", "silent", "5xx", "429", "402"))
        world.remote.spares_reads = world.plan.has("post_only_outages") and of_reads.random() < 0.6
        world.trace("outage", world.remote.outage, "of submissions" if world.remote.spares_reads else "")
        world.scheduler.sleep(dice.choice((2, 10, 40, 150)) * dice.random())
        world.remote.outage = ""


def _credit(world: World, dice: random.Random) -> None:
    world.remote.credit = dice.randint(0, 3)
    if not world.plan.has("topups"):
        return
    while while_troubled(world, dice, 5, 120):
        _top_up(world, dice, dice.choice((0, 1, 3, 10)))
    _top_up(world, dice, 1000)


def _top_up(world: World, dice: random.Random, amount: int) -> None:
    """The vendor tells of it or not; its announcement may come before the money can be spent."""
    world.trace("tops up", amount)
    if dice.random() < 0.6:
        body = json.dumps({"type": "wallet.topup", "at": world.scheduler.now_us}).encode()
        digest, now = hashlib.sha256(body).hexdigest(), world.scheduler.now()
        WebhookEvent.objects.create(
            account=world.account,
            body=body,
            body_sha256=digest,
            dedupe_key=digest,
            signed_at=now,
            received_at=now,
            type="wallet.topup",
            provider_job_id="",
        )
    world.remote.credit = (world.remote.credit or 0) + amount


def _changed_limits(world: World, dice: random.Random) -> None:
    """A person changes the account's limits while documents are under way."""
    while while_troubled(world, dice, 1, 20):
        limits = limits_of(dice)
        ProviderAccount.objects.filter(pk=world.account.pk).update(**limits)
        world.set_limits(limits)


def _lost_objects(world: World, dice: random.Random) -> None:
    """Stored PDFs vanish or are damaged; the store is checked now and then, and the checker may be killed."""
    number = 0
    while while_troubled(world, dice, 2, 25):
        number += 1
        stored = read(
            "SELECT a.storage_key, v.id FROM batches_artifact a JOIN batches_documentversion v ON v.id = a.version_id"
            " JOIN batches_job j ON j.version_id = v.id"
            " WHERE j.state = 'saved' AND a.missing_at IS NULL ORDER BY a.id"
        )
        there = [(key, version) for key, version in stored if key in world.store.durable]
        if there and dice.random() < 0.5:
            key, version = dice.choice(there)
            damages = dice.random() < 0.5
            world.trace("damages" if damages else "removes", key)
            world.store.lose(key, damages=damages)
            world.lost_versions.add(version)
        process = Process(f"store check-{number}", is_mortal=True)
        is_deep = dice.random() < 0.5
        world.scheduler.spawn(process, partial(_check, world, process, is_deep=is_deep))


def _check(world: World, process: Process, *, is_deep: bool) -> None:
    try:
        check_store(world, owner=process.name, is_deep=is_deep)
    except (OperationalError, InterfaceError):
        world.trace("no database")  # the task failed; a later one goes on


def check_store(world: World, *, owner: str, is_deep: bool) -> SliceReport:
    """One round of `manage.py check_store --repair`. Its report says whether somebody else is at it."""
    storeslices.begin_anew(SweepKind.OBJECTS)
    clock = ProcessClock(world.scheduler, offset_us=world.clock_offset_us)
    store: Any = StoreOfProcess(world.store)
    report = storecheck.check_objects(store, clock, owner=owner, is_deep=is_deep, by_person=True, is_repair=True)
    world.trace("store checked", report)
    return report


def _key_refused(world: World, dice: random.Random) -> None:
    while while_troubled(world, dice, 1, 90):
        world.trace("key refused")
        world.remote.key_is_good = False


def _store_full(world: World, dice: random.Random) -> None:
    while while_troubled(world, dice, 1, 60):
        world.store.is_full = True
        world.scheduler.sleep(dice.uniform(1, 60))
        world.store.is_full = False


def _store_errors(world: World, dice: random.Random) -> None:
    while while_troubled(world, dice, 5, 90):
        world.store.is_away = True
        world.scheduler.sleep(dice.uniform(1, 40))
        world.store.is_away = False


def _kills(world: World, dice: random.Random) -> None:
    """kill -9 of one pump, wherever it stands."""
    while while_troubled(world, dice, 0.2, 20):
        living = [process for process in world.pumps if process.alive and process.tasks]
        if living:
            process = dice.choice(living)
            world.trace("kill -9", process)
            world.scheduler.kill(process)


def _suspensions(world: World, dice: random.Random) -> None:
    """A pump stands still, often for longer than its leases, and goes on as if nothing had happened."""
    while while_troubled(world, dice, 0.5, 30):
        living = [process for process in world.pumps if process.alive and process.tasks]
        if living:
            process, seconds = dice.choice(living), dice.choice((2, 14, 20, 45)) * dice.uniform(0.5, 1)
            world.trace("suspends", process, seconds)
            world.scheduler.suspend(process, seconds)


def _cluster_off(world: World, dice: random.Random) -> None:
    """Nothing of ours runs for a while."""
    while while_troubled(world, dice, 2, 60):
        world.cluster_is_off = True
        world.trace("cluster off")
        for process in world.pumps:
            if process.alive:
                world.scheduler.kill(process)
        world.scheduler.sleep(dice.choice((5, 40, 250)) * dice.random())
        world.cluster_is_off = False


def _graceful_stops(world: World, dice: random.Random) -> None:
    while while_troubled(world, dice, 1, 40):
        world.stopping |= {process.name for process in world.pumps}
        world.trace("stops")


def _clock_jumps(world: World, dice: random.Random) -> None:
    """The host's clock is set; who runs keeps its own, who starts later has the new one."""
    back = 20.0
    while while_troubled(world, dice, 3, 60):
        if dice.random() < 0.5 and back > 1:
            step = dice.uniform(0.5, back / 2)
            back -= step
            world.clock_offset_us -= int(step * 1e6)
        else:
            world.clock_offset_us += int(dice.choice((2, 20, 60)) * dice.random() * 1e6)
        world.trace("clock", world.clock_offset_us / 1e6)


def _database_away(world: World, dice: random.Random) -> None:
    while while_troubled(world, dice, 2, 60):
        world.trace("database away")
        world.database_is_away = True
        world.scheduler.sleep(dice.choice((0.5, 5, 30)) * dice.random())
        world.database_is_away = False


ACTORS: dict[str, Callable[[World, random.Random], None]] = {
    "outages": _outages,
    "credit": _credit,
    "key_refused": _key_refused,
    "store_full": _store_full,
    "store_errors": _store_errors,
    "kills": _kills,
    "suspensions": _suspensions,
    "cluster_off": _cluster_off,
    "graceful_stops": _graceful_stops,
    "clock_jumps": _clock_jumps,
    "database_away": _database_away,
    "people": people.hold_and_pause,
    "verbs": people.press_verbs,
    "samples": budgets.look_at_samples,
    "changed_limits": _changed_limits,
    "lost_objects": _lost_objects,
}


# --- webhooks ---


def deliver_webhooks(world: World, job: RemoteJob) -> None:
    """The vendor's job has ended: its event arrives once, twice, late, or never."""
    if not world.plan.has("webhooks"):
        return
    dice = world.remote.rng
    kind = "job.failed" if job.failure else "job.completed"
    for number in range(dice.choice((0, 1, 1, 1, 2, 3))):
        after = dice.choice((0.01, 0.5, 5, 60)) * dice.random()
        world.scheduler.spawn(Process("inbox"), lambda number=number: _arrive(world, job, kind, number), after=after)


def _arrive(world: World, job: RemoteJob, kind: str, number: int) -> None:
    """What the inbox does with a proven event: a row, unless it has it already."""
    body = json.dumps({"type": kind, "id": job.id}).encode()
    delivery = number // 2  # every second one repeats the delivery before it
    try:
        WebhookEvent.objects.create(
            account=world.account,
            body=body,
            body_sha256=hashlib.sha256(body).hexdigest(),
            dedupe_key=f"{job.id}:{kind}:{delivery}",
            signed_at=world.scheduler.now(),
            received_at=world.scheduler.now(),
            type=kind,
            provider_job_id=job.id,
        )
    except IntegrityError:
        return
    world.trace("webhook", job.id, kind)
