"""What a load test sees beside the documents: how long the database makes its users wait, and the cluster's memory.

Memory is read from /proc (Linux) of the processes that hold pump slots on this machine, and of the cluster around
them; elsewhere, and for clusters on other machines, it is unknown.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from django.db import DatabaseError, connection

from batches.management import loadtest_rules as rules
from batches.models import PumpSlot

#: As a process of the cluster calls itself (`cluster.py`).
CLUSTER_NAMES = "q-"
EVERY_SECONDS = 0.25
_BUSY = (
    "SELECT count(*), count(*) FILTER (WHERE wait_event_type IN ('Lock', 'LWLock', 'IO', 'BufferPin', 'IPC')) "
    "FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid()"
)


class Probes:
    """Looks four times a second, on a thread and a connection of its own. `take` gives what was seen since before."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._waits: list[float] = []
        self._busy = self._waiting = 0
        self._memory = 0.0
        self._vendor = connection.vendor
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Probes:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def take(self) -> tuple[float | None, str, float | None]:
        """Database wait with its unit, and the most memory in megabytes, since the last call."""
        with self._lock:
            waits, busy, waiting, memory = self._waits, self._busy, self._waiting, self._memory
            self._waits, self._busy, self._waiting, self._memory = [], 0, 0, 0.0
        if self._vendor == "sqlite":
            return rules.percentile(waits, 0.95), "ms for the write lock, p95", memory or None
        return (100 * waiting / busy if busy else None), "% of busy sessions", memory or None

    def _watch(self) -> None:
        try:
            while not self._over.wait(EVERY_SECONDS):
                with contextlib.suppress(DatabaseError):  # the next look may work; the main thread says what is wrong
                    self._look()
        finally:
            connection.close()

    def _look(self) -> None:
        owners = PumpSlot.objects.filter(owner__isnull=False).values_list("owner", flat=True)
        memory = cluster_megabytes([owner for owner in owners if owner])
        busy = waiting = 0
        waits = []
        with connection.cursor() as cursor:
            if self._vendor == "sqlite":
                begun = time.monotonic()
                cursor.execute("BEGIN IMMEDIATE")
                waits.append(1000 * (time.monotonic() - begun))
                cursor.execute("ROLLBACK")
            else:
                cursor.execute(_BUSY)
                busy, waiting = cursor.fetchone()
        with self._lock:
            self._waits += waits
            self._busy += busy
            self._waiting += waiting
            self._memory = max(self._memory, memory)


def cluster_megabytes(owners: Iterable[str]) -> float:
    """Proportional set size of the clusters around these owners of pump slots, 0.0 where none is seen.

    An owner begins with `host:pid:` (`engine/pumping.py`).
    """
    parents = _parents()
    host = socket.gethostname()[:30]
    tops = {
        _top(int(parts[1]), parents)
        for owner in owners
        if (parts := owner.split(":"))[0] == host and len(parts) > 1 and parts[1].isdigit()
    }
    members = [pid for pid in parents if _top(pid, parents) in tops - {0}]
    return sum(_proportional_kilobytes(pid) for pid in members) / 1024


def _parents() -> dict[int, tuple[int, str]]:
    """Parent and name of every process that can be seen."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            text = (folder / "stat").read_text("utf-8", "replace")
            name, _, rest = text.partition("(")[2].rpartition(")")
            found[int(folder.name)] = (int(rest.split()[1]), name)
    return found


def _top(pid: int, parents: dict[int, tuple[int, str]]) -> int:
    """The uppermost process of the cluster that `pid` lies in, 0 when it lies in none."""
    top = 0
    while pid in parents:
        parent, name = parents[pid]
        if name.startswith(CLUSTER_NAMES):
            top = pid
        pid = parent
    return top


def _proportional_kilobytes(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0
