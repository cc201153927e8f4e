"""Outcomes on their way into rows: what a current holder writes, and what even a stale one may never lose."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from batches.engine import changes, claims, writes
from batches.engine.changes import Change, Follow, FollowStep
from batches.models import (
    Alert,
    AlertKind,
    Artifact,
    Batch,
    Exchange,
    FailureClass,
    Job,
    JobEvent,
    JobState,
    Submission,
)
from tests import factories
from tests.engine.outcomes import LATER, acceptance, claimed, failure, rendered, saving, sent, taken_over_from
from tests.engine.samples import exchange
from tests.factories import NOW

# --- the current holder ---


def test_an_acceptance_is_written_whole_and_the_lease_is_kept_for_the_next_step(batch: Batch) -> None:
    job = sent(batch)
    assert writes.write_round([acceptance(claimed(job))], now=LATER) == set()
    job.refresh_from_db()
    assert (job.state, job.lease_owner, job.provider_status) == ("accepted", "a", "queued")
    assert job.deadline_at == LATER + timedelta(seconds=1800)
    row = job.submissions.get()
    assert (row.provider_job_id, row.accepted_at, row.in_doubt, row.try_count) == ("pdf_new", LATER, False, 1)
    kept = Exchange.objects.get()
    assert (kept.job, kept.submission, kept.kind, kept.status) == (job, row, "submit", 202)
    assert [event.reason for event in job.events.all()] == ["accepted"]


def test_without_a_next_step_the_lease_is_given_back(batch: Batch) -> None:
    job = factories.make_job(batch=batch)
    writes.write_round([failure(claimed(job))], now=NOW)
    job.refresh_from_db()
    assert (job.state, job.lease_owner, job.lease_until) == ("failed", None, None)


def test_facts_without_a_move_are_written_under_the_same_fence(batch: Batch) -> None:
    job = factories.make_accepted_job(batch=batch)
    claim = claimed(job)
    follow = Follow(FollowStep.POLL, LATER)
    facts = {"poll_count": 3, "provider_status": "processing", "due_at": LATER}
    change = Change(claim=claim, at=NOW, job_fields=facts, after=claim, follow=follow)
    assert writes.write_round([change], now=NOW) == set()
    job.refresh_from_db()
    assert (job.poll_count, job.provider_status, job.due_at, job.lease_owner) == (3, "processing", LATER, "a")
    assert writes.write_round([replace(change, follow=None)], now=NOW) == set()
    job.refresh_from_db()
    assert job.lease_owner is None


def test_a_change_of_nothing_but_evidence_is_fenced_too(batch: Batch) -> None:
    job = factories.make_accepted_job(batch=batch)
    claim = claimed(job)
    change = Change(
        claim=claim,
        at=NOW,
        exchanges=((exchange("poll"), None),),
        after=claim,
        follow=Follow(FollowStep.POLL, LATER),
    )
    assert writes.write_round([change], now=NOW) == set()
    Job.objects.update(fencing_token=99)
    assert writes.write_round([change], now=NOW) == {job.pk}
    assert Exchange.objects.count() == 2


def test_saved_and_its_artifact_are_one_transaction(batch: Batch) -> None:
    job = rendered(batch)
    assert writes.write_round([saving(claimed(job))], now=LATER) == set()
    job.refresh_from_db()
    artifact = Artifact.objects.get(version=job.version)
    assert job.state == "saved"
    assert (artifact.submission, artifact.stored_at, artifact.page_count) == (job.submissions.get(), LATER, 2)
    assert job.submissions.get().outcome == "delivered"


def test_an_artifact_that_the_database_refuses_leaves_nothing_saved(batch: Batch) -> None:
    job = rendered(batch)
    writes.write_round([saving(claimed(job), byte_count=0)], now=LATER)
    job.refresh_from_db()
    assert (job.state, job.failure_class) == ("failed", "internal")
    assert not Artifact.objects.exists()
    assert job.submissions.get().outcome == "open"


def test_a_second_artifact_of_a_version_is_refused(batch: Batch) -> None:
    job = factories.make_saved_job(batch=batch)
    first = Artifact.objects.get()
    Job.objects.filter(pk=job.pk).update(state=JobState.RENDERED)
    job.submissions.update(outcome="open", closed_at=None)
    job.refresh_from_db()
    writes.write_round([saving(claimed(job), storage_key="default/other/v1.pdf")], now=LATER)
    assert Artifact.objects.get() == first
    assert Artifact.objects.get().sha256 == first.sha256


def test_being_saved_closes_the_alerts_of_the_job(batch: Batch) -> None:
    job = rendered(batch)
    Alert.objects.create(
        kind=AlertKind.DEADLINE_EXCEEDED, subject=f"job:{job.pk}", job=job, words="Late.", opened_at=NOW
    )
    writes.write_round([saving(claimed(job))], now=LATER)
    assert Alert.objects.get().closed_at == LATER


def test_an_alert_is_opened_once_however_often_it_is_raised(batch: Batch) -> None:
    job = factories.make_job(batch=batch)
    claim = claimed(job)
    change = replace(failure(claim), alert=(AlertKind.INTERNAL, "Look."))
    writes.write_round([change], now=NOW)
    Job.objects.filter(pk=job.pk).update(state="pending", failure_class="", failure_words="")
    writes.write_round([change], now=LATER)
    alert = Alert.objects.get()
    assert (alert.subject, alert.opened_at, alert.closed_at) == (f"job:{job.pk}", NOW, None)


def test_many_outcomes_take_the_statements_of_one(batch: Batch) -> None:
    counts = []
    for number in (1, 25):
        jobs = [sent(batch) for _ in range(number)]
        taken = {each.job_id: each for each in _all_claimed(jobs)}
        group = [acceptance(taken[job.pk], f"pdf_{job.pk}") for job in jobs]
        with CaptureQueriesContext(connection) as queries:
            assert writes.write_round(group, now=LATER) == set()
        counts.append(len(queries))
    assert counts[0] == counts[1]


def _all_claimed(jobs: list[Job]) -> list[claims.Claim]:
    return claims.claim_due(jobs[0].account, [JobState.SUBMITTING], owner="a", now=NOW, most=100)


# --- a holder whose claim went stale ---


@pytest.fixture
def taken_over(batch: Batch) -> tuple[Job, claims.Claim, claims.Claim]:
    return taken_over_from(batch)


def test_a_stale_holder_changes_nothing_and_is_told(taken_over: tuple[Job, claims.Claim, claims.Claim]) -> None:
    job, stale, _current = taken_over
    change = replace(acceptance(stale), submission_fields={"try_count": 9, "in_doubt": False})
    assert writes.write_round([change], now=LATER) == {job.pk}
    job.refresh_from_db()
    assert (job.state, job.lease_owner) == ("submitting", "b")
    assert job.submissions.get().try_count == 1
    event = JobEvent.objects.get()
    assert (event.reason, event.from_state, event.to_state) == ("stale_write_refused", "submitting", "submitting")
    assert "“accepted”" in event.words


def test_a_stale_holders_evidence_is_kept(taken_over: tuple[Job, claims.Claim, claims.Claim]) -> None:
    job, stale, _current = taken_over
    writes.write_round([acceptance(stale)], now=LATER)
    assert Exchange.objects.get().submission == job.submissions.get()


def test_a_stale_holders_provider_job_id_is_recorded_on_its_own_submission(
    taken_over: tuple[Job, claims.Claim, claims.Claim],
) -> None:
    job, stale, current = taken_over
    writes.write_round([acceptance(stale, "pdf_late")], now=LATER)
    row = job.submissions.get()
    assert (row.provider_job_id, row.accepted_at, row.in_doubt) == ("pdf_late", LATER, False)
    # The pump that took over repeats the send, is answered with the same job, and goes on.
    assert writes.write_round([acceptance(current, "pdf_late")], now=LATER) == set()
    job.refresh_from_db()
    assert job.state == "accepted"
    assert not Alert.objects.exists()


def test_stale_and_current_outcomes_share_a_group(batch: Batch) -> None:
    stale_job, good_job = sent(batch), sent(batch)
    taken = {each.job_id: each for each in _all_claimed([stale_job, good_job])}
    Job.objects.filter(pk=stale_job.pk).update(fencing_token=50)
    group = [acceptance(taken[stale_job.pk], "pdf_1"), acceptance(taken[good_job.pk], "pdf_2")]
    assert writes.write_round(group, now=LATER) == {stale_job.pk}
    states = dict(Job.objects.values_list("pk", "state"))
    assert states == {stale_job.pk: "submitting", good_job.pk: "accepted"}
    assert Submission.objects.get(job=stale_job).provider_job_id == "pdf_1"


def test_a_second_id_for_one_key_is_told_and_never_replaces_the_first(batch: Batch) -> None:
    job = sent(batch, provider_job_id="pdf_first", accepted_at=NOW, in_doubt=False)
    writes.write_round([acceptance(claimed(job), "pdf_second")], now=LATER)
    assert job.submissions.get().provider_job_id == "pdf_first"
    alert = Alert.objects.get()
    assert (alert.kind, alert.job) == (AlertKind.SURPLUS, job)
    assert "pdf_second" in alert.words
    assert "second_id_for_one_key" in JobEvent.objects.values_list("reason", flat=True)


def test_a_job_with_a_second_id_is_given_back_and_its_holder_is_told(batch: Batch) -> None:
    job = sent(batch, provider_job_id="pdf_first", accepted_at=NOW, in_doubt=False)
    other = sent(batch)
    taken = {each.job_id: each for each in _all_claimed([job, other])}
    group = [acceptance(taken[job.pk], "pdf_second"), acceptance(taken[other.pk], "pdf_other")]
    assert writes.write_round(group, now=LATER) == {job.pk}, "its holder must not go on with the second id"
    job.refresh_from_db()
    assert (job.state, job.lease_owner, job.due_at) == ("submitting", None, LATER)
    assert job.submissions.get().try_count == 1
    assert Exchange.objects.filter(job=job).count() == 1
    assert Job.objects.get(pk=other.pk).state == "accepted"
    again = claimed(job, owner="b", now=LATER)
    assert again.submission.provider_job_id == "pdf_first"


def test_what_may_be_billed_twice_stays_open_when_the_document_is_saved(batch: Batch) -> None:
    job = rendered(batch)
    for kind in (AlertKind.SURPLUS, AlertKind.UNKNOWN_OUTCOME):
        Alert.objects.create(kind=kind, subject=f"job:{job.pk}", job=job, words="Look.", opened_at=NOW)
    writes.write_round([saving(claimed(job))], now=LATER)
    job.refresh_from_db()
    assert job.state == "saved"
    assert list(Alert.objects.filter(closed_at=None).values_list("kind", flat=True)) == [AlertKind.SURPLUS]


def test_a_job_whose_id_a_stale_holder_brought_does_not_become_unknown(
    taken_over: tuple[Job, claims.Claim, claims.Claim],
) -> None:
    job, stale, current = taken_over
    writes.write_round([acceptance(stale, "pdf_late")], now=LATER)
    lost = changes.parking(current, "No answer came.", failure_class=FailureClass.UNKNOWN_OUTCOME, now=LATER)
    assert writes.write_round([lost], now=LATER) == {job.pk}
    job.refresh_from_db()
    assert (job.state, job.lease_owner, job.due_at) == ("submitting", None, LATER), "it is claimed, and the id is found"
    assert not Alert.objects.exists()


@pytest.mark.parametrize("can_be_stored", [True, False], ids=["not judged", "not judged and not stored"])
def test_an_id_that_a_stale_holder_could_not_judge_takes_the_job_out_of_unknown(
    batch: Batch, monkeypatch: pytest.MonkeyPatch, can_be_stored: bool
) -> None:
    job = sent(batch)
    stale = claimed(job, owner="a")
    given_up(job)
    unjudged = replace(
        changes.parking(stale, "A bug.", now=LATER),
        submission_id=job.submissions.get().pk,
        submission_fields={"provider_job_id": "pdf_late", "accepted_at": LATER},
        exchanges=((exchange() if can_be_stored else replace(exchange(), kind="no such kind"), None),),
    )
    assert writes.write_round([unjudged], now=LATER) == {job.pk}
    job.refresh_from_db()
    assert (job.state, job.due_at, job.deadline_at) == ("accepted", LATER, LATER + timedelta(seconds=1800))


def given_up(job: Job, *, now: Any = LATER) -> None:
    """The pump that took over makes the job unknown, with its alert."""
    current = claimed(job, owner="b", now=NOW + timedelta(minutes=1))
    lost = changes.parking(current, "No answer came.", failure_class=FailureClass.UNKNOWN_OUTCOME, now=now)
    writes.write_round([lost], now=now)
    job.refresh_from_db()
    assert (job.state, Alert.objects.get().closed_at) == ("unknown", None)


def test_an_id_that_arrives_late_takes_the_job_out_of_unknown_and_closes_its_alert(batch: Batch) -> None:
    job = sent(batch)
    stale = claimed(job, owner="a")
    given_up(job)
    assert writes.write_round([acceptance(stale, "pdf_late")], now=LATER) == {job.pk}
    job.refresh_from_db()
    assert (job.state, job.failure_class, job.failure_words, job.lease_owner) == ("accepted", "", "", None)
    assert (job.due_at, job.deadline_at) == (LATER, LATER + timedelta(seconds=1800))
    assert job.submissions.get().provider_job_id == "pdf_late"
    assert Alert.objects.get().closed_at == LATER
    event = job.events.order_by("pk").last()
    assert (event.reason, event.from_state, event.to_state) == ("id_arrived_late", "unknown", "accepted")
    assert claimed(job, owner="c", now=LATER).submission.provider_job_id == "pdf_late"


def test_a_stale_outcome_without_an_id_leaves_the_job_unknown(batch: Batch) -> None:
    job = sent(batch)
    stale = claimed(job, owner="a")
    given_up(job)
    assert writes.write_round([changes.parking(stale, "A bug.", now=LATER)], now=LATER) == {job.pk}
    job.refresh_from_db()
    assert (job.state, Alert.objects.get().closed_at) == ("unknown", None)
    assert job.events.order_by("pk").last().reason == "stale_write_refused"


def test_a_late_second_id_does_not_take_the_job_out_of_unknown(batch: Batch) -> None:
    job = sent(batch)
    stale = claimed(job, owner="a")
    given_up(job)
    job.submissions.update(provider_job_id="pdf_first", accepted_at=NOW, in_doubt=False)
    writes.write_round([acceptance(stale, "pdf_second")], now=LATER)
    job.refresh_from_db()
    assert (job.state, job.submissions.get().provider_job_id) == ("unknown", "pdf_first")
    kinds = set(Alert.objects.filter(closed_at=None).values_list("kind", flat=True))
    assert kinds == {AlertKind.SURPLUS, AlertKind.UNKNOWN_OUTCOME}
