"""The only writer of `Job.state`: the edges as one table, and one guarded, recorded way along them.

A move names the state and the fencing token that its author read. The UPDATE repeats both, the row count is checked,
and a `JobEvent` is inserted in the same transaction. Whoever lost a race learns it from what comes back.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import transaction

from batches.engine import bulk, causes, settled
from batches.engine.errors import IllegalTransition, StaleClaim
from batches.models import ACTIVE_STATES, FAILED_STATES, Job, JobEvent, JobState

PENDING, SUBMITTING, ACCEPTED, RENDERED = JobState.PENDING, JobState.SUBMITTING, JobState.ACCEPTED, JobState.RENDERED
SAVED, FAILED, UNKNOWN, CANCELLED = JobState.SAVED, JobState.FAILED, JobState.UNKNOWN, JobState.CANCELLED
DEADLINE_EXCEEDED, EXPIRED = JobState.DEADLINE_EXCEEDED, JobState.EXPIRED


class EdgeKind(enum.Enum):
    ENGINE = "engine"  # a pump, as a step's outcome
    EVIDENCE = "evidence"  # something proved a state that we had given up on
    PERSON = "person"  # a verb, with actor and reason


#: Every legal change of a job's state. Nothing else moves a job.
EDGES: Mapping[tuple[JobState, JobState], EdgeKind] = {
    (PENDING, SUBMITTING): EdgeKind.ENGINE,  # the intent is committed
    (PENDING, FAILED): EdgeKind.ENGINE,  # the input cannot be prepared, or our own fault parked it
    (SUBMITTING, PENDING): EdgeKind.ENGINE,  # a definite refusal of the account, never in doubt
    (SUBMITTING, ACCEPTED): EdgeKind.ENGINE,
    (SUBMITTING, RENDERED): EdgeKind.ENGINE,  # the answer was the finished result
    (SUBMITTING, FAILED): EdgeKind.ENGINE,  # definitely refused on every try
    (SUBMITTING, UNKNOWN): EdgeKind.ENGINE,  # may have been accepted, and may not be sent again
    (ACCEPTED, RENDERED): EdgeKind.ENGINE,
    (ACCEPTED, FAILED): EdgeKind.ENGINE,
    (ACCEPTED, DEADLINE_EXCEEDED): EdgeKind.ENGINE,
    (ACCEPTED, PENDING): EdgeKind.ENGINE,  # read as failed and unbilled, twice: sequence + 1
    (RENDERED, SAVED): EdgeKind.ENGINE,
    (RENDERED, EXPIRED): EdgeKind.ENGINE,
    (RENDERED, FAILED): EdgeKind.ENGINE,
    (PENDING, RENDERED): EdgeKind.EVIDENCE,  # an earlier submission finished after all, before the next was sent
    (RENDERED, ACCEPTED): EdgeKind.EVIDENCE,  # a fresh status read says that it is not finished after all
    (UNKNOWN, ACCEPTED): EdgeKind.EVIDENCE,
    (UNKNOWN, RENDERED): EdgeKind.EVIDENCE,
    (UNKNOWN, FAILED): EdgeKind.EVIDENCE,  # the provider's own look-up knows nothing of it: it never arrived
    (DEADLINE_EXCEEDED, ACCEPTED): EdgeKind.EVIDENCE,
    (DEADLINE_EXCEEDED, RENDERED): EdgeKind.EVIDENCE,
    (DEADLINE_EXCEEDED, FAILED): EdgeKind.EVIDENCE,  # read as failed and unbilled, twice, by the late watch
    (FAILED, RENDERED): EdgeKind.EVIDENCE,  # the provider reports success late
    (SAVED, RENDERED): EdgeKind.EVIDENCE,  # the stored object is missing, the remote copy lives
    (SAVED, EXPIRED): EdgeKind.EVIDENCE,  # the stored object is missing, and so is the remote copy
    (EXPIRED, SAVED): EdgeKind.EVIDENCE,  # the stored object is back, with the digest that was verified
    (PENDING, CANCELLED): EdgeKind.PERSON,
    (CANCELLED, PENDING): EdgeKind.PERSON,
    (FAILED, PENDING): EdgeKind.PERSON,
    (FAILED, SUBMITTING): EdgeKind.PERSON,
    (UNKNOWN, SUBMITTING): EdgeKind.PERSON,
    (EXPIRED, RENDERED): EdgeKind.PERSON,  # or another submission of it is finished late
}


@dataclass(frozen=True)
class Move:
    """One job along one edge. `fields` are further `Job` columns; leaving the failed states clears the failure.

    `via` is the edge before this one where the row has not seen that yet: both are recorded, and written as one, with
    the `fields` of this one alone.
    """

    job_id: int
    token: int
    from_state: JobState
    to_state: JobState
    reason: str
    words: str = ""
    actor: str = "engine"
    fields: Mapping[str, Any] = field(default_factory=dict)
    via: Move | None = None

    @property
    def edges(self) -> tuple[Move, ...]:
        return (self,) if self.via is None else (*self.via.edges, self)


def taken_over(token: int) -> dict[str, Any]:
    """Columns that take a job from whoever holds it under `token`: what they still write is stale, and recorded so."""
    return {"fencing_token": token + 1, "lease_owner": None, "lease_until": None}


def move(moving: Move, *, now: datetime) -> None:
    """Move one job, or raise `StaleClaim`."""
    if moving.job_id not in move_many([moving], now=now):
        raise StaleClaim(f"Job {moving.job_id} is no longer {moving.from_state.label}; nothing was changed.")


def move_many(moves: Sequence[Move], *, now: datetime) -> set[int]:
    """Move each job at most once, in grouped statements of one transaction. Returns the jobs that moved.

    Raises `IllegalTransition` for an edge that does not exist, before anything is written.
    """
    for moving in moves:
        for edge in moving.edges:
            if (edge.from_state, edge.to_state) not in EDGES:
                raise IllegalTransition(f"There is no edge from {edge.from_state} to {edge.to_state}.")
    groups: dict[tuple[Any, ...], list[Move]] = defaultdict(list)
    for moving in moves:
        groups[(moving.to_state, tuple(sorted(moving.fields)))].append(moving)
    moved: set[int] = set()
    with transaction.atomic(savepoint=False):
        for (to_state, _names), group in sorted(groups.items(), key=lambda pair: pair[0]):
            rows = [_row(moving, to_state, now) for moving in group]
            moved |= bulk.guarded_update(Job, rows, guard=("state", "fencing_token"))
        settled.void_jobs(moving.job_id for moving in moves if moving.edges[0].from_state not in ACTIVE_STATES)
        _record((edge for moving in moves if moving.job_id in moved for edge in moving.edges), now=now)
    return moved


def _row(moving: Move, to_state: JobState, now: datetime) -> dict[str, Any]:
    row: dict[str, Any] = {
        "pk": moving.job_id,
        "guard:state": moving.edges[0].from_state,
        "guard:fencing_token": moving.token,
        "state": to_state,
        "state_changed_at": now,
    }
    if to_state not in FAILED_STATES:
        row |= {"failure_class": "", "failure_code": "", "failure_words": "", "failure_cause": ""}
    row |= moving.fields
    if to_state in FAILED_STATES:
        failure = (str(row.get(name, "")) for name in ("failure_class", "failure_code", "failure_words"))
        row["failure_cause"] = causes.fingerprint(*failure)
    return row


def _record(moves: Iterable[Move], *, now: datetime) -> None:
    bulk.insert(
        JobEvent,
        [
            {
                "job_id": moving.job_id,
                "at": now,
                "from_state": moving.from_state,
                "to_state": moving.to_state,
                "reason": moving.reason,
                "words": moving.words,
                "actor": moving.actor,
            }
            for moving in moves
        ],
    )


def record_ignored(job_id: int, state: JobState, *, reason: str, words: str, now: datetime) -> None:
    """Keep something that arrived and changed nothing: a stale write, a late answer, an event for a finished job."""
    record_unmoved([(job_id, state)], reason=reason, words=words, now=now)


def record_unmoved(
    jobs: Iterable[tuple[int, JobState]], *, reason: str, words: str, now: datetime, actor: str = "engine"
) -> None:
    """Keep in the history of each, by id and with the state that it is in, what did not move it."""
    _record([Move(job_id, 0, state, state, reason, words, actor) for job_id, state in jobs], now=now)
