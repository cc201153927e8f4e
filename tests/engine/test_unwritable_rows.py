"""Rows that cannot be written: each parks itself and nobody else, and what was learned with it is kept."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, InterfaceError, OperationalError, ProgrammingError

from batches.engine import changes, claims, mishaps, transitions, writes
from batches.engine.changes import Change
from batches.models import (
    Alert,
    AlertKind,
    Batch,
    Exchange,
    FailureClass,
    Job,
    JobState,
)
from tests import factories
from tests.engine.outcomes import LATER, acceptance, claimed, failure, rendered, saving, sent, taken_over_from
from tests.engine.samples import exchange
from tests.factories import NOW


@pytest.fixture
def taken_over(batch: Batch) -> tuple[Job, claims.Claim, claims.Claim]:
    return taken_over_from(batch)


def test_an_id_that_another_documents_submission_owns_makes_the_job_unknown_and_names_both(batch: Batch) -> None:
    owner = factories.make_accepted_job(batch=batch, business_id="INV-OWNER", provider_job_id="pdf_taken")
    job = sent(batch)
    assert writes.write_round([acceptance(claimed(job), "pdf_taken")], now=LATER) == {job.pk}
    job.refresh_from_db()
    owner.refresh_from_db()
    assert (job.state, job.failure_class, job.lease_owner) == ("unknown", "unknown_outcome", None)
    assert "INV-OWNER v1" in job.failure_words
    assert job.version.document.business_id in job.failure_words
    assert owner.state == "accepted"
    assert Alert.objects.get().kind == AlertKind.UNKNOWN_OUTCOME


def test_ids_that_are_taken_neither_undo_the_group_nor_fill_the_log(
    batch: Batch, caplog: pytest.LogCaptureFixture
) -> None:
    """A provider that repeats a job id: the others are written together, at once, and each of these has one line."""
    factories.make_accepted_job(batch=batch, business_id="INV-OWNER", provider_job_id="pdf_taken")
    jobs = [sent(batch) for _ in range(5)]
    claimed_ones = claims.claim_due(batch.account, [JobState.SUBMITTING], owner="a", now=NOW, most=9)
    ids = ["pdf_1", "pdf_taken", "pdf_2", "pdf_same", "pdf_same"]
    parts: list[int] = []
    stale = writes.write_round(
        [acceptance(claim, each) for claim, each in zip(claimed_ones, ids, strict=True)],
        now=LATER,
        committed=lambda part, _stale: parts.append(len(part)),
    )
    states = [Job.objects.get(pk=job.pk).state for job in jobs]
    assert states == ["accepted", "unknown", "accepted", "accepted", "unknown"], "the first that brings an id has it"
    assert stale == {jobs[1].pk, jobs[4].pk}
    assert parts == [2, 1, 1, 1]
    assert [record.exc_info for record in caplog.records if record.levelname == "ERROR"] == [None, None]
    assert "pdf_taken" not in caplog.text


def test_the_log_never_quotes_a_row_that_the_database_refuses(
    batch: Batch, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its text holds the provider job id in full, which fetches the PDF (PostgreSQL says so in its DETAIL)."""
    # Another writer brings the id right after it was looked for.
    monkeypatch.setattr(writes, "_without_taken_ids", lambda group: (group, ()))
    factories.make_accepted_job(batch=batch, business_id="INV-OWNER", provider_job_id="pdf_taken")
    writes.write_round([acceptance(claimed(sent(batch)), "pdf_taken")], now=LATER)
    assert "IntegrityError" in caplog.text
    assert "_record_ids" in caplog.text, "the trace is there"
    assert "pdf_taken" not in caplog.text
    assert "DETAIL" not in caplog.text
    told = mishaps.without_row(IntegrityError("Key (provider_job_id)=(pdf_taken) already exists."))
    assert "pdf_taken" not in str(told)
    assert str(mishaps.without_row(ValueError("a fault of ours"))) == "a fault of ours"


def test_one_row_that_cannot_be_written_parks_itself_and_the_others_are_written(batch: Batch) -> None:
    jobs = [factories.make_job(batch=batch) for _ in range(4)]
    found = claims.claim_due(batch.account, [JobState.PENDING], owner="a", now=NOW, most=9)
    group = [failure(claim) for claim in found]
    group[1] = failure(found[1], failure_class="no such class")
    assert writes.write_round(group, now=LATER) == {found[1].job_id}
    facts = {job.pk: job for job in Job.objects.all()}
    assert {facts[job.pk].state for job in jobs} == {"failed"}
    assert facts[found[0].job_id].failure_class == "invalid_input"
    parked = facts[found[1].job_id]
    assert (parked.failure_class, parked.lease_owner) == ("internal", None)
    assert "IntegrityError" in parked.failure_words
    assert Alert.objects.get().kind == AlertKind.INTERNAL


@pytest.mark.parametrize("error", [TypeError, KeyError, AssertionError, OverflowError, ProgrammingError])
def test_whatever_goes_wrong_with_one_row_parks_that_row_only(
    batch: Batch, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    for _ in range(3):
        factories.make_job(batch=batch)
    found = claims.claim_due(batch.account, [JobState.PENDING], owner="a", now=NOW, most=9)
    move_many = transitions.move_many

    def failing(moves: Any, *, now: Any) -> set[int]:
        if any(move.job_id == found[1].job_id and move.reason == "refused" for move in moves):
            raise error("broken")
        return move_many(moves, now=now)

    monkeypatch.setattr(transitions, "move_many", failing)
    assert writes.write_round([failure(claim) for claim in found], now=LATER) == {found[1].job_id}
    classes = dict(Job.objects.values_list("pk", "failure_class"))
    assert [classes[claim.job_id] for claim in found] == ["invalid_input", "internal", "invalid_input"]
    assert error.__name__ in Job.objects.get(pk=found[1].job_id).failure_words


@pytest.mark.parametrize("fails_at", [1, 2, 3], ids=["in the group", "in its own write", "while it is parked"])
@pytest.mark.parametrize("error", [OperationalError, InterfaceError])
def test_a_database_that_is_away_parks_nobody_and_is_told_to_the_pump(
    batch: Batch, monkeypatch: pytest.MonkeyPatch, error: type[Exception], fails_at: int
) -> None:
    job = factories.make_job(batch=batch)
    change = failure(claimed(job))
    calls: list[int] = []

    def away(moves: Any, *, now: Any) -> set[int]:
        calls.append(len(moves))
        raise error("gone") if len(calls) == fails_at else TypeError("broken")

    monkeypatch.setattr(transitions, "move_many", away)
    with pytest.raises(error):
        writes.write_round([change], now=LATER)
    job.refresh_from_db()
    assert (job.state, job.lease_owner, len(calls)) == ("pending", "a", fails_at)


def poisoned(change: Change) -> Change:
    """The change with a value in its move that the database refuses."""
    assert change.move is not None
    return replace(change, move=replace(change.move, fields={**change.move.fields, "poll_count": -1}))


def test_what_was_maybe_sent_and_cannot_be_written_is_unknown_never_failed(batch: Batch) -> None:
    job = sent(batch)
    lost = changes.parking(claimed(job), "No answer came.", failure_class=FailureClass.UNKNOWN_OUTCOME, now=LATER)
    writes.write_round([poisoned(lost)], now=LATER)
    job.refresh_from_db()
    assert (job.state, job.failure_class) == ("unknown", "internal")


def test_a_row_that_cannot_be_written_keeps_its_provider_job_id_and_its_evidence_and_is_read_on(batch: Batch) -> None:
    job = sent(batch)
    assert writes.write_round([poisoned(acceptance(claimed(job), "pdf_kept"))], now=LATER) == {job.pk}
    assert job.submissions.get().provider_job_id == "pdf_kept"
    assert Exchange.objects.get().submission == job.submissions.get()
    job.refresh_from_db()
    assert (job.state, job.lease_owner, job.due_at) == ("accepted", None, LATER)
    assert job.deadline_at == LATER + timedelta(seconds=1800)
    assert claimed(job, owner="b", now=LATER).submission.provider_job_id == "pdf_kept"
    assert job.events.order_by("pk").last().reason == "outcome_not_stored"


def test_a_known_id_whose_acceptance_can_never_be_written_comes_to_rest(
    batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by what the holder says nor by what is said instead: a person sees it, and nobody tries for ever."""
    job = sent(batch)
    move_many = transitions.move_many

    def failing(moves: Any, *, now: Any) -> set[int]:
        if any(move.to_state is JobState.ACCEPTED for move in moves):
            raise ProgrammingError("broken")
        return move_many(moves, now=now)

    monkeypatch.setattr(transitions, "move_many", failing)
    writes.write_round([acceptance(claimed(job), "pdf_kept")], now=LATER)
    job.refresh_from_db()
    assert (job.state, job.failure_class, job.lease_owner) == ("unknown", "internal", None)
    assert job.submissions.get().provider_job_id == "pdf_kept"


def test_what_is_given_up_on_with_an_id_for_a_row_that_cannot_be_written_is_watched(batch: Batch) -> None:
    job = rendered(batch)
    writes.write_round([saving(claimed(job), byte_count=0)], now=LATER)
    row = job.submissions.get()
    assert row.watch_at is not None
    assert row.watch_until is not None


def test_a_poisoned_row_of_a_stale_holder_parks_nobody(taken_over: tuple[Job, claims.Claim, claims.Claim]) -> None:
    job, stale, _current = taken_over
    bad = acceptance(stale)
    bad = replace(bad, exchanges=((replace(exchange(), kind="no such kind"), None),))
    assert writes.write_round([bad], now=LATER) == {job.pk}
    job.refresh_from_db()
    assert (job.state, job.lease_owner) == ("submitting", "b")
