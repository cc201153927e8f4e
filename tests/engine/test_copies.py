"""Copies at providers: deleted after saving where an account wants it, proven by asking, repeated after any death."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from batches.engine import copies
from batches.engine.accounts import Providers
from batches.models import (
    Artifact,
    Batch,
    Deletion,
    DeletionState,
    Exchange,
    Job,
    ProviderAccount,
    StoreSweep,
    Submission,
)
from batches.providers import errors
from tests.engine.carried import Clock
from tests.engine.simulated import Refuse, SimulatedJob, SimulatedProvider
from tests.factories import NOW, make_job, make_saved_job, make_submission
from tests.scenarios.world import PumpKilled

pytestmark = pytest.mark.django_db(transaction=True)


class Given:
    """`accounts.Providers` that has one provider for all."""

    def __init__(self, provider: SimulatedProvider) -> None:
        self.provider = provider

    def of(self, _account: ProviderAccount) -> SimulatedProvider:
        return self.provider


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW + timedelta(minutes=1))


@pytest.fixture
def provider(clock: Clock) -> SimulatedProvider:
    made = SimulatedProvider(clock)
    made.capabilities = replace(made.capabilities, remote_delete=True)
    return made


@pytest.fixture
def job(batch: Batch, provider: SimulatedProvider) -> Job:
    """Saved, at an account that has copies deleted, with its file at the provider."""
    ProviderAccount.objects.update(delete_remote_after_save=True)
    made = make_saved_job(batch=batch)
    sent = made.submissions.get()
    assert sent.provider_job_id is not None
    provider.jobs[sent.provider_job_id] = SimulatedJob(sent.provider_job_id, "INV-1", "", "", NOW)
    return made


def sweep(provider: SimulatedProvider, clock: Clock) -> copies.Report:
    return copies.sweep(cast(Providers, Given(provider)), clock, owner="w", seconds=timedelta(hours=1))


def sweep_until_settled(provider: SimulatedProvider, clock: Clock) -> int:
    """How many slices it took; each when the next try is due."""
    for slices in range(1, 100):
        sweep(provider, clock)
        due: datetime | None = Deletion.objects.get().due_at
        if due is None:
            return slices
        clock.advance(max(0.0, (due - clock.now()).total_seconds()))
    raise AssertionError("it is never settled")


def test_a_copy_is_deleted_and_asked_for(job: Job, provider: SimulatedProvider, clock: Clock) -> None:
    report = sweep(provider, clock)
    assert (report.noted, report.asked, report.settled) == (1, 1, 1)
    row, artifact, sent = Deletion.objects.get(), Artifact.objects.get(), job.submissions.get()
    assert (row.state, row.words, row.sha256) == (DeletionState.CONFIRMED, copies.CONFIRMED, artifact.sha256)
    assert (row.what, row.where, row.submission, row.version) == ("pdf", "provider", sent, None)
    assert row.exchange == Exchange.objects.latest("pk")
    assert [each.status for each in Exchange.objects.order_by("pk")] == [204, 404]
    assert artifact.remote_delete_requested_at is not None
    assert artifact.remote_deleted_at == row.settled_at
    again = sweep(provider, clock)
    assert (again.noted, again.asked, len(provider.deletions)) == (0, 0, 1)


def test_an_account_without_the_wish_has_nothing_written_down(
    job: Job, provider: SimulatedProvider, clock: Clock
) -> None:
    ProviderAccount.objects.update(delete_remote_after_save=False)
    assert sweep(provider, clock).noted == 0
    assert (Deletion.objects.count(), provider.deletions) == (0, [])


def test_a_provider_without_deletion_is_said_to_offer_none(job: Job, provider: SimulatedProvider, clock: Clock) -> None:
    ProviderAccount.objects.update(kind="gotenberg")
    assert sweep(provider, clock).asked == 0
    row = Deletion.objects.get()
    assert (row.state, row.words) == (DeletionState.NOT_OFFERED, "Gotenberg deletes nothing on request.")
    assert Artifact.objects.get().remote_delete_requested_at is None


def test_only_what_was_saved_lately_and_has_an_id_is_noted(job: Job, clock: Clock) -> None:
    make_submission(job=make_job(batch=job.lead_batch))
    Submission.objects.filter(job=job).update(closed_at=clock.now() - copies.SAVED_WITHIN - timedelta(seconds=1))
    assert copies.note(now=clock.now()) == 0
    Submission.objects.filter(job=job).update(closed_at=clock.now() - copies.SAVED_WITHIN)
    assert copies.note(now=clock.now()) == 1


@pytest.mark.parametrize("hit", ["delete", "is_gone"])
@pytest.mark.parametrize("kind", [errors.ServerFault, errors.Unauthorized, errors.AnswerLost])
def test_trouble_is_tried_again_until_it_passes(
    job: Job, provider: SimulatedProvider, clock: Clock, kind: type[errors.ProviderError], hit: str
) -> None:
    provider.trouble, provider.trouble_hits = Refuse(kind, "Not now."), frozenset({hit})
    sweep(provider, clock)
    row = Deletion.objects.get()
    assert (row.state, row.words, row.tries) == (DeletionState.REQUESTED, "Not now.", 1)
    assert row.due_at is not None
    assert row.due_at >= clock.now() + copies.AGAIN_FIRST - timedelta(seconds=1)
    assert sweep(provider, clock).asked == 0, "not before it is due"
    provider.trouble = None
    sweep_until_settled(provider, clock)
    assert Deletion.objects.get().state == DeletionState.CONFIRMED


def test_a_pause_that_the_provider_asks_for_is_kept(job: Job, provider: SimulatedProvider, clock: Clock) -> None:
    provider.trouble = Refuse(errors.RateLimited, "Too many.", retry_after=900)
    sweep(provider, clock)
    due = Deletion.objects.get().due_at
    assert due is not None
    assert due >= clock.now() + timedelta(seconds=899)


@pytest.mark.parametrize(
    ("trouble", "words"), [(None, copies.STILL_THERE), (Refuse(errors.ServerFault, "Broken."), "Broken.")]
)
def test_what_is_never_proven_ends_as_not_confirmed_with_the_reason(
    job: Job, provider: SimulatedProvider, clock: Clock, trouble: Refuse | None, words: str
) -> None:
    provider.keeps_deleted, provider.trouble = True, trouble
    began = clock.now()
    assert sweep_until_settled(provider, clock) < 40, "the waits grow"
    row = Deletion.objects.get()
    assert (row.state, row.words) == (DeletionState.FAILED, f"Not confirmed in 24 hours. {words}")
    assert clock.now() >= began + copies.GIVEN_UP_AFTER
    assert Artifact.objects.get().remote_deleted_at is None


def test_a_file_that_is_gone_already_is_confirmed_by_asking(
    job: Job, provider: SimulatedProvider, clock: Clock
) -> None:
    provider.jobs.clear()
    sweep(provider, clock)
    assert Deletion.objects.get().state == DeletionState.CONFIRMED


@pytest.mark.parametrize("dies_in", ["note", "_asked", "_settle"])
def test_a_death_anywhere_repeats_harmlessly(
    job: Job, provider: SimulatedProvider, clock: Clock, monkeypatch: pytest.MonkeyPatch, dies_in: str
) -> None:
    whole = getattr(copies, dies_in)

    def killed(*given: Any, **named: Any) -> None:
        if dies_in != "_settle":
            whole(*given, **named)
        raise PumpKilled

    with monkeypatch.context() as dying:
        dying.setattr(copies, dies_in, killed)
        with pytest.raises(PumpKilled):
            sweep(provider, clock)
    assert Deletion.objects.get().state == DeletionState.REQUESTED
    sweep(provider, clock)
    assert Deletion.objects.get().state == DeletionState.CONFIRMED
    assert len(provider.deletions) == (1 if dies_in == "note" else 2)


def test_a_second_worker_leaves_it_alone(job: Job, provider: SimulatedProvider, clock: Clock) -> None:
    StoreSweep.objects.create(kind="copies", lease_owner="other", lease_until=clock.now() + timedelta(minutes=1))
    assert sweep(provider, clock).is_busy
    assert provider.deletions == []
