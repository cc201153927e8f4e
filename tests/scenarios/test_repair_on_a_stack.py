"""Repair on the real stack, over real HTTP: what a person asks for of a batch that has come to rest is done at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sandbox_process import SandboxProcess
from tests.scenarios.stacks import batch, environment, invoices, submitted
from tests.stack_process import Stack, eventually

pytestmark = pytest.mark.processes


def test_check_again_and_retry_of_a_batch_at_rest_are_carried_out_within_seconds(
    make_stack: Callable[..., Stack], sandbox: SandboxProcess, tmp_path: Path
) -> None:
    sandbox.configure(faults=[{"do": "fail", "code": "render_failed"}])
    stack = make_stack(env=environment(sandbox, interval=0.05))
    stack.bootstrap()
    batch_id = submitted(stack, invoices(tmp_path, 2))
    stack.start()
    eventually(lambda: batch(stack, batch_id)["counts"]["failed"] == 2, "both documents to fail")
    eventually(lambda: stack.query("SELECT count(*) FROM batches_pumpslot WHERE owner IS NOT NULL")[0][0] == 0, "rest")

    def reads() -> int:
        return int(stack.query("SELECT count(*) FROM batches_exchange WHERE kind = 'poll'")[0][0])

    before = reads()
    assert stack.manage("check_again", "--batch", batch_id).returncode == 0
    eventually(lambda: reads() >= before + 2, "both to be read", within=30)
    sandbox.configure(faults=[])

    def saved() -> bool:
        stack.manage("retry", "--batch", batch_id, "--reason", "It renders again.")  # whichever may be by now
        return int(batch(stack, batch_id)["counts"]["saved"]) == 2

    eventually(saved, "second readings to allow retries, and both to be saved", within=90)
    assert sandbox.ledger()["totals"]["jobs_billed"] == 2
