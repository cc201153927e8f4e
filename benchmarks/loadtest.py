"""`make loadtest`: `manage.py loadtest` on a stack of its own (SQLite, the built-in sandbox), stopped at the end.

Arguments are passed on to the command: `python -m benchmarks.loadtest --steps 1,2,4 --seconds-per-step 5`.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import NoReturn

from batches.processes import die_with_parent
from benchmarks.processes import REPOSITORY, say
from tests.stack_process import Stack, eventually

#: Three workers are two pumps; no pace, so that concurrency is what is measured.
WORKERS = 3
SUBMIT_INTERVAL = "0.001"


def _end_in_order(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> int:
    signal.signal(signal.SIGTERM, _end_in_order)
    folder = Path(tempfile.mkdtemp(prefix="loadtest-"))
    stack = Stack(
        data_dir=folder,
        database="sqlite",
        workers=WORKERS,
        command=("runstack", "--sandbox", "--port", "0"),
        env={
            "SANDBOX_PORT": str(_free_port()),
            "RELAYPDF_SUBMIT_INTERVAL": SUBMIT_INTERVAL,
            "RELAYPDF_POLL_INITIAL": "0.2",
            "LOG_LEVEL": "WARNING",
        },
    )
    try:
        stack.bootstrap()
        done = stack.manage("account", "sandbox", "--set", "poll_interval_ms=0")
        if done.returncode:
            raise RuntimeError(done.stderr)
        say("starting a stack: pages, workers and the sandbox, which renders for real")
        stack.start()
        eventually(lambda: "ready at http" in stack.log(), f"a stack that is ready, which says:\n{stack.log()}")
        command = [sys.executable, "manage.py", "loadtest", *sys.argv[1:]]
        child = subprocess.Popen(command, cwd=REPOSITORY, env=stack.env, preexec_fn=die_with_parent)
        try:
            code = child.wait()
        except KeyboardInterrupt:
            child.send_signal(signal.SIGINT)
            code = child.wait(60)
        stack.stop()
        return code
    except KeyboardInterrupt:
        return 130
    finally:
        stack.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    os.environ.pop("DATABASE_URL", None)
    sys.exit(main())
