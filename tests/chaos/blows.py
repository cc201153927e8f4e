"""The blows: which kind falls when is drawn from the seed; which process of that kind it hits, when it falls.

Only our own processes are hit: never PostgreSQL, and the sandbox (the other side) only when asked for.
"""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psutil

from tests.stack_process import Stack

#: How often each kind is drawn, among all.
WEIGHTS = {
    "worker": 6,
    "q-main": 2,
    "q-sentinel": 2,
    "q-monitor": 2,
    "q-pusher": 2,
    "q-supervisor": 2,
    "web": 1,
    "web worker": 2,
    "pdf check": 1,
    "runstack": 2,
    "frozen worker": 1,
}
SANDBOX = "sandbox"
SANDBOX_WEIGHT = 2
FROZEN = "frozen worker"
PAUSE_SECONDS = (3.0, 8.0)
_NAMES = {"worker": "q-worker", FROZEN: "q-worker"}


@dataclass(frozen=True)
class Blow:
    """After `pause` seconds, one process of `kind`; `choice` (0 to 1) picks it among those there are then."""

    pause: float
    kind: str
    choice: float


def plan(rng: random.Random, *, with_sandbox: bool) -> Iterator[Blow]:
    """Blows without end, the same for the same dice."""
    weights = WEIGHTS | ({SANDBOX: SANDBOX_WEIGHT} if with_sandbox else {})
    while True:
        pause, kind = rng.uniform(*PAUSE_SECONDS), rng.choices(list(weights), list(weights.values()))[0]
        yield Blow(pause, kind, rng.random())


def strike(stack: Stack, blow: Blow) -> tuple[str, psutil.Process] | None:
    """SIGKILL (or, to freeze, SIGSTOP) to one process of the blow's kind: what was hit. None when there is none now."""
    candidates = sorted(of_kind(stack, blow.kind), key=lambda process: process.pid)
    if not candidates:
        return None
    victim = candidates[int(blow.choice * len(candidates))]
    with contextlib.suppress(psutil.NoSuchProcess):
        victim.send_signal(signal.SIGSTOP if blow.kind == FROZEN else signal.SIGKILL)
        return blow.kind, victim
    return None


def of_kind(stack: Stack, kind: str) -> list[psutil.Process]:
    """The stack's processes of one kind."""
    tree = stack.processes()
    if kind == "runstack":
        return tree[:1]
    if kind in ("web", "web worker", "pdf check"):
        words = "pdfcheck_child" if kind == "pdf check" else "gunicorn"
        found = [process for process in tree[1:] if words in _command(process)]
        if kind == "pdf check":
            return found
        pids = {process.pid for process in found}
        return [process for process in found if (_parent(process) in pids) is (kind == "web worker")]
    return [process for process in tree if _name(process) == _NAMES.get(kind, kind)]


def wake(process: psutil.Process) -> bool:
    """SIGCONT; false when it had died meanwhile."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGCONT)
        return True
    return False


def orphans(stack: Stack, *, patience: float) -> list[str]:
    """Processes of the stack that hang in no tree of it and are still there after `patience` seconds."""
    give_up_at = time.monotonic() + patience
    while True:
        tree = {process.pid for process in stack.processes()}
        left = [process for process in stack.survivors() if process.pid not in tree]
        if not left or time.monotonic() > give_up_at:
            return [f"{process.pid} {_name(process)} {_command(process)[-80:]}" for process in left]
        time.sleep(0.1)


def _asked(question: Callable[[], str]) -> str:
    try:
        return question()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return ""


def _command(process: psutil.Process) -> str:
    return _asked(lambda: " ".join(process.cmdline()))


def _name(process: psutil.Process) -> str:
    return _asked(lambda: str(process.name()))


def _parent(process: psutil.Process) -> int:
    return int(_asked(lambda: str(process.ppid())) or 0)
