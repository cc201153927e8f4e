"""The retry budget: repeats stay under a share of all requests, and none ends as unknown for want of budget."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from batches.conf import ENGINE
from batches.engine import pacing, retry_budget
from batches.engine.retry_budget import Asking
from batches.models import Batch, Job, JobEvent, JobState, Lane, PacingLane, ProviderAccount
from tests import factories
from tests.engine import samples
from tests.engine.test_intents import commit, jobs_of, prepared
from tests.factories import NOW

MOST = ENGINE.retry_tokens_most
SECOND = 1_000_000
FAR = NOW + timedelta(hours=1)
SOON = NOW + timedelta(seconds=ENGINE.read_timeout + ENGINE.resend_urgent_seconds)


# --- arithmetic ---


@pytest.mark.parametrize(
    ("tokens", "seconds", "expected"),
    [
        (None, 0, MOST),
        (0.0, 0, 0.0),
        (0.0, 10, 1.0),
        (3.5, 5, 4.0),
        (MOST, 1000, MOST),
        (1.0, 10**9, MOST),
        (2.0, -30, 2.0),  # a clock that stepped back gives nothing and takes nothing
    ],
)
def test_tokens_come_with_time_up_to_the_cap(tokens: float | None, seconds: float, expected: float) -> None:
    assert retry_budget.tokens_now(tokens, 0, int(seconds * SECOND)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("tokens", "repeated", "earned", "expected"),
    [(5.0, 0, 0, 5.0), (5.0, 2, 0, 3.0), (5.0, 0, 5, 6.0), (0.0, 3, 5, 1.0), (MOST, 0, 100, MOST), (1.0, 1, 0, 0.0)],
)
def test_first_submissions_earn_a_share_and_repeats_spend_one(
    tokens: float, repeated: int, earned: int, expected: float
) -> None:
    assert retry_budget.tokens_after(tokens, repeated=repeated, earned=earned) == pytest.approx(expected)


def test_in_the_long_run_repeats_stay_under_their_share() -> None:
    """Every first submission is lost, and the provider answers nothing: the worst that a provider can do."""
    tokens, firsts, repeats = MOST, 0, 0
    for _ in range(100_000):
        firsts += 1
        tokens = retry_budget.tokens_after(tokens, repeated=0, earned=1)
        while tokens >= 1:
            tokens = retry_budget.tokens_after(tokens, repeated=1, earned=0)
            repeats += 1
    assert (repeats - MOST) / firsts <= ENGINE.retry_share + 1e-9


@pytest.mark.parametrize("loss", [0.05, 0.15, 0.3, 0.36, 0.5, 0.8, 0.95, 1.0])
def test_repeats_stay_under_their_share_whatever_part_of_them_is_lost(loss: float) -> None:
    """With the token that an accepted repeat brings back, and those that come with time: one first send a second."""
    rng, tokens, firsts, repeats, in_vain, in_doubt = random.Random(7), MOST, 0, 0, 0, 0
    seconds = 50_000
    for _ in range(seconds):
        firsts += 1
        tokens = retry_budget.tokens_now(tokens, 0, SECOND)
        tokens = retry_budget.tokens_after(tokens, repeated=0, earned=1)
        in_doubt += rng.random() < loss
        while in_doubt and tokens >= 1:
            tokens = retry_budget.tokens_after(tokens, repeated=1, earned=0)
            repeats += 1
            if rng.random() < loss:
                in_vain += 1
            else:
                in_doubt -= 1
                tokens = min(MOST, tokens + 1)
    on_top = MOST + seconds * ENGINE.retry_tokens_per_second
    assert in_vain <= firsts * ENGINE.retry_share + on_top
    allowed = min(loss / max(1 - loss, 1e-9), ENGINE.retry_share / loss)  # of the first sends
    assert repeats <= firsts * allowed * 1.05 + on_top / loss
    assert min(loss, ENGINE.retry_share / (loss + ENGINE.retry_share)) < 3 / 8


def asking(kind: str, until: datetime | None = FAR) -> Asking:
    return Asking(samples.claim(), repeats=kind == "repeat", earns=kind == "first", resend_until=until)


@pytest.mark.parametrize(
    ("kinds", "tokens", "admitted", "waiting"),
    [
        (["first", "first"], 0.0, (0, 1), []),
        (["repeat", "first"], 0.0, (1,), [0]),
        (["repeat", "repeat", "repeat"], 2.9, (0, 1), [2]),
        (["again", "repeat"], 0.0, (0,), [1]),  # refused and never in doubt: a slot, but no token
        (["first", "urgent", "repeat"], 0.0, (1, 0), [2]),
        (["repeat", "urgent", "urgent"], 1.0, (1, 2), [0]),  # the urgent ones have taken what there was
        ([], 5.0, (), []),
    ],
)
def test_who_may_leave(kinds: list[str], tokens: float, admitted: tuple[int, ...], waiting: list[int]) -> None:
    asked = [asking("repeat", SOON) if kind == "urgent" else asking(kind) for kind in kinds]
    verdict = retry_budget.judge(asked, tokens, now=NOW)
    assert verdict.admitted == admitted
    assert [at for at, _until in verdict.waits] == waiting


def test_those_that_wait_come_back_one_by_one_as_tokens_come() -> None:
    verdict = retry_budget.judge([asking("repeat")] * 3, 0.5, now=NOW)
    per_token = 1 / ENGINE.retry_tokens_per_second
    assert [(until - NOW).total_seconds() for _at, until in verdict.waits] == pytest.approx(
        [0.5 * per_token, 1.5 * per_token, 2.5 * per_token]
    )


def test_nobody_waits_past_the_time_at_which_it_goes_without_budget() -> None:
    until = SOON + timedelta(seconds=3)
    verdict = retry_budget.judge([asking("repeat", until)] * 5, 0.0, now=NOW)
    assert {due_at for _at, due_at in verdict.waits} == {NOW + timedelta(seconds=3)}
    later = retry_budget.judge([asking("repeat", until)] * 5, 0.0, now=NOW + timedelta(seconds=3))
    assert len(later.admitted) == 5


# --- rows ---


@pytest.fixture
def fast(batch: Batch) -> ProviderAccount:
    ProviderAccount.objects.update(submit_interval_ms=1, max_in_flight=50)
    batch.account.refresh_from_db()
    PacingLane.objects.create(account=batch.account, lane=Lane.SUBMIT, retry_tokens=1.0, retry_tokens_at_us=now_us())
    return batch.account


def now_us() -> int:
    return pacing.to_us(NOW)


@pytest.mark.django_db
def test_what_waits_for_budget_is_given_back_and_says_so(batch: Batch, fast: ProviderAccount) -> None:
    jobs = [factories.make_job(batch=batch, state=JobState.SUBMITTING) for _ in range(3)]
    for job in jobs:
        factories.make_submission(job=job, try_count=1)
    intents = commit(fast, prepared(fast, JobState.SUBMITTING))
    assert jobs_of(intents) == [jobs[0].pk]
    assert intents.lost == {jobs[1].pk, jobs[2].pk}
    assert not Job.objects.exclude(pk=jobs[0].pk).exclude(lease_owner=None).exists()
    due = [job.due_at for job in Job.objects.exclude(pk=jobs[0].pk).order_by("pk")]
    assert due == [NOW + timedelta(seconds=10), NOW + timedelta(seconds=20)]
    event = JobEvent.objects.filter(job=jobs[1]).get()
    assert (event.reason, event.from_state, event.to_state) == ("waits_for_retry_budget", "submitting", "submitting")
    assert "budget" in event.words
    lane = PacingLane.objects.get(lane=Lane.SUBMIT)
    assert (lane.retry_tokens, lane.retry_tokens_at_us, lane.revision) == (0.0, now_us(), 1)


@pytest.mark.django_db
def test_what_a_killed_pump_left_in_doubt_takes_a_token_as_any_repeat(batch: Batch, fast: ProviderAccount) -> None:
    """A worker that crashes on each answer would else repeat without end."""
    job = factories.make_job(batch=batch, state=JobState.SUBMITTING)
    factories.make_submission(job=job, try_count=1)
    (ready,) = prepared(fast, JobState.SUBMITTING)
    assert jobs_of(commit(fast, [ready])) == [job.pk]
    assert PacingLane.objects.get(lane=Lane.SUBMIT).retry_tokens == 0.0
    again = replace(ready, missed_slot=True)
    assert jobs_of(commit(fast, [again])) == [job.pk], "for a slot that it missed it has its token"
    assert job.submissions.get().try_count == 2, "and is counted once"


@pytest.mark.django_db
def test_a_first_submission_earns_and_what_got_no_slot_neither_earns_nor_spends(
    batch: Batch, fast: ProviderAccount
) -> None:
    ProviderAccount.objects.update(submit_interval_ms=400)
    fast.refresh_from_db()
    for _ in range(5):
        factories.make_job(batch=batch)
    intents = commit(fast, prepared(fast))
    assert len(intents.sendings) == 2
    assert PacingLane.objects.get(lane=Lane.SUBMIT).retry_tokens == pytest.approx(1.0 + 2 * ENGINE.retry_share)


@pytest.mark.django_db
def test_whoever_lost_its_claim_is_not_put_off(batch: Batch, fast: ProviderAccount) -> None:
    PacingLane.objects.update(retry_tokens=0.0)
    job = factories.make_job(batch=batch, state=JobState.SUBMITTING)
    factories.make_submission(job=job, try_count=1)
    ready = prepared(fast, JobState.SUBMITTING)
    Job.objects.update(fencing_token=99)
    assert commit(fast, ready).lost == {job.pk}
    job.refresh_from_db()
    assert job.due_at == NOW
    assert not JobEvent.objects.exists()


@pytest.mark.django_db
def test_a_full_bucket_is_what_a_new_account_has(batch: Batch) -> None:
    row = pacing.lock(batch.account_id, Lane.SUBMIT)
    assert row.retry_tokens is None
    assert retry_budget.tokens_of(row, NOW) == MOST
    assert ENGINE.submit_threads * 3 <= MOST, "what an outage leaves in doubt goes again at once"


@pytest.mark.django_db
def test_an_accepted_repeat_brings_its_token_back_and_the_next_one_forward(batch: Batch, fast: ProviderAccount) -> None:
    PacingLane.objects.update(retry_tokens=0.0)
    later = NOW + timedelta(minutes=5)
    jobs = [put_off_job(batch, later) for _ in range(4)]
    retry_budget.give_back(fast.pk, 1, now=NOW)
    assert [job.due_at for job in Job.objects.order_by("pk")] == [NOW, later, later, later]
    assert PacingLane.objects.get(lane=Lane.SUBMIT).retry_tokens == pytest.approx(1.0)
    retry_budget.give_back(fast.pk, 2, now=NOW)
    assert [job.pk for job in Job.objects.filter(due_at=later)] == [jobs[3].pk]


def put_off_job(batch: Batch, until: datetime) -> Job:
    return factories.make_job(batch=batch, state=JobState.SUBMITTING, due_at=until, put_off_until=until)


@pytest.mark.django_db
def test_an_accepted_repeat_wakes_nothing_that_waits_for_anything_else(batch: Batch, fast: ProviderAccount) -> None:
    """What a 409, a Retry-After or a backoff told to wait is not sent earlier because another one was accepted."""
    PacingLane.objects.update(retry_tokens=MOST - 1)
    later = NOW + timedelta(minutes=5)
    pause = factories.make_job(batch=batch, state=JobState.SUBMITTING, due_at=later)
    went_since = put_off_job(batch, later - timedelta(minutes=2))  # it was put off once, and then told to wait
    Job.objects.filter(pk=went_since.pk).update(due_at=later)
    waiting = [put_off_job(batch, later) for _ in range(2)]
    retry_budget.give_back(fast.pk, 1, now=NOW)
    assert list(Job.objects.filter(due_at=NOW).values_list("pk", flat=True)) == [waiting[0].pk]
    retry_budget.give_back(fast.pk, 9, now=NOW)
    assert set(Job.objects.filter(due_at=later).values_list("pk", flat=True)) == {pause.pk, went_since.pk}


@pytest.mark.django_db
def test_what_the_budget_puts_off_is_what_an_accepted_repeat_brings_forward(
    batch: Batch, fast: ProviderAccount
) -> None:
    jobs = [factories.make_job(batch=batch, state=JobState.SUBMITTING) for _ in range(3)]
    for job in jobs:
        factories.make_submission(job=job, try_count=1)
    commit(fast, prepared(fast, JobState.SUBMITTING))
    retry_budget.give_back(fast.pk, 1, now=NOW + timedelta(seconds=1))
    due = [job.due_at for job in Job.objects.exclude(pk=jobs[0].pk).order_by("pk")]
    assert due == [NOW + timedelta(seconds=1), NOW + timedelta(seconds=20)]


@pytest.mark.django_db
def test_a_full_bucket_takes_nothing_back(batch: Batch, fast: ProviderAccount) -> None:
    PacingLane.objects.update(retry_tokens=None)
    retry_budget.give_back(fast.pk, 1, now=NOW)
    assert PacingLane.objects.get(lane=Lane.SUBMIT).retry_tokens is None
