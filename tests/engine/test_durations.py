"""How long submissions took is recorded with their outcome, and a failure to record costs nothing but is seen."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from batches.engine import bulk, claims, durations, expectations, polling, writes
from batches.engine.changes import Change
from batches.engine.claims import Claim
from batches.engine.expectations import Sample
from batches.models import Alert, Duration, Job, JobState
from batches.providers import errors
from batches.providers.base import JobPhase
from tests import factories
from tests.engine.samples import Dice, exchange, status
from tests.factories import NOW

pytestmark = pytest.mark.django_db
LATER = NOW + timedelta(seconds=9)


def claimed(job: Job, *, now: object = NOW) -> Claim:
    Job.objects.filter(pk=job.pk).update(due_at=NOW)
    (claim,) = claims.claim_due(job.account, [JobState(job.state)], owner="me", now=NOW, most=1)
    return claim


def failed(claim: Claim) -> Change:
    about = polling.PollContext(Job.objects.get(pk=claim.job_id).account, LATER, Dice(0.5))
    return polling.judge_status(claim, status(JobPhase.FAILED, "failed", at=LATER), about)


def past_deadline(claim: Claim) -> Change:
    at = claim.deadline_at + timedelta(seconds=1)
    about = polling.PollContext(Job.objects.get(pk=claim.job_id).account, at, Dice(0.5))
    return polling.judge_error(claim, errors.ServerFault("No.", exchange=exchange("poll", at=at)), about)


def test_each_end_leaves_a_row_with_size_of_the_batch_and_where_it_ended() -> None:
    batch = factories.make_batch()
    for _ in range(2):
        factories.make_job(batch=batch)
    jobs = [factories.make_accepted_job(batch=batch) for _ in range(2)]
    first, second = (claimed(job) for job in jobs)
    writes.write_round([failed(first), past_deadline(second)], now=LATER)
    rows = {row.job_id: row for row in Duration.objects.all()}
    row = rows[jobs[0].pk]
    assert (row.outcome, row.remote_seconds, row.total_seconds, row.poll_count) == ("failed", 9.0, 9.0, 1)
    assert (row.batch_size, row.request_bytes) == (4, jobs[0].version.input_bytes)
    row = rows[jobs[1].pk]
    assert (row.outcome, row.remote_seconds, row.total_seconds) == ("deadline_exceeded", None, 1801.0)


def test_what_a_move_does_not_end_leaves_no_row() -> None:
    job = factories.make_accepted_job()
    claim = claimed(job)
    about = polling.PollContext(job.account, LATER, Dice(0.5))
    writes.write_round([polling.judge_status(claim, status(JobPhase.SUCCEEDED, "completed"), about)], now=LATER)
    assert not Duration.objects.exists()


def test_a_group_costs_one_insert_and_counts_each_batch_once() -> None:
    batch = factories.make_batch()
    book = durations.Book()
    for _round in range(2):
        group = [failed(claimed(factories.make_accepted_job(batch=batch))) for _ in range(3)]
        with CaptureQueriesContext(connection) as seen:
            writes.write_round(group, now=LATER, book=book)
    asked = [query["sql"] for query in seen if "stop_after" not in query["sql"]]  # the stop rules count by themselves
    about = [sql for sql in asked if "batches_duration" in sql or "COUNT(" in sql]
    assert len(about) == 1, about
    assert Duration.objects.count() == 6


@pytest.fixture
def broken_table(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Rows of durations cannot be written, by the database's own word, until the function is called."""
    insert = bulk.insert

    def refuse(model: Any, rows: Any) -> None:
        if model is not Duration:
            insert(model, rows)
            return
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO no_such_table (id) VALUES (1)")

    monkeypatch.setattr(bulk, "insert", refuse)
    return lambda: monkeypatch.setattr(bulk, "insert", insert)


def test_a_failure_to_record_keeps_the_outcome_and_is_seen_until_it_works_again(
    broken_table: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    job = factories.make_accepted_job()
    book = durations.Book()
    assert writes.write_round([failed(claimed(job))], now=LATER, book=book) == set()
    job.refresh_from_db()
    assert (job.state, job.events.count()) == ("failed", 1)
    (alert,) = Alert.objects.filter(kind="durations")
    assert (alert.subject, alert.account, alert.closed_at) == (f"account:{job.account_id}", job.account, None)
    assert "saved as before" in alert.words
    assert "could not be recorded" in caplog.text
    other = factories.make_accepted_job(batch=factories.make_batch(account=job.account))
    writes.write_round([failed(claimed(other))], now=LATER, book=book)
    assert Alert.objects.filter(kind="durations").count() == 1, "one alert, however often it fails"
    broken_table()
    third = factories.make_accepted_job(batch=factories.make_batch(account=job.account))
    writes.write_round([failed(claimed(third))], now=LATER, book=durations.Book())
    alert.refresh_from_db()
    assert alert.closed_at == LATER, "closed by whoever succeeds first, also another pump"
    assert Duration.objects.count() == 1


def test_successes_are_read_back_as_brackets_oldest_first_and_only_the_new_ones() -> None:
    job = factories.make_saved_job()

    def row(outcome: str, seconds: float | None, gap: float, polls: int = 2) -> Duration:
        return factories.make_duration(
            job=job,
            outcome=outcome,
            remote_seconds=seconds,
            total_seconds=9,
            seen_after_seconds=gap,
            poll_count=polls,
            request_bytes=20_000,
        )

    one, two = row("saved", 5.0, 0.5), row("saved", 6.0, 6.0)
    row("failed", 3.0, 0.5)
    row("deadline_exceeded", None, 0)
    row("saved", 0.0, 0.0, polls=0)
    assert [(pk, sample) for pk, _submission, sample in durations.latest(job.account_id)] == [
        (one.pk, Sample(4.5, 5.0, 1)),
        (two.pk, Sample(0.0, 6.0, 1)),
    ]
    assert [pk for pk, _submission, _sample in durations.latest(job.account_id, after_id=one.pk)] == [two.pk]
    assert [pk for pk, _submission, _sample in durations.latest(job.account_id, most=1)] == [two.pk]
    assert expectations.size_class(20_000) == 1
