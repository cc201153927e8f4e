"""A pump's threads are shared by accounts: whatever hangs for one of them, another one's step begins at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from batches.conf import ENGINE
from batches.engine import shares, steps
from batches.engine.shares import Lines
from batches.engine.threads import Pool, Threads
from tests.factories import NOW

A, B, C = 1, 2, 3
PATIENCE = 30.0


@pytest.mark.parametrize(
    ("taken", "known", "most", "rooms"),
    [
        ({}, [A], 6, {A: 6}),
        ({A: 6}, [A], 6, {A: 0}),
        ({}, [A, B], 16, {A: 14, B: 14}),
        ({A: 14}, [A, B], 16, {A: 0, B: 2}),
        ({A: 10, B: 2}, [A, B], 16, {A: 4, B: 4}),
        ({A: 12, B: 2}, [A, B, C], 16, {A: 0, B: 0, C: 2}),
        ({}, [A, B, C], 6, {A: 3}),  # two for each of two others would be more than half
        ({A: 3, B: 2}, [A, B, C], 6, {A: 0, B: 0, C: 1}),
        ({}, [A, B], 2, {A: 1, B: 1}),
        ({A: 1}, [A, B], 2, {A: 0, B: 1}),
        ({}, [A, B], 1, {A: 1, B: 1}),
        ({}, list(range(50)), 16, {A: 8}),  # many that are idle: half
        ({A: 8}, list(range(50)), 16, {A: 0, B: 1}),
        ({A: 5}, [], 6, {A: 1}),
    ],
)
def test_the_room_of_an_account(taken: dict[int, int], known: list[int], most: int, rooms: dict[int, int]) -> None:
    for account_id, expected in rooms.items():
        assert shares.room(account_id, taken, known, most=most, least=2) == expected, account_id


def test_each_account_keeps_its_order_and_the_accounts_take_turns() -> None:
    lines = Lines(2)
    lines.known = [A, B]
    begun: list[str] = []
    for account_id, names in ((A, "abc"), (B, "xyz")):
        for name in names:
            lines.add(account_id, lambda name=name: begun.append(name))  # type: ignore[misc]  # bound as it is now
    under_way = []
    while True:
        while taken := lines.begin():
            taken[1]()
            under_way.append(taken[0])
        if not under_way:
            break
        lines.ended(under_way.pop(0))
    assert "".join(begun) == "axbycz"
    assert lines.free(A) == lines.free(B) == 1


# --- real threads ---


@dataclass(frozen=True)
class Named(steps.JobResult):
    """A result that is only a name."""

    name: str = ""


def named(name: str) -> Named:
    return Named(None, name)  # type: ignore[arg-type]  # no claim is looked at here


class Hanging:
    """Steps that begin, say so, and end when they are let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.begun = threading.Semaphore(0)

    def step(self, name: str) -> Callable[[], Named]:
        def run() -> Named:
            self.begun.release()
            assert self.let_go.wait(PATIENCE)
            return named(name)

        return run

    def wait_for(self, count: int) -> None:
        for _ in range(count):
            assert self.begun.acquire(timeout=PATIENCE)

    def nothing_more_began(self) -> bool:
        return not self.begun.acquire(blocking=False)


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    hanging = Hanging()
    yield hanging
    hanging.let_go.set()


@pytest.fixture
def threads(hanging: Hanging) -> Iterator[Threads]:
    threads = Threads(ENGINE)
    yield threads
    hanging.let_go.set()
    threads.close()


def next_name(threads: Threads) -> str:
    """The name of the one result that comes next."""
    assert threads.wake.wait(PATIENCE)
    threads.wake.clear()
    (result,) = threads.results()
    assert isinstance(result, Named)
    return result.name


def pools(threads: Threads) -> list[tuple[Pool, int]]:
    return [
        (threads.submit, ENGINE.submit_threads),
        (threads.poll, ENGINE.poll_threads),
        (threads.fetch, ENGINE.fetch_threads),
        (threads.prepare, ENGINE.prepare_threads),
    ]


@pytest.mark.parametrize("which", range(4))
def test_another_accounts_steps_go_on_while_one_hangs_in_every_thread_that_it_can_get(
    which: int, threads: Threads, hanging: Hanging
) -> None:
    pool, most = pools(threads)[which]
    threads.know([A, B], is_paced=False)
    for number in range(3 * most):
        threads.start(pool, hanging.step(f"a{number}"), account_id=A)
    hanging.wait_for(most - min(2, most // 2))
    assert (pool.free(A), pool.free(B)) == (0, min(2, most // 2))
    for number in range(5):
        threads.start(pool, lambda number=number: named(f"b{number}"), account_id=B)  # type: ignore[misc]  # as above
        assert next_name(threads) == f"b{number}"
    assert hanging.nothing_more_began(), "what is kept for the others is no thread of the hanging account"


def test_one_account_alone_has_every_thread(threads: Threads, hanging: Hanging) -> None:
    threads.know([A], is_paced=False)
    assert threads.submit.free(A) == ENGINE.submit_threads
    for number in range(ENGINE.submit_threads):
        threads.start(threads.submit, hanging.step(f"a{number}"), account_id=A)
    hanging.wait_for(ENGINE.submit_threads)
    assert threads.submit.free(A) == 0


def test_a_pool_that_is_divided_begins_no_more_than_that_until_it_is_whole_again(
    threads: Threads, hanging: Hanging
) -> None:
    threads.know([A], is_paced=False)
    threads.divide(16)
    for number in range(ENGINE.submit_threads):
        threads.start(threads.submit, hanging.step(f"a{number}"), account_id=A)
        threads.start(threads.fetch, hanging.step(f"f{number}"), account_id=A)
    hanging.wait_for(1 + 2)
    assert hanging.nothing_more_began()
    assert threads.prepare.free(A) == ENGINE.prepare_threads, "what waits for no provider keeps its threads"
    threads.divide(1)
    hanging.wait_for(ENGINE.submit_threads - 1 + ENGINE.fetch_threads - 2)


def test_threads_are_fitted_to_how_busy_the_process_is_unless_somebody_has_a_pace(threads: Threads) -> None:
    threads.know([A], is_paced=False)
    for look in range(9):
        threads.fit(NOW + timedelta(seconds=look), float(look))  # it was busy all the time
    assert (threads.submit.free(A), threads.poll.free(A), threads.fetch.free(A)) == (1, 1, 2)
    threads.know([A], is_paced=True)
    threads.fit(NOW + timedelta(seconds=9), 9.0)
    assert threads.submit.free(A) == ENGINE.submit_threads


def test_steps_that_are_under_way_when_a_pool_is_divided_go_on_and_the_rest_follows(
    threads: Threads, hanging: Hanging
) -> None:
    threads.know([A], is_paced=False)
    for number in range(2 * ENGINE.submit_threads):
        threads.start(threads.submit, hanging.step(f"a{number}"), account_id=A)
    hanging.wait_for(ENGINE.submit_threads)
    threads.divide(16)
    hanging.let_go.set()
    hanging.wait_for(ENGINE.submit_threads)


def test_as_many_as_are_said_to_be_free_begin_at_once(threads: Threads, hanging: Hanging) -> None:
    """A slot is taken for each, and would be lost if one had to wait for its thread."""
    threads.know([A, B, C], is_paced=False)
    for account_id in (A, B, C):
        free = threads.submit.free(account_id)
        assert free > 0
        for number in range(free):
            threads.start(threads.submit, hanging.step(f"{account_id}-{number}"), account_id=account_id)
        hanging.wait_for(free)


def test_an_account_that_is_no_longer_known_makes_room_at_once(threads: Threads, hanging: Hanging) -> None:
    threads.know([A, B], is_paced=False)
    for number in range(ENGINE.fetch_threads):
        threads.start(threads.fetch, hanging.step(f"a{number}"), account_id=A)
    hanging.wait_for(ENGINE.fetch_threads - 2)
    assert hanging.nothing_more_began()
    threads.know([A], is_paced=False)
    hanging.wait_for(2)


def test_what_waits_when_the_pump_ends_is_told_instead_and_in_its_order(hanging: Hanging) -> None:
    threads = Threads(replace(ENGINE, submit_threads=1))
    threads.know([A], is_paced=False)
    threads.start(threads.submit, hanging.step("begun"), instead=named("never"), account_id=A)
    hanging.wait_for(1)
    threads.start(threads.submit, lambda: named("a"), instead=named("instead of a"), account_id=A)
    threads.start(threads.submit, lambda: named("b"), account_id=A)
    threads.halt.set()
    assert not threads.start(threads.submit, lambda: named("c"), account_id=A)
    hanging.let_go.set()
    threads.close()
    assert [result.name for result in threads.results() if isinstance(result, Named)] == ["begun", "instead of a", "b"]


def test_a_step_that_breaks_takes_no_thread_with_it(caplog: pytest.LogCaptureFixture) -> None:
    def breaks() -> Named:
        raise ZeroDivisionError

    one = Threads(replace(ENGINE, poll_threads=1))
    try:
        one.know([A], is_paced=False)
        one.start(one.poll, breaks, account_id=A)
        one.start(one.poll, lambda: named("next"), account_id=A)
        assert next_name(one) == "next"
    finally:
        one.close()
    assert "ended without a result" in caplog.text
