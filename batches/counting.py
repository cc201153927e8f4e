"""How the items of batches that move are counted: one statement a question, whatever their number and size.

Most items of a large batch are saved, so those are not looked at: they are the total, which an index alone tells, less
all others, which an index alone tells too. What is rarer still is asked of the few rows that it holds for. It is SQL by
hand, since a query of Django joins a version's row between item and job for each of 100,000.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db import connection

from batches.models import (
    FAILED_STATES,
    OUTCOME_STATES,
    UNSAVED_STATES,
    AccountHealth,
    Batch,
    BatchItem,
    CauseCount,
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
    account_id: int | None


def tallies(batch_ids: Collection[int]) -> list[Tally]:
    with connection.cursor() as cursor:
        cursor.execute(_SQL.replace("{these}", ", ".join(["%s"] * len(batch_ids))), [*batch_ids] * _LISTS)
        return list(_rows(cursor.fetchall()))


def _rows(found: list[tuple[str, int, str, int, datetime | str | None, int, int, int | None]]) -> Iterator[Tally]:
    for kind, batch_id, state, count, due_at, is_unled, is_stopped, account_id in found:
        at = _at(due_at) if due_at else None
        yield Tally(kind, batch_id, state, count, at, bool(is_unled), bool(is_stopped), account_id)


def _at(value: datetime | str) -> datetime:
    """SQLite has no type for it."""
    at = datetime.fromisoformat(value) if isinstance(value, str) else value
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


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
    f"OR lead_batch_id IN (SELECT id FROM {_BATCHES} WHERE paused_at IS NOT NULL) THEN 1 ELSE 0 END, account_id "
    f"FROM ({' UNION ALL '.join(_BRANCHES)}) counted"
)


# --- why they failed -------------------------------------------------------------------------------------------------


def causes(batch_ids: Collection[int], *, most: int) -> list[tuple[int, CauseCount]]:
    """By batch why what needs a person failed, as `engine/settled.py` keeps it; at most `most`, the largest first.

    Each batch is asked by itself, of the failed jobs between its first version and its last: of few batches only.
    """
    if not batch_ids:
        return []
    arms = " UNION ALL ".join([_CAUSES] * len(batch_ids))
    numbers = [batch_id for batch_id in batch_ids for _ in range(_CAUSES.count("%s"))]
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM ({arms}) counted ORDER BY count DESC, cause LIMIT %s", [*numbers, most])  # noqa: S608 - as above
        found = cursor.fetchall()
    return [
        (batch_id, CauseCount(account_id, cause, failure_class, code, count, _at(first), _at(last)))
        for batch_id, account_id, cause, failure_class, code, count, first, last in found
    ]


_VERSIONS = f"FROM {_ITEMS} WHERE batch_id = %s"
_CAUSES = (
    "SELECT i.batch_id, j.account_id, j.failure_cause AS cause, j.failure_class, j.failure_code, COUNT(*) AS count, "  # noqa: S608 - as above
    "MIN(j.state_changed_at) AS first_at, MAX(j.state_changed_at) AS last_at "
    f"FROM {_JOBS} j JOIN {_ITEMS} i ON i.version_id = j.version_id "
    "WHERE i.batch_id = %s AND i.cancelled_at IS NULL AND i.dismissed_at IS NULL "
    f"AND j.state IN ({_list(FAILED_STATES)}) "
    f"AND j.version_id >= (SELECT MIN(version_id) {_VERSIONS}) "
    f"AND j.version_id <= (SELECT MAX(version_id) {_VERSIONS}) "
    "GROUP BY i.batch_id, j.account_id, j.failure_cause, j.failure_class, j.failure_code"
)

# --- what came to rest lately ----------------------------------------------------------------------------------------


@dataclass
class Lately:
    """Documents of one batch that came to rest: by minute, the last one first; and how many of them were saved."""

    by_minute: list[int]
    saved: int = 0


def lately(batch_ids: Collection[int], *, now: datetime, minutes: int) -> dict[int, Lately]:
    """In so many minutes before `now`, by batch."""
    ago = [connection.ops.adapt_datetimefield_value(now - timedelta(minutes=number)) for number in range(minutes + 1)]
    statement = _LATELY.format(
        minute=" ".join(f"WHEN j.state_changed_at > %s THEN {number}" for number in range(minutes)),
        these=", ".join(["%s"] * len(batch_ids)),
    )
    with connection.cursor() as cursor:
        cursor.execute(statement, [*ago[1:], *batch_ids, ago[-1], ago[0]])
        rows: Sequence[tuple[int, int, int, int]] = cursor.fetchall()
    found = {batch_id: Lately([0] * minutes) for batch_id in batch_ids}
    for batch_id, minute, count, saved in rows:
        found[batch_id].by_minute[minute] = count
        found[batch_id].saved += saved
    return found


# By hand for the join of items and jobs, as above.
_LATELY = (
    "SELECT i.batch_id, CASE {minute} END AS minute, COUNT(*), "  # noqa: S608 - as above
    f"SUM(CASE WHEN j.state = '{JobState.SAVED}' THEN 1 ELSE 0 END) "
    f"FROM {_JOBS} j JOIN {_ITEMS} i ON i.version_id = j.version_id WHERE i.batch_id IN ({{these}}) "
    f"AND j.state IN ({_list(OUTCOME_STATES)}) AND j.state_changed_at > %s AND j.state_changed_at <= %s "
    "GROUP BY i.batch_id, minute"
)
