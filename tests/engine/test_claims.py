"""Claiming: one holder at a time, for a lease, with a token that grows; and only what somebody still needs."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from batches.conf import ENGINE
from batches.engine import claims, turns
from batches.engine.batchsizes import BatchSizes
from batches.models import Batch, BatchItem, Job, JobState, ProviderAccount, SubmissionOutcome
from tests import factories
from tests.engine import racing
from tests.factories import NOW

LEASE = timedelta(seconds=ENGINE.lease_seconds)
PENDING = (JobState.PENDING,)
IN_PROGRESS = (JobState.SUBMITTING, JobState.ACCEPTED, JobState.RENDERED)


def claim(
    account: ProviderAccount,
    states: tuple[JobState, ...] = PENDING,
    *,
    owner: str = "a",
    now: datetime = NOW,
    most: int = 100,
) -> list[claims.Claim]:
    return claims.claim_due(account, states, owner=owner, now=now, most=most)


def test_a_claim_takes_a_lease_and_raises_the_token(batch: Batch, account: ProviderAccount, now: datetime) -> None:
    job = factories.make_job(batch=batch, fencing_token=6)
    (claimed,) = claim(account)
    job.refresh_from_db()
    assert (job.lease_owner, job.lease_until, job.fencing_token) == ("a", now + LEASE, 7)
    assert (claimed.job_id, claimed.token, claimed.state) == (job.pk, 7, JobState.PENDING)


def test_a_claim_carries_what_its_step_needs(batch: Batch, account: ProviderAccount, now: datetime) -> None:
    job = factories.make_accepted_job(batch=batch, business_id="INV-9", provider_job_id="pdf_9", poll_count=3)
    (claimed,) = claim(account, IN_PROGRESS)
    assert claimed.business_id == "INV-9"
    assert claimed.workspace_slug == batch.workspace.slug
    assert claimed.version_number == 1
    assert (claimed.poll_count, claimed.deadline_at) == (3, job.deadline_at)
    assert claimed.submission is not None
    assert claimed.submission.provider_job_id == "pdf_9"
    assert claimed.next_sequence == 2


def test_a_claim_says_how_large_its_batch_is_and_counts_each_batch_once(account: ProviderAccount) -> None:
    """Also where no batch leads it, because its own is paused: then the newest batch that holds its version."""
    workspace = factories.make_workspace()
    small, large = (factories.make_batch(workspace=workspace, account=account) for _ in range(2))
    led = [factories.make_accepted_job(batch=batch) for batch in (small, large, large)]
    unled = factories.make_accepted_job(batch=large)
    Job.objects.filter(pk=unled.pk).update(lead_batch=None)
    sizes = BatchSizes()
    claimed = claims.claim_due(account, IN_PROGRESS, owner="a", now=NOW, most=100, sizes=sizes)
    found = {each.job_id: each.batch_size for each in claimed}
    assert found == {led[0].pk: 1, led[1].pk: 3, led[2].pk: 3, unled.pk: 3}
    with CaptureQueriesContext(connection) as asked:
        assert sizes.of(led) == {job.pk: found[job.pk] for job in led}
    assert len(asked) == 0


def test_only_the_open_submission_comes_with_the_claim(batch: Batch, account: ProviderAccount, now: datetime) -> None:
    job = factories.make_job(batch=batch)
    factories.make_submission(job=job, outcome=SubmissionOutcome.REFUSED, closed_at=now)
    (claimed,) = claim(account)
    assert (claimed.submission, claimed.next_sequence) == (None, 2)


def test_what_is_leased_cannot_be_claimed_until_the_lease_runs_out(batch: Batch, account: ProviderAccount) -> None:
    factories.make_job(batch=batch)
    (first,) = claim(account)
    assert claim(account, owner="b", now=NOW + LEASE) == []
    (second,) = claim(account, owner="b", now=NOW + LEASE + timedelta(microseconds=1))
    assert second.token == first.token + 1


def test_a_holder_does_not_claim_again_what_it_holds(batch: Batch, account: ProviderAccount) -> None:
    factories.make_job(batch=batch)
    claim(account)
    assert claim(account) == []


@pytest.mark.parametrize(("seconds", "claimed"), [(-1, True), (0, True), (1, False)])
def test_only_due_jobs_are_claimed(batch: Batch, account: ProviderAccount, seconds: int, claimed: bool) -> None:
    factories.make_job(batch=batch, due_at=NOW + timedelta(seconds=seconds))
    assert bool(claim(account)) is claimed


def test_the_oldest_come_first_and_no_more_than_wanted(batch: Batch, account: ProviderAccount) -> None:
    jobs = [factories.make_job(batch=batch, due_at=NOW - timedelta(seconds=n)) for n in (1, 3, 2)]
    assert [each.job_id for each in claim(account, most=2)] == [jobs[1].pk, jobs[2].pk]
    assert claim(account, most=0) == []
    assert claim(account, most=-4) == []


def test_other_states_and_other_accounts_are_left_alone(batch: Batch, account: ProviderAccount) -> None:
    other = factories.make_batch(workspace=batch.workspace)
    factories.make_job(batch=other)
    for state in JobState:
        if state is not JobState.PENDING:
            factories.make_job(batch=batch, state=state)
    assert claim(account) == []


def _cancel_item(batch: Batch) -> None:
    batch.items.update(cancelled_at=NOW)
    turns.choose_leads(Job.objects.all())


def _pause(batch: Batch) -> None:
    Batch.objects.filter(pk=batch.pk).update(paused_at=NOW)


def _cancel(batch: Batch) -> None:
    Batch.objects.filter(pk=batch.pk).update(cancelled_at=NOW)


@pytest.mark.parametrize("stop", [_cancel_item, _pause, _cancel])
def test_a_pending_job_is_due_only_while_a_live_item_needs_it(
    batch: Batch, account: ProviderAccount, stop: Any
) -> None:
    job = factories.make_job(batch=batch)
    stop(batch)
    assert claim(account) == []
    second = factories.make_batch(workspace=batch.workspace, account=account)
    BatchItem.objects.create(
        batch=second, position=0, document=job.version.document, version=job.version, intake_outcome="unchanged"
    )
    turns.choose_leads(Job.objects.all())
    assert [each.job_id for each in claim(account)] == [job.pk]


@pytest.mark.parametrize("stop", [_cancel_item, _pause, _cancel])
def test_work_that_the_provider_has_goes_on_whatever_people_stopped(
    batch: Batch, account: ProviderAccount, stop: Any
) -> None:
    jobs = [factories.make_accepted_job(batch=batch), factories.make_job(batch=batch, state=JobState.RENDERED)]
    stop(batch)
    assert {each.job_id for each in claim(account, IN_PROGRESS)} == {job.pk for job in jobs}


def test_a_job_that_two_batches_need_is_claimed_once(batch: Batch, account: ProviderAccount) -> None:
    job = factories.make_job(batch=batch)
    for _ in range(2):
        second = factories.make_batch(workspace=batch.workspace, account=account)
        BatchItem.objects.create(
            batch=second, position=0, document=job.version.document, version=job.version, intake_outcome="unchanged"
        )
    assert len(claim(account)) == 1


def test_a_claim_asks_the_same_few_questions_however_many_jobs_it_takes(batch: Batch, account: ProviderAccount) -> None:
    counts = []
    for number in (1, 30):
        for _ in range(number):
            factories.make_job(batch=batch)
        with CaptureQueriesContext(connection) as queries:
            assert len(claim(account)) == number
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_inputs_are_not_read_by_the_claim(batch: Batch, account: ProviderAccount) -> None:
    factories.make_job(batch=batch)
    with CaptureQueriesContext(connection) as queries:
        claim(account)
    assert not any("input_inline" in query["sql"] or "body_inline" in query["sql"] for query in queries)


# --- renewing and giving back ---


def test_renewing_prolongs_what_is_still_held_and_names_it(batch: Batch, account: ProviderAccount) -> None:
    kept, lost, released = (factories.make_job(batch=batch) for _ in range(3))
    claim(account)
    Job.objects.filter(pk=lost.pk).update(lease_owner="b")
    Job.objects.filter(pk=released.pk).update(lease_owner=None, lease_until=None)
    later = NOW + timedelta(seconds=5)
    assert claims.renew("a", [kept.pk, lost.pk, released.pk], now=later) == {kept.pk}
    leases = dict(Job.objects.values_list("pk", "lease_until"))
    assert leases == {kept.pk: later + LEASE, lost.pk: NOW + LEASE, released.pk: None}


def test_renewing_many_and_none(batch: Batch, account: ProviderAccount) -> None:
    jobs = [factories.make_job(batch=batch) for _ in range(3)]
    claim(account)
    assert claims.renew("a", [job.pk for job in jobs], now=NOW) == {job.pk for job in jobs}
    assert claims.renew("a", [], now=NOW) == set()


def test_giving_back_frees_only_ones_own_and_makes_waiting_documents_due(
    batch: Batch, account: ProviderAccount
) -> None:
    mine, others = factories.make_job(batch=batch), factories.make_job(batch=batch)
    claim(account, most=1)
    claim(account, owner="b")
    Job.objects.update(due_at=NOW + timedelta(minutes=1))
    claims.release("a", [mine.pk, others.pk], now=NOW)
    facts = {job.pk: job for job in Job.objects.all()}
    assert (facts[mine.pk].lease_owner, facts[mine.pk].due_at) == (None, NOW)
    assert (facts[others.pk].lease_owner, facts[others.pk].due_at) == ("b", NOW + timedelta(minutes=1))


def test_giving_back_leaves_the_next_status_read_where_it_was(batch: Batch, account: ProviderAccount) -> None:
    job = factories.make_accepted_job(batch=batch)
    claim(account, IN_PROGRESS)
    Job.objects.update(due_at=NOW + timedelta(seconds=9))
    claims.release("a", [job.pk], now=NOW)
    job.refresh_from_db()
    assert (job.lease_owner, job.due_at) == (None, NOW + timedelta(seconds=9))


def test_in_flight_counts_what_may_be_at_the_provider(batch: Batch, account: ProviderAccount) -> None:
    for state in JobState:
        factories.make_job(batch=batch, state=state)
    jobs = [job.pk for job in Job.objects.all()]
    assert claims.standing(account.pk, jobs).in_flight == 2
    assert claims.standing(factories.make_account().pk, jobs).in_flight == 0


# --- races ---


@pytest.mark.django_db(transaction=True)
def test_claimers_that_race_never_hold_the_same_job() -> None:
    batch = factories.make_batch()
    jobs = {factories.make_job(batch=batch).pk for _ in range(60)}

    def work(owner: str) -> list[int]:
        mine: list[int] = []
        while claimed := claims.claim_due(batch.account, PENDING, owner=owner, now=NOW, most=7):
            mine += [each.job_id for each in claimed]
        return mine

    owners = [f"pump-{number}" for number in range(4)]
    taken = dict(zip(owners, racing.answers([partial(work, owner) for owner in owners]), strict=True))
    everything = [job_id for mine in taken.values() for job_id in mine]
    assert len(everything) == len(set(everything)), "a job was claimed twice"
    # A claimer may find every row of its slice locked by the others and go away early; what it left, the rest takes.
    assert set(everything) == jobs
    held_by = dict(Job.objects.values_list("pk", "lease_owner"))
    assert all(held_by[job_id] == owner for owner, mine in taken.items() for job_id in mine)
    assert set(Job.objects.values_list("fencing_token", flat=True)) == {1}
