"""The edges between the states of a job, and the one writer that moves a job along them."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import product

import pytest

from batches.engine import transitions
from batches.engine.errors import IllegalTransition, StaleClaim
from batches.engine.transitions import EdgeKind, Move
from batches.models import Batch, Job, JobEvent, JobState
from tests import factories

#: Every arrow of docs/architecture.md, "States", by the word of its state; what is not here does not exist.
ARROWS = {
    "pending": {"submitting": "engine", "failed": "engine", "rendered": "evidence", "cancelled": "person"},
    "submitting": {
        "pending": "engine",
        "accepted": "engine",
        "rendered": "engine",
        "failed": "engine",
        "unknown": "engine",
    },
    "accepted": {"rendered": "engine", "failed": "engine", "deadline_exceeded": "engine", "pending": "engine"},
    "rendered": {"saved": "engine", "expired": "engine", "failed": "engine", "accepted": "evidence"},
    "saved": {"rendered": "evidence", "expired": "evidence"},
    "failed": {"rendered": "evidence", "pending": "person", "submitting": "person"},
    "unknown": {"accepted": "evidence", "rendered": "evidence", "failed": "evidence", "submitting": "person"},
    "deadline_exceeded": {"accepted": "evidence", "rendered": "evidence", "failed": "evidence"},
    "expired": {"rendered": "person", "saved": "evidence"},
    "cancelled": {"pending": "person"},
}


@pytest.mark.parametrize(("before", "after"), list(product(JobState.values, repeat=2)))
def test_an_edge_exists_exactly_where_the_design_draws_an_arrow(before: str, after: str) -> None:
    kind = transitions.EDGES.get((JobState(before), JobState(after)))
    assert (kind.value if kind else None) == ARROWS[before].get(after)


def test_every_kind_of_edge_is_used() -> None:
    assert set(transitions.EDGES.values()) == set(EdgeKind)


def _move(job: Job, to_state: JobState, **changes: object) -> Move:
    facts = {
        "job_id": job.pk,
        "token": job.fencing_token,
        "from_state": JobState(job.state),
        "to_state": to_state,
        "reason": "told_by_test",
    }
    return Move(**facts | changes)  # type: ignore[arg-type] # the facts are of mixed types


def test_a_move_changes_the_state_and_leaves_an_event(batch: Batch, now: datetime) -> None:
    job = factories.make_job(batch=batch)
    later = now + timedelta(minutes=5)
    moving = _move(job, JobState.SUBMITTING, words="It goes.", actor="Okoye", fields={"due_at": later})
    assert transitions.move_many([moving], now=later) == {job.pk}
    job.refresh_from_db()
    assert (job.state, job.state_changed_at, job.due_at) == ("submitting", later, later)
    event = JobEvent.objects.get(job=job)
    assert (event.from_state, event.to_state, event.reason) == ("pending", "submitting", "told_by_test")
    assert (event.words, event.actor, event.at) == ("It goes.", "Okoye", later)


def test_a_stale_token_moves_nothing_and_leaves_no_event(batch: Batch, now: datetime) -> None:
    job = factories.make_job(batch=batch, fencing_token=9)
    assert transitions.move_many([_move(job, JobState.SUBMITTING, token=8)], now=now) == set()
    job.refresh_from_db()
    assert job.state == "pending"
    assert not JobEvent.objects.exists()


def test_a_stale_state_moves_nothing_and_leaves_no_event(batch: Batch, now: datetime) -> None:
    job = factories.make_job(batch=batch, state=JobState.CANCELLED)
    assert transitions.move_many([_move(job, JobState.SUBMITTING, from_state=JobState.PENDING)], now=now) == set()
    assert not JobEvent.objects.exists()


def test_one_lost_race_among_many_stops_only_itself(batch: Batch, now: datetime) -> None:
    jobs = [factories.make_job(batch=batch) for _ in range(5)]
    moves = [_move(job, JobState.SUBMITTING) for job in jobs]
    Job.objects.filter(pk=jobs[2].pk).update(fencing_token=1)
    moved = transitions.move_many(moves, now=now)
    assert moved == {job.pk for job in jobs} - {jobs[2].pk}
    assert set(JobEvent.objects.values_list("job_id", flat=True)) == moved


def test_one_call_moves_jobs_to_different_states_with_different_columns(batch: Batch, now: datetime) -> None:
    sent, failed, cancelled = (factories.make_job(batch=batch) for _ in range(3))
    moved = transitions.move_many(
        [
            _move(sent, JobState.SUBMITTING),
            _move(failed, JobState.FAILED, fields={"failure_class": "invalid_input", "failure_words": "Empty."}),
            _move(cancelled, JobState.CANCELLED, actor="Lindqvist"),
        ],
        now=now,
    )
    assert moved == {sent.pk, failed.pk, cancelled.pk}
    states = dict(Job.objects.values_list("pk", "state"))
    assert states == {sent.pk: "submitting", failed.pk: "failed", cancelled.pk: "cancelled"}


def test_leaving_the_failed_states_clears_the_failure(batch: Batch, now: datetime) -> None:
    job = factories.make_job(batch=batch, state=JobState.FAILED, failure_code="E7")
    transitions.move(_move(job, JobState.PENDING), now=now)
    job.refresh_from_db()
    assert (job.failure_class, job.failure_code, job.failure_words) == ("", "", "")


def test_an_edge_that_does_not_exist_is_refused_before_anything_is_written(batch: Batch, now: datetime) -> None:
    good, bad = factories.make_job(batch=batch), factories.make_job(batch=batch, state=JobState.SAVED)
    with pytest.raises(IllegalTransition, match="from saved to submitting"):
        transitions.move_many([_move(good, JobState.SUBMITTING), _move(bad, JobState.SUBMITTING)], now=now)
    good.refresh_from_db()
    assert good.state == "pending"
    assert not JobEvent.objects.exists()


def test_a_single_move_that_lost_its_race_says_so(batch: Batch, now: datetime) -> None:
    job = factories.make_job(batch=batch)
    with pytest.raises(StaleClaim, match="no longer Waiting"):
        transitions.move(_move(job, JobState.SUBMITTING, token=5), now=now)


def test_what_arrived_and_changed_nothing_is_kept_as_an_event(batch: Batch, now: datetime) -> None:
    job = factories.make_job(batch=batch, state=JobState.SAVED)
    transitions.record_ignored(job.pk, JobState.SAVED, reason="late_answer", words="It came late.", now=now)
    event = JobEvent.objects.get(job=job)
    assert (event.from_state, event.to_state, event.reason) == ("saved", "saved", "late_answer")
