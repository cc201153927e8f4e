"""Can this file be opened as a PDF, and how many pages has it? Asked of a child process under limits.

A PDF comes from outside. The library that opens it is C++ and not thread-safe; a file that crashes or hangs it must
not take a pump with it. The child is kept and asked again; when it is late it is replaced, and the file that it had is
bad. When it dies, that may have come from outside: the file is asked of a fresh child once more, and is bad when that
one dies too. The questions of several threads go to it together: waking a process for each would cost more than the
look itself.
"""

from __future__ import annotations

import json
import math
import os
import select
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

CHILD = Path(__file__).with_name("pdfcheck_child.py")
ANSWER_BYTES = 64 * 1024
#: Children that die over a file before it is blamed: one may be killed for a reason that has nothing to do with it.
DEATHS_MOST = 2
#: A child whose pump is gone ends so long after the time limit of the file that hangs it.
ALARM_AFTER = 5


@dataclass(frozen=True)
class PdfFacts:
    """What the library says: `pages` is at least 1, or `problem` says in words why the file is no good.

    `found`: whether its text holds what was asked for; None where nothing was.
    """

    pages: int
    problem: str = ""
    found: bool | None = None


@dataclass(eq=False)
class _Question:
    path: Path
    find: str = ""
    facts: PdfFacts | None = None
    deaths: int = 0  # of children that had it

    @property
    def line(self) -> bytes:
        asked = {"path": str(self.path), "find": self.find} if self.find else str(self.path)
        return json.dumps(asked).encode() + b"\n"


class PdfChecker:
    """One child process, which works on one file at a time. Safe to share between threads; close it when done."""

    def __init__(self, *, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._asked: deque[_Question] = deque()
        self._unread = b""

    def check(self, path: Path, *, find: str = "") -> PdfFacts:
        """Open the file at `path`, and look for a text in it where one is given.

        Each file has the time limit to itself, whatever the ones before it did.
        """
        question = _Question(path, find)
        self._asked.append(question)
        with self._lock:  # whoever has it asks for all that wait; the others find their answer when they get it
            if question.facts is None:
                questions = [self._asked.popleft() for _ in range(len(self._asked))]
                try:
                    self._ask(questions)
                finally:  # without a child to ask, the others ask for themselves
                    self._asked.extend(each for each in questions if each.facts is None and each is not question)
        assert question.facts is not None
        return question.facts

    def _ask(self, questions: list[_Question]) -> None:
        """Give each question its answer. A file that ends two children is bad; the rest are asked of the next one."""
        waiting = deque(questions)
        while waiting:
            child = self._running()
            assert child.stdin is not None
            try:
                child.stdin.write(b"".join(each.line for each in waiting))
                child.stdin.flush()
            except OSError:
                pass  # it has died; what it answered before that is read, and the next file is the one that it had
            while waiting:
                answer, is_late = self._next_answer(child)
                if not answer:
                    self._end()
                    waiting[0].deaths += 1
                    if not is_late and waiting[0].deaths < DEATHS_MOST:
                        break
                    why = f"takes longer than {self._seconds:g} s" if is_late else "crashes the PDF library"
                    waiting.popleft().facts = PdfFacts(0, f"Opening it {why}.")
                    break
                facts = json.loads(answer)
                waiting.popleft().facts = PdfFacts(int(facts["pages"]), str(facts["problem"]), facts.get("found"))

    def _next_answer(self, child: subprocess.Popen[bytes]) -> tuple[bytes, bool]:
        """The next line of the child, and whether the time limit passed without one; empty when none will come."""
        assert child.stdout is not None
        gives_up_at = time.monotonic() + self._seconds
        while b"\n" not in self._unread:
            ready, _, _ = select.select([child.stdout], [], [], max(0.0, gives_up_at - time.monotonic()))
            if not ready:
                return b"", True
            part = os.read(child.stdout.fileno(), ANSWER_BYTES)
            if not part:
                return b"", False
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        return line, False

    def close(self) -> None:
        with self._lock:
            self._end()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is None or self._child.poll() is not None:
            self._end()
            self._child = subprocess.Popen(  # noqa: S603 - our own interpreter and file
                [sys.executable, "-I", str(CHILD), str(math.ceil(self._seconds) + ALARM_AFTER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        return self._child

    def _end(self) -> None:
        child, self._child = self._child, None
        self._unread = b""
        if child is None:
            return
        child.kill()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    continue  # bytes that a dead child will never read
        child.wait()
