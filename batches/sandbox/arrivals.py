"""The record of every `POST /v1/pdf` as this side saw it: when, with which key and body, and what was answered.

An arrival is stored before anything is decided about it, so a crash in between leaves it with status null.
"""

from __future__ import annotations

from typing import Any

from batches.sandbox.store import Store, Transaction
from batches.sandbox.wire import Arrival


def begin(store: Store, arrival: Arrival, *, account: str | None, key: str | None, body_sha256: str) -> int:
    """Store that a submission came in, and give its number."""
    with store.write() as tx:
        cursor = tx.execute(
            "INSERT INTO arrivals (monotonic, wall, account, idempotency_key, body_sha256, outcome)"
            " VALUES (?, ?, ?, ?, ?, 'received')",
            (arrival.monotonic, arrival.wall, account, key, body_sha256),
        )
        number = cursor.lastrowid
    assert number is not None
    return number


def decided(tx: Transaction, number: int, outcome: str, *, status: int | None, job_id: str | None) -> None:
    """Note what became of a submission. `status` None: no answer (yet)."""
    tx.execute(
        "UPDATE arrivals SET outcome = ?, status = ?, job_id = ? WHERE seq = ?", (outcome, status, job_id, number)
    )


def answered(tx: Transaction, number: int, status: int | None) -> None:
    tx.execute("UPDATE arrivals SET status = ? WHERE seq = ?", (status, number))


def listed(store: Store, *, after: int = 0) -> list[dict[str, Any]]:
    """Arrivals in order, those after number `after`."""
    return [dict(row) for row in store.all("SELECT * FROM arrivals WHERE seq > ? ORDER BY seq", after)]
