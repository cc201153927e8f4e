"""The foreman on toy programs: order, readiness, restarts, giving up, stopping, and a log that stays readable."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stack_process import REPOSITORY, eventually

pytestmark = pytest.mark.processes

#: Builds the parts from JSON and runs them.
FOREMAN = """
import json, os, sys
from batches.stack import Foreman, Part
parts = [
    Part(name, (sys.executable, "-uc", code), os.environ, ready_words=ready, stops_last=last)
    for name, code, ready, last in json.loads(sys.argv[1])
]
sys.exit(Foreman(parts, ready=lambda: "all is up", patience_seconds=float(sys.argv[2])).run())
"""
SLEEP = "import time; time.sleep(600)"


class Running:
    """A foreman whose log goes to a file."""

    def __init__(self, folder: Path, *parts: tuple[str, str, str, bool], patience: float = 20) -> None:
        self.log_path = folder / "log"
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", FOREMAN, json.dumps(parts), str(patience)],
                cwd=REPOSITORY,
                env={**os.environ, "FOLDER": str(folder)},
                stdout=log,
                stderr=log,
            )

    def log(self) -> list[str]:
        return self.log_path.read_text("utf-8", "strict").splitlines()

    def until(self, words: str) -> None:
        eventually(lambda: any(words in line for line in self.log()), words, within=30)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def part(name: str, code: str, *, ready: str = "", last: bool = False) -> tuple[str, str, str, bool]:
    return (name, code, ready, last)


def test_a_part_starts_when_the_one_before_it_is_ready(tmp_path: Path) -> None:
    slow = f"import time; time.sleep(0.5); print('now I am ready'); {SLEEP}"
    running = Running(tmp_path, part("first", slow, ready="ready"), part("second", f"print('here'); {SLEEP}"))
    running.until("here")
    running.until("all is up")
    lines = running.log()
    assert lines[0] == "stack  | starting first and waiting until it serves"
    assert lines.index("first  | now I am ready") < lines.index("second | here")
    assert running.stop() == 0


def test_a_part_that_dies_is_started_again(tmp_path: Path) -> None:
    once = (
        "import os, pathlib, sys; mark = pathlib.Path(os.environ['FOLDER']) / 'mark'\n"
        f"if mark.exists(): print('second life'); {SLEEP}\n"
        "else: mark.touch(); print('no newline at the end', end=''); sys.exit(7)"
    )
    running = Running(tmp_path, part("moody", once))
    running.until("second life")
    assert "moody | no newline at the end" in running.log()
    assert "stack | moody ended unexpectedly (exit code 7); it starts again in 0.2 s" in running.log()
    assert running.stop() == 0


def test_a_part_that_dies_again_and_again_ends_the_whole(tmp_path: Path) -> None:
    running = Running(tmp_path, part("broken", "raise SystemExit(7)"), part("steady", SLEEP))
    assert running.process.wait(60) == 1
    assert any("broken died 5 times in a minute (exit code 7); giving up" in line for line in running.log())


def test_a_refusal_ends_the_whole_at_once(tmp_path: Path) -> None:
    refuse = "import sys; print('port 1 is taken'); sys.exit(2)"
    running = Running(tmp_path, part("steady", SLEEP), part("picky", refuse))
    assert running.process.wait(60) == 2
    assert "picky  | port 1 is taken" in running.log()
    assert "stack  | picky refused to start; see above" in running.log()


def test_what_others_need_stops_last(tmp_path: Path) -> None:
    say_goodbye = (
        "import signal, sys, time\n"
        "def end(*_): time.sleep(0.3); print('goodbye'); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end); print('up'); time.sleep(600)"
    )
    running = Running(tmp_path, part("base", say_goodbye, ready="up", last=True), part("user", say_goodbye, ready="up"))
    running.until("all is up")
    assert running.stop() == 0
    lines = running.log()
    assert lines.index("user  | goodbye") < lines.index("base  | goodbye")


def test_a_part_that_ignores_the_stop_is_killed(tmp_path: Path) -> None:
    deaf = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf'); {SLEEP}"
    running = Running(tmp_path, part("deaf", deaf, ready="deaf"), patience=1)
    running.until("all is up")
    assert running.stop() == 0
    assert "stack | deaf did not stop within 1 s; it is killed" in running.log()


def test_the_programs_of_a_dead_part_die_with_it(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', {SLEEP!r}])\n"
        "pathlib.Path(os.environ['FOLDER'], 'child').write_text(str(child.pid)); time.sleep(0.2); os.abort()"
    )
    running = Running(tmp_path, part("parent", code))
    running.until("ended unexpectedly (killed by signal 6)")
    child = int((tmp_path / "child").read_text())
    eventually(lambda: not Path(f"/proc/{child}").exists() or _is_zombie(child), "the child's end", within=10)
    running.stop()


def _is_zombie(pid: int) -> bool:
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True


def test_broken_output_stays_readable(tmp_path: Path) -> None:
    noise = "import sys; sys.stdout.buffer.write(b'\\xff\\xfe caf\\xc3\\xa9\\r\\n' + b'x' * 200000 + b'\\nend\\n'); "
    running = Running(tmp_path, part("noisy", noise + SLEEP))
    running.until("end")
    lines = running.log()
    assert "noisy | \ufffd\ufffd café" in lines
    assert sum(line.count("x") for line in lines if line.startswith("noisy | x")) == 200000
    assert running.stop() == 0
