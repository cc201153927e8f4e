"""Which events of a batch are noted, when, and once each."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from batches.engine import running
from batches.engine.audit import By
from batches.engine.notices import Event, record
from batches.mailing.look import look
from batches.models import Batch, Job, JobState, Membership, Notice, NoticeEvent, NoticeWatch, ProviderAccount
from tests.factories import NOW, make_batch, make_job, make_saved_job

pytestmark = pytest.mark.django_db
BY = By(None, "m.okoye", "test")


def minutes(count: float) -> datetime:
    return NOW + timedelta(minutes=count)


def fail(job: Job, *, at: datetime, words: str = "No such field.") -> None:
    failure = {"failure_class": "invalid_input", "failure_words": words, "failure_cause": words[:16]}
    Job.objects.filter(pk=job.pk).update(state=JobState.FAILED, state_changed_at=at, **failure)


def save(job: Job, *, at: datetime) -> None:
    Job.objects.filter(pk=job.pk).update(
        state=JobState.SAVED, state_changed_at=at, failure_class="", failure_words="", failure_cause=""
    )


def told() -> list[tuple[str, str]]:
    return list(Notice.objects.order_by("pk").values_list("event", "occasion"))


def test_the_life_of_a_batch_is_told_once_each(batch: Batch, nadia: User) -> None:
    jobs = [make_job(batch=batch) for _ in range(4)]
    look(now=minutes(1))
    assert told() == []

    fail(jobs[0], at=minutes(1.5))
    for minute in (2, 3, 4):
        look(now=minutes(minute))
    assert told() == [("needs_person", "")]
    fail(jobs[1], at=minutes(4.5))
    look(now=minutes(5))
    assert told() == [("needs_person", "")], "only the first failure is news while the others go on"

    save(jobs[2], at=minutes(6))
    save(jobs[3], at=minutes(6))
    for minute in (7, 8, 20):
        look(now=minutes(minute))
    assert told()[1:] == [("finished", "")]
    assert Notice.objects.last().facts["state"] == "partially_complete"

    save(jobs[0], at=minutes(30))  # a late result
    look(now=minutes(31))
    look(now=minutes(45))
    assert told()[2:] == [("improved", "saved:3")]
    save(jobs[1], at=minutes(50))
    look(now=minutes(60))
    assert told()[3:] == [("improved", "saved:4")]
    assert Notice.objects.last().facts["more"] == 1
    assert NoticeWatch.objects.get().due_at is None, "all is saved, so nothing is looked at any more"


@pytest.mark.parametrize(
    ("states", "is_cancelled", "state"),
    [
        (["saved", "saved"], False, "complete"),
        (["saved", "failed"], False, "partially_complete"),
        (["failed", "failed"], False, "failed"),
        (["cancelled", "saved"], True, "cancelled"),
    ],
)
def test_a_finished_batch_says_how_it_ended_and_its_numbers_sum(
    states: list[str], is_cancelled: bool, state: str, batch: Batch, nadia: User
) -> None:
    for each in states:
        make_job(batch=batch, state=each)
    look(now=minutes(1))
    notice = Notice.objects.get()
    counts = notice.facts["counts"]
    assert (notice.event, notice.facts["state"]) == ("finished", state)
    assert sum(count for name, count in counts.items() if name != "total") == counts["total"] == 2


def test_a_held_account_is_told_once_for_each_hold(batch: Batch, nadia: User) -> None:
    make_job(batch=batch)

    def hold(reason: str, at: datetime) -> None:
        ProviderAccount.objects.update(health="held", hold_reason=reason, held_at=at, hold_words="No credit is left.")

    hold("insufficient_credit", minutes(1))
    look(now=minutes(2))
    look(now=minutes(3))
    assert [event for event, _ in told()] == ["held"]
    facts = Notice.objects.get().facts
    assert (facts["counts"]["held"], "No credit is left." in facts["reason"]) == (1, True)
    hold("auth", minutes(10))
    look(now=minutes(11))
    assert [event for event, _ in told()] == ["held", "held"]
    hold("unreachable", minutes(20))
    look(now=minutes(21))
    assert len(told()) == 2, "what resumes by itself within minutes is no news"
    look(now=minutes(31))
    assert len(told()) == 3


def test_a_batch_that_paused_itself_is_told_and_one_that_a_person_paused_is_not(batch: Batch, nadia: User) -> None:
    make_job(batch=batch)
    running.pause(batch.pk, reason="lunch", by=BY, now=minutes(1))
    look(now=minutes(2))
    assert told() == []
    running.resume(batch.pk, reason="", by=BY, now=minutes(3))
    running.stop(batch.pk, reason="20 documents failed, the limit is 20.", alert="It was paused.", now=minutes(4))
    look(now=minutes(5))
    look(now=minutes(6))
    assert [event for event, _ in told()] == ["held"]
    assert Notice.objects.get().facts["reason"] == "20 documents failed, the limit is 20."


def test_a_sample_that_is_ready_is_told(batch: Batch, nadia: User) -> None:
    job = make_job(batch=batch)
    Batch.objects.filter(pk=batch.pk).update(paused_at=NOW, waits_for_release=True, pause_reason="It waits.")
    sample = make_batch(workspace=batch.workspace, account=batch.account, sample_of=batch)
    first = make_job(batch=sample)
    look(now=minutes(1))
    assert told() == []
    save(first, at=minutes(2))
    look(now=minutes(3))
    look(now=minutes(4))
    assert told() == [("held", "sample")]
    assert job.state == JobState.PENDING


def test_causes_and_cost_are_told_and_neither_content_nor_provider_ids(batch: Batch, nadia: User) -> None:
    ProviderAccount.objects.update(price_per_job=Decimal("0.5"), price_currency="USD")
    for code in ["a", "a", "a", "b", "b", "c", "d"]:
        make_job(batch=batch, state=JobState.FAILED, failure_class="invalid_input", failure_code=code)
    saved = make_saved_job(batch=batch)
    saved.submissions.update(provider_job_id="pdf_k7secret", batch=batch)
    look(now=minutes(1))
    facts = Notice.objects.get().facts
    assert [count for _title, count in facts["causes"]] == [3, 2, 1]
    assert (facts["more_causes"], facts["cost"]) == (1, "0.50 USD")
    assert "pdf_k7secret" not in str(facts)
    assert "<h1>" not in str(facts)


def test_a_batch_that_waits_is_never_counted_and_one_that_nobody_watches_is_not_looked_at(
    batch: Batch, nadia: User
) -> None:
    """What makes the sweep as cheap for a million documents as for one: probes of indexes, no grouping over items."""
    make_job(batch=batch)
    make_job(batch=make_batch(workspace=batch.workspace, account=batch.account))
    with CaptureQueriesContext(
        connection,
    ) as asked:
        look(now=minutes(1))
    assert len(asked) <= 10
    assert not [query["sql"] for query in asked if "GROUP BY" in query["sql"] or "COUNT(" in query["sql"]]
    NoticeWatch.objects.update(due_at=None)
    with CaptureQueriesContext(connection) as asked:
        look(now=minutes(2))
    assert len(asked) == 1


def test_two_looks_at_once_note_an_event_once(batch: Batch, nadia: User) -> None:
    make_job(batch=batch, state=JobState.SAVED)
    look(now=minutes(1))
    NoticeWatch.objects.update(due_at=minutes(1))
    Notice.objects.update(happened_at=minutes(1))
    again = Event(NoticeEvent.FINISHED, "", Notice.objects.get().facts)
    record(NoticeWatch.objects.get(), [again], people=[nadia], is_mailed=False, due_at=None, now=minutes(1))
    assert told() == [("finished", "")]


def test_nobody_hears_of_what_they_may_not_see(batch: Batch, nadia: User) -> None:
    make_job(batch=batch, state=JobState.SAVED)
    Membership.objects.all().delete()
    look(now=minutes(1))
    assert told() == []
    assert NoticeWatch.objects.get().due_at is None


def test_what_is_still_being_written_is_not_looked_at(batch: Batch, nadia: User) -> None:
    Batch.objects.update(writing_at=NOW, paused_at=NOW)
    look(now=minutes(1))
    assert told() == []
    assert NoticeWatch.objects.get().due_at == NOW
