"""Outcomes on their way into rows, as the tests of the grouped write make them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from batches.engine import answers, claims, preparing, submission
from batches.engine.changes import ArtifactFacts, Change
from batches.engine.transitions import Move
from batches.models import (
    Batch,
    Job,
    JobState,
    ProviderAccount,
)
from batches.providers.base import Accepted
from tests import factories
from tests.engine.samples import exchange
from tests.factories import NOW

LATER = NOW + timedelta(seconds=2)


def claimed(job: Job, *, owner: str = "a", now: Any = NOW) -> claims.Claim:
    """The job, claimed as a pump does it; further due ones of the account may be claimed with it."""
    found = claims.claim_due(job.account, [JobState(job.state)], owner=owner, now=now, most=100)
    return next(claim for claim in found if claim.job_id == job.pk)


def sent(batch: Batch, **fields: Any) -> Job:
    """A job whose intent is committed and whose answer is awaited."""
    job = factories.make_job(batch=batch, state=JobState.SUBMITTING)
    factories.make_submission(job=job, **{"try_count": 1} | fields)
    return job


def acceptance(claim: claims.Claim, provider_job_id: str = "pdf_new") -> Change:
    """The change that an accepted submission makes."""
    assert claim.submission is not None
    prepared = preparing.Prepared(claim, None, "", None, doubt_before=False)  # type: ignore[arg-type] # not sent here
    account = ProviderAccount.objects.get(pk=claim.account_id)
    answer = Accepted(provider_job_id, "queued", exchange(status=202))
    return answers.judge_answer(submission.Sending(prepared, claim.submission, NOW), answer, account, now=LATER)


def failure(claim: claims.Claim, **fields: Any) -> Change:
    move = Move(
        job_id=claim.job_id,
        token=claim.token,
        from_state=claim.state,
        to_state=JobState.FAILED,
        reason="refused",
        fields={"failure_class": "invalid_input", "failure_words": "No."} | fields,
    )
    return Change(claim=claim, at=NOW, move=move, exchanges=((exchange(status=400), None),))


def saving(claim: claims.Claim, **facts: Any) -> Change:
    assert claim.submission is not None
    artifact = ArtifactFacts(claim.submission.id, f"default/{claim.job_id}/v1.pdf", "a" * 64, 900, 2)
    return Change(
        claim=claim,
        at=NOW,
        move=Move(claim.job_id, claim.token, JobState.RENDERED, JobState.SAVED, "stored"),
        submission_id=claim.submission.id,
        submission_fields={"outcome": "delivered", "closed_at": NOW},
        exchanges=((exchange("download"), claim.submission.id),),
        artifact=replace(artifact, **facts),
    )


def rendered(batch: Batch) -> Job:
    job = factories.make_job(batch=batch, state=JobState.RENDERED)
    factories.make_submission(job=job, provider_job_id=f"pdf_{job.pk}", accepted_at=NOW, in_doubt=False)
    return job


def taken_over_from(batch: Batch) -> tuple[Job, claims.Claim, claims.Claim]:
    """A job that is being sent, its first claim gone stale, and the claim of the pump that took over."""
    job = sent(batch)
    stale = claimed(job, owner="a")
    current = claimed(job, owner="b", now=NOW + timedelta(minutes=1))
    return job, stale, current
