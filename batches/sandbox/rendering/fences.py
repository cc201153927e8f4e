"""Walls around the renderer that do not depend on the engine's good manners.

The engine is told to fetch nothing (`plutoprint_engine`). These are the second walls: no network namespace to
reach, no file to write, bounded memory, CPU and time. Each is best effort where the system does not have it
(not Linux, namespaces switched off); what holds is reported by `raise_fences`, so that it is never guessed.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys

from batches.sandbox.rendering.work import RenderLimits

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_LINUX = sys.platform.startswith("linux")


def die_with_parent(parent_pid: int) -> None:
    """Ask the kernel to kill this process when its parent ends (Linux); leave at once if it already has."""
    if _LINUX:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(0)


def leave_network() -> bool:
    """Move this process, and all it will fork, into a network namespace without interfaces."""
    if not _LINUX:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    return bool(libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) == 0)


def limit_child(limits: RenderLimits) -> None:
    """Bound the calling process, which is about to render one document and exit.

    The timer's signal keeps its default action: the kernel ends the process without asking its code.
    """
    for name, value in (
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_CPU, limits.cpu_seconds),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 64),
    ):
        hard = resource.getrlimit(name)[1]
        allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(name, (allowed, allowed))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, limits.wall_seconds)
