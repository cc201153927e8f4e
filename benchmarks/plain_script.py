"""Baseline (i): threads, requests and SQLite, as the RelayPDF batch tutorial shapes it.

Two worker threads take rows of a SQLite queue (pending, processing, saved), each works on one document until it is
saved: submit with a stable key, store the job id, poll, download to a temporary name, look for the signature, rename,
mark. Without the tutorial's three seconds between submissions, which would make any comparison meaningless. Two
commits a document. `python -m benchmarks.plain_script URL DOCUMENTS FOLDER` prints one JSON line.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import sqlite3
import threading
import time
from pathlib import Path

import requests

THREADS = 2
#: The first status read follows the submission at once, then 0.2 s x 1.6^k.
FIRST_POLL, GROWTH, MOST = 0.2, 1.6, 15.0
API_KEY = "pdf_live_benchmark"


class Queue:
    """The tutorial's queue file. The lock stands for its rule that one thread at a time talks to SQLite."""

    def __init__(self, path: Path, documents: int) -> None:
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute(
            "CREATE TABLE document (id TEXT PRIMARY KEY, body TEXT NOT NULL, key TEXT NOT NULL, "
            "state TEXT NOT NULL, job_id TEXT)"
        )
        rows = []
        for number in range(documents):
            body = json.dumps({"html": f"<h1>Invoice {number}</h1>", "response": "async"})
            rows.append((f"invoice-{number}", body, hashlib.sha256(b"/v1/pdf" + body.encode()).hexdigest(), "pending"))
        self._connection.execute("BEGIN")
        self._connection.executemany("INSERT INTO document (id, body, key, state) VALUES (?, ?, ?, ?)", rows)
        self._connection.execute("COMMIT")
        self._waiting = [row[0] for row in rows]

    def next(self) -> tuple[str, str, str] | None:
        with self._lock:
            if not self._waiting:
                return None
            business_id = self._waiting.pop(0)
            body, key = self._connection.execute(
                "SELECT body, key FROM document WHERE id = ?", (business_id,)
            ).fetchone()
            return business_id, body, key

    def accepted(self, business_id: str, job_id: str) -> None:
        with self._lock:
            self._connection.execute(
                "UPDATE document SET state = 'processing', job_id = ? WHERE id = ?", (job_id, business_id)
            )

    def saved(self, business_id: str) -> None:
        with self._lock:
            self._connection.execute("UPDATE document SET state = 'saved' WHERE id = ?", (business_id,))


def work(base_url: str, queue: Queue, folder: Path) -> None:
    session = requests.Session()
    auth = {"Authorization": f"Bearer {API_KEY}"}
    while (row := queue.next()) is not None:
        business_id, body, key = row
        headers = {**auth, "Content-Type": "application/json", "Idempotency-Key": key}
        answer = session.post(f"{base_url}/v1/pdf", data=body, headers=headers, timeout=30)
        answer.raise_for_status()
        job = answer.json()
        queue.accepted(business_id, job["id"])
        wait = 0.0
        while job["status"] != "completed":
            time.sleep(wait)
            wait = min(MOST, wait * GROWTH) or FIRST_POLL
            answer = session.get(f"{base_url}/v1/jobs/{job['id']}", headers=auth, timeout=30)
            answer.raise_for_status()
            job = answer.json()
        answer = session.get(job["url"], timeout=60)
        answer.raise_for_status()
        if not answer.content.startswith(b"%PDF-"):
            raise SystemExit(f"{business_id} is no PDF")
        temporary = folder / f"{business_id}.part"
        temporary.write_bytes(answer.content)
        temporary.rename(folder / f"{business_id}.pdf")
        queue.saved(business_id)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base_url")
    parser.add_argument("documents", type=int)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    queue = Queue(options.folder / "queue.sqlite", options.documents)
    threads = [threading.Thread(target=work, args=(options.base_url, queue, options.folder)) for _ in range(THREADS)]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - begun
    saved = len(list(options.folder.glob("*.pdf")))
    if saved != options.documents:
        raise SystemExit(f"only {saved} of {options.documents} documents were saved")
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"seconds": seconds, "cpu_seconds": used.ru_utime + used.ru_stime}))


if __name__ == "__main__":
    main()
