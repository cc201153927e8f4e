"""The sandbox's memory: one SQLite file that survives kill -9 at any moment.

Owns the schema and the connection; every change of state goes through `Store.write`, one short transaction.
One connection serves all threads behind a lock: operations take microseconds and nothing is awaited inside.
PDFs live beside the database as plain files (see `outputs`).
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS accounts (
    name TEXT PRIMARY KEY,
    balance_microdollars INTEGER NOT NULL,
    max_job_microdollars INTEGER,
    out_of_funds INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS jobs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    account TEXT NOT NULL,
    idempotency_key TEXT,
    body_sha256 TEXT NOT NULL,
    body BLOB,
    mode TEXT NOT NULL,
    filename TEXT NOT NULL,
    callback_url TEXT,
    ceiling_microdollars INTEGER,
    status TEXT NOT NULL CHECK (status IN ('processing', 'completed', 'failed')),
    stuck INTEGER NOT NULL DEFAULT 0,
    planned_failure TEXT,
    accepted_at REAL NOT NULL,
    not_before REAL NOT NULL,
    rendering INTEGER NOT NULL DEFAULT 0,
    finished_at REAL,
    expires_at REAL,
    error_code TEXT,
    error_message TEXT,
    pages INTEGER,
    size_bytes INTEGER,
    pdf_sha256 TEXT,
    engine TEXT,
    warnings TEXT NOT NULL DEFAULT '[]',
    render_seconds REAL,
    polls INTEGER NOT NULL DEFAULT 0,
    downloads INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS jobs_unfinished ON jobs (seq) WHERE status = 'processing';
CREATE TABLE IF NOT EXISTS receipts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id TEXT NOT NULL UNIQUE REFERENCES jobs (id),
    account TEXT NOT NULL,
    idempotency_key TEXT,
    body_sha256 TEXT NOT NULL,
    microdollars INTEGER NOT NULL,
    at REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS keys (
    account TEXT NOT NULL,
    key TEXT NOT NULL,
    digest TEXT NOT NULL,
    job_id TEXT,
    first_at REAL NOT NULL,
    answering INTEGER NOT NULL DEFAULT 1,
    refusal TEXT,
    PRIMARY KEY (account, key)
);
CREATE TABLE IF NOT EXISTS sights (
    account TEXT NOT NULL,
    key TEXT NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (account, key)
);
CREATE TABLE IF NOT EXISTS files (
    id TEXT PRIMARY KEY,
    account TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('output', 'upload')),
    filename TEXT NOT NULL,
    content_type TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    created_at REAL NOT NULL,
    expires_at REAL NOT NULL,
    deleted_at REAL,
    swept INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS files_unswept ON files (expires_at) WHERE swept = 0;
CREATE TABLE IF NOT EXISTS arrivals (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    monotonic REAL NOT NULL,
    wall REAL NOT NULL,
    account TEXT,
    idempotency_key TEXT,
    body_sha256 TEXT NOT NULL,
    status INTEGER,
    outcome TEXT NOT NULL,
    job_id TEXT
);
CREATE TABLE IF NOT EXISTS endpoints (
    id TEXT PRIMARY KEY,
    account TEXT NOT NULL,
    url TEXT NOT NULL,
    secret TEXT NOT NULL,
    events TEXT,
    created_at REAL NOT NULL,
    deleted_at REAL
);
CREATE TABLE IF NOT EXISTS deliveries (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    account TEXT NOT NULL,
    endpoint_id TEXT,
    url TEXT NOT NULL,
    secret TEXT,
    event TEXT NOT NULL,
    job_id TEXT,
    body BLOB NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'delivered', 'given_up', 'lost')),
    due_at REAL NOT NULL,
    waits_for_next INTEGER NOT NULL DEFAULT 0,
    signed_seconds_ago REAL NOT NULL DEFAULT 0,
    spoil_signature INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    last_status INTEGER,
    last_error TEXT,
    created_at REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS deliveries_pending ON deliveries (due_at) WHERE state = 'pending';
CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS fault_marks (
    rule TEXT PRIMARY KEY, matched INTEGER NOT NULL, fired INTEGER NOT NULL
);
"""

_KEPT_BY_RESET = {"meta", "endpoints", "sqlite_sequence"}

Row = sqlite3.Row
# One open transaction; a plain connection, named for what it stands for.
Transaction = sqlite3.Connection


class Store:
    """The database in `folder`. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = threading.RLock()
        self._connection = sqlite3.connect(folder / "sandbox.sqlite3", isolation_level=None, check_same_thread=False)
        self._connection.row_factory = sqlite3.Row
        self._connection.execute("PRAGMA journal_mode = WAL")
        # Safe against the death of the process at any point; a power cut may cost the last moments.
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.executescript(_SCHEMA)

    @contextlib.contextmanager
    def write(self) -> Iterator[Transaction]:
        """One transaction: committed at the end of the block, undone when it raises. May be nested."""
        with self._lock:
            if self._connection.in_transaction:
                # Part of the transaction that this thread has open (the lock is its own).
                yield self._connection
                return
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def one(self, sql: str, *parameters: Any) -> Row | None:
        with self._lock:
            row: Row | None = self._connection.execute(sql, parameters).fetchone()
            return row

    def all(self, sql: str, *parameters: Any) -> list[Row]:
        with self._lock:
            return self._connection.execute(sql, parameters).fetchall()

    def meta(self, name: str) -> str | None:
        row = self.one("SELECT value FROM meta WHERE name = ?", name)
        return row["value"] if row else None

    def set_meta(self, name: str, value: str) -> None:
        with self.write() as tx:
            tx.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def count(self, name: str) -> None:
        """Add one to a counter of the ledger. Joins a transaction that is open."""
        with self.write() as tx:
            tx.execute("INSERT INTO counters VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET value = value + 1", (name,))

    def reset(self) -> None:
        """Forget everything but the settings and the webhook endpoints."""
        with self.write() as tx:
            for (table,) in tx.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
                if table not in _KEPT_BY_RESET:
                    tx.execute(f"DELETE FROM {table}")  # noqa: S608  # names from the schema itself

    def close(self) -> None:
        with self._lock:
            self._connection.close()
