"""A PostgreSQL with few connections: the cluster needs about one a process, and a refused one costs time only."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from tests import postgres
from tests.sandbox_process import start_sandbox
from tests.scenarios.stacks import batch, environment, invoices, submitted
from tests.stack_process import Stack, eventually

DOCUMENTS = 100
WORKERS = 8
CONNECTIONS = 20
REFUSED = "too many clients"


@contextlib.contextmanager
def no_connection_left(url: str) -> Iterator[None]:
    """Whatever connection is free, or becomes free, is taken."""
    over = threading.Event()
    taken: list[psycopg.Connection] = []

    def take() -> None:
        while not over.is_set():
            try:
                taken.append(psycopg.connect(url))
            except psycopg.OperationalError:
                over.wait(0.02)

    thread = threading.Thread(target=take)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        for each in taken:
            each.close()


@pytest.mark.processes
def test_a_refused_connection_delays_documents_and_none_is_missing(
    make_stack: Callable[..., Stack], tmp_path: Path
) -> None:
    """Case 106: threads kept connections until PostgreSQL refused, and the items of failing threads were missing."""
    sandbox = start_sandbox(tmp_path)
    with postgres.server((*postgres.FAST_AND_LOOSE, f"max_connections={CONNECTIONS}")) as server:
        stack = make_stack(
            workers=WORKERS, env={**environment(sandbox, interval=0.05), "DATABASE_URL": server.url}, database="sqlite"
        )

        def saved() -> int:
            with psycopg.connect(server.url) as connection:
                return int(
                    connection.execute("SELECT count(*) FROM batches_job WHERE state = 'saved'").fetchall()[0][0]
                )

        stack.bootstrap()
        batch_id = submitted(stack, invoices(tmp_path, DOCUMENTS))
        stack.start()
        eventually(lambda: saved() >= DOCUMENTS // 4, "a quarter to be saved")
        assert REFUSED not in stack.log(), f"{WORKERS} workers with all their threads need {CONNECTIONS} connections"
        with no_connection_left(server.url):
            stack.named("q-worker")[0].kill()  # the next cluster has to connect anew
            eventually(lambda: REFUSED in stack.log(), "a refused connection")
        eventually(lambda: saved() == DOCUMENTS, "all to be saved", within=180)
        assert batch(stack, batch_id)["counts"]["saved"] == DOCUMENTS
        assert set(sandbox.ledger()["billed_by_key"].values()) == {1}
        assert len(sandbox.ledger()["billed_by_key"]) == DOCUMENTS
        assert stack.stop() == 0
    sandbox.stop()
