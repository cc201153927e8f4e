"""Whose turn is it? Pending jobs are claimed round robin over the running batches of an account, by weight.

A pending job takes the turn of one batch, its lead: of the batches that need it one that runs, the oldest first. Each
batch counts how far its turns have come (stride scheduling): the one that is furthest behind goes first and then moves
on by `STRIDE / weight`. A batch that was idle, paused or alone hoards nothing: nobody is ever more than one turn of
weight 1 behind the one that is furthest ahead. `share` and `level` are pure. What a claim hands out, and what the
jobs' other states need, is in `claims`.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import Min, Q, QuerySet

from batches.conf import ENGINE
from batches.engine import bulk
from batches.models import ACTIVE_STATES, Batch, Job

#: What one turn of a batch of weight 1 costs. Large, so that dividing by a weight of up to 100 loses nothing of note.
STRIDE = 1_000_000
#: Batches per statement: SQLite joins at most 500 selects, and a claim never wants more jobs than this anyway.
MOST_AT_ONCE = 250


@dataclass(frozen=True)
class Turn:
    """A running batch with due jobs. `position`: how far its turns have come, in strides."""

    batch_id: int
    weight: int
    position: int

    @property
    def step(self) -> int:
        return STRIDE // max(1, self.weight)

    def after(self, count: int) -> Turn:
        return replace(self, position=self.position + count * self.step)


def level(turns: Iterable[Turn]) -> dict[int, Turn]:
    """By batch, with whoever lags more than one whole turn brought up: an idle time is no credit."""
    known = {turn.batch_id: turn for turn in turns}
    floor = max((turn.position for turn in known.values()), default=0) - STRIDE
    return {key: replace(turn, position=max(turn.position, floor)) for key, turn in known.items()}


def share(turns: Iterable[Turn], count: int) -> list[int]:
    """Whose the next `count` turns are, as batch ids in order, if each of them has jobs enough."""
    waiting = [(turn.position, turn.batch_id, turn) for turn in turns]
    heapq.heapify(waiting)
    order: list[int] = []
    while waiting and len(order) < count:
        _position, batch_id, turn = waiting[0]
        order.append(batch_id)
        turn = turn.after(1)
        heapq.heapreplace(waiting, (turn.position, batch_id, turn))
    return order


def lease_pending(account_id: int, *, owner: str, now: datetime, most: int) -> list[int]:
    """Lease up to `most` due pending jobs to `owner`; their ids in the order in which they take their turns.

    Call it inside a transaction. It holds the rows of the running batches until that ends (PostgreSQL), in the order
    of their ids and before any job's row, so that pumps take turns after one another and a pause sees every claim.
    """
    most = min(most, MOST_AT_ONCE)
    turns = level(_due_batches(account_id, now=now))
    unused = dict(turns)
    leased: list[int] = []
    while unused and len(leased) < most:
        order = share(unused.values(), most - len(leased))
        asked = Counter(order)
        got = _lease_of_batches(account_id, asked, owner=owner, now=now)
        for batch_id in order:
            if got[batch_id]:
                leased.append(got[batch_id].popleft())
                turns[batch_id] = unused[batch_id] = unused[batch_id].after(1)
                asked[batch_id] -= 1
        unused = {batch_id: turn for batch_id, turn in unused.items() if not asked[batch_id]}
    if leased and len(turns) > 1:
        bulk.guarded_update(Batch, [{"pk": turn.batch_id, "turn": turn.position} for turn in turns.values()])
    return leased


def choose_leads(jobs: QuerySet[Job]) -> int:
    """Give each of `jobs` that may still be sent the batch whose turn it takes.

    Where only paused batches need it, one of those leads and the job waits; where none does, nobody leads. Call it
    in the transaction that pauses, resumes or cancels something, or attaches to a job. Returns the rows written.

    Read in one pass and written in the order of the jobs' ids: a subquery per row took PostgreSQL 40 s for 100,000.
    """
    item = "version__items"
    is_live = Q(**{f"{item}__cancelled_at": None, f"{item}__batch__cancelled_at": None})
    runs = is_live & Q(**{f"{item}__batch__paused_at": None})
    rows = (
        Job.objects.filter(pk__in=jobs.values("pk"), state__in=ACTIVE_STATES)
        .annotate(running=Min(f"{item}__batch_id", filter=runs), live=Min(f"{item}__batch_id", filter=is_live))
        .order_by("pk")
        .values_list("pk", "lead_batch_id", "running", "live")
    )
    changed = [(pk, running or live) for pk, lead, running, live in rows.iterator() if lead != (running or live)]
    written = 0
    for start in range(0, len(changed), bulk.ROWS_PER_STATEMENT):
        by_lead: dict[int | None, list[int]] = defaultdict(list)
        for pk, lead in changed[start : start + bulk.ROWS_PER_STATEMENT]:
            by_lead[lead].append(pk)
        for lead, ids in by_lead.items():
            written += Job.objects.filter(pk__in=ids, state__in=ACTIVE_STATES).update(lead_batch_id=lead)
    return written


def led_by_a_running_batch() -> Q:
    """The condition on a pending job that its turn can come at all."""
    return Q(lead_batch__isnull=False, lead_batch__paused_at=None, lead_batch__cancelled_at=None)


def _due_batches(account_id: int, *, now: datetime) -> list[Turn]:
    """The running batches that have a due job here that nobody holds.

    A loose index scan: one step of `job_due_by_batch` per batch with pending jobs, however many those have and
    however many finished ones lie around. The index is partial, so the state is a literal, never a parameter.
    """
    quote = connection.ops.quote_name
    job, batch = quote(Job._meta.db_table), quote(Batch._meta.db_table)
    lock = "FOR NO KEY UPDATE OF b" if connection.features.has_select_for_no_key_update else ""
    statement = f"""
        WITH RECURSIVE heads(batch_id) AS (
            SELECT (SELECT min(lead_batch_id) FROM {job} WHERE account_id = %s AND state = 'pending')
            UNION ALL
            SELECT (SELECT min(lead_batch_id) FROM {job}
                    WHERE account_id = %s AND state = 'pending' AND lead_batch_id > heads.batch_id)
            FROM heads WHERE heads.batch_id IS NOT NULL
        )
        SELECT b.id, b.weight, b.turn FROM {batch} AS b
        WHERE b.id IN (SELECT batch_id FROM heads WHERE batch_id IS NOT NULL)
          AND b.paused_at IS NULL AND b.cancelled_at IS NULL
          AND EXISTS (
            SELECT 1 FROM {job} AS j
            WHERE j.account_id = %s AND j.state = 'pending' AND j.lead_batch_id = b.id AND j.due_at <= %s
              AND (j.lease_until IS NULL OR j.lease_until < %s)
          )
        ORDER BY b.id {lock}
    """  # noqa: S608 - only names of our own tables are put into it; every value is a parameter
    instant = connection.ops.adapt_datetimefield_value(now)
    with connection.cursor() as cursor:
        cursor.execute(statement, [account_id, account_id, account_id, instant, instant])
        return [Turn(*row) for row in cursor.fetchall()]


def _lease_of_batches(
    account_id: int, asked: Mapping[int, int], *, owner: str, now: datetime
) -> Mapping[int, deque[int]]:
    """Lease the oldest due jobs of each batch, as many as are asked of it, in one statement; ids by batch, in order."""
    statement, params = _lease_statement(account_id, asked, owner=owner, now=now)
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        rows = cursor.fetchall()
    got: dict[int, deque[int]] = defaultdict(deque)
    for _due_at, job_id, batch_id in sorted(rows):
        got[batch_id].append(job_id)
    return got


def _lease_statement(account_id: int, asked: Mapping[int, int], *, owner: str, now: datetime) -> tuple[str, list[Any]]:
    quote = connection.ops.quote_name
    job = quote(Job._meta.db_table)
    instant = connection.ops.adapt_datetimefield_value(now)
    lock = "FOR UPDATE SKIP LOCKED" if connection.features.has_select_for_update_skip_locked else ""
    is_free = '("lease_until" IS NULL OR "lease_until" < %s)'
    arms: list[str] = []
    params: list[Any] = []
    for batch_id, count in asked.items():
        arms.append(
            f'SELECT id FROM (SELECT "id" FROM {job} WHERE "account_id" = %s AND "state" = \'pending\' '  # noqa: S608
            f'AND "lead_batch_id" = %s AND "due_at" <= %s AND {is_free} '  # only names of our own are put into it
            f'ORDER BY "due_at", "id" LIMIT %s {lock}) AS a{len(arms)}'
        )
        params += [account_id, batch_id, instant, instant, count]
    statement = (
        f"WITH picked(id) AS ({' UNION ALL '.join(arms)}) "  # noqa: S608 - as above
        f'UPDATE {job} SET "lease_owner" = %s, "lease_until" = %s, "fencing_token" = "fencing_token" + 1 '
        f'WHERE "id" IN (SELECT id FROM picked) AND "state" = \'pending\' AND {is_free} '
        'RETURNING "due_at", "id", "lead_batch_id"'
    )
    until = connection.ops.adapt_datetimefield_value(now + timedelta(seconds=ENGINE.lease_seconds))
    return statement, [*params, owner, until, instant]
