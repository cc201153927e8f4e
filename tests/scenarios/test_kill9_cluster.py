"""The promise itself, on the real stack: the whole cluster is killed again and again; nothing is lost or billed twice.

Runs on whichever database the suite runs on, so the suite's two passes prove both.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sandbox_process import SandboxProcess
from tests.scenarios.pace import StallWatch, closest_breach
from tests.scenarios.stacks import batch, environment, invoices, saved_count, submitted
from tests.stack_process import Stack, eventually

DOCUMENTS = 200
INTERVAL = 0.05
KILLS = 3


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
    assert set(ledger["billed_by_body"].values()) == {1}
    hashes = [item["sha256"] for item in answer["items"]]
    assert len(set(hashes)) == DOCUMENTS, "no two documents share a PDF"
    assert stack.stop() == 0


@pytest.mark.processes
def test_four_workers_keep_the_pace_as_the_receiver_sees_it(
    make_stack: Callable[..., Stack], sandbox: SandboxProcess, tmp_path: Path
) -> None:
    stack = make_stack(workers=4, env=environment(sandbox, interval=INTERVAL))
    stack.bootstrap()
    stack.start()
    for attempt in range(1, 5):
        sandbox.reset()
        folder = tmp_path / f"run-{attempt}"
        folder.mkdir()
        with StallWatch() as stalls:
            batch_id = submitted(stack, invoices(folder, DOCUMENTS, prefix=f"RUN{attempt}"))
            eventually(
                lambda goal=attempt * DOCUMENTS: saved_count(stack) == goal,  # type: ignore[misc] # bound now
                "all documents to be saved",
                within=180,
            )
        assert batch(stack, batch_id)["counts"]["saved"] == DOCUMENTS
        arrivals = [arrival["monotonic"] for arrival in sandbox.arrivals()]
        assert len(arrivals) == DOCUMENTS
        breach = closest_breach(arrivals, interval=INTERVAL)
        if breach <= 0:
            return
        assert stalls.worst > breach, f"a pair came {breach * 1000:.1f} ms too close on a machine that did not stall"
    pytest.fail("this machine stalled in each of four runs, so none of them could show the pace")
