"""The django-q2 cluster, crash-only: whatever dies unexpectedly ends the cluster, and the cluster starts again.

A worker that is killed while it waits for a task holds the lock of django-q2's in-memory queue for ever, and the
cluster goes on looking healthy while nothing moves. So no lock is trusted after a death. The tree, as `ps` names it:

    q-supervisor      starts q-main again when it ends unexpectedly; owns no state, no thread, no connection
      q-main          watches the sentinel's heartbeat, rings for due work, stops the cluster when asked
        q-sentinel    django-q2's Sentinel, made crash-only; runs the schedules
          q-pusher, q-monitor, q-worker …

On Linux every process dies with its parent, so a kill -9 of any of them leaves no orphan that works on beside the
next cluster. This module never touches jobs: what a dead cluster's pumps held is given back by the ring (`tasks.py`)
once `lives.py` has proven the death, else when their leases end.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable
from multiprocessing import connection
from types import FrameType
from typing import Any, NoReturn

from django import db
from django.conf import settings
from django_q.cluster import Sentinel, get_mp_context
from django_q.monitor import monitor
from django_q.pusher import pusher
from django_q.scheduler import scheduler
from django_q.signals import post_spawn

from batches import lives, processes

logger = logging.getLogger(__name__)

#: The supervisor leaves q-main this much more than CLUSTER_DRAIN_SECONDS to kill its own tasks.
EXTRA_DRAIN_SECONDS = 5.0
GUARD_SECONDS = 0.5
SCHEDULE_SECONDS = 30.0
RING_SECONDS = 2.0
FIRST_RESTART_SECONDS = 0.2
LONGEST_RESTART_SECONDS = 5.0
#: A cluster that ran this long was healthy: the next restart is quick again.
HEALTHY_SECONDS = 30.0
#: A worker holds its timer's lock for microseconds, unless it was killed inside.
TIMER_LOCK_SECONDS = 5.0
_RECYCLED = -2


class _Flag:
    """A flag in shared memory without a lock, so that no killed process can leave it locked.

    It has the part of `multiprocessing.Event` that django-q2's Sentinel asks for.
    """

    def __init__(self) -> None:
        self._raw = multiprocessing.RawValue(ctypes.c_bool, False)

    def set(self) -> None:
        self._raw.value = True

    def is_set(self) -> bool:
        return bool(self._raw.value)


_drain: _Flag | None = None


def draining() -> bool:
    """True once this process's cluster was asked to stop: end the running task soon. False outside a cluster."""
    return _drain is not None and _drain.is_set()


class ClusterBroken(Exception):
    """A process of the cluster died or hung in a way that may have left a queue locked."""


class CrashOnlySentinel(Sentinel):  # type: ignore[misc] # django-q2 ships no types
    """django-q2's Sentinel, which replaces only what ended by itself; any other death raises `ClusterBroken`."""

    def __init__(self, stop: _Flag, started: _Flag, heartbeat: Any) -> None:
        self._heartbeat = heartbeat
        super().__init__(stop, started, uuid.uuid4())

    def spawn_cluster(self) -> None:
        # A service manager may signal the whole group. Only q-main acts on it; a handler (unlike SIG_IGN) is not
        # inherited by programs that a task starts.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _leave_it_to_main)
        post_spawn.connect(_name_worker)
        super().spawn_cluster()

    def spawn_pusher(self) -> Any:
        return self.spawn_process(_pusher, self.task_queue, self.event_out, self.broker)

    def spawn_monitor(self) -> Any:
        return self.spawn_process(_monitor, self.result_queue, self.broker)

    def guard(self) -> None:
        """Until the stop flag: beat, check every child, run the schedules. Then stop in order."""
        self.start_event.set()
        logger.info("the cluster runs with %s workers", self.pool_size)
        last_check = time.monotonic()
        next_schedule = last_check
        while not self.stop_event.is_set():
            now = time.monotonic()
            self._heartbeat.value = now
            for worker in list(self.pool):
                self._check_worker(worker, now - last_check)
            for process in (self.monitor, self.pusher):
                if not process.is_alive():
                    self.reincarnate(process)
            last_check = now
            if now >= next_schedule:
                scheduler(broker=self.broker)
                next_schedule = now + SCHEDULE_SECONDS
            children = [process.sentinel for process in (*self.pool, self.monitor, self.pusher)]
            connection.wait(children, timeout=GUARD_SECONDS)
        self.stop()

    def _check_worker(self, worker: Any, elapsed: float) -> None:
        if not worker.is_alive():
            self.reincarnate(worker)
            return
        lock = worker.timer.get_lock()
        if not lock.acquire(timeout=TIMER_LOCK_SECONDS):
            raise ClusterBroken(f"worker {worker.pid} hangs in its timer")
        try:
            timer = worker.timer.get_obj()
            if timer.value > 0:
                timer.value = max(0.0, timer.value - elapsed)
            if timer.value == 0:
                raise ClusterBroken(f"worker {worker.pid} passed the time limit of its task")
        finally:
            lock.release()

    def reincarnate(self, process: Any) -> None:
        """Replace a recycled worker, and a pusher or monitor that ended by an error of its own (a database that was
        away): they had left their queue's lock. Everything else may have died while it held one."""
        if process in (self.monitor, self.pusher):
            replaceable = process.exitcode is not None and process.exitcode >= 0
        else:
            replaceable = process.exitcode == 0 and int(process.timer.get_obj().value) == _RECYCLED
        if not replaceable:
            raise ClusterBroken(f"{self._role(process)} {process.pid} ended unexpectedly ({_ending(process.exitcode)})")
        super().reincarnate(process)

    def _role(self, process: Any) -> str:
        return {self.monitor: "the monitor", self.pusher: "the pusher"}.get(process, "worker")


def _leave_it_to_main(number: int, frame: FrameType | None) -> None:
    """q-main stops the cluster in order."""


def _name_worker(**_: Any) -> None:
    processes.name_process("q-worker")


def _pusher(*arguments: Any) -> None:
    processes.name_process("q-pusher")
    pusher(*arguments)


def _monitor(*arguments: Any) -> None:
    processes.name_process("q-monitor")
    monitor(*arguments)


def _ending(exit_code: int | None) -> str:
    if exit_code is None:
        return "still alive"
    return f"killed by signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"


def _run_sentinel(stop: _Flag, started: _Flag, heartbeat: Any) -> None:
    processes.name_process("q-sentinel")
    try:
        CrashOnlySentinel(stop, started, heartbeat)
    except ClusterBroken as error:
        logger.error("%s; the cluster starts again", error)
        _end_at_once()
    except Exception:  # whatever it was, the interpreter's own way out would join the children
        logger.exception("the sentinel failed; the cluster starts again")
        _end_at_once()


def _end_at_once() -> NoReturn:
    """End without joining anybody: a child that is joined may wait for ever on a lock of a dead one."""
    for child in multiprocessing.active_children():
        child.kill()
    logging.shutdown()
    os._exit(1)


class _Main:
    """One life of the cluster. Ends with 0 when it was stopped in order, with 1 otherwise."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self.ring = ring
        self.signals = processes.SignalPipe(signal.SIGTERM, signal.SIGINT)
        self.stop = _Flag()
        self.heartbeat = multiprocessing.RawValue(ctypes.c_double, time.monotonic())
        self.ringing_ends = threading.Event()

    def run(self) -> int:
        global _drain
        _drain = self.stop
        lives.begin(settings.LIVES_DIR)
        sentinel = get_mp_context().Process(
            target=_run_sentinel, args=(self.stop, _Flag(), self.heartbeat), name="sentinel"
        )
        sentinel.start()
        # After the fork: a thread would be missing in the children, with whatever lock it held.
        threading.Thread(target=self._keep_ringing, name="ringer", daemon=True).start()
        return self._watch(sentinel)

    def _watch(self, sentinel: Any) -> int:
        kill_at: float | None = None
        while sentinel.is_alive():
            now = time.monotonic()
            if kill_at is None and self.signals.take():
                logger.info("the cluster was asked to stop")
                self.stop.set()
                self.ringing_ends.set()
                kill_at = now + settings.CLUSTER_DRAIN_SECONDS
            if kill_at is not None and now >= kill_at:
                logger.warning(
                    "tasks did not end within %g s of the stop; they are killed", settings.CLUSTER_DRAIN_SECONDS
                )
                sentinel.kill()
                sentinel.join()
                return 1
            if kill_at is None and now - self.heartbeat.value > settings.CLUSTER_HEARTBEAT_SECONDS:
                logger.error("the sentinel has stood still too long; the cluster starts again")
                sentinel.kill()
                sentinel.join()
                return 1
            watched: list[Any] = [sentinel.sentinel]
            if kill_at is None:
                watched.append(self.signals)
            connection.wait(watched, timeout=1.0)
        if kill_at is not None and sentinel.exitcode == 0:
            return 0
        logger.error("the sentinel ended unexpectedly (%s)", _ending(sentinel.exitcode))
        return 1

    def _keep_ringing(self) -> None:
        """Ring for due work every two seconds, whatever lost its wake-up. In a thread, since a database that is away
        can hold a query for long and `_watch` must go on."""
        database_away = False
        while not self.ringing_ends.is_set():
            try:
                self.ring()
                if database_away:
                    logger.info("the database answers again")
                database_away = False
            except db.Error as error:
                if not database_away:
                    logger.warning("the database does not answer, work waits for it: %s", error)
                database_away = True
            except Exception:  # a thread that ended here would be missed by nobody, and nothing would ring any more
                logger.exception("ringing for due work failed")
            finally:
                db.close_old_connections()
            self.ringing_ends.wait(RING_SECONDS)


class Supervisor:
    """Runs clusters, one after the other, until SIGTERM or SIGINT. The only process that a service manager knows.

    `ring` offers work to the workers where some is due (`tasks.ensure_pumps`); it is called every two seconds.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self.ring = ring
        processes.name_process("q-supervisor")
        processes.adopt_orphans()
        processes.make_forks_die_with_parent()
        self.signals = processes.SignalPipe(signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
        self.stopping = False

    def run(self) -> int:
        """Returns the exit code: 0 after a stop in order, 1 when tasks had to be killed."""
        db.connections.close_all()
        gc.freeze()
        processes.share_heaps_between_threads()
        pause = FIRST_RESTART_SECONDS
        while True:
            started_at = time.monotonic()
            code = self._live(self._fork_main())
            if self.stopping or code == 0:
                return code
            if time.monotonic() - started_at >= HEALTHY_SECONDS:
                pause = FIRST_RESTART_SECONDS
            logger.warning("the cluster ended unexpectedly; it starts again in %.1f s", pause)
            if self._stop_arrives_within(pause):
                return 0
            pause = min(2 * pause, LONGEST_RESTART_SECONDS)

    def _fork_main(self) -> int:
        """The process id of a new q-main. Signals wait until it can note them."""
        noted = {signal.SIGTERM, signal.SIGINT}
        signal.pthread_sigmask(signal.SIG_BLOCK, noted)
        try:
            pid = os.fork()
            if pid == 0:
                self._become_main(noted)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, noted)
        return pid

    def _become_main(self, noted: set[signal.Signals]) -> NoReturn:
        code = 1
        try:
            processes.name_process("q-main")
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            main = _Main(self.ring)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, noted)
            code = main.run()
        except Exception:  # `os._exit` below would end the process without a traceback
            logger.exception("q-main failed")
        finally:
            # Whatever happened, this copy of the supervisor's frames must not return into its loop.
            logging.shutdown()
            sys.stdout.flush()
            os._exit(code)

    def _live(self, main_pid: int) -> int:
        """Wait until q-main and everything below it is gone; its exit code (1 for a death by signal)."""
        code: int | None = None
        kill_at: float | None = None
        while True:
            if self._stop_asked():
                self.stopping = True
                kill_at = time.monotonic() + settings.CLUSTER_DRAIN_SECONDS + EXTRA_DRAIN_SECONDS
                if code is None:
                    os.kill(main_pid, signal.SIGTERM)
            if kill_at is not None and code is None and time.monotonic() >= kill_at:
                os.kill(main_pid, signal.SIGKILL)
                kill_at = None
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return 1 if code is None else code
            if pid == main_pid:
                code = 0 if os.waitstatus_to_exitcode(status) == 0 else 1
            elif pid == 0 and code is None:
                self.signals.wait(1.0)
            elif pid == 0:
                # What outlived q-main has been adopted. Most of it is dying already; programs that a task started
                # are not.
                for orphan in processes.children():
                    os.kill(orphan, signal.SIGKILL)
                self.signals.wait(0.1)

    def _stop_asked(self) -> bool:
        return bool(self.signals.take() & {signal.SIGTERM, signal.SIGINT}) and not self.stopping

    def _stop_arrives_within(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.signals.wait(left)
            if self._stop_asked():
                return True
        return False
