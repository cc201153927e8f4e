"""What really happened, for tests and operators: read from the rows themselves, never from running totals
that a crash could leave behind (polls, downloads and deletes are counted as they are answered)."""

from __future__ import annotations

import json
from typing import Any

from batches.sandbox.clock import iso
from batches.sandbox.store import Row, Store

_JOB_COLUMNS = (
    "id, account, idempotency_key, body_sha256, mode, filename, status, stuck, accepted_at, finished_at, expires_at,"
    " error_code, error_message, pages, size_bytes, pdf_sha256, engine, warnings, render_seconds, polls, downloads,"
    " (SELECT microdollars FROM receipts WHERE job_id = jobs.id) AS charged_microdollars"
)
_OUTCOMES = {
    "accepted": "accepted",
    "replays": "replay",
    "conflicts": "conflict",
    "rate_limited": "rate_limited",
    "refused": "refused",
    "faults": "fault",
    "unauthorized": "unauthorized",
}


def ledger(store: Store, *, with_jobs: bool = True) -> dict[str, Any]:
    """Totals, jobs billed per idempotency key and per body (sha256), and the jobs in order of acceptance."""
    content: dict[str, Any] = {
        "totals": _totals(store),
        "billed_by_key": _counts(store, "receipts", "idempotency_key"),
        "billed_by_body": _counts(store, "receipts", "body_sha256"),
        "accepted_by_key": _counts(store, "jobs", "idempotency_key"),
        "accepted_by_body": _counts(store, "jobs", "body_sha256"),
    }
    if with_jobs:
        content["jobs"] = [_job(row) for row in store.all(f"SELECT {_JOB_COLUMNS} FROM jobs ORDER BY seq")]  # noqa: S608  # a constant
    return content


def deliveries(store: Store) -> list[dict[str, Any]]:
    """Every webhook and callback delivery, without secrets."""
    rows = store.all(
        "SELECT id, account, endpoint_id, url, event, job_id, body, state, due_at, attempts, last_status,"
        " last_error, created_at FROM deliveries ORDER BY id"
    )
    return [{**dict(row), "body": row["body"].decode()} for row in rows]


def _totals(store: Store) -> dict[str, int]:
    by_outcome = _counts(store, "arrivals", "outcome")
    by_status = _counts(store, "jobs", "status")
    counters = {row["name"]: row["value"] for row in store.all("SELECT * FROM counters")}
    charged = store.one("SELECT count(*) AS jobs, coalesce(sum(microdollars), 0) AS amount FROM receipts")
    assert charged is not None
    return {
        "received": sum(by_outcome.values()),
        **{name: by_outcome.get(outcome, 0) for name, outcome in _OUTCOMES.items()},
        "jobs": sum(by_status.values()),
        "jobs_processing": by_status.get("processing", 0),
        "jobs_completed": by_status.get("completed", 0),
        "jobs_failed": by_status.get("failed", 0),
        "jobs_billed": charged["jobs"],
        "charged_microdollars": charged["amount"],
        "polls": counters.get("polls", 0),
        "downloads": counters.get("downloads", 0),
        "deletes": counters.get("deletes", 0),
    }


def _counts(store: Store, table: str, column: str) -> dict[str, int]:
    rows = store.all(
        f"SELECT {column} AS name, count(*) AS number FROM {table}"  # noqa: S608  # names from this module
        f" WHERE {column} IS NOT NULL GROUP BY {column}"
    )
    return {row["name"]: row["number"] for row in rows}


def _job(row: Row) -> dict[str, Any]:
    job = dict(row)
    job["stuck"] = bool(job["stuck"])
    job["billed"] = job["charged_microdollars"] is not None
    job["warnings"] = json.loads(job["warnings"])
    for name in ("accepted_at", "finished_at", "expires_at"):
        job[name] = iso(job[name]) if job[name] is not None else None
    return job
