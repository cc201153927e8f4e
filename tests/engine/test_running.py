"""Pausing, resuming and cancelling a batch: what stops at once, what goes on, and what is remembered."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from batches import selectors
from batches.engine import changes, claims, running, transitions, turns, writes
from batches.engine.audit import By
from batches.models import (
    Alert,
    AlertKind,
    AuditEntry,
    Batch,
    BatchItem,
    Job,
    JobState,
    ProviderAccount,
    Submission,
    SubmissionOutcome,
)
from tests import factories
from tests.factories import NOW

BY = By(None, "a test", "command line")
REASON = "The prices are wrong."


def pause(batch: Batch, now: datetime = NOW) -> bool:
    return running.pause(batch.pk, reason=REASON, by=BY, now=now)


def resume(batch: Batch, now: datetime = NOW) -> bool:
    return running.resume(batch.pk, reason="They are right now.", by=BY, now=now)


def cancel(batch: Batch, now: datetime = NOW) -> bool:
    return running.cancel(batch.pk, reason=REASON, by=BY, now=now)


def claim(account: ProviderAccount, *states: JobState) -> list[claims.Claim]:
    return claims.claim_due(account, states or (JobState.PENDING,), owner="a", now=NOW, most=100)


def second_batch(batch: Batch, *jobs: Job) -> Batch:
    """Another batch of the workspace that needs these jobs too."""
    other = factories.make_batch(workspace=batch.workspace, account=batch.account)
    for position, job in enumerate(jobs):
        BatchItem.objects.create(
            batch=other,
            position=position,
            document=job.version.document,
            version=job.version,
            intake_outcome="unchanged",
        )
    return other


def state_of(job: Job) -> str:
    return Job.objects.values_list("state", flat=True).get(pk=job.pk)


def item_states(batch: Batch) -> list[str]:
    return [item["state"] for item in selectors.batch_json(batch)["items"]]


def assert_adds_up(batch: Batch) -> None:
    assert selectors.batch_counts(batch).total == batch.items.count()


# --- pause and resume ---


def test_a_paused_batch_is_not_claimed_and_a_resumed_one_is(batch: Batch, account: ProviderAccount) -> None:
    job = factories.make_job(batch=batch)
    assert pause(batch)
    batch.refresh_from_db()
    assert (batch.paused_at, batch.pause_reason) == (NOW, REASON)
    assert claim(account) == []
    assert selectors.batch_counts(batch).held == 1
    assert resume(batch)
    batch.refresh_from_db()
    assert (batch.paused_at, batch.pause_reason) == (None, "")
    assert [each.job_id for each in claim(account)] == [job.pk]


def test_each_is_harmless_twice_and_is_recorded_once(batch: Batch) -> None:
    factories.make_job(batch=batch)
    assert [pause(batch), pause(batch)] == [True, False]
    assert [resume(batch), resume(batch)] == [True, False]
    assert [cancel(batch), cancel(batch)] == [True, False]
    assert [pause(batch), resume(batch)] == [False, False]
    entries = AuditEntry.objects.order_by("pk").values_list("action", "actor_words", "reason")
    assert list(entries) == [
        ("pause_batch", "a test", REASON),
        ("resume_batch", "a test", "They are right now."),
        ("cancel_batch", "a test", REASON),
    ]


def test_a_pump_that_held_a_document_of_a_paused_batch_writes_nothing_more(
    batch: Batch, account: ProviderAccount
) -> None:
    job = factories.make_job(batch=batch)
    (held,) = claim(account)
    pause(batch)
    job.refresh_from_db()
    assert (job.lease_owner, job.fencing_token) == (None, held.token + 1)
    assert writes.write_round([changes.parking(held, "A late write.", now=NOW)], now=NOW) == {job.pk}
    assert state_of(job) == "pending"
    assert list(job.events.values_list("reason", flat=True)) == ["stale_write_refused"]


@pytest.mark.parametrize("stop", [pause, cancel])
def test_a_document_that_another_running_batch_needs_goes_on_in_its_turns(
    batch: Batch, account: ProviderAccount, stop: object
) -> None:
    shared = factories.make_job(batch=batch)
    other = second_batch(batch, shared)
    (held,) = claim(account)
    assert callable(stop)
    assert stop(batch)
    shared.refresh_from_db()
    assert (shared.lead_batch_id, shared.fencing_token) == (other.pk, held.token), "its holder goes on"
    assert selectors.batch_counts(other).in_progress == 1


def test_resuming_the_older_batch_takes_its_documents_back(batch: Batch) -> None:
    shared = factories.make_job(batch=batch)
    other = second_batch(batch, shared)
    pause(batch)
    resume(batch)
    shared.refresh_from_db()
    assert shared.lead_batch_id == batch.pk
    pause(other)
    shared.refresh_from_db()
    assert shared.lead_batch_id == batch.pk


@pytest.mark.parametrize("stop", [pause, cancel])
def test_what_the_provider_has_goes_on_to_saved(batch: Batch, account: ProviderAccount, stop: object) -> None:
    jobs = [factories.make_accepted_job(batch=batch), factories.make_job(batch=batch, state=JobState.RENDERED)]
    assert callable(stop)
    assert stop(batch)
    assert {each.job_id for each in claim(account, *claims.IN_PROGRESS_STATES)} == {job.pk for job in jobs}
    assert item_states(batch) == ["accepted", "rendered"]
    assert_adds_up(batch)


# --- cancel ---


def test_what_was_never_sent_is_cancelled_and_revived_by_nothing_but_a_new_upload(batch: Batch) -> None:
    waiting = factories.make_job(batch=batch)
    saved = factories.make_saved_job(batch=batch)
    cancel(batch)
    assert [state_of(waiting), state_of(saved)] == ["cancelled", "saved"]
    assert item_states(batch) == ["cancelled", "saved"]
    assert selectors.progress(batch).state == "cancelled"
    assert_adds_up(batch)
    assert list(waiting.events.values_list("reason", flat=True)) == ["nobody_needs_it"]


def test_many_more_than_one_transaction_ends_are_all_cancelled(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "ENDED_AT_ONCE", 2)
    for _ in range(5):
        factories.make_job(batch=batch)
    cancel(batch)
    assert set(Job.objects.values_list("state", flat=True)) == {"cancelled"}


def test_a_paused_batch_can_be_cancelled_and_then_stands_no_more(batch: Batch) -> None:
    factories.make_job(batch=batch)
    running.stop(batch.pk, reason="Too many.", alert="Too many.", now=NOW)
    cancel(batch)
    assert selectors.progress(batch).state == "cancelled"
    assert not Alert.objects.filter(closed_at=None).exists()


def test_the_wish_to_cancel_what_may_have_left_is_remembered_and_applied_once_it_proves_unsent(
    batch: Batch, account: ProviderAccount
) -> None:
    job = factories.make_job(batch=batch, state=JobState.SUBMITTING)
    submission = factories.make_submission(job=job)
    cancel(batch)
    assert (state_of(job), item_states(batch)) == ("submitting", ["cancelled"])
    assert_adds_up(batch)
    assert len(claim(account, JobState.SUBMITTING)) == 1, "it is resolved first"

    job.refresh_from_db()
    refused = transitions.Move(
        job.pk, job.fencing_token, JobState.SUBMITTING, JobState.PENDING, reason="submit_requeue"
    )
    transitions.move(refused, now=NOW)
    Submission.objects.update(in_doubt=False)
    Job.objects.update(lease_owner=None, lease_until=None)
    assert claim(account) == [], "nobody needs it, so it is not sent"
    assert running.end_unneeded(now=NOW, most=100) == 1
    submission.refresh_from_db()
    assert (state_of(job), submission.outcome) == ("cancelled", SubmissionOutcome.REFUSED)
    assert running.end_unneeded(now=NOW, most=100) == 0


def test_a_wish_that_came_too_late_leaves_the_document_saved_for_whoever_needs_it_next(batch: Batch) -> None:
    job = factories.make_job(batch=batch, state=JobState.SUBMITTING)
    factories.make_submission(job=job)
    cancel(batch)
    job.refresh_from_db()
    accepted = {"deadline_at": NOW + timedelta(minutes=1)}
    move = transitions.Move(
        job.pk, job.fencing_token, JobState.SUBMITTING, JobState.ACCEPTED, reason="accepted", fields=accepted
    )
    transitions.move(move, now=NOW)
    assert running.end_unneeded(now=NOW, most=100) == 0
    assert (state_of(job), item_states(batch)) == ("accepted", ["cancelled"])
    later = second_batch(batch, job)
    assert item_states(later) == ["accepted"]
    assert_adds_up(batch)


def test_what_the_provider_failed_to_render_is_failed_not_cancelled(batch: Batch) -> None:
    """It was accepted once: that the retry is given up does not make it never sent."""
    job = factories.make_job(batch=batch)
    factories.make_submission(
        job=job,
        provider_job_id="pdf_1",
        accepted_at=NOW,
        in_doubt=False,
        outcome=SubmissionOutcome.RENDER_FAILED,
        closed_at=NOW,
    )
    cancel(batch)
    job.refresh_from_db()
    assert (job.state, job.failure_class) == ("failed", "render_failed")
    assert job.failure_words == "The provider could not render it. It was not sent again: no batch needs it any more."
    assert_adds_up(batch)


def test_what_failed_and_is_not_needed_keeps_what_the_provider_said_of_it(batch: Batch) -> None:
    job = factories.make_accepted_job(batch=batch)
    (submission,) = job.submissions.all()
    failed = {"failure_code": "font_missing", "failure_words": "No font has these letters"}
    transitions.move(
        transitions.Move(
            job.pk,
            job.fencing_token,
            JobState.ACCEPTED,
            JobState.PENDING,
            reason="render_again",
            words="No font has these letters",
            fields=failed,
        ),
        now=NOW,
    )
    Submission.objects.filter(pk=submission.pk).update(outcome=SubmissionOutcome.RENDER_FAILED, closed_at=NOW)
    cancel(batch)
    job.refresh_from_db()
    assert (job.state, job.failure_class, job.failure_code) == ("failed", "render_failed", "font_missing")
    assert job.failure_words.startswith("No font has these letters. It was not sent again: no batch needs it")
    assert job.failure_words == job.events.order_by("id").last().words


def test_a_document_that_somebody_attached_to_meanwhile_is_not_ended(batch: Batch) -> None:
    job = factories.make_job(batch=batch)
    Batch.objects.filter(pk=batch.pk).update(cancelled_at=NOW)
    turns.choose_leads(Job.objects.all())
    other = second_batch(batch, job)
    assert running.end_unneeded(now=NOW, most=100) == 0
    job.refresh_from_db()
    assert (job.state, job.lead_batch_id) == ("pending", other.pk)


def test_what_nobody_needs_is_looked_for_in_as_many_statements_for_many_workspaces_and_accounts_as_for_one(
    batch: Batch,
) -> None:
    counts = []
    for more in (1, 5):
        for _ in range(more):
            batch = factories.make_batch(workspace=factories.make_workspace(), account=factories.make_account())
        with CaptureQueriesContext(connection) as queries:
            assert running.end_unneeded(now=NOW, most=100) == 0
        counts.append(len(queries))
        factories.make_job(batch=batch)
        Batch.objects.filter(pk=batch.pk).update(cancelled_at=NOW)
        turns.choose_leads(Job.objects.all())
        assert running.end_unneeded(now=NOW, most=100) == 1
    assert counts == [2, 2]


def test_resuming_closes_the_alert_and_counts_anew(batch: Batch) -> None:
    running.stop(batch.pk, reason="Too many.", alert="Too many failed.", now=NOW)
    (alert,) = Alert.objects.all()
    assert (alert.kind, alert.subject, alert.batch_id) == (AlertKind.BATCH_STOPPED, f"batch:{batch.pk}", batch.pk)
    later = NOW + timedelta(minutes=5)
    resume(batch, later)
    batch.refresh_from_db()
    alert.refresh_from_db()
    assert (batch.stop_counts_from, alert.closed_at) == (later, later)
