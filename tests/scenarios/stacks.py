"""Words that the stories on real stacks share: a sandbox's environment, a manifest of invoices, looking at a batch."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from tests.sandbox_process import SandboxProcess
from tests.stack_process import Stack


def environment(sandbox: SandboxProcess, *, interval: float, **further: str) -> dict[str, str]:
    """What makes `bootstrap` use this sandbox as the account `relaypdf`."""
    return {
        "RELAYPDF_BASE_URL": sandbox.url,
        "RELAYPDF_API_KEY": sandbox.api_key,
        "RELAYPDF_SUBMIT_INTERVAL": str(interval),
        "RELAYPDF_MAX_IN_FLIGHT": "100",
        "RELAYPDF_POLL_INITIAL": "0.3",
        "RELAYPDF_POLL_MAX": "3",
    } | further


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def invoices(folder: Path, count: int, *, prefix: str = "INV") -> Path:
    """A manifest of small, different documents."""
    rows = [
        {
            "id": f"{prefix}-{number:04}",
            "html_content": f"<h1>Invoice {prefix} {number:04}</h1><p>Amount due: {number * 7}.50 EUR</p>",
        }
        for number in range(count)
    ]
    path = folder / "manifest.json"
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


def submitted(stack: Stack, manifest: Path, *arguments: str) -> str:
    """Hand the manifest over; the batch's id."""
    done = stack.manage("submit", str(manifest), *arguments, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return str(json.loads(done.stdout)["id"])


def batch(stack: Stack, batch_id: str) -> dict[str, Any]:
    """The batch's JSON."""
    done = stack.manage("batch", batch_id, "--json")
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def account(stack: Stack, slug: str = "relaypdf") -> dict[str, Any]:
    """The account's JSON."""
    done = stack.manage("account", slug, "--json")
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def saved_count(stack: Stack) -> int:
    return int(stack.query("SELECT count(*) FROM batches_job WHERE state = 'saved'")[0][0])
