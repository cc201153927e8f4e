"""A status read leaves in its slot or waits for another one: none is sent too late, and none is lost for that."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from batches.conf import ENGINE
from batches.engine import latewatch, pacing, steps
from batches.engine.blocks import Blocks
from batches.engine.errands import SOON_AGAIN, Errands
from batches.models import Lane, Submission
from batches.providers.base import JobStatus
from tests.scenarios.watching import FIRST, given_up
from tests.scenarios.world import World

NAMES = [f"INV-{number}" for number in range(1, 7)]


def test_a_read_whose_thread_was_suspended_past_its_slot_asks_nothing_and_takes_another(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll, suspensions = steps.poll, iter([1.0, 1.0])

    def suspended(*given: Any) -> steps.Result:
        world.clock.advance(next(suspensions, 0.0))
        return poll(*given)

    monkeypatch.setattr(steps, "poll", suspended)
    world.hand_over("INV-1")
    tally = world.pump(stopping=world.is_over).run()
    world.assert_saved(["INV-1"])
    assert tally.slots_missed == 2
    assert len(world.provider.reads) == tally.polls - 2 == 2


def test_a_pump_takes_no_more_slots_for_reads_than_it_has_free_threads(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(poll_interval_ms=100)
    conf = replace(ENGINE, poll_threads=2)
    read, rounds = world.provider.fetch_status, 0

    def slowly(provider_job_id: str, *, now: datetime) -> JobStatus:
        world.clock.wait(threading.Event(), 3.0)
        return read(provider_job_id, now=now)

    def look() -> None:
        nonlocal rounds
        rounds += 1

    monkeypatch.setattr(world.provider, "fetch_status", slowly)
    world.hand_over(*NAMES)
    world.clock.on_look = look
    tally = world.pump(stopping=world.is_over, conf=conf).run()
    world.clock.on_look = None
    world.assert_saved(NAMES)
    assert tally.slots_missed == 0
    assert len(world.provider.reads) == tally.polls
    assert rounds < 10_000, "while no thread is free, the pump waits for a result"


@pytest.mark.parametrize("is_last", [False, True])
def test_a_late_read_that_missed_its_slot_is_due_again_at_once(world: World, *, is_last: bool) -> None:
    row = given_up(world)
    world.clock.advance(FIRST)
    if is_last:
        row.watch_until = world.clock.now()
        row.save(update_fields=["watch_until"])
    now = world.clock.now()
    slots = Blocks(Lane.POLL, ENGINE)
    (watch,) = latewatch.claim_due(world.account, slots, now=now, most=5)
    assert latewatch.claim_due(world.account, slots, now=now, most=5) == []
    assert (watch.next_at is None) is is_last

    world.clock.advance(1.0)
    limits, halt = pacing.poll_limits(world.account), threading.Event()
    reads: list[steps.Watched] = []
    thread = threading.Thread(
        target=lambda: reads.append(steps.look_late(watch, world.provider, limits, world.clock, halt))
    )
    thread.start()
    thread.join()
    latewatch.settle(reads[0], now=world.clock.now())
    row.refresh_from_db()
    assert row.watch_at == world.clock.now()
    again = latewatch.claim_due(world.account, slots, now=world.clock.now(), most=5)
    assert [each.submission_id for each in again] == [row.pk]


def test_after_a_missed_slot_a_pump_stays_and_begins_the_late_read_anew_in_a_moment(world: World) -> None:
    """A busy machine misses many: at one look in five seconds, a read that a person asked for would take minutes."""
    row = given_up(world)
    world.clock.advance(FIRST)
    threads, slots = Threads(), Blocks(Lane.POLL, ENGINE)
    errands = Errands(
        ENGINE,
        threads,  # as much as is used
        poll_slots=slots,
        clock=world.clock,
        rng=random.Random(1),
    )
    accounts, begun_at = {world.account.pk: world.account}, world.clock.now()
    errands.watch(accounts.values(), world.providers(), begun_at)
    assert len(threads.begun) == 1
    watch = steps.Watch(row.pk, row.job_id, world.account.pk, "pdf_1", "INV-1", begun_at, None)
    errands.take(steps.Watched(watch, not_read=True))
    Submission.objects.filter(pk=row.pk).update(watch_at=begun_at)
    errands.settle_watches(accounts, lambda *_told: None, begun_at)
    assert (errands.under_way, errands.looks_again) == (False, True), "the pump stays, and a draining one does not"
    errands.watch(accounts.values(), world.providers(), begun_at + SOON_AGAIN / 2)
    assert len(threads.begun) == 1
    errands.watch(accounts.values(), world.providers(), begun_at + SOON_AGAIN)
    assert (len(threads.begun), errands.looks_again) == (2, False)


@pytest.mark.parametrize("seconds_late", [0.015, 0.1])
def test_a_late_read_happens_also_where_each_thread_begins_too_late_for_a_slot_of_that_instant(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch, seconds_late: float
) -> None:
    """A busy machine, or a slow commit: read after read would be begun anew, and none would ever leave."""
    world = make_world(poll_interval_ms=50)
    given_up(world)
    world.clock.advance(FIRST)
    look_late, begun = steps.look_late, 0

    def suspended(*given: Any) -> steps.Watched:
        nonlocal begun
        begun += 1
        world.clock.advance(seconds_late)
        return look_late(*given)

    monkeypatch.setattr(steps, "look_late", suspended)
    reads = len(world.provider.reads)
    world.run_until(lambda: len(world.provider.reads) > reads, within=30)
    assert 1 < begun < 10


class Threads:
    """Begins nothing, and says what was to begin."""

    def __init__(self) -> None:
        self.begun: list[object] = []
        self.halt = threading.Event()
        self.poll = self

    def free(self, _account_id: int) -> int:
        return 4

    def start(self, _pool: object, call: object, *, account_id: int) -> None:
        self.begun.append(call)
