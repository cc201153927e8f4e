"""What one step's outcome changes, as one value: `Change` and what it is made of.

Judgements (`answers`, `polling`, `collection`) make these, and `writes` brings them into rows; nothing here touches the
database.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from batches import wording
from batches.engine.claims import Claim
from batches.engine.effects import NO_EFFECT, AccountEffect
from batches.engine.transitions import Move
from batches.models import AlertKind, FailureClass, JobState
from batches.providers.base import ExchangeFacts


class FollowStep(enum.Enum):
    """What the pump does next with a job that it keeps."""

    POLL = "poll"
    FETCH = "fetch"
    START = "start"  # have its draft begun, once it is committed that this is tried
    FETCHING = "fetching"  # a thread has begun it; nothing is left to begin


@dataclass(frozen=True)
class Follow:
    step: FollowStep
    due_at: datetime


@dataclass(frozen=True)
class ArtifactFacts:
    """A PDF that lies in the store, verified."""

    submission_id: int
    storage_key: str
    sha256: str
    byte_count: int
    page_count: int


@dataclass(frozen=True)
class Change:
    """One outcome, judged. Without `follow` the job's lease is given back.

    `after` is the claim as it stands when the write has succeeded. `job_fields` are written without a move.
    """

    claim: Claim
    at: datetime
    move: Move | None = None
    job_fields: Mapping[str, Any] = field(default_factory=dict)
    submission_id: int | None = None
    submission_fields: Mapping[str, Any] = field(default_factory=dict)
    exchanges: tuple[tuple[ExchangeFacts, int | None], ...] = ()
    artifact: ArtifactFacts | None = None
    effect: AccountEffect = NO_EFFECT
    alert: tuple[AlertKind, str] | None = None
    after: Claim | None = None
    follow: Follow | None = None


def moving(
    claim: Claim, to_state: JobState, *, reason: str, words: str = "", fields: Mapping[str, Any] | None = None
) -> Move:
    """The claimed job's way to `to_state`, under the claim's own state and token."""
    return Move(claim.job_id, claim.token, claim.state, to_state, reason, words=words, fields=fields or {})


def together(earlier: Change, later: Change) -> Change | None:
    """Two steps of one job as one change, with every edge and every fact of both; None where they need a write each."""
    if earlier.move is None or later.move is None or earlier.effect != NO_EFFECT or earlier.alert is not None:
        return None
    return replace(
        later,
        move=replace(later.move, via=earlier.move, fields={**earlier.move.fields, **later.move.fields}),
        submission_id=earlier.submission_id,
        submission_fields={**earlier.submission_fields, **later.submission_fields},
        exchanges=earlier.exchanges + later.exchanges,
    )


def rounds(changes: Sequence[Change]) -> list[list[Change]]:
    """Split so that no job stands twice in one group; a job's own order is kept."""
    groups: list[list[Change]] = []
    seen: dict[int, int] = defaultdict(int)
    for change in changes:
        index = seen[change.claim.job_id]
        seen[change.claim.job_id] += 1
        if index == len(groups):
            groups.append([])
        groups[index].append(change)
    return groups


def accepting(claim: Claim, *, reason: str, deadline_at: datetime, now: datetime, words: str = "") -> Change:
    """Its provider job id is known: whoever claims it next reads it, at once. The lease is given back."""
    fields = {"deadline_at": deadline_at, "due_at": now, "poll_count": 0, "fetch_count": 0}
    move = moving(claim, JobState.ACCEPTED, reason=reason, words=words, fields=fields)
    return Change(claim=claim, at=now, move=move)


def parking(claim: Claim, words: str, *, now: datetime, failure_class: FailureClass = FailureClass.INTERNAL) -> Change:
    """The job stops where a person sees it. What may have been sent is unknown, never failed."""
    maybe_sent = claim.state is JobState.SUBMITTING
    kind = AlertKind.INTERNAL if failure_class is FailureClass.INTERNAL else AlertKind.UNKNOWN_OUTCOME
    needs_alert = maybe_sent or failure_class is FailureClass.INTERNAL
    advice = wording.WHAT_TO_DO[FailureClass.UNKNOWN_OUTCOME if maybe_sent else failure_class]
    return Change(
        claim=claim,
        at=now,
        move=moving(
            claim,
            JobState.UNKNOWN if maybe_sent else JobState.FAILED,
            reason="parked",
            words=words,
            fields={"failure_class": failure_class, "failure_code": "", "failure_words": words},
        ),
        alert=(kind, f"{claim.business_id}: {words} {advice}") if needs_alert else None,
    )
