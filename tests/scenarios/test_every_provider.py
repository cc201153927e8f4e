"""The examples on every provider, each against its double, through one real stack: all saved, and each billed once.

Every double is hostile: each document meets some trouble of its vendor's, of which it can recover. What is lost where
no key protects it ends as unknown, which is told beside each vendor's conformance.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from batches.providers import PROVIDERS
from tests.scenarios.stacks import batch, free_port
from tests.stack_process import REPOSITORY, Stack, eventually

EXAMPLES = REPOSITORY / "examples" / "manifest.json"
#: RelayPDF's double is the sandbox, whose stories on real stacks are the others'.
KINDS = sorted(kind for kind in PROVIDERS if kind != "relaypdf")
#: As fast as the doubles take them.
LIMITS = {"submit_interval_ms": 50, "poll_initial_ms": 200, "poll_max_ms": 1000, "max_in_flight": 20}


@dataclass
class Running:
    """The stack, with the double and the batch of each kind."""

    stack: Stack
    doubles: dict[str, Any] = field(default_factory=dict)
    batches: dict[str, str] = field(default_factory=dict)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """All of them at once: one batch on each account, as it may be in use."""
    folder, port = tmp_path_factory.mktemp("providers"), free_port()
    stack = Stack(
        data_dir=folder / "data",
        env={"PUBLIC_URL": f"http://127.0.0.1:{port}"},
        command=("runstack", "--port", str(port), "--workers", "3"),
    )
    running = Running(stack)
    try:
        for kind in KINDS:
            running.doubles[kind] = importlib.import_module(f"tests.providers.{kind}_double").start(folder)
            running.doubles[kind].hostile()
        stack.bootstrap()
        for kind, double in running.doubles.items():
            _add_account(stack, kind, double.account_fields())
        stack.start()
        eventually(lambda: "ready at http://" in stack.log(), "the stack to be ready")
        for kind in KINDS:
            done = stack.manage("submit", str(_examples(kind, folder)), "--account", kind, "--json")
            assert done.returncode == 0, done.stdout + done.stderr
            running.batches[kind] = json.loads(done.stdout)["id"]
        yield running
    finally:
        stack.close()
        for double in running.doubles.values():
            double.stop()


def _add_account(stack: Stack, kind: str, columns: dict[str, Any]) -> None:
    """As an operator does; its secrets come by standard input."""
    options = columns.pop("options", {})
    hosts = ",".join(columns.pop("download_hosts", []))
    secrets = [name for name in ("api_key", "webhook_secret") if columns.get(name)]
    plain = {name: value for name, value in columns.items() if name not in ("kind", "base_url", *secrets) and value}
    pairs = [f"{name}={value}" for name, value in (plain | LIMITS | options).items()]
    pairs += [f"{name}=-" for name in secrets] + ([f"download_hosts={hosts}"] if hosts else [])
    given = "".join(f"{columns[name]}\n" for name in secrets)
    added = stack.manage(
        "account", kind, "--add", kind, "--base-url", columns["base_url"], "--set", *pairs, given=given
    )
    assert added.returncode == 0, added.stdout + added.stderr


def _examples(kind: str, folder: Path) -> Path:
    """The examples under ids of their own: a document of one id is one and the same for every account."""
    rows = json.loads(EXAMPLES.read_text(encoding="utf-8"))
    whole = [
        {
            "id": f"{kind}-{row['id']}",
            "html_content": (EXAMPLES.parent / row["html"]).read_text(encoding="utf-8"),
            "options": row.get("options", {}),
        }
        for row in rows
    ]
    path = folder / f"{kind}.json"
    path.write_text(json.dumps(whole), encoding="utf-8")
    return path


@pytest.mark.processes
@pytest.mark.parametrize("kind", KINDS)
def test_the_examples_are_saved_and_billed_once(kind: str, running: Running) -> None:
    batch_id = running.batches[kind]
    eventually(lambda: _has_ended(running.stack, kind), f"the end of the batch on {kind}", within=150)
    items = batch(running.stack, batch_id)["items"]
    states = {item["business_id"]: (item["state"], item["failure_class"]) for item in items}
    assert set(states.values()) == {("saved", None)}, running.stack.log()[-4000:]
    ledger = running.doubles[kind].ledger()
    if PROVIDERS[kind].capabilities.resend_is_harmless:
        assert ledger["accepted"] >= len(states), "renders that cost no bill may be repeated"
    else:
        assert sorted(ledger["billed"].values()) == [1] * len(states)


def _has_ended(stack: Stack, kind: str) -> bool:
    moving = "('pending', 'submitting', 'accepted', 'rendered')"
    jobs = "batches_job j JOIN batches_provideraccount a ON a.id = j.account_id"
    return stack.query(f"SELECT count(*) FROM {jobs} WHERE a.slug = '{kind}' AND j.state IN {moving}") == [(0,)]
