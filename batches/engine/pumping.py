"""Starting pumps: the place where real time, real dice and the configured store enter the engine."""

from __future__ import annotations

import logging
import os
import random
import secrets
import socket
from collections.abc import Callable
from datetime import datetime, timedelta

from django.conf import settings

from batches import queue
from batches.conf import ENGINE
from batches.engine import (
    carrying,
    checking,
    claims,
    copies,
    exporting,
    exports,
    mishaps,
    retaining,
    slots,
    storecheck,
    storeorphans,
    vitals,
    work,
)
from batches.engine.accounts import Providers
from batches.engine.clock import SystemClock
from batches.engine.pdfcheck import PdfChecker
from batches.engine.pump import Pump, Tally
from batches.engine.sweep import sweep as sweep_rows
from batches.models import Draft
from batches.storage import open_store

log = logging.getLogger(__name__)


def run_pump(*, stopping: Callable[[], bool], life: str = "") -> Tally | None:
    """Run one pump if a slot is free; ring for the next one when it leaves work behind.

    `life` is the cluster's, which its leases carry, so that they can be given back when it is proven dead.
    """
    clock = SystemClock()
    clock.calibrate()
    owner = _owner(life)
    slot = slots.acquire(owner, now=clock.now())
    if slot is None:
        return None
    store = open_store(settings.STORAGE_URL)
    providers = Providers(store)
    checker = PdfChecker(seconds=ENGINE.pdf_check_seconds)
    pump = Pump(
        owner=owner,
        clock=clock,
        rng=random.Random(),  # noqa: S311 - jitter, not a secret
        providers=providers,
        store=store,
        checker=checker,
        stopping=_one_worker_makes_room(stopping, clock.now, started_at=clock.now()),
        slot=slot,
    )
    try:
        tally = pump.run()
    finally:
        providers.close()
        checker.close()
        slots.release(slot, owner, now=clock.now())
    log.info("pump ended: %s", tally)
    if not stopping():
        ring_if_needed()
    return tally


def _one_worker_makes_room(
    stopping: Callable[[], bool], now: Callable[[], datetime], *, started_at: datetime
) -> Callable[[], bool]:
    """With a single worker, or with a draft or an export in the hands of the one that is left, a pump ends early when
    another task waits: those last for minutes, and what is small need not wait for them."""
    asked_at = started_at

    def stop_or_yield() -> bool:
        nonlocal asked_at
        if stopping():
            return True
        if now() < asked_at + timedelta(seconds=ENGINE.pump_yield_seconds):
            return False
        asked_at = now()
        try:
            is_busy = checking.is_busy(now=now()) or exports.is_busy(now=now())
            return (settings.CLUSTER_WORKERS == 1 or is_busy) and queue.waiting(now=now()) > 0
        except mishaps.DATABASE_AWAY:
            return False  # the pump meets the outage by itself, and keeps what it has learned

    return stop_or_yield


def ring_if_needed() -> int:
    """Ring for as many pumps as would find work, less the messages that wait already. Returns how many."""
    clock = SystemClock()
    clock.calibrate()
    now = clock.now()
    missing = max(0, work.pumps_wanted(now=now) - queue.waiting(now=now))
    if missing:
        queue.ring(missing)
    return missing


def take_over(life: str) -> None:
    """Give back what the workers of a dead cluster held, instead of waiting for their leases. Safe to repeat."""
    jobs, held, actions = claims.release_life(life), slots.release_life(life), carrying.release_life(life)
    uploads, files = checking.release_life(life), exports.release_life(life)
    has_any = bool(jobs or held or actions or uploads or files)
    level = logging.INFO if has_any else logging.DEBUG  # none: it had stopped cleanly
    words = "a cluster is dead; %d pump slots, %d jobs, %d bulk actions, %d drafts and %d exports of it are given back"
    log.log(level, words, held, jobs, actions, uploads, files)


def sweep() -> None:
    """One healing pass on the configured store."""
    clock = SystemClock()
    clock.calibrate()
    done = sweep_rows(open_store(settings.STORAGE_URL), now=clock.now()).as_dict()
    with mishaps.contained("noting what the sweep did"):
        vitals.note_sweep(done, now=clock.now())
    log.log(logging.INFO if any(done.values()) else logging.DEBUG, "sweep: %s", done)


def check_store() -> None:
    """One slice of each walk through the configured store; most calls find that no round is due."""
    clock = SystemClock()
    clock.calibrate()
    owner, store = _owner(), open_store(settings.STORAGE_URL)
    for check in (storecheck.check_objects, storeorphans.check_orphans):
        report = check(store, clock, owner=owner)
        if not report.is_busy:
            log.info("%s: %s", check.__name__, report)


def retain() -> None:
    """One slice of the walk over what is kept no longer; most calls find that no round is due."""
    clock = SystemClock()
    clock.calibrate()
    report = retaining.sweep(open_store(settings.STORAGE_URL), clock, owner=_owner())
    if report.deleted:
        log.info("retention: %d deletions are settled", report.deleted)


def delete_copies() -> None:
    """One slice of the deletions at providers that accounts want after saving."""
    clock = SystemClock()
    clock.calibrate()
    providers = Providers(open_store(settings.STORAGE_URL))
    try:
        report = copies.sweep(providers, clock, owner=_owner())
    finally:
        providers.close()
    if report.noted or report.asked:
        log.info("copies at providers: %s", report)


def carry_out(*, stopping: Callable[[], bool], life: str = "") -> None:
    """One slice of the confirmed bulk actions; rings for the next one while something is left."""
    clock = SystemClock()
    clock.calibrate()
    tally = carrying.carry_out(clock, owner=_owner(life), stopping=stopping)
    if tally.groups:
        log.info("bulk actions: %s", tally)
    if tally.is_work_left:
        queue.ring_bulk_actions()


def ring_for_bulk_actions() -> bool:
    """Ring where a dead worker left one, unless some message waits already; true when it rang."""
    clock = SystemClock()
    clock.calibrate()
    if not carrying.due(now=clock.now()) or queue.waiting(now=clock.now()):
        return False
    queue.ring_bulk_actions()
    return True


def work_on_drafts(*, stopping: Callable[[], bool], life: str = "") -> None:
    """One slice of the drafts that wait for a worker; rings for the next one while something is left."""
    clock = SystemClock()
    clock.calibrate()
    store = open_store(settings.STORAGE_URL)
    tally = checking.carry_out(clock, owner=_owner(life), store=store, stopping=stopping)
    if tally.drafts:
        log.info("drafts: %s", tally)
    if tally.is_work_left:
        queue.ring_drafts()


def work_on_small(draft: Draft) -> bool:
    """Do the turn of a small draft in this very request, unless a worker has it; true when it was done here."""
    if draft.upload_bytes > checking.SMALL_BYTES:
        return False
    clock = SystemClock()
    clock.calibrate()
    ends_at = clock.now() + checking.IN_REQUEST
    return checking.work_on(
        draft.pk,
        clock,
        owner=_owner(),
        store=open_store(settings.STORAGE_URL),
        stopping=lambda: clock.now() > ends_at,
    )


def ring_for_drafts() -> bool:
    """Ring where a dead worker left one, or one was put off, unless some message waits already; true when it rang."""
    clock = SystemClock()
    clock.calibrate()
    if not checking.due(now=clock.now()) or queue.waiting(now=clock.now()):
        return False
    queue.ring_drafts()
    return True


def work_on_exports(*, stopping: Callable[[], bool], life: str = "") -> None:
    """One slice of the exports that wait for a worker; rings for the next one while something is left."""
    clock = SystemClock()
    clock.calibrate()
    store = open_store(settings.STORAGE_URL)
    tally = exporting.carry_out(clock, owner=_owner(life), store=store, stopping=stopping)
    if tally.exports:
        log.info("exports: %s", tally)
    if tally.is_work_left:
        queue.ring_exports()


def ring_for_exports() -> bool:
    """Ring where a dead worker left one, or one was put off, unless some message waits already; true when it rang."""
    clock = SystemClock()
    clock.calibrate()
    if not exports.due(now=clock.now()) or queue.waiting(now=clock.now()):
        return False
    queue.ring_exports()
    return True


def _owner(life: str = "") -> str:
    return f"{socket.gethostname()[:30]}:{os.getpid()}:{life}:{secrets.token_hex(6)}"
