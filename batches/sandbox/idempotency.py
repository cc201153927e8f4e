"""What a request with an `Idempotency-Key` is: new, a replay, a conflict, or in flight. Pure.

The vendor documents that a resend with the same key and body is recognised and that a conflict exists; all else
is a switch (`IdempotencySwitches`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from batches.sandbox.answers import ApiError
from batches.sandbox.switches import IdempotencySwitches

MAX_KEY_LENGTH = 255


class Verdict(StrEnum):
    NEW = "new"
    REPLAY = "replay"
    STORED_REFUSAL = "stored_refusal"
    CONFLICT = "conflict"
    IN_FLIGHT = "in_flight"


class KeyConflict(ApiError):
    """The key is bound to another body, or to a request that has no answer yet."""


@dataclass(frozen=True)
class KeyRecord:
    """What is remembered of a key's first request. `job_status` is None when there is no job."""

    digest: str
    first_at: float
    answering: bool
    refused: bool
    job_status: str | None
    file_gone: bool


def judge(record: KeyRecord | None, digest: str, switches: IdempotencySwitches, *, now: float) -> Verdict:
    """The verdict on a request whose body hashes to `digest`, given what its key stands for."""
    if record is None or now >= record.first_at + switches.retention_seconds:
        return Verdict.NEW
    if record.digest != digest:
        return Verdict.CONFLICT
    if record.refused:
        return Verdict.STORED_REFUSAL
    unfinished = record.job_status == "processing"
    if record.answering or (unfinished and switches.in_flight_until == "finished"):
        return Verdict.IN_FLIGHT
    if record.job_status == "failed" and switches.after_failure == "new_job":
        return Verdict.NEW
    if record.file_gone and switches.after_file_gone == "new_job":
        return Verdict.NEW
    return Verdict.REPLAY


def check_key(key: str) -> None:
    """Raises ApiError for a key that is empty, too long or not printable ASCII."""
    if not key or len(key) > MAX_KEY_LENGTH or not (key.isascii() and key.isprintable()):
        raise ApiError(
            400, "invalid_request", f"Idempotency-Key must be 1 to {MAX_KEY_LENGTH} printable ASCII characters."
        )
