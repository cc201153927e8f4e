"""An account in trouble holds, with a reason that people see, and loses nothing: on the real stack, over real HTTP."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from django.apps import apps

from tests.sandbox_process import SandboxProcess
from tests.scenarios.stacks import account, batch, environment, invoices, saved_count, submitted
from tests.stack_process import Stack, eventually

pytestmark = pytest.mark.processes
DOCUMENTS = 6


def everything_kept(stack: Stack) -> str:
    """Every row of every table as it lies in the database."""
    return "".join(str(stack.query(f'SELECT * FROM "{model._meta.db_table}"')) for model in apps.get_models())


def test_a_wrong_key_holds_the_account_until_it_is_replaced_and_resumed(
    make_stack: Callable[..., Stack], sandbox: SandboxProcess, tmp_path: Path
) -> None:
    stack = make_stack(
        env=environment(sandbox, interval=0.05, RELAYPDF_API_KEY="pdf_live_mistyped\n", LOG_LEVEL="DEBUG")
    )
    stack.bootstrap()
    batch_id = submitted(stack, invoices(tmp_path, DOCUMENTS))
    stack.start()
    held = eventually(lambda: (facts := account(stack))["health"] == "held" and facts, "the account to be held")
    assert held["hold_reason"] == "auth"
    assert held["hold_words"]
    # A submission that was on its way when the account was held comes back refused as well.
    eventually(lambda: account(stack)["in_flight"] == 0, "every job to be pending again")

    waiting = batch(stack, batch_id)
    assert waiting["state"] == "held"
    assert waiting["counts"]["held"] == DOCUMENTS
    assert {item["state"] for item in waiting["items"]} == {"pending"}
    assert stack.query("SELECT max(try_count) FROM batches_submission")[0][0] in (0, None), "no try was spent"
    assert sandbox.ledger()["totals"]["jobs"] == 0
    # What is told of it and of the documents names neither the key nor what is in them.
    log, rows = stack.log(), everything_kept(stack)
    assert "DEBUG" in log
    assert "mistyped" not in log + rows
    assert "Amount due" not in log

    stack.env["RELAYPDF_API_KEY"] = sandbox.api_key
    stack.bootstrap("--rotate-key")
    assert stack.manage("account", "relaypdf", "--resume").returncode == 0
    eventually(lambda: saved_count(stack) == DOCUMENTS, "all documents to be saved")
    assert batch(stack, batch_id)["state"] == "complete"
    assert sandbox.ledger()["totals"]["jobs_billed"] == DOCUMENTS


def test_an_unreachable_provider_holds_the_account_and_work_goes_on_by_itself_when_it_is_back(
    make_stack: Callable[..., Stack], sandbox: SandboxProcess, tmp_path: Path
) -> None:
    sandbox.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(sandbox.url.rpartition(":")[2])), timeout=5)
    stack = make_stack(env=environment(sandbox, interval=0.05))
    stack.bootstrap()
    batch_id = submitted(stack, invoices(tmp_path, DOCUMENTS))
    stack.start()
    held = eventually(lambda: (facts := account(stack))["health"] == "held" and facts, "the account to be held")
    assert held["hold_reason"] == "unreachable"
    assert batch(stack, batch_id)["counts"]["held"] + batch(stack, batch_id)["counts"]["in_progress"] == DOCUMENTS

    sandbox.start()
    eventually(lambda: saved_count(stack) == DOCUMENTS, "all documents to be saved", within=120)
    assert account(stack)["health"] == "open"
    assert sandbox.ledger()["totals"]["jobs_billed"] == DOCUMENTS
    assert stack.query("SELECT count(*) FROM batches_alert WHERE closed_at IS NULL")[0][0] == 0
