"""The clock that the stories run on: it moves only when everybody waits, and wakes whose time has come."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from tests.engine.virtual_time import VirtualClock
from tests.factories import NOW


def test_time_stands_still_until_somebody_waits() -> None:
    clock = VirtualClock(NOW)
    assert clock.now() == clock.now() == NOW
    assert clock.wait(threading.Event(), 90.0) is False
    assert clock.now() == NOW + timedelta(seconds=90)
    clock.advance(5)
    assert clock.now() == NOW + timedelta(seconds=95)


def test_an_event_that_is_set_needs_no_time() -> None:
    clock, event = VirtualClock(NOW), threading.Event()
    event.set()
    assert clock.wait(event, 90.0) is True
    assert clock.wait(threading.Event(), 0) is False
    assert clock.now() == NOW


def test_waits_end_in_the_order_of_their_instants_whatever_order_they_began_in() -> None:
    clock, ended = VirtualClock(NOW), []

    def step(seconds: int) -> None:
        clock.wait(threading.Event(), seconds)
        ended.append((seconds, clock.now() - NOW))

    pool = clock.pools(4)
    for seconds in (30, 10, 20):
        pool.submit(step, seconds)
    clock.wait(threading.Event(), 60)
    pool.shutdown()
    assert ended == [(seconds, timedelta(seconds=seconds)) for seconds in (10, 20, 30)]
    assert clock.now() == NOW + timedelta(seconds=60)


def test_time_does_not_pass_while_a_step_works() -> None:
    clock, wake = VirtualClock(NOW), threading.Event()

    def step() -> None:
        threading.Event().wait(0.05)  # real work, which takes no virtual time
        wake.set()

    pool = clock.pools(1)
    pool.submit(step)
    assert clock.wait(wake, 1000) is True
    assert clock.now() == NOW
    pool.shutdown()


def test_more_steps_than_threads_all_get_their_turn() -> None:
    clock = VirtualClock(NOW)
    pool = clock.pools(2)
    steps = [pool.submit(clock.wait, threading.Event(), 10) for _ in range(6)]
    clock.wait(threading.Event(), 100)
    pool.shutdown()
    assert all(step.result() is False for step in steps)
    assert clock.now() == NOW + timedelta(seconds=100)


def test_a_waiting_step_is_woken_by_its_event_even_when_nobody_else_waits_on_the_clock() -> None:
    clock, halt = VirtualClock(NOW), threading.Event()
    pool = clock.pools(1)
    step = pool.submit(clock.wait, halt, 1000)
    halt.set()
    pool.shutdown()
    assert step.result() is True
    assert clock.now() == NOW


def test_time_goes_on_when_the_thread_that_is_awake_waits_for_a_sleeping_step() -> None:
    clock = VirtualClock(NOW)
    pool = clock.pools(1)
    step = pool.submit(clock.wait, threading.Event(), 1000)
    pool.shutdown()
    assert step.result() is False
    assert clock.now() == NOW + timedelta(seconds=1000)


def test_what_a_look_raises_reaches_only_the_thread_that_made_the_clock() -> None:
    clock = VirtualClock(NOW)

    def look() -> None:
        raise KeyboardInterrupt

    clock.on_look = look
    pool = clock.pools(1)
    assert pool.submit(clock.now).result() == NOW
    with pytest.raises(KeyboardInterrupt):
        clock.now()
    pool.shutdown()
