"""A child process that works on foreign PDFs for us: one JSON question a line, one JSON answer, under a time limit.

Unlike `pdfcheck.py` it is not shared: whoever starts it asks it, and closes it. Its limits of memory and files it sets
itself (`pdfcheck_child.limit`).
"""

from __future__ import annotations

import json
import math
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

ANSWER_BYTES = 64 * 1024
#: A child whose parent is gone ends so long after the time limit of the file that hangs it.
ALARM_AFTER = 5


class ChildFailed(Exception):
    """It died, or did not answer in time; it is of no use any more."""


class PdfChild:
    """One child, which does one thing at a time. For use in one thread, in a `with` block."""

    def __init__(self, script: str, *, seconds: float) -> None:
        self._seconds = seconds
        path = Path(__file__).with_name(script)
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and file
            [sys.executable, "-I", str(path), str(math.ceil(seconds) + ALARM_AFTER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._unread = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """Its answer. Raises `ChildFailed`."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise ChildFailed("crashes the PDF library") from error
        answer: dict[str, Any] = json.loads(self._line())
        return answer

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        gives_up_at = time.monotonic() + self._seconds
        while b"\n" not in self._unread:
            left = max(0.0, gives_up_at - time.monotonic())
            ready, _, _ = select.select([self._process.stdout], [], [], left)
            if not ready:
                raise ChildFailed(f"takes longer than {self._seconds:g} s")
            part = os.read(self._process.stdout.fileno(), ANSWER_BYTES)
            if not part:
                raise ChildFailed("crashes the PDF library, or needs more memory than a document may")
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def __enter__(self) -> PdfChild:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    continue  # bytes that a dead child will never read
        self._process.wait()
