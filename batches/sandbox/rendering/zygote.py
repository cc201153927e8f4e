"""The process that renders: started once, it loads the engine and forks a fresh child for every document.

Single-threaded, so forking is safe; the child inherits loaded code and fonts (a few ms instead of a Python
start) and takes whatever a document does to it to the grave. One document, one child, one socket: the parent
hands over a socket for each document and reads the answer from its other end. Ends when its parent does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from pathlib import Path

from batches.sandbox.rendering import child, fences
from batches.sandbox.rendering.coverage import Coverage
from batches.sandbox.rendering.fences import Fences

NICENESS = 10


def main(control_descriptor: int, parent_pid: int, readable: list[str]) -> None:
    """Serve until the control socket closes. The first byte sent says that it is ready, and behind which fences.

    `readable` are the folders that rendering may read once everything is loaded.
    """
    fences.die_with_parent(parent_pid)
    # A signal to the whole group is the parent's to act on: a child that died of it would look like a bad document.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Children are reaped by the kernel; the parent learns of a death by the end of the socket.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
    os.chdir("/")
    # First everything is loaded (which may write the index of fonts), then the doors close.
    covered = child.warm_up()
    network = fences.leave_network()
    files = fences.leave_files([Path(folder) for folder in readable])
    control = socket.socket(fileno=control_descriptor)
    control.sendall(Fences(network=network, files=files).as_byte())
    own_pid = os.getpid()
    while True:
        _, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not descriptors:
            return
        if os.fork() == 0:
            control.close()
            _child_main(descriptors[0], covered, own_pid)
        os.close(descriptors[0])


def _child_main(descriptor: int, covered: Coverage, zygote_pid: int) -> None:
    """Render one document and exit, whatever happens: nothing may return into the zygote's loop."""
    status = 1
    try:
        fences.die_with_parent(zygote_pid)
        with socket.socket(fileno=descriptor) as channel:
            child.serve_one(channel, covered, started=time.monotonic())
        status = 0
    finally:
        os._exit(status)
