"""One outcome as a value: the order of several of one job, and the one that parks its job."""

from __future__ import annotations

import pytest

from batches.engine import changes, claims, writes
from batches.engine.changes import Change
from batches.models import Alert, AlertKind, Batch, JobState
from tests import factories
from tests.factories import NOW


def test_two_changes_of_one_job_are_written_one_after_the_other(batch: Batch) -> None:
    one, other = factories.make_job(batch=batch), factories.make_job(batch=batch)
    taken = {
        each.job_id: each for each in claims.claim_due(one.account, [JobState.PENDING], owner="a", now=NOW, most=9)
    }
    first = Change(claim=taken[one.pk], at=NOW, job_fields={"poll_count": 1})
    second = Change(claim=taken[one.pk], at=NOW, job_fields={"poll_count": 2})
    between = Change(claim=taken[other.pk], at=NOW, job_fields={"poll_count": 5})
    assert changes.rounds([first, between, second]) == [[first, between], [second]]
    assert changes.rounds([]) == []


@pytest.mark.parametrize(
    ("state", "to_state", "alert"),
    [
        (JobState.PENDING, JobState.FAILED, AlertKind.INTERNAL),
        (JobState.SUBMITTING, JobState.UNKNOWN, AlertKind.INTERNAL),
        (JobState.ACCEPTED, JobState.FAILED, AlertKind.INTERNAL),
        (JobState.RENDERED, JobState.FAILED, AlertKind.INTERNAL),
    ],
)
def test_our_own_fault_parks_a_job_where_a_person_sees_it(
    batch: Batch, state: JobState, to_state: JobState, alert: AlertKind
) -> None:
    job = factories.make_job(batch=batch, state=state)
    if state is not JobState.PENDING:
        factories.make_submission(job=job)
    [claim] = claims.claim_due(batch.account, [state], owner="a", now=NOW, most=9)
    writes.write_round([changes.parking(claim, "A bug.", now=NOW)], now=NOW)
    job.refresh_from_db()
    assert (job.state, job.failure_class, job.failure_words) == (to_state, "internal", "A bug.")
    assert Alert.objects.get().kind == alert
