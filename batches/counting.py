"""How the items of batches that move are counted: one statement, whatever their number and size.

Most items of a large batch are saved, so those are not looked at: they are the total, which an index alone tells, less
all others, which an index alone tells too. What is rarer still is asked of the few rows that it holds for. It is SQL by
hand, since a query of Django joins a version's row between item and job for each of 100,000.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from django.db import connection
from django.utils.dateparse import parse_datetime

from batches.models import (
    FAILED_STATES,
    UNSAVED_STATES,
    AccountHealth,
    Batch,
    BatchItem,
    Job,
    JobState,
    ProviderAccount,
    Submission,
    SubmissionOutcome,
)


@dataclass(frozen=True)
class Tally:
    """So many items of one batch. `kind` says which:

    `all`; `unsaved`, whose job is not; `cancelled` in the batch, whatever their job does. And of those that are not
    cancelled: `dismissed` failures; `repeats`, that wait to be sent again, from `due_at` on; `in_doubt`, that wait for
    their turn but may have been sent. `is_stopped`: their account is held, or the batch that leads them is paused.
    """

    kind: str
    batch_id: int
    state: str
    count: int
    due_at: datetime | None
    is_unled: bool
    is_stopped: bool


def tallies(batch_ids: Collection[int]) -> list[Tally]:
    with connection.cursor() as cursor:
        cursor.execute(_SQL.replace("{these}", ", ".join(["%s"] * len(batch_ids))), [*batch_ids] * _LISTS)
        return list(_rows(cursor.fetchall()))


def _rows(found: list[tuple[str, int, str, int, datetime | str | None, int, int]]) -> Iterator[Tally]:
    for kind, batch_id, state, count, due_at, is_unled, is_stopped in found:
        at = parse_datetime(due_at) if isinstance(due_at, str) else due_at  # SQLite has no type for it
        if at is not None and at.tzinfo is None:
            at = at.replace(tzinfo=UTC)
        yield Tally(kind, batch_id, state, count, at, bool(is_unled), bool(is_stopped))


def _list(states: Collection[str]) -> str:
    """As literals: the planner has to see that an index over just these states will do."""
    return ", ".join(f"'{state}'" for state in states)


def _grouped(kind: str, which: str, *, rows: str = "", due_at: str = "NULL") -> str:
    columns = "i.batch_id, j.state, j.account_id, j.lead_batch_id"
    joined = f"{_ITEMS} i JOIN {_JOBS} j ON j.version_id = i.version_id{rows}"
    return (
        f"SELECT '{kind}' AS kind, {columns}, COUNT(*) AS count, {due_at} AS due_at "  # noqa: S608 - our own names
        f"FROM {joined} "
        f"WHERE i.batch_id IN ({{these}}) AND {which} GROUP BY {columns}"
    )


_ITEMS, _JOBS, _BATCHES, _ACCOUNTS, _SUBMISSIONS = (
    model._meta.db_table for model in (BatchItem, Job, Batch, ProviderAccount, Submission)
)
_BRANCHES = (
    # First, since it alone gives its last column a type.
    _grouped(
        "repeats",
        f"j.state = '{JobState.SUBMITTING}' AND j.lease_owner IS NULL AND i.cancelled_at IS NULL",
        due_at="MIN(j.due_at)",
    ),
    (
        f"SELECT 'all', i.batch_id, '', NULL, NULL, COUNT(*), NULL FROM {_ITEMS} i "  # noqa: S608 - as above
        "WHERE i.batch_id IN ({these}) GROUP BY i.batch_id"
    ),
    _grouped("unsaved", f"j.state IN ({_list(UNSAVED_STATES)})"),
    _grouped("cancelled", "i.cancelled_at IS NOT NULL"),
    _grouped(
        "dismissed",
        f"i.dismissed_at IS NOT NULL AND i.cancelled_at IS NULL AND j.state IN ({_list(FAILED_STATES)})",
    ),
    _grouped(
        "in_doubt",
        f"j.state = '{JobState.PENDING}' AND s.outcome = '{SubmissionOutcome.OPEN}' AND s.in_doubt "
        "AND i.cancelled_at IS NULL",
        rows=f" JOIN {_SUBMISSIONS} s ON s.job_id = j.id",
    ),
)
_LISTS = len(_BRANCHES)
_SQL = (
    "SELECT kind, batch_id, state, count, due_at, "  # noqa: S608 - as above
    "CASE WHEN lead_batch_id IS NULL THEN 1 ELSE 0 END, "
    f"CASE WHEN account_id IN (SELECT id FROM {_ACCOUNTS} WHERE health = '{AccountHealth.HELD}') "
    f"OR lead_batch_id IN (SELECT id FROM {_BATCHES} WHERE paused_at IS NOT NULL) THEN 1 ELSE 0 END "
    f"FROM ({' UNION ALL '.join(_BRANCHES)}) counted"
)
