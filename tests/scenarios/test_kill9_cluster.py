"""The promise itself, on the real stack: the whole cluster is killed again and again, and nothing is lost or billed twice.

Runs on whichever database the suite runs on, so the suite's two passes prove both.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox_process import SandboxProcess, start_sandbox
from tests.scenarios.pace import closest_breach
from tests.scenarios.stacks import batch, environment, invoices, saved_count, submitted
from tests.stack_process import Stack, eventually

DOCUMENTS = 200
INTERVAL = 0.05
KILLS = 3


@pytest.fixture
def sandbox(tmp_path: Path) -> Any:
    sandbox = start_sandbox(tmp_path)
    yield sandbox
    sandbox.stop()


@pytest.mark.processes
def test_killing_the_whole_cluster_three_times_loses_nothing_and_bills_nothing_twice(
    make_stack: Callable[..., Stack], sandbox: SandboxProcess, tmp_path: Path
) -> None:
    rng = random.Random()
    stack = make_stack(workers=4, env=environment(sandbox, interval=INTERVAL))
    stack.bootstrap()
    batch_id = submitted(stack, invoices(tmp_path, DOCUMENTS))
    stack.start()
    for kill in range(KILLS):
        # Somewhere inside the run: after the first saves, and never so late that all is over.
        goal = rng.randrange(kill * 40 + 5, kill * 40 + 40)
        eventually(lambda goal=goal: saved_count(stack) >= goal, f"{goal} saved documents")  # type: ignore[misc] # bound now
        time.sleep(rng.uniform(0, 0.3))  # where in a step the kill falls must not always be the same place
        stack.kill9_cluster()
        assert saved_count(stack) < DOCUMENTS, "the kill came too late to prove anything"
        stack.start()
    eventually(lambda: saved_count(stack) == DOCUMENTS, "all documents to be saved", within=180)

    answer = batch(stack, batch_id)
    assert answer["state"] == "complete"
    assert answer["counts"] == {
        "total": DOCUMENTS,
        "saved": DOCUMENTS,
        "failed": 0,
        "cancelled": 0,
        "held": 0,
        "in_progress": 0,
    }
    ledger = sandbox.ledger()
    assert ledger["totals"]["jobs_billed"] == DOCUMENTS
    assert set(ledger["billed_by_key"].values()) == {1}
    assert len(ledger["billed_by_key"]) == DOCUMENTS
    assert all(len(body_keys) == 1 for body_keys in keys_by_body(sandbox).values())
    hashes = [item["sha256"] for item in answer["items"]]
    assert len(set(hashes)) == DOCUMENTS, "no two documents share a PDF"
    assert stack.stop() == 0


def keys_by_body(sandbox: SandboxProcess) -> dict[str, set[str]]:
    """The keys under which each body arrived: more than one would be a document that could be billed twice."""
    keys: dict[str, set[str]] = {}
    for job in sandbox.ledger()["jobs"]:
        keys.setdefault(job["body_sha256"], set()).add(job["key"])
    return keys


@pytest.mark.processes
def test_four_workers_keep_the_pace_as_the_receiver_sees_it(
    make_stack: Callable[..., Stack], sandbox: SandboxProcess, tmp_path: Path
) -> None:
    stack = make_stack(workers=4, env=environment(sandbox, interval=INTERVAL))
    stack.bootstrap()
    batch_id = submitted(stack, invoices(tmp_path, DOCUMENTS))
    stack.start()
    eventually(lambda: saved_count(stack) == DOCUMENTS, "all documents to be saved", within=180)
    arrivals = [arrival["monotonic"] for arrival in sandbox.arrivals()]
    assert len(arrivals) == DOCUMENTS
    assert closest_breach(arrivals, interval=INTERVAL) <= 0
    assert batch(stack, batch_id)["counts"]["saved"] == DOCUMENTS
