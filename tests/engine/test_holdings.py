"""What a pump holds: a renewal tells what was lost, and a job that a thread is at is neither given back nor let go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from batches.conf import ENGINE
from batches.engine import pacing, steps
from batches.engine.claims import Claim
from batches.engine.holdings import Holdings
from batches.engine.threads import Threads
from tests.engine.samples import claim
from tests.factories import NOW

CONF = replace(ENGINE, held_most=6, lease_seconds=15)
A, B = 3, 4


@pytest.fixture
def threads() -> Iterator[Threads]:
    threads = Threads(CONF)
    yield threads
    threads.close()


@pytest.fixture
def held(threads: Threads) -> Holdings:
    return Holdings(CONF, threads)


def begin(held: Holdings, threads: Threads, its_claim: Claim) -> None:
    held.begin(its_claim, threads.prepare, steps.NotBegun, its_claim)


def test_a_renewal_lengthens_what_was_kept_and_names_what_was_lost(held: Holdings, threads: Threads) -> None:
    held.take([claim(job_id=job_id) for job_id in (1, 2, 3)], NOW)
    begin(held, threads, claim(job_id=3))
    later = NOW + timedelta(seconds=5)

    assert held.renewed({1}, later) == [2], "a thread is at 3, and its result is still to come"

    assert held.lease_of(1)() == later + timedelta(seconds=15)
    assert held.lease_of(2)() == NOW + timedelta(seconds=15)


def test_a_job_that_was_let_go_has_no_lease_and_is_nobodys(held: Holdings) -> None:
    mine = claim(job_id=1)
    held.take([mine], NOW)
    held.let_go(1)

    assert not held.is_mine(mine)
    assert held.lease_of(1)() == pacing.EPOCH
    assert not held


def test_a_claim_with_an_older_token_is_not_mine(held: Holdings) -> None:
    held.take([claim(job_id=1, token=5)], NOW)

    assert held.is_mine(claim(job_id=1, token=5))
    assert not held.is_mine(claim(job_id=1, token=4))


def test_what_a_thread_is_at_is_not_free_until_its_step_has_come_back(held: Holdings, threads: Threads) -> None:
    mine, other = claim(job_id=1), claim(job_id=2)
    held.take([mine, other], NOW)
    begin(held, threads, mine)

    assert held.has_busy
    assert not held.is_free(mine)
    assert held.idle() == [2]

    held.ended(1)
    assert not held.has_busy
    assert held.is_free(mine)
    assert held.idle() == [1, 2]


def test_a_step_that_does_not_begin_any_more_keeps_no_job(held: Holdings, threads: Threads) -> None:
    mine = claim(job_id=1)
    held.take([mine], NOW)
    threads.halt.set()
    begin(held, threads, mine)

    assert held.idle() == [1]


def test_one_account_may_fill_a_pump_and_of_several_each_finds_room(held: Holdings) -> None:
    held.take([claim(job_id=job_id, account_id=A) for job_id in range(4)], NOW)

    assert held.room(A, among=[A]) == 2
    assert held.room(A, among=[A, B]) == 0
    assert held.room(B, among=[A, B]) == 2
    assert set(held.accounts(among=[A, B])) == {A}
