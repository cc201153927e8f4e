"""Slots in blocks: the row is asked seldom, its pace is kept all the same, and what passes unused is lost."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from batches.conf import ENGINE
from batches.engine import pacing
from batches.engine.blocks import Blocks
from batches.engine.pacing import Limits
from batches.models import Lane, PacingLane, ProviderAccount
from tests import factories
from tests.factories import NOW

pytestmark = pytest.mark.django_db
TWENTY_MS = Limits(interval_us=20_000, burst=4)


@pytest.fixture
def account() -> ProviderAccount:
    return factories.make_account()


@pytest.fixture
def blocks() -> Blocks:
    return Blocks(Lane.POLL, ENGINE)


def statements(work: Callable[[], object]) -> int:
    with CaptureQueriesContext(connection) as seen:
        work()
    return len([query for query in seen.captured_queries if "pacinglane" in query["sql"]])


def test_reads_that_follow_each_other_take_their_slots_from_one_block(account: ProviderAccount, blocks: Blocks) -> None:
    taken = []

    def read_for_two_seconds() -> None:
        for step in range(400):
            now = NOW + timedelta(milliseconds=5 * step)
            taken.extend(blocks.take(account.pk, TWENTY_MS, wanted=1, now=now).slots)

    asked = statements(read_for_two_seconds)
    assert len(taken) >= 100
    assert asked < len(taken) / 2
    alone = [later - earlier for earlier, later in itertools.pairwise(taken[4:])]
    assert min(alone) >= timedelta(milliseconds=20), "the pace of the row, whoever takes the slots"


def test_two_pumps_never_get_the_same_slot(account: ProviderAccount) -> None:
    pumps = [Blocks(Lane.POLL, ENGINE) for _ in range(2)]
    given = []
    for step in range(200):
        now = NOW + timedelta(milliseconds=10 * step)
        given += pumps[step % 2].take(account.pk, Limits(interval_us=20_000), wanted=3, now=now).slots
    assert len(set(given)) == len(given) > 20


def test_a_slot_that_passed_unused_is_not_used_later(account: ProviderAccount, blocks: Blocks) -> None:
    for wanted in (1, 1, 3, 6):  # each time all of a block, so that the next one is larger
        blocks.take(account.pk, TWENTY_MS, wanted=wanted, now=NOW)
    later = NOW + timedelta(seconds=5)
    slots = blocks.take(account.pk, TWENTY_MS, wanted=8, now=later).slots
    assert slots
    assert min(slots) >= later - timedelta(seconds=ENGINE.slot_late_seconds)


def test_after_a_missed_slot_the_next_lies_further_ahead(account: ProviderAccount, blocks: Blocks) -> None:
    assert blocks.take(account.pk, TWENTY_MS, wanted=1, now=NOW).slots == (NOW,)
    for ahead in (0.02, 0.04):
        blocks.missed(account.pk)
        now = NOW + timedelta(seconds=10 + ahead)
        (slot,) = blocks.take(account.pk, TWENTY_MS, wanted=1, now=now).slots
        assert slot == now + timedelta(seconds=ahead)
    for _ in range(20):
        blocks.met(account.pk)
    later = NOW + timedelta(seconds=30)
    assert blocks.take(account.pk, TWENTY_MS, wanted=1, now=later).slots == (later,)


def test_a_lane_without_a_pace_is_looked_at_now_and_then_only(account: ProviderAccount, blocks: Blocks) -> None:
    def read_for_a_second() -> None:
        for step in range(100):
            now = NOW + timedelta(milliseconds=10 * step)
            assert blocks.take(account.pk, Limits(0), wanted=50, now=now).slots == (now,) * 50

    blocks.take(account.pk, Limits(0), wanted=1, now=NOW)
    assert statements(read_for_a_second) <= 2


def test_a_pause_that_was_asked_for_holds_a_lane_without_a_pace_too(account: ProviderAccount, blocks: Blocks) -> None:
    blocks.take(account.pk, Limits(0), wanted=1, now=NOW)
    until = NOW + timedelta(seconds=30)
    pacing.cool_down(account.pk, Lane.POLL, until)
    blocks.forget()
    paused = blocks.take(account.pk, Limits(0), wanted=5, now=NOW)
    assert paused.slots == ()
    assert NOW < paused.ask_again_at <= until
    assert blocks.take(account.pk, Limits(0), wanted=5, now=until).slots == (until,) * 5


def test_new_limits_of_the_account_end_the_block_of_the_old_ones(account: ProviderAccount, blocks: Blocks) -> None:
    blocks.take(account.pk, Limits(0), wanted=1, now=NOW)
    slots = blocks.take(account.pk, Limits(interval_us=1_000_000), wanted=3, now=NOW).slots
    assert slots == (NOW,)
    assert PacingLane.objects.get(lane=Lane.POLL).next_slot_us == pacing.to_us(NOW) + 1_000_000
