"""Each verb on rows: what it writes, whom it takes a job from, and that a second one like it finds nothing to do."""

from __future__ import annotations

from datetime import timedelta

import pytest

from batches.engine import applying, changes, claims, writes
from batches.engine.audit import By
from batches.engine.orders import Order, Result
from batches.models import (
    AuditEntry,
    Batch,
    BatchItem,
    FailureClass,
    ItemResult,
    Job,
    JobState,
    Submission,
    SubmissionOutcome,
    Verb,
)
from tests import factories
from tests.factories import NOW

ORDER = Order(By(None, "ada", "127.0.0.1"), reason="The provider is back.", is_confirmed=True)
LATER = NOW + timedelta(minutes=1)


def item_of(job: Job) -> BatchItem:
    return BatchItem.objects.get(version=job.version)


def applied(verb: Verb, job: Job, *, order: Order = ORDER) -> Result:
    item = item_of(job)
    return applying.apply(verb, [item.pk], order=order, now=LATER)[item.pk]


def now_of(job: Job) -> Job:
    return Job.objects.get(pk=job.pk)


def last_event(job: Job) -> tuple[str, str, str, str]:
    event = job.events.latest("pk")
    return (event.from_state, event.to_state, event.reason, event.actor)


def test_check_again_takes_an_accepted_job_from_the_pump_that_holds_it(batch: Batch) -> None:
    job = factories.make_accepted_job(batch=batch, due_at=NOW)
    held = claims.claim_due(batch.account, (JobState.ACCEPTED,), owner="a", now=NOW, most=1)[0]
    assert applied(Verb.CHECK_AGAIN, job).is_done
    row = now_of(job)
    assert (row.due_at, row.lease_owner, row.fencing_token) == (LATER, None, held.token + 1)
    late = changes.Change(held, LATER, job_fields={"poll_count": 9})
    assert writes.write_round([late], now=LATER) == {job.pk}
    assert "stale_write_refused" in job.events.values_list("reason", flat=True)
    assert now_of(job).poll_count == 0


@pytest.mark.parametrize("watch_until", [None, NOW - timedelta(days=1), NOW + timedelta(days=1)])
def test_check_again_makes_the_late_read_due_also_after_the_retention(watch_until: object, batch: Batch) -> None:
    job = factories.make_job(batch=batch, state=JobState.DEADLINE_EXCEEDED)
    factories.make_submission(
        job=job, provider_job_id="pdf_1", accepted_at=NOW, in_doubt=False, watch_until=watch_until, rescue_count=2
    )
    assert applied(Verb.CHECK_AGAIN, job).is_done
    row = Submission.objects.get()
    assert (row.watch_at, row.rescue_count) == (LATER, 0)
    assert row.watch_until is not None
    assert row.watch_until >= LATER
    assert last_event(job) == ("deadline_exceeded", "deadline_exceeded", "check_again", "ada")


@pytest.mark.parametrize("outcome", ["delivered", "open"])
def test_fetch_again_opens_the_submission_that_was_finished(outcome: str, batch: Batch) -> None:
    job = factories.make_job(batch=batch, state=JobState.EXPIRED, fetch_count=3, poll_count=4)
    closed_at = None if outcome == "open" else NOW
    factories.make_submission(
        job=job, provider_job_id="pdf_1", accepted_at=NOW, in_doubt=False, outcome="render_failed", closed_at=NOW
    )
    finished = factories.make_submission(
        job=job, provider_job_id="pdf_2", accepted_at=NOW, in_doubt=False, outcome=outcome, closed_at=closed_at
    )
    assert applied(Verb.FETCH_AGAIN, job).is_done
    row = now_of(job)
    assert (row.state, row.due_at, row.fetch_count, row.poll_count) == ("rendered", LATER, 0, 4)
    opened = Submission.objects.get(outcome=SubmissionOutcome.OPEN)
    assert (opened.pk, opened.rescue_count) == (finished.pk, 0)
    assert last_event(job) == ("expired", "rendered", "fetch_again", "ada")


def test_retry_sends_what_is_in_doubt_under_its_own_submission(batch: Batch) -> None:
    job = factories.make_job(batch=batch, state=JobState.UNKNOWN)
    known = factories.make_submission(job=job)
    assert applied(Verb.RETRY, job).is_done
    assert (now_of(job).state, now_of(job).failure_class) == ("submitting", "")
    claim = claims.claim_due(batch.account, (JobState.SUBMITTING,), owner="a", now=LATER, most=1)[0]
    assert claim.submission is not None
    assert (claim.submission.id, claim.submission.in_doubt) == (known.pk, True)


def test_retry_of_a_definite_failure_waits_for_its_turn_with_another_submission(batch: Batch) -> None:
    job = factories.make_job(
        batch=batch, state=JobState.FAILED, failure_class=FailureClass.INTERNAL, lead_batch=None, fetch_count=2
    )
    factories.make_submission(job=job, in_doubt=False, outcome="refused", closed_at=NOW)
    assert applied(Verb.RETRY, job).is_done
    row = now_of(job)
    assert (row.state, row.lead_batch_id, row.fetch_count) == ("pending", batch.pk, 0)
    claim = claims.claim_due(batch.account, (JobState.PENDING,), owner="a", now=LATER, most=1)[0]
    assert (claim.submission, claim.next_sequence) == (None, 2)


def test_a_second_retry_finds_it_under_way(batch: Batch) -> None:
    job = factories.make_job(batch=batch, state=JobState.UNKNOWN)
    factories.make_submission(job=job)
    assert applied(Verb.RETRY, job).is_done
    assert applied(Verb.RETRY, job) == Result(ItemResult.SKIPPED, "It is being sent.")
    assert AuditEntry.objects.filter(action="retry").count() == 1


def test_a_verb_that_asks_for_a_reason_does_nothing_without_one(batch: Batch) -> None:
    job = factories.make_job(batch=batch, state=JobState.FAILED)
    for verb in (Verb.RETRY, Verb.DISMISS, Verb.CANCEL):
        result = applied(verb, job, order=Order(ORDER.by, reason="  "))
        assert result == Result(ItemResult.SKIPPED, f"{verb.label} asks for a reason; give one.")
    assert not job.events.exists()


def test_cancel_ends_a_waiting_job_that_nobody_else_needs_and_reopen_brings_it_back(batch: Batch) -> None:
    job = factories.make_job(batch=batch)
    held = claims.claim_due(batch.account, (JobState.PENDING,), owner="a", now=NOW, most=1)[0]
    assert applied(Verb.CANCEL, job).is_done
    assert now_of(job).state == "cancelled"
    assert now_of(job).fencing_token > held.token, "the pump that was about to send it may not"
    assert item_of(job).cancelled_at == LATER
    assert applied(Verb.REOPEN, job).is_done
    row = now_of(job)
    assert (row.state, row.lead_batch_id, item_of(job).cancelled_at) == ("pending", batch.pk, None)


def test_cancel_of_what_may_have_left_is_remembered_once_that_is_accepted(batch: Batch) -> None:
    job = factories.make_job(batch=batch, state=JobState.SUBMITTING)
    factories.make_submission(job=job)
    told = applied(Verb.CANCEL, job, order=Order(ORDER.by, reason="Wrong prices."))
    assert (told.result, told.words[:27]) == (ItemResult.SKIPPED, "It may already be accepted.")
    assert applied(Verb.CANCEL, job).is_done
    row = now_of(job)
    assert (row.state, row.lead_batch_id) == ("submitting", None)
    assert item_of(job).cancelled_at == LATER
    assert applied(Verb.REOPEN, job).is_done
    assert now_of(job).lead_batch_id == batch.pk


def test_a_cancelled_item_leaves_a_job_that_another_batch_needs(batch: Batch) -> None:
    job = factories.make_job(batch=batch)
    other = factories.make_batch(workspace=batch.workspace, account=batch.account)
    BatchItem.objects.create(
        batch=other, position=0, document=job.version.document, version=job.version, intake_outcome="unchanged"
    )
    item = batch.items.get()
    assert applying.apply(Verb.CANCEL, [item.pk], order=ORDER, now=LATER)[item.pk].is_done
    assert (now_of(job).state, now_of(job).lead_batch_id) == ("pending", other.pk)


def test_dismiss_keeps_the_reason_as_its_note_and_reopen_takes_it_back(batch: Batch) -> None:
    job = factories.make_job(batch=batch, state=JobState.FAILED)
    assert applied(Verb.DISMISS, job).is_done
    assert (item_of(job).dismissed_at, item_of(job).dismissed_note) == (LATER, "The provider is back.")
    assert applied(Verb.DISMISS, job).words == "It is dismissed already."
    assert applied(Verb.REOPEN, job).is_done
    assert (item_of(job).dismissed_at, item_of(job).dismissed_note) == (None, None)
    assert now_of(job).state == "failed"


def test_setting_it_going_again_takes_its_dismissal_back(batch: Batch) -> None:
    job = factories.make_job(batch=batch, state=JobState.FAILED, failure_class=FailureClass.INTERNAL)
    assert applied(Verb.DISMISS, job).is_done
    assert applied(Verb.RETRY, job).is_done
    assert item_of(job).dismissed_at is None


def test_the_audit_log_says_who_why_from_where_and_for_which_price(batch: Batch) -> None:
    job = factories.make_job(batch=batch, state=JobState.FAILED, failure_class=FailureClass.INTERNAL)
    assert applied(Verb.RETRY, job).is_done
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.subject) == ("retry", f"document {job.version.document.public_id}")
    assert (entry.actor_words, entry.from_where, entry.reason) == ("ada", "127.0.0.1", "The provider is back.")
    assert entry.facts == {"batch": batch.public_id, "version": 1, "from_state": "failed", "price": "bills 0 or 1"}


def test_a_fault_of_ours_stays_one_items(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [factories.make_job(batch=batch, state=JobState.FAILED) for _ in range(3)]
    bad = item_of(jobs[1]).pk
    whole = applying.APPLY[Verb.DISMISS]

    def faulty(item_ids: list[int], **given: object) -> dict[int, Result]:
        if bad in item_ids:
            raise LookupError("planted")
        return whole(item_ids, **given)  # type: ignore[arg-type]  # passed through as it came

    monkeypatch.setattr(applying, "APPLY", {Verb.DISMISS: faulty})
    results = applying.apply(Verb.DISMISS, [item_of(job).pk for job in jobs], order=ORDER, now=LATER)
    assert [result.result for _pk, result in sorted(results.items())] == ["done", "failed", "done"]
    assert "LookupError" in results[bad].words
