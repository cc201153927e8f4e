"""How many pumps would find work: what the doorbell is rung for, and what it must stay silent for."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from batches.engine import claims, slots, turns, work
from batches.models import Batch, Job, JobState, ProviderAccount
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _three_slots(db: None) -> None:
    slots.ensure(3)


def test_without_jobs_no_pump_is_wanted(now: datetime) -> None:
    assert work.pumps_wanted(now=now) == 0


@pytest.mark.parametrize(("jobs", "wanted"), [(1, 1), (19, 1), (20, 2), (39, 2), (40, 3), (200, 3)])
def test_more_work_wants_more_pumps_up_to_the_free_slots(batch: Batch, now: datetime, jobs: int, wanted: int) -> None:
    for _ in range(jobs):
        factories.make_job(batch=batch)
    assert work.pumps_wanted(now=now) == wanted


def test_pumps_at_work_leave_fewer_slots(batch: Batch, now: datetime) -> None:
    for _ in range(60):
        factories.make_job(batch=batch)
    for number in range(3):
        assert slots.acquire(f"pump-{number}", now=now)
        assert work.pumps_wanted(now=now) == 2 - number


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.SUBMITTING, JobState.ACCEPTED, JobState.RENDERED])
def test_due_work_of_every_phase_wants_a_pump(batch: Batch, now: datetime, state: JobState) -> None:
    factories.make_job(batch=batch, state=state, due_at=now - timedelta(seconds=8))
    assert work.pumps_wanted(now=now) == 1


@pytest.mark.parametrize(
    "state", [each for each in JobState if each not in ("pending", "submitting", "accepted", "rendered")]
)
def test_what_has_ended_wants_none(batch: Batch, now: datetime, state: JobState) -> None:
    factories.make_job(batch=batch, state=state)
    assert work.pumps_wanted(now=now) == 0


def test_what_is_not_due_or_held_by_a_pump_wants_none(batch: Batch, account: ProviderAccount, now: datetime) -> None:
    factories.make_job(batch=batch, due_at=now + timedelta(seconds=1))
    held = factories.make_job(batch=batch)
    assert work.pumps_wanted(now=now) == 1
    assert [claim.job_id for claim in claims.claim_due(account, [JobState.PENDING], owner="a", now=now, most=9)] == [
        held.pk
    ]
    assert work.pumps_wanted(now=now) == 0
    assert work.pumps_wanted(now=now + timedelta(minutes=1)) == 1


@pytest.mark.parametrize("reason", ["auth", "insufficient_credit", "person", "unreachable"])
def test_waiting_documents_of_a_held_account_want_none_and_accepted_ones_do(
    batch: Batch, now: datetime, reason: str
) -> None:
    factories.make_job(batch=batch)
    ProviderAccount.objects.update(health="held", hold_reason=reason, held_at=now, probe_at=now + timedelta(hours=1))
    assert work.pumps_wanted(now=now) == 0
    factories.make_accepted_job(batch=batch)
    assert work.pumps_wanted(now=now) == 1


def test_a_probe_that_is_due_wants_one_pump(account: ProviderAccount, now: datetime) -> None:
    ProviderAccount.objects.update(health="held", hold_reason="unreachable", held_at=now, probe_at=now)
    assert work.pumps_wanted(now=now - timedelta(seconds=1)) == 0
    assert work.pumps_wanted(now=now) == 1


@pytest.mark.parametrize("stopped", [{"paused_at": factories.NOW}, {"cancelled_at": factories.NOW}])
def test_documents_that_nobody_needs_at_the_moment_want_none(batch: Batch, now: datetime, stopped: Any) -> None:
    """Else pumps would be rung for ever for what they may not claim."""
    job = factories.make_job(batch=batch)
    Batch.objects.update(**stopped)
    assert claims.claim_due(batch.account, [JobState.PENDING], owner="a", now=now, most=9) == []
    assert work.pumps_wanted(now=now) == 0
    Batch.objects.update(paused_at=None, cancelled_at=None)
    batch.items.update(cancelled_at=now)
    turns.choose_leads(Job.objects.all())
    assert work.pumps_wanted(now=now) == 0
    assert Job.objects.get().pk == job.pk
