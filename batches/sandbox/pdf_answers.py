"""The forms in which a job and its PDF are shown to the client (parts A3 to A5 of the contract)."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote

from batches.sandbox.answers import Answer, ApiError, json_answer
from batches.sandbox.clock import iso
from batches.sandbox.store import Row
from batches.sandbox.switches import JobSwitches

_UNSAFE_IN_FILENAME = re.compile(r'[\x00-\x1f\x7f"\\/:*?<>|]+')
_MAX_FILENAME = 200
_STATUS_OF_CODE = {"internal_error": 500, "convert_unavailable": 503, "storage_unavailable": 503}


def accepted(job: Row, base_url: str, word: str) -> Answer:
    """The 202: `id`, `status`, `pollUrl`."""
    content = {"id": job["id"], "status": word, "pollUrl": f"{base_url}/v1/jobs/{job['id']}"}
    return json_answer(content, status=202)


def completed(job: Row, base_url: str) -> dict[str, Any]:
    """A finished job as url mode answers it and as the status route shows it."""
    return {
        "id": job["id"],
        "status": "completed",
        "url": f"{base_url}/v1/files/{job['id']}",
        "filename": job["filename"],
        "sizeBytes": job["size_bytes"],
        "expiresAt": iso(job["expires_at"]),
    }


def status(job: Row, base_url: str, switches: JobSwitches) -> dict[str, Any]:
    """A job as `GET /v1/jobs/{id}` shows it. `warnings` is the sandbox's own and only there when needed."""
    if job["status"] == "completed":
        content = completed(job, base_url)
    elif job["status"] == "failed":
        error = {"code": job["error_code"], "message": job["error_message"]}
        content = {"id": job["id"], "status": "failed", "error": error}
    else:
        word = switches.running_word if job["rendering"] else switches.waiting_word
        content = {"id": job["id"], "status": word}
    warnings = json.loads(job["warnings"])
    if warnings:
        content["warnings"] = warnings
    return content


def failure(job: Row) -> ApiError:
    """A failed job as an error of a mode that waits for the result."""
    code = job["error_code"]
    return ApiError(_STATUS_OF_CODE.get(code, 502), code, job["error_message"])


def safe_filename(name: str | None) -> str:
    """The name offered on download: the client's, without what a file system or a header can't carry."""
    cleaned = _UNSAFE_IN_FILENAME.sub("_", name or "").strip(". ")[:_MAX_FILENAME]
    # A half of a surrogate pair can come in by a JSON escape; no encoding takes it.
    cleaned = cleaned.encode("utf-8", "replace").decode()
    return cleaned or "document.pdf"


def disposition(filename: str) -> str:
    plain = filename.encode("ascii", "replace").decode().replace("?", "_")
    if plain == filename:
        return f'attachment; filename="{plain}"'
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(filename, safe='')}"
