"""The crash-only cluster, with real processes: whatever is killed, work goes on and no orphan is left."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from django.conf import settings
from django_q.brokers import Broker
from django_q.conf import Conf
from django_q.tasks import async_task

from batches import cluster
from tests import postgres
from tests.stack_process import STOP_SECONDS, Stack, eventually

pytestmark = pytest.mark.processes
#: What is enqueued here is signed with the key of the test's process.
SIGNED_ALIKE = {"SECRET_KEY": settings.SECRET_KEY}


@pytest.fixture
def stack(make_stack: Callable[..., Stack]) -> Stack:
    return make_stack(workers=2, env=SIGNED_ALIKE)


class Recorder(Broker):  # type: ignore[misc] # django-q2 is untyped
    """Keeps the signed messages that `async_task` would have put into this process's own queue."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def enqueue(self, task: str) -> int:
        self.messages.append(task)
        return len(self.messages)


def offer(stack: Stack, function: str, *calls: tuple[object, ...]) -> None:
    """Enqueue one of `tests.cluster_tasks` as the application does, once for each tuple of arguments. A row is all that
    django-q2's broker writes; starting a process of Django's for each would take most of these tests' time."""
    recorder = Recorder()
    for arguments in calls:
        async_task(f"tests.cluster_tasks.{function}", *arguments, broker=recorder)
    for message in recorder.messages:
        stack.execute(
            "INSERT INTO django_q_ormq (key, payload, lock) VALUES (?, ?, ?)",
            Conf.CLUSTER_NAME,
            message,
            "2000-01-01 00:00:00",  # whoever asks from then on may have it
        )


def mark_of(stack: Stack, name: str) -> Path:
    return stack.data_dir / f"{name}.mark"


def start_and_see_work(stack: Stack) -> None:
    stack.start()
    see_work(stack, "first")


def see_work(stack: Stack, name: str, *, lost: int = 0) -> None:
    """New tasks are done and acknowledged: nobody waits for a lock that a dead process holds. `lost` messages belong to
    tasks that were killed with their worker."""
    marks = [mark_of(stack, f"{name}-{number}") for number in range(4)]
    offer(stack, "leave_mark", *[(str(mark),) for mark in marks])
    eventually(lambda: all(mark.exists() for mark in marks), f"work after {name}")
    # A task that is done but not acknowledged when its cluster is killed comes back only after django-q2's `retry`.
    eventually(lambda: stack.query("SELECT count(*) FROM django_q_ormq") == [(lost,)], f"acknowledgements after {name}")


@contextlib.contextmanager
def another_cluster(stack: Stack) -> Iterator[None]:
    """What happens inside ends the running cluster; waits for the next."""
    before = stack.named("q-main")
    yield
    eventually(lambda: stack.named("q-main") not in ([], before), "a new cluster")


@pytest.mark.parametrize("name", ["q-worker", "q-monitor", "q-pusher", "q-sentinel", "q-main"])
def test_work_goes_on_after_a_kill_of_any_one_process(stack: Stack, name: str) -> None:
    start_and_see_work(stack)
    for round_number in range(2):
        old = stack.processes()[1:]
        victim = eventually(lambda: stack.named(name), name)[0]
        with another_cluster(stack):
            victim.kill()
        see_work(stack, f"{name}-{round_number}")
        assert not [process for process in old if process.is_running()], "the old cluster left somebody behind"
    assert {process.pid for process in stack.survivors()} == {process.pid for process in stack.processes()}
    assert stack.stop() == 0


def test_nothing_survives_the_supervisor_and_a_new_one_goes_on(stack: Stack) -> None:
    start_and_see_work(stack)
    stack.named("q-supervisor")[0].kill()
    eventually(lambda: not stack.survivors(), "the end of the whole tree")
    stack.start()
    see_work(stack, "again")
    assert stack.stop() == 0


def test_a_killed_busy_worker_leaves_no_half_cluster(stack: Stack) -> None:
    stack.start()
    held = mark_of(stack, "held")
    offer(stack, "hold", (str(held), 60.0))
    eventually(held.exists, "a busy worker")
    with another_cluster(stack):
        psutil.Process(int(held.read_text())).kill()
    see_work(stack, "after-busy", lost=1)
    assert stack.stop() == 0


def test_a_program_that_a_task_started_does_not_outlive_its_cluster(stack: Stack) -> None:
    stack.start()
    mark = mark_of(stack, "program")
    offer(stack, "start_program", (str(mark),))
    eventually(mark.exists, "a program")
    program = psutil.Process(int(mark.read_text()))
    stack.named("q-sentinel")[0].kill()
    eventually(lambda: not program.is_running() or program.status() == psutil.STATUS_ZOMBIE, "the program's end")
    see_work(stack, "after-program", lost=1)
    assert stack.stop() == 0


@pytest.mark.parametrize("whom", ["first process", "whole group", "q-main only"])
def test_sigterm_drains_running_tasks_and_stops_the_cluster(stack: Stack, whom: str) -> None:
    start_and_see_work(stack)
    held = mark_of(stack, "held")
    offer(stack, "hold", (str(held), 600.0))
    eventually(held.exists, "a running task")
    process = stack.process
    assert process is not None
    if whom == "first process":
        process.send_signal(signal.SIGTERM)
    elif whom == "whole group":
        os.killpg(process.pid, signal.SIGTERM)
    else:
        stack.named("q-main")[0].terminate()
    assert process.wait(STOP_SECONDS) == 0
    assert not stack.survivors()
    assert Path(f"{held}.drained").exists(), "the task was killed half way"


def test_a_task_that_ignores_the_stop_is_killed_in_the_end(stack: Stack) -> None:
    stack.env["CLUSTER_DRAIN_SECONDS"] = "2"
    stack.start()
    stuck = mark_of(stack, "stuck")
    offer(stack, "hang", (str(stuck),))
    eventually(stuck.exists, "a stuck task")
    assert stack.stop() == 1
    assert "killed" in stack.log()


def test_a_stuck_sentinel_is_noticed(stack: Stack) -> None:
    stack.env["CLUSTER_HEARTBEAT_SECONDS"] = "3"
    start_and_see_work(stack)
    with another_cluster(stack):
        stack.named("q-sentinel")[0].suspend()
    see_work(stack, "after-stuck")
    assert stack.stop() == 0


def test_recycled_workers_do_not_restart_the_cluster(stack: Stack) -> None:
    stack.start()
    main = eventually(lambda: stack.named("q-main"), "q-main")
    offer(stack, "leave_mark", *[(str(mark_of(stack, f"recycle-{number}")),) for number in range(120)])
    eventually(lambda: len(list(stack.data_dir.glob("recycle-*"))) == 120, "120 tasks on 2 workers that recycle at 50")
    assert stack.named("q-main") == main
    assert stack.stop() == 0


def test_a_database_that_is_away_costs_no_restart(make_stack: Callable[..., Stack]) -> None:
    """A restart would kill pumps that hold results in memory."""
    with postgres.server() as server:
        stack = make_stack(workers=2, env=SIGNED_ALIKE | {"DATABASE_URL": server.url})
        assert stack.manage("migrate", "--verbosity", "0").returncode == 0
        stack.start()
        mark = mark_of(stack, "before")
        offer(stack, "leave_mark", (str(mark),))
        eventually(mark.exists, "work")
        main, workers = stack.named("q-main"), stack.named("q-worker")
        server.stop()
        eventually(lambda: "the database does not answer" in stack.log(), "a word about the database")
        eventually(lambda: "Failed to pull task from broker" in stack.log(), "the pusher's complaint")
        server.start()
        eventually(lambda: "the database answers again" in stack.log(), "a word about the database's return")
        mark = mark_of(stack, "after")
        offer(stack, "leave_mark", (str(mark),))
        eventually(mark.exists, "work")
        assert (stack.named("q-main"), stack.named("q-worker")) == (main, workers)
        assert stack.log().count("the database does not answer") == 1
        assert stack.stop() == 0


def test_outside_a_cluster_nothing_is_draining() -> None:
    assert cluster.draining() is False
