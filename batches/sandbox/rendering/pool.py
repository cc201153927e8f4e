"""The parent's side of the renderer: keeps the zygote alive and hands it documents.

Thread-safe: any number of threads may call `render`; how many documents are rendered at once is the caller's
choice. A document that kills its child is refused; a zygote that died is replaced.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path

from batches.sandbox.rendering import fonts
from batches.sandbox.rendering.fences import Fences
from batches.sandbox.rendering.work import (
    Rendered,
    RendererUnavailable,
    RenderRefused,
    Work,
    receive_message,
    send_message,
)

ENGINE = "plutoprint"

_PROJECT_ROOT = Path(__file__).resolve().parents[3]
_START_SECONDS = 60.0
# The child ends itself at its wall limit; the parent waits a little longer before it stops listening.
_GRACE_SECONDS = 5.0

# Isolated from the user's environment (-I), so the place of our own package has to be named.
_STARTER = (
    "import sys; sys.path.insert(0, sys.argv[3]); "
    "from batches.sandbox.rendering import zygote; "
    "zygote.main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[4:])"
)


class RendererPool:
    """One zygote and the sockets to it. `folder` holds the generated font configuration."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._closed = False
        self.fences = Fences(network=False, files=False)

    def start(self) -> None:
        """Start the zygote now. Raises fonts.FontsMissing or RendererUnavailable.

        Call it, and `render`, only from threads that live as long as the pool: the kernel ends a zygote
        together with the *thread* that started it.
        """
        with self._lock:
            self._ensure_zygote()

    def render(self, work: Work) -> Rendered:
        """Render one document. Raises RenderRefused (the document), RendererUnavailable (the renderer)."""
        for _ in range(2):
            channel, process = self._hand_over()
            with channel:
                try:
                    return _conversation(channel, work)
                except (EOFError, ConnectionError):
                    if not _has_ended(process):
                        raise RenderRefused(
                            "The document brought the renderer down: it needs more time, memory or depth "
                            f"than one document may use ({work.limits.wall_seconds:g} s, "
                            f"{work.limits.memory_bytes >> 20} MB)."
                        ) from None
        raise RendererUnavailable("The renderer process died twice in a row.")

    def stop(self) -> None:
        """End the zygote and its children. Idempotent."""
        with self._lock:
            self._closed = True
            self._drop_zygote()

    def _hand_over(self) -> tuple[socket.socket, subprocess.Popen[bytes]]:
        ours, theirs = socket.socketpair()
        with theirs, self._lock:
            for attempt in range(2):
                control, process = self._ensure_zygote()
                try:
                    socket.send_fds(control, [b"w"], [theirs.fileno()])
                    return ours, process
                except OSError as error:
                    self._drop_zygote()
                    if attempt:
                        ours.close()
                        raise RendererUnavailable(f"The renderer can't be reached: {error}") from error
        raise AssertionError("unreachable: the loop returns or raises")

    def _ensure_zygote(self) -> tuple[socket.socket, subprocess.Popen[bytes]]:
        if self._closed:
            raise RendererUnavailable("The renderer has been stopped.")
        if self._process is not None and self._control is not None and self._process.poll() is None:
            return self._control, self._process
        self._drop_zygote()
        if importlib.util.find_spec(ENGINE) is None:
            raise RendererUnavailable(
                f"The rendering engine {ENGINE} is not installed. Run: pip install -r requirements-engine.txt"
            )
        setup = fonts.set_up(self._folder)
        ours, theirs = socket.socketpair()
        arguments = [str(theirs.fileno()), str(os.getpid()), str(_PROJECT_ROOT), *map(str, setup.readable)]
        with theirs:
            process = subprocess.Popen(  # noqa: S603  # our own interpreter and our own module
                [sys.executable, "-I", "-c", _STARTER, *arguments],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={"PATH": "/usr/bin:/bin", "FONTCONFIG_FILE": str(setup.conf)},
            )
        ours.settimeout(_START_SECONDS)
        try:
            ready = ours.recv(1)
        except TimeoutError:
            ready = b""
        if not ready:
            process.kill()
            process.wait()
            ours.close()
            raise RendererUnavailable("The renderer process did not start; its error is in the log above.")
        ours.settimeout(None)
        self.fences = Fences.from_byte(ready[0])
        self._process, self._control = process, ours
        return ours, process

    def _drop_zygote(self) -> None:
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait()
        self._process = self._control = None


def _conversation(channel: socket.socket, work: Work) -> Rendered:
    limits = work.limits
    head = {"kind": work.kind, "options": work.options, "limits": asdict(limits)}
    started = time.monotonic()
    channel.settimeout(limits.wall_seconds + _GRACE_SECONDS)
    try:
        send_message(channel, head, work.source.encode("utf-8", "surrogatepass"))
        answer, pdf = receive_message(channel, max_payload=limits.output_bytes)
    except TimeoutError:
        raise RenderRefused(f"The document took longer than {limits.wall_seconds:g} s to render.") from None
    except ValueError as error:
        raise RenderRefused(f"The PDF came out too large: {error}") from error
    if "refused" in answer:
        raise RenderRefused(str(answer["refused"]))
    return Rendered(
        pdf=pdf,
        pages=int(answer["pages"]),
        engine=str(answer["engine"]),
        seconds=time.monotonic() - started,
    )


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether the zygote itself is gone, given the moment it needs to be seen as such."""
    try:
        process.wait(timeout=0.05)
    except subprocess.TimeoutExpired:
        return False
    return True
