"""Exchanges on their way into rows: the redacted evidence of each request and its answer. Appended, never changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from batches.engine import bulk
from batches.models import Exchange
from batches.providers.base import ExchangeFacts


@dataclass(frozen=True)
class Evidence:
    """One exchange, and whose it was."""

    facts: ExchangeFacts
    account_id: int
    job_id: int | None
    submission_id: int | None


def record(evidence: Iterable[Evidence]) -> None:
    """Insert a row for each, inside the caller's transaction."""
    bulk.insert(Exchange, [_columns(each) for each in evidence])


def record_one(each: Evidence) -> Exchange:
    """The same of one, for whoever names its row."""
    return Exchange.objects.create(**_columns(each))


def _columns(each: Evidence) -> dict[str, Any]:
    return {
        "account_id": each.account_id,
        "job_id": each.job_id,
        "submission_id": each.submission_id,
        "kind": each.facts.kind,
        "at": each.facts.started_at,
        "duration_ms": max(0, each.facts.duration_ms),
        "status": each.facts.status,
        "error_class": each.facts.error_class[:40],
        "request": dict(each.facts.request),
        "response": dict(each.facts.response),
    }
