"""Several programs as one: started in order, one log with a prefix per program, restarted, stopped together.

The foreman of `manage.py runstack`. It knows nothing of what the programs do. Each is a process group of its own, so
that Ctrl-C reaches only the foreman, and on Linux dies with the foreman, so that a kill -9 leaves no port taken.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from batches import processes

#: A part that dies this often within this many seconds is broken, not unlucky.
DEATHS_MOST = 5
DEATHS_WITHIN_SECONDS = 60.0
FIRST_RESTART_SECONDS = 0.2
#: The next part starts when this one said that it is ready, or after this long.
READY_SECONDS = 20.0
#: The exit code with which our programs refuse what only a person can mend; trying again would not help.
REFUSED = 2
#: A log line without an end is cut here.
LINE_BYTES_MOST = 64 * 1024


@dataclass(frozen=True)
class Part:
    """One program. `ready_words` are part of the line that it writes when it serves; empty: it need not be waited for.

    Parts with `stops_last` stop when the others have stopped, since those may still need them.
    """

    name: str
    command: Sequence[str]
    env: Mapping[str, str] = field(repr=False)
    ready_words: str = ""
    pass_fds: tuple[int, ...] = ()
    stops_last: bool = False


class _Running:
    """One part with its process, its unfinished log line and its past deaths."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.process: subprocess.Popen[bytes] | None = None
        self.ready = not part.ready_words
        self.started_at = 0.0
        self.restart_at: float | None = None
        self._line = b""
        self._deaths: deque[float] = deque(maxlen=DEATHS_MOST)

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> int:
        """Start the program; the file descriptor of its output."""
        parent = os.getpid()
        self.process = subprocess.Popen(  # noqa: S603 - the commands are the caller's, none comes from outside
            self.part.command,
            env=dict(self.part.env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
            pass_fds=self.part.pass_fds,
            preexec_fn=lambda: processes.die_with_parent(parent=parent),
        )
        self.started_at = time.monotonic()
        self.restart_at = None
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        return self.process.stdout.fileno()

    def lines(self, received: bytes) -> list[str]:
        """The lines that are whole now; `received` empty gives out the rest."""
        *whole, self._line = (self._line + received).split(b"\n")
        if self._line and (not received or len(self._line) > LINE_BYTES_MOST):
            whole.append(self._line)
            self._line = b""
        texts = [line.decode("utf-8", "replace").rstrip("\r") for line in whole]
        if not self.ready and any(self.part.ready_words in text for text in texts):
            self.ready = True
        return texts

    def plan_restart(self) -> float | None:
        """Seconds until it is started again after a death; None when it has died too often."""
        now = time.monotonic()
        self._deaths.append(now)
        if len(self._deaths) == DEATHS_MOST and now - self._deaths[0] < DEATHS_WITHIN_SECONDS:
            return None
        recent = sum(now - death < DEATHS_WITHIN_SECONDS for death in self._deaths)
        pause = FIRST_RESTART_SECONDS * 2 ** (recent - 1)
        self.restart_at = now + pause
        return float(pause)

    def signal(self, number: int, *, group: bool = False) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                (os.killpg if group else os.kill)(self.process.pid, number)


class Foreman:
    """Runs the parts until SIGTERM or SIGINT, or until one of them cannot be kept alive."""

    def __init__(self, parts: Sequence[Part], *, ready: Callable[[], str], patience_seconds: float) -> None:
        """`ready` gives the lines that are written when all parts serve; `patience_seconds` is how long a part may take
        to stop before it is killed."""
        self.parts = [_Running(part) for part in parts]
        self.ready = ready
        self.patience_seconds = patience_seconds
        self.signals = processes.SignalPipe(signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.signals, selectors.EVENT_READ)
        self.width = max(len(part.name) for part in (*parts, _ITSELF))

    def run(self) -> int:
        """The exit code: 0 after a stop by signal, 1 when a part died for good, 2 when a part refused to start."""
        try:
            code = self._work()
            self.say("stopping")
        finally:
            self._stop()
        return code

    def say(self, words: str) -> None:
        for line in words.splitlines():
            self._write(_ITSELF.name, line)

    def _work(self) -> int:
        waiting = list(self.parts)
        said_ready = False
        while True:
            if waiting and self._may_start_next(waiting):
                self._start(waiting.pop(0))
            if not said_ready and not waiting and all(running.ready for running in self.parts):
                said_ready = True
                self.say(self.ready())
            self._pass_on_output(self._pause())
            if self.signals.take() & {signal.SIGTERM, signal.SIGINT}:
                return 0
            for running in self.parts:
                if running.restart_at is not None and time.monotonic() >= running.restart_at:
                    self._start(running)
                elif running.process is not None and running.restart_at is None and not running.is_alive:
                    code = self._mourn(running)
                    if code is not None:
                        return code

    def _may_start_next(self, waiting: list[_Running]) -> bool:
        started = self.parts[: len(self.parts) - len(waiting)]
        return all(running.ready or time.monotonic() - running.started_at > READY_SECONDS for running in started)

    def _start(self, running: _Running) -> None:
        if not running.ready:
            self.say(f"starting {running.part.name} and waiting until it serves")
        self.selector.register(running.start(), selectors.EVENT_READ, running)

    def _mourn(self, running: _Running) -> int | None:
        """A part has ended by itself: plan its restart, or give the exit code of the whole."""
        assert running.process is not None
        code = running.process.returncode
        ending = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        self._clear_away(running)
        running.process = None
        if code == REFUSED:
            self.say(f"{running.part.name} refused to start; see above")
            return REFUSED
        pause = running.plan_restart()
        if pause is None:
            self.say(f"{running.part.name} died {DEATHS_MOST} times in a minute ({ending}); giving up")
            return 1
        self.say(f"{running.part.name} ended unexpectedly ({ending}); it starts again in {pause:.1f} s")
        return None

    def _clear_away(self, running: _Running) -> None:
        """Kill what a dead part left of its process group, and write out the end of its log."""
        assert running.process is not None
        assert running.process.stdout is not None
        running.signal(signal.SIGKILL, group=True)
        while self._pass_on_output_of(running, running.process.stdout.fileno()):
            pass
        with contextlib.suppress(KeyError):  # its end was seen before
            self.selector.unregister(running.process.stdout)
        running.process.stdout.close()

    def _pause(self) -> float:
        """How long the loop may sleep: until a restart is due, or half a second for the ready clock."""
        due = [running.restart_at for running in self.parts if running.restart_at is not None]
        return max(0.0, min([0.5, *[at - time.monotonic() for at in due]]))

    def _pass_on_output(self, seconds: float) -> None:
        """Wait at most so long for output or a signal, then write what has come."""
        for key, _ in self.selector.select(seconds):
            if key.data is not None and self._pass_on_output_of(key.data, key.fd) == b"":
                self.selector.unregister(key.fd)

    def _pass_on_output_of(self, running: _Running, descriptor: int) -> bytes | None:
        """Write what one part has said; returns it: None when there is nothing yet, empty at the end of its output."""
        try:
            received = os.read(descriptor, 65536)
        except BlockingIOError:
            return None
        for line in running.lines(received):
            self._write(running.part.name, line)
        return received

    def _stop(self) -> None:
        for last in (False, True):
            self._stop_parts([running for running in self.parts if running.part.stops_last is last])

    def _stop_parts(self, stopping: list[_Running]) -> None:
        for running in stopping:
            running.signal(signal.SIGTERM)
        kill_at = time.monotonic() + self.patience_seconds
        while any(running.is_alive for running in stopping) and time.monotonic() < kill_at:
            self._pass_on_output(0.1)
            self.signals.take()
        for running in stopping:
            if running.is_alive:
                self.say(f"{running.part.name} did not stop within {self.patience_seconds:.0f} s; it is killed")
            if running.process is not None:
                running.signal(signal.SIGKILL, group=True)
                running.process.wait()
                self._clear_away(running)

    def _write(self, name: str, line: str) -> None:
        try:
            sys.stdout.write(f"{name:<{self.width}} | {line}\n")
            sys.stdout.flush()
        except BrokenPipeError:
            # Whoever read the log is gone; the work goes on without one.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


_ITSELF = Part("stack", (), {})
