"""`/v1/files`: downloads without a key, deletion, uploads, and the sweep that forgets what has expired."""

from __future__ import annotations

import secrets
from typing import Literal
from urllib.parse import unquote

from batches.sandbox import pdf_answers, spoiling
from batches.sandbox.answers import Answer, ApiError, invalid, json_answer, not_found
from batches.sandbox.faults import Facts, Rule
from batches.sandbox.service import Sandbox
from batches.sandbox.store import Row
from batches.sandbox.wire import Request

_GONE_XML = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code>'
    b"<Message>Request has expired</Message></Error>"
)
_UPLOAD_TYPE = "application/octet-stream"


def download(sandbox: Sandbox, file_id: str) -> Answer:
    """A file as its link gives it, whoever asks. Counts the download, and obeys the fault rules."""
    with sandbox.store.write() as tx:
        sandbox.store.count("downloads")
        tx.execute("UPDATE jobs SET downloads = downloads + 1 WHERE id = ?", (file_id,))
    struck = _struck(sandbox, "download", file_id)
    sandbox.pause(spoiling.seconds(struck, "download_slow"))
    for rule in struck:
        if rule.action == "expired_file":
            return _gone(sandbox, file_id, rule.text("answer", sandbox.switches.files.expired_answer))
    answer = content(sandbox, file_id)
    return spoiling.downloaded(struck, answer, now=sandbox.clock.system_now())


def content(sandbox: Sandbox, file_id: str) -> Answer:
    """The bytes of a live file, or the answer for one that has expired. Raises ApiError (404) otherwise."""
    row = sandbox.store.one("SELECT * FROM files WHERE id = ?", file_id)
    if row is not None and row["deleted_at"] is None and row["expires_at"] <= sandbox.clock.now():
        return _gone(sandbox, file_id, sandbox.switches.files.expired_answer)
    found = sandbox.outputs.get(file_id) if row is not None and row["deleted_at"] is None else None
    if row is None or found is None:
        raise _unknown(file_id)
    headers = (
        ("Content-Disposition", pdf_answers.disposition(row["filename"])),
        ("X-Relaypdf-Id", row["id"]),
        ("X-Relaypdf-Size", str(row["size_bytes"])),
        ("Cache-Control", "private, no-store"),
        ("X-Content-Type-Options", "nosniff"),
    )
    return Answer(status=200, body=found, content_type=row["content_type"], headers=headers)


def delete(sandbox: Sandbox, account: str, file_id: str) -> Answer:
    """Remove an upload or an output of the account. Raises ApiError (404) for what is not there."""
    for rule in _struck(sandbox, "delete", file_id):
        return spoiling.error(rule, sandbox.clock.system_now(), status=500)
    with sandbox.store.write() as tx:
        gone = tx.execute(
            "UPDATE files SET deleted_at = ? WHERE id = ? AND account = ? AND deleted_at IS NULL AND expires_at > ?",
            (sandbox.clock.now(), file_id, account, sandbox.clock.now()),
        ).rowcount
    if not gone:
        raise _unknown(file_id)
    sandbox.outputs.remove(file_id)
    sandbox.store.count("deletes")
    if sandbox.switches.files.delete_reply == "204":
        return Answer(status=204)
    return json_answer({"ok": True})


def upload(sandbox: Sandbox, account: str, request: Request) -> Answer:
    """Keep raw bytes for later operations: 201 with `id`, `filename`, `sizeBytes`."""
    if not request.body:
        raise invalid("The upload is empty.")
    limit = sandbox.switches.limits.max_upload_bytes
    if len(request.body) > limit:
        raise ApiError(413, "payload_too_large", f"The upload is larger than {limit} bytes.")
    name = unquote(request.headers.get("x-filename", "upload.bin"))
    filename = pdf_answers.safe_filename(name)
    file_id = f"upload_{secrets.token_hex(12)}"
    now = sandbox.clock.now()
    sandbox.outputs.put(file_id, request.body)
    with sandbox.store.write() as tx:
        tx.execute(
            "INSERT INTO files (id, account, kind, filename, content_type, size_bytes, created_at, expires_at)"
            " VALUES (?, ?, 'upload', ?, ?, ?, ?, ?)",
            (
                file_id,
                account,
                filename,
                _UPLOAD_TYPE,
                len(request.body),
                now,
                now + sandbox.switches.files.ttl_seconds,
            ),
        )
    return json_answer({"id": file_id, "filename": filename, "sizeBytes": len(request.body)}, status=201)


def sweep(sandbox: Sandbox) -> int:
    """Remove the bytes of expired and deleted files, and the submissions behind them. Gives their number.

    The rows stay, so that a job, its key and its receipt can be told from ones that never were.
    """
    now = sandbox.clock.now()
    rows = sandbox.store.all(
        "SELECT id FROM files WHERE swept = 0 AND (expires_at <= ? OR deleted_at IS NOT NULL)", now
    )
    for row in rows:
        sandbox.outputs.remove(row["id"])
        with sandbox.store.write() as tx:
            tx.execute("UPDATE files SET swept = 1 WHERE id = ?", (row["id"],))
            tx.execute("UPDATE jobs SET body = NULL WHERE id = ?", (row["id"],))
    with sandbox.store.write() as tx:
        tx.execute(
            "UPDATE jobs SET body = NULL WHERE status = 'failed' AND body IS NOT NULL AND finished_at <= ?",
            (now - sandbox.switches.files.ttl_seconds,),
        )
    return len(rows)


def _struck(sandbox: Sandbox, point: str, file_id: str) -> list[Rule]:
    if not sandbox.faults.watches(point):
        return []
    return sandbox.faults.at(point, job_facts(sandbox.store.one("SELECT * FROM jobs WHERE id = ?", file_id)))


def job_facts(job: Row | None, event: str | None = None) -> Facts:
    """What fault rules may look at once a job exists."""
    if job is None:
        return Facts(event=event)
    return Facts(
        body=job["body"] or b"",
        key=job["idempotency_key"],
        job_id=job["id"],
        event=event,
        mode=job["mode"],
    )


def _gone(sandbox: Sandbox, file_id: str, how: Literal["404", "410", "403_xml"] | str) -> Answer:
    if how == "403_xml":
        return Answer(status=403, body=_GONE_XML, content_type="application/xml")
    if how == "410":
        return ApiError(410, "not_found", "This file has expired.").answer()
    return _unknown(file_id).answer()


def _unknown(file_id: str) -> ApiError:
    return not_found(f"There is no file {file_id[:60]!r}.")
