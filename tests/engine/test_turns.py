"""Fair turns: round robin over running batches by weight, the oldest first in each, and no credit for idle times."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from functools import partial

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from batches.engine import claims, turns
from batches.engine.batchsizes import BatchSizes
from batches.engine.turns import STRIDE, Turn
from batches.models import Batch, BatchItem, Job, JobState, ProviderAccount
from tests import factories
from tests.engine import racing
from tests.factories import NOW

# --- the pure rules ---


@pytest.mark.parametrize(
    ("weights", "count", "expected"),
    [
        ({1: 1}, 3, {1: 3}),
        ({1: 1, 2: 1}, 10, {1: 5, 2: 5}),
        ({1: 3, 2: 1}, 40, {1: 30, 2: 10}),
        ({1: 1, 2: 1, 3: 1}, 2, {1: 1, 2: 1}),
        ({1: 100, 2: 1}, 101, {1: 100, 2: 1}),
        ({}, 5, {}),
        ({1: 1}, 0, {}),
    ],
)
def test_turns_are_shared_by_weight(weights: dict[int, int], count: int, expected: dict[int, int]) -> None:
    shared = turns.share([Turn(key, weight, 0) for key, weight in weights.items()], count)
    assert Counter(shared) == expected


def test_turns_alternate_instead_of_coming_in_blocks() -> None:
    assert turns.share([Turn(1, 1, 0), Turn(2, 1, 0)], 6) == [1, 2, 1, 2, 1, 2]
    heavy = turns.share([Turn(1, 3, 0), Turn(2, 1, 0)], 40)
    assert all(heavy[index : index + 8].count(2) >= 1 for index in range(33)), "the light one is never left out long"


def test_whoever_is_behind_goes_first() -> None:
    assert turns.share([Turn(1, 1, STRIDE), Turn(2, 1, 0)], 3) == [2, 1, 2]


@pytest.mark.parametrize(
    ("positions", "expected"),
    [
        ([0, 0], [0, 0]),
        ([50 * STRIDE, 0], [50 * STRIDE, 49 * STRIDE]),
        ([0, 50 * STRIDE], [49 * STRIDE, 50 * STRIDE]),
        ([10 * STRIDE, 10 * STRIDE - 1], [10 * STRIDE, 10 * STRIDE - 1]),
    ],
)
def test_an_idle_time_is_no_credit(positions: list[int], expected: list[int]) -> None:
    levelled = turns.level([Turn(index, 1, position) for index, position in enumerate(positions)])
    assert [levelled[index].position for index in range(len(positions))] == expected


# --- claiming ---


def claimed(account: ProviderAccount, most: int, *, owner: str = "a", now: datetime = NOW) -> list[int]:
    """Whose jobs a claim takes, as batch ids in the order of the claim."""
    got = claims.claim_due(account, [JobState.PENDING], owner=owner, now=now, most=most)
    leads = dict(Job.objects.values_list("pk", "lead_batch_id"))
    return [leads[each.job_id] for each in got]


def batches_of(account: ProviderAccount, *sizes: int, **fields: int) -> list[Batch]:
    workspace = factories.make_workspace()
    made = [factories.make_batch(workspace=workspace, account=account, **fields) for _ in sizes]
    for batch, size in zip(made, sizes, strict=True):
        for _ in range(size):
            factories.make_job(batch=batch)
    return made


def attach(batch: Batch, job: Job) -> None:
    version = job.version
    BatchItem.objects.create(
        batch=batch,
        position=batch.items.count(),
        document=version.document,
        version=version,
        intake_outcome="unchanged",
    )


def test_two_batches_take_turns_within_a_claim_and_across_claims(account: ProviderAccount) -> None:
    first, second = batches_of(account, 6, 6)
    assert claimed(account, 4) == [first.pk, second.pk, first.pk, second.pk]
    singles = [claimed(account, 1) for _ in range(4)]
    assert singles == [[first.pk], [second.pk], [first.pk], [second.pk]]


def test_the_oldest_of_a_batch_comes_first(account: ProviderAccount) -> None:
    (batch,) = batches_of(account, 0)
    jobs = [factories.make_job(batch=batch, due_at=NOW - timedelta(seconds=seconds)) for seconds in (1, 3, 2)]
    got = claims.claim_due(account, [JobState.PENDING], owner="a", now=NOW, most=3)
    assert [each.job_id for each in got] == [jobs[1].pk, jobs[2].pk, jobs[0].pk]


def test_weights_decide_how_the_claims_are_shared(account: ProviderAccount) -> None:
    light, heavy = batches_of(account, 40, 40)
    Batch.objects.filter(pk=heavy.pk).update(weight=3)
    counted = Counter(batch for _ in range(8) for batch in claimed(account, 5))
    assert counted == {heavy.pk: 30, light.pk: 10}


def test_turns_that_a_batch_cannot_use_go_to_the_others(account: ProviderAccount) -> None:
    small, large, smaller = batches_of(account, 2, 30, 1)
    assert Counter(claimed(account, 20)) == {small.pk: 2, large.pk: 17, smaller.pk: 1}


def test_a_batch_that_ran_alone_owes_nothing_when_another_comes(account: ProviderAccount) -> None:
    (first,) = batches_of(account, 30)
    assert claimed(account, 10) == [first.pk] * 10
    (second,) = batches_of(account, 10)
    assert Counter(claimed(account, 10)) == {first.pk: 5, second.pk: 5}


def test_a_batch_that_was_paused_does_not_catch_up(account: ProviderAccount) -> None:
    first, second, third = batches_of(account, 40, 40, 40)
    Batch.objects.filter(pk=third.pk).update(paused_at=NOW)
    claimed(account, 40)
    Batch.objects.filter(pk=third.pk).update(paused_at=None)
    counted = Counter(claimed(account, 30))
    assert counted[third.pk] <= 11, counted
    assert min(counted[first.pk], counted[second.pk]) >= 9


def test_batches_at_other_accounts_take_no_turns(account: ProviderAccount) -> None:
    (mine,) = batches_of(account, 3)
    batches_of(factories.make_account(), 3)
    assert claimed(account, 10) == [mine.pk] * 3


def test_a_batch_with_nothing_due_yet_takes_no_turns(account: ProviderAccount) -> None:
    now, later = batches_of(account, 3, 3)
    Job.objects.filter(lead_batch=later).update(due_at=NOW + timedelta(seconds=1))
    assert claimed(account, 10) == [now.pk] * 3
    assert claimed(account, 10, now=NOW + timedelta(seconds=1)) == [later.pk] * 3


def test_one_running_batch_costs_no_more_statements_than_its_claim(account: ProviderAccount) -> None:
    batches_of(account, 9)
    sizes = BatchSizes()
    claims.claim_due(account, [JobState.PENDING], owner="a", now=NOW, most=1, sizes=sizes)
    with CaptureQueriesContext(connection) as alone:
        claimed_alone = claims.claim_due(account, [JobState.PENDING], owner="a", now=NOW, most=3, sizes=sizes)
    assert len(claimed_alone) == 3
    statements = [query["sql"] for query in alone if "SAVEPOINT" not in query["sql"]]
    assert len(statements) == 4, "who is due, the lease, the jobs, their submissions"
    assert Batch.objects.get().turn == 0


def test_a_hundred_batches_cost_the_same_statements_as_two(account: ProviderAccount) -> None:
    counts = []
    for more in (2, 30):
        batches_of(account, *[2] * more)
        with CaptureQueriesContext(connection) as queries:
            claims.claim_due(account, [JobState.PENDING], owner="a", now=NOW, most=2)
        counts.append(len(queries))
    assert counts[0] == counts[1]


# --- whose turn a shared document takes ---


def lead(job: Job) -> int | None:
    return Job.objects.values_list("lead_batch_id", flat=True).get(pk=job.pk)


def test_the_oldest_running_batch_leads_a_shared_document(account: ProviderAccount) -> None:
    first, second, third = batches_of(account, 1, 0, 0)
    job = Job.objects.get()
    attach(second, job)
    attach(third, job)
    everything = Job.objects.all()
    assert turns.choose_leads(everything) == 0, "it is led by the oldest already"
    Batch.objects.filter(pk=first.pk).update(paused_at=NOW)
    assert turns.choose_leads(everything) == 1
    assert lead(job) == second.pk
    Batch.objects.filter(pk=second.pk).update(cancelled_at=NOW)
    turns.choose_leads(everything)
    assert lead(job) == third.pk
    third.items.update(cancelled_at=NOW)
    turns.choose_leads(everything)
    assert lead(job) == first.pk, "only a paused batch needs it now, so it waits there"
    assert claimed(account, 5) == []
    first.items.update(cancelled_at=NOW)
    turns.choose_leads(everything)
    assert lead(job) is None
    assert claimed(account, 5) == []


def test_only_what_may_still_be_sent_has_its_lead_chosen(account: ProviderAccount) -> None:
    (batch,) = batches_of(account, 0)
    for state in JobState:
        factories.make_job(batch=batch, state=state, lead_batch=None)
    assert turns.choose_leads(Job.objects.all()) == 4
    led = set(Job.objects.filter(lead_batch=batch).values_list("state", flat=True))
    assert led == {"pending", "submitting", "accepted", "rendered"}


# --- pumps at once ---


@pytest.mark.django_db(transaction=True)
def test_claimers_of_many_batches_that_race_take_everything_once_and_fairly() -> None:
    account = factories.make_account()
    made = batches_of(account, 30, 30, 30)
    taken: list[list[int]] = []

    def work(owner: str) -> None:
        while got := claims.claim_due(account, [JobState.PENDING], owner=owner, now=NOW, most=6):
            taken.append([each.job_id for each in got])

    racing.answers([partial(work, f"pump-{number}") for number in range(3)])
    everything = [job_id for slice_ in taken for job_id in slice_]
    assert len(everything) == len(set(everything)) == 90
    leads = dict(Job.objects.values_list("pk", "lead_batch_id"))
    half = Counter(leads[job_id] for slice_ in taken[:7] for job_id in slice_)
    assert set(half) == {batch.pk for batch in made}
    assert max(half.values()) - min(half.values()) <= 6, half
