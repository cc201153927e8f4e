"""The ledger from the command line: what the running sandbox has billed, or a sentence when there is none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

from tests.sandbox.calls import submit
from tests.sandbox_process import PROJECT_ROOT, start_sandbox


def ledger(port: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "batches.sandbox", "--ledger", "--port", str(port)]
    return subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, timeout=60)


def test_the_command_prints_what_the_running_sandbox_has_billed(tmp_path: Path) -> None:
    sandbox = start_sandbox(tmp_path)
    port = urlsplit(sandbox.url).port
    assert port
    try:
        submit(sandbox, "<p>Invoice for Adaeze Okoye</p>", idempotency_key="key-1")
        sandbox.wait_for_jobs(1)
        printed = ledger(port)
        assert printed.returncode == 0
        assert json.loads(printed.stdout) == sandbox.ledger()
        assert json.loads(printed.stdout)["billed_by_key"] == {"key-1": 1}
    finally:
        sandbox.stop()
    refused = ledger(port)
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert f"No sandbox answers on 127.0.0.1:{port}" in refused.stderr
