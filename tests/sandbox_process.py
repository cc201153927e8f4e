"""A real sandbox process for tests: started on a free port, asked and turned over HTTP, stopped or killed.

    sandbox = start_sandbox(tmp_path, jobs={"min_seconds": 1})
    ...
    sandbox.stop()

Keyword arguments are groups of switches (`batches/sandbox/README.md`). A sandbox that a test leaves running is
ended together with the test process.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

PROJECT_ROOT = Path(__file__).resolve().parents[1]
API_KEY = "pdf_live_sandbox"
_START_SECONDS = 60.0


class SandboxProcess:
    """One sandbox with its own state in `data_dir`. `url` stays the same over restarts."""

    def __init__(self, data_dir: Path, switches: dict[str, Any]) -> None:
        self.data_dir = data_dir
        self.api_key = API_KEY
        self.url = ""
        self._port = 0
        self._switches = switches
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the sandbox is not running"
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = [sys.executable, "-m", "batches.sandbox", "--port", str(self._port)]
        command += ["--data-dir", str(self.data_dir)]
        if self._switches:
            config = self.data_dir.parent / f"{self.data_dir.name}-switches.json"
            config.write_text(json.dumps(self._switches), encoding="utf-8")
            command += ["--config", str(config)]
        log = self.log_path.open("a", encoding="utf-8")
        with log:
            self._process = subprocess.Popen(
                command, cwd=PROJECT_ROOT, stdout=subprocess.PIPE, stderr=log, text=True, env=_environment()
            )
        atexit.register(self.kill)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if " ready at " not in line:
            self.kill()
            raise AssertionError(f"the sandbox did not start:\n{self.log()}")
        self.url = line.split(" ready at ")[1].strip()
        self._port = int(self.url.rpartition(":")[2])

    @property
    def log_path(self) -> Path:
        return self.data_dir.parent / f"{self.data_dir.name}.log"

    def log(self) -> str:
        """Everything that it wrote to standard error, over all starts."""
        return self.log_path.read_text(encoding="utf-8") if self.log_path.exists() else ""

    def stop(self) -> None:
        """End it as an operator would (SIGTERM). Idempotent."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a crash would (SIGKILL). Idempotent."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Start again on the same port and state, after stopping it if it still runs.

        The switches given to `start_sandbox` are in force again; others keep what `configure` made of them.
        """
        self.stop()
        self.start()

    def ledger(self) -> dict[str, Any]:
        """What it accepted and billed: `totals`, `billed_by_key`, `billed_by_body`, `jobs`."""
        return self.control("GET", "ledger")

    def arrivals(self) -> list[dict[str, Any]]:
        """Each `POST /v1/pdf` in order: `monotonic`, `wall`, `idempotency_key`, `status`, `outcome`, `job_id`."""
        found: list[dict[str, Any]] = self.control("GET", "arrivals")["arrivals"]
        return found

    def deliveries(self) -> list[dict[str, Any]]:
        """Each webhook delivery: `event`, `job_id`, `state`, `attempts`, `last_status`, `last_error`."""
        found: list[dict[str, Any]] = self.control("GET", "deliveries")["deliveries"]
        return found

    def configure(self, **switches: Any) -> dict[str, Any]:
        """Change switches while it runs, such as `faults=[…]` or `limits={"windows": [[5, 10]]}`."""
        return self.control("PUT", "config", switches)

    def fund(self, **body: Any) -> dict[str, Any]:
        """`balance_microdollars=n` or `add_microdollars=n`."""
        return self.control("POST", "wallet", body)

    def advance_clock(self, seconds: float) -> None:
        """Push its clock forward: files and keys expire, waits end."""
        self.control("POST", "clock", {"advance_seconds": seconds})

    def reset(self) -> None:
        """Make it forget jobs, keys, files, money and records; switches and webhook endpoints stay."""
        self.control("POST", "reset", {})

    def wait_for_jobs(self, count: int, *, status: str = "completed", timeout: float = 30.0) -> dict[str, Any]:
        """The ledger, once `count` jobs are in `status`."""
        deadline = time.monotonic() + timeout
        while True:
            totals = self.control("GET", "ledger?jobs=0")["totals"]
            if totals[f"jobs_{status}"] >= count:
                return self.ledger()
            assert time.monotonic() < deadline, f"not {count} jobs {status}: {totals}\n{self.log()}"
            time.sleep(0.02)

    def add_endpoint(self, url: str) -> str:
        """Have webhooks sent to `url`; the secret that they are signed with."""
        request = urllib.request.Request(
            f"{self.url}/v1/webhooks",
            data=json.dumps({"url": url}).encode(),
            headers={"Authorization": f"Bearer {self.api_key}"},
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            return str(json.loads(response.read())["secret"])

    def control(self, method: str, name: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/_sandbox/{name}", data=data, method=method)
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.loads(response.read())

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        atexit.unregister(self.kill)
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"the sandbox did not stop in 15 s:\n{self.log()}") from None
        finally:
            if process.stdout is not None:
                process.stdout.close()


def start_sandbox(tmp_path: Path, *, name: str = "sandbox", **config: Any) -> SandboxProcess:
    """A running sandbox whose state is in `tmp_path / name`. `config` are its switches, by group."""
    sandbox = SandboxProcess(tmp_path / name, config)
    sandbox.start()
    return sandbox


def _environment() -> dict[str, str]:
    """Without settings of the tests' own that would change where the sandbox keeps things."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("DJANGO_", "PYTEST_"))}
