"""Can this file be opened as a PDF, and how many pages has it? Asked of a child process under limits.

A PDF comes from outside. The library that opens it is C++ and not thread-safe; a file that crashes or hangs it must
not take a pump with it. The child is kept and asked again; when it dies or is late it is replaced, and the file that
it had is bad.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

CHILD = Path(__file__).with_name("pdfcheck_child.py")


@dataclass(frozen=True)
class PdfFacts:
    """What the library says: `pages` is at least 1, or `problem` says in words why the file is no good."""

    pages: int
    problem: str = ""


class PdfChecker:
    """One child process, one question at a time. Safe to share between threads; close it when done."""

    def __init__(self, *, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def check(self, path: Path) -> PdfFacts:
        """Open the file at `path`; the answer comes within the time limit, whatever the file does."""
        with self._lock:
            child = self._running()
            assert child.stdin is not None
            assert child.stdout is not None
            late = False
            try:
                child.stdin.write(json.dumps(str(path)).encode() + b"\n")
                child.stdin.flush()
                ready, _, _ = select.select([child.stdout], [], [], self._seconds)
                late = not ready
                answer = child.stdout.readline() if ready else b""
            except OSError:
                answer = b""
            if not answer:
                self._end()
                why = f"takes longer than {self._seconds:g} s" if late else "crashes the PDF library"
                return PdfFacts(0, f"Opening it {why}.")
        facts = json.loads(answer)
        return PdfFacts(int(facts["pages"]), str(facts["problem"]))

    def close(self) -> None:
        with self._lock:
            self._end()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is None or self._child.poll() is not None:
            self._end()
            self._child = subprocess.Popen(  # noqa: S603 - our own interpreter and file
                [sys.executable, "-I", str(CHILD)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        return self._child

    def _end(self) -> None:
        child, self._child = self._child, None
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
