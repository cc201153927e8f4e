"""The late watch: jobs that nobody waits for any more are still read, slowly, while the provider keeps their result.

A submission that was given up on with a provider job id (past the deadline, or failed) may have been finished and
billed after all. Of the other ends there is nothing to watch: an unknown one has no id that could be read, an
expired one was seen to be finished, and its result is gone, and a bad output has been delivered.

A due read is claimed by a guarded UPDATE that names the next one, so that two pumps never make the same and a killed
one loses nothing. What is found goes through `transitions` with the state and token that were read.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet

from batches import wording
from batches.conf import ENGINE
from batches.engine import alerts, breaker, exchanges, giving_way, kept, pacing, polling, transitions
from batches.engine.blocks import Blocks
from batches.engine.changes import Change
from batches.engine.contention import again_after_deadlock
from batches.engine.effects import NO_EFFECT, AccountEffect
from batches.engine.exchanges import Evidence
from batches.engine.steps import Watch, Watched
from batches.engine.transitions import Move
from batches.models import (
    FAILED_STATES,
    NOTHING_THERE,
    AccountHealth,
    AlertKind,
    FailureClass,
    HoldReason,
    Job,
    JobEvent,
    JobState,
    ProviderAccount,
    Submission,
    SubmissionOutcome,
    Verb,
)
from batches.providers import errors
from batches.providers.base import JobPhase, JobStatus, Provider

#: Given up on, with something that may still come of it.
WATCHED_STATES = frozenset({JobState.DEADLINE_EXCEEDED, JobState.FAILED})
#: Why it was given up on, where the provider may still deliver. A fault of ours is one, since the next try may go well.
WATCHED_CLASSES = frozenset(
    {
        FailureClass.DEADLINE_EXCEEDED,
        FailureClass.JOB_NOT_FOUND,
        FailureClass.RENDER_FAILED,
        FailureClass.INTERNAL,
    }
)
#: Of the wait after which a second reading counts: a little longer, so that it does.
SECOND_READING = 1.1
#: The reason of an event that keeps what a read said that a person had asked for.
ANSWERED = "read_again"
#: States of the job that a late success takes it out of: nothing of it is under way.
RESCUED_STATES = frozenset({*FAILED_STATES, JobState.PENDING})


def begun(
    change: Change, provider: Callable[[], Provider] | None = None, *, account: ProviderAccount | None = None
) -> Change:
    """The change, with the watch that it begins: its submission is given up on with an id.

    One that was read once as failed and not billed is read again as soon as that counts for its `account`: from then on
    Retry may send the document anew.

    It lasts for as long as the provider says that it keeps results, else for as long as we assume; so also where only
    rows are at hand, and no provider can be asked.
    """
    known, move = change.claim.submission, change.move
    if known is None or move is None or known.provider_job_id is None or known.accepted_at is None:
        return change
    closes_failed = change.submission_fields.get("outcome") == SubmissionOutcome.RENDER_FAILED
    gives_up = move.to_state in WATCHED_STATES and move.fields.get("failure_class") in WATCHED_CLASSES
    if not gives_up and not closes_failed:
        return change
    # The provider's retention begins when its job ends, and a job past its deadline has not been seen to end.
    from_at = change.at if move.to_state is JobState.DEADLINE_EXCEEDED else known.accepted_at
    capabilities = provider().capabilities if provider else None
    until = from_at + kept.by(capabilities)
    if until <= change.at:
        return change
    first = timedelta(seconds=ENGINE.watch_first_seconds)
    said = change.submission_fields
    if account is not None and said.get("failed_at") and not said.get("failed_again_at"):
        first = min(first, SECOND_READING * polling.poll_cap(account))
    fields = {"watch_at": change.at + first, "watch_until": until}
    return replace(change, submission_id=known.id, submission_fields={**change.submission_fields, **fields})


def is_due(*, now: datetime) -> bool:
    """Whether a pump would find something to read: with a refused key, or one that is unreadable, it would not."""
    refused = Q(account__health=AccountHealth.HELD, account__hold_reason=HoldReason.AUTH)
    return Submission.objects.filter(~refused, watch_at__lte=now).exists()


def claim_due(account: ProviderAccount, slots: Blocks, *, now: datetime, most: int) -> list[Watch]:
    """Up to `most` due reads of the account that there is a slot for, each taken by naming its next one."""
    waiting = Submission.objects.filter(account=account, watch_at__lte=now)
    wanted = len(waiting.values_list("pk", flat=True)[:most])
    if not wanted:
        return []
    free = list(slots.take(account.pk, pacing.poll_limits(account), wanted=wanted, now=now).slots)
    due = (
        waiting.select_related("job__version__document")
        .defer("body_inline", "job__version__input_inline")
        .order_by("watch_at")[: len(free)]
    )
    taken: list[Watch] = []
    for row in due:
        mine, next_at = Submission.objects.filter(pk=row.pk, watch_at=row.watch_at), _next(row, now)
        if not mine.update(watch_at=next_at):
            continue  # another pump's
        assert row.provider_job_id is not None
        business_id = row.job.version.document.business_id
        slot = free[len(taken)]
        taken.append(Watch(row.pk, row.job_id, account.pk, row.provider_job_id, business_id, slot, next_at))
    return taken


def _next(row: Submission, now: datetime) -> datetime | None:
    """Further apart with time; none after the provider's retention."""
    assert row.watch_until is not None
    if now >= row.watch_until:
        return None
    waited = (now - (row.accepted_at or row.first_sent_at)).total_seconds() * ENGINE.watch_share
    seconds = min(max(waited, ENGINE.watch_first_seconds), ENGINE.watch_most_seconds)
    return min(now + timedelta(seconds=seconds), row.watch_until)


def effect(watched: Watched, account: ProviderAccount, *, now: datetime, rng: random.Random) -> AccountEffect:
    """What the read says about the account: as any other status read."""
    if watched.error is not None:
        return polling.effect_of(watched.error, account, now=now, rng=rng)
    return breaker.reached(account) if watched.status else NO_EFFECT


@again_after_deadlock
@transaction.atomic
def settle(watched: Watched, *, now: datetime) -> None:
    """Write what a read brought. A read that failed proves nothing, and one that says “not finished” little."""
    watch, status, error = watched.watch, watched.status, watched.error
    if watched.not_read:
        # Due again, so that the last read of all is not lost for want of a slot.
        unchanged = Submission.objects.filter(pk=watch.submission_id, watch_at=watch.next_at)
        unchanged.filter(watch_until__isnull=False).update(watch_at=now)
        return
    exchange = status.exchange if status else error.exchange if error else None
    if exchange is not None:
        exchanges.record([Evidence(exchange, watch.account_id, watch.job_id, watch.submission_id)])
    row = Submission.objects.defer("body_inline").select_related("job").get(pk=watch.submission_id)
    account = ProviderAccount.objects.only("poll_max_ms").get(pk=watch.account_id)
    _tell(watch, row, status, error, account, now=now)
    if status is None:
        return
    # What is proven of one that was delivered stays: only its PDF counts, whatever is said of it now.
    if row.outcome not in (SubmissionOutcome.DELIVERED, SubmissionOutcome.SURPLUS):
        said = polling.readings(status, row.failed_at, row.failed_again_at, account, now=now)
        _update(row, **said, **_read_soon(row, said, account))
        if said["failed_again_at"] is not None and _failed_after_all(row, status, now=now):
            return
    if status.phase is JobPhase.SUCCEEDED:
        _succeeded(watch, status, now=now)
        return
    given_up = Job.objects.filter(pk=watch.job_id, state=JobState.DEADLINE_EXCEEDED)
    given_up.update(provider_status=status.status_word[:100], provider_status_at=now)


def _read_soon(row: Submission, said: dict[str, datetime | None], account: ProviderAccount) -> dict[str, datetime]:
    """When it is read next, where this reading came too early to be the second one: as soon as that counts."""
    first_at = said["failed_at"]
    if first_at is None or said["failed_again_at"] is not None or row.watch_at is None:
        return {}
    return {"watch_at": min(row.watch_at, first_at + SECOND_READING * polling.poll_cap(account))}


def _tell(
    watch: Watch,
    row: Submission,
    status: JobStatus | None,
    error: errors.ProviderError | None,
    account: ProviderAccount,
    *,
    now: datetime,
) -> None:
    """Keep what was answered where a person asked (Check again): once for each submission, and no slow read after."""
    events = JobEvent.objects.filter(job=watch.job_id)
    asked = events.filter(reason=Verb.CHECK_AGAIN.value).order_by("-id").values_list("id", flat=True).first()
    begins = f"Submission {row.sequence} was read: "
    if asked is None or events.filter(reason=ANSWERED, id__gt=asked, words__startswith=begins).exists():
        return
    words = begins + _answer_words(row, status, error, account)
    transitions.record_ignored(watch.job_id, JobState(row.job.state), reason=ANSWERED, words=words, now=now)


def _answer_words(
    row: Submission, status: JobStatus | None, error: errors.ProviderError | None, account: ProviderAccount
) -> str:
    if status is None:
        if isinstance(error, errors.NotFound):
            return "the provider does not know its job (any more)."
        return f"no answer could be had. {error.words if error else 'An internal error stopped it.'}"
    if status.phase is JobPhase.SUCCEEDED:
        return "it is finished at the provider."
    if status.phase is not JobPhase.FAILED:
        return f"it is not finished; the provider says “{status.status_word}”."
    why = f" {status.error_words}" if status.error_words else ""
    if not status.unbilled:
        return f"it has failed there, and may have been billed.{why}"
    at = polling.readings(status, row.failed_at, row.failed_again_at, account, now=status.exchange.started_at)
    if at["failed_again_at"] is not None:
        return f"it has failed there and was not billed, and has been read so twice. It may be sent once more.{why}"
    seconds = round(polling.poll_cap(account).total_seconds())
    return (
        f"it has failed there and was not billed. Read so once more, {seconds} s or longer after this, it is "
        f"believed.{why}"
    )


def _succeeded(watch: Watch, status: JobStatus, *, now: datetime) -> None:
    """Finished after all: it is fetched, or it is one too many, or it waits for the one that is under way."""
    # Held until the end, so that neither a claim nor an intent comes between what is read here and what is written.
    job = Job.objects.select_for_update(no_key=True).get(pk=watch.job_id)
    row = Submission.objects.defer("body_inline").get(pk=watch.submission_id)
    if row.watch_until is None or row.outcome in (SubmissionOutcome.DELIVERED, SubmissionOutcome.SURPLUS):
        return
    if job.state == JobState.SAVED:
        _surplus(watch, job, row, now=now)
    elif job.state in RESCUED_STATES and not (job.state == JobState.PENDING and _may_exist(_others(row))):
        _rescue(watch, job, row, status, now=now)
    elif job.state != JobState.CANCELLED and row.outcome != SubmissionOutcome.OPEN:
        _wait(watch, job, row, now=now)


def _failed_after_all(row: Submission, status: JobStatus, *, now: datetime) -> bool:
    """Its end came late, and is one that bills nothing: a person may have it sent once more. Whether that was written.

    It is watched on, as any job that failed: should it be finished all the same, it is fetched.
    """
    job = Job.objects.select_for_update(no_key=True).get(pk=row.job_id)
    row = Submission.objects.defer("body_inline").get(pk=row.pk)
    if job.state != JobState.DEADLINE_EXCEEDED or row.outcome != SubmissionOutcome.OPEN:
        return False
    words = status.error_words or "The provider could not render this document."
    failure = {
        "failure_class": FailureClass.RENDER_FAILED,
        "failure_code": status.error_code[:100],
        "failure_words": words,
        "provider_status": status.status_word[:100],
        "provider_status_at": now,
        **transitions.taken_over(job.fencing_token),
    }
    move = Move(
        job.pk,
        job.fencing_token,
        JobState.DEADLINE_EXCEEDED,
        JobState.FAILED,
        reason="failed_late",
        words=f"After its deadline it was read as failed and not billed, twice. {words}",
        fields=failure,
    )
    transitions.move(move, now=now)
    _update(row, outcome=SubmissionOutcome.RENDER_FAILED, closed_at=now)
    alerts.close(AlertKind.DEADLINE_EXCEEDED, f"job:{job.pk}", now=now)
    return True


def _others(row: Submission) -> QuerySet[Submission]:
    return Submission.objects.filter(job_id=row.job_id, outcome=SubmissionOutcome.OPEN).exclude(pk=row.pk)


def _may_exist(submissions: QuerySet[Submission]) -> bool:
    return submissions.exclude(NOTHING_THERE).exists()


def _rescue(watch: Watch, job: Job, row: Submission, status: JobStatus, *, now: datetime) -> None:
    """It is the one that is fetched now; what else is open gives way to it."""
    words = f"The provider finished submission {row.sequence} after we had stopped waiting for it."
    if row.rescue_count >= ENGINE.rescues_most:
        words = (
            f"Submission {row.sequence} is said to be finished, and was fetched {row.rescue_count} times without an "
            "end. It is not fetched again by itself."
        )
        _update(row, watch_at=None)
        transitions.record_ignored(job.pk, JobState(job.state), reason="not_rescued_again", words=words, now=now)
        return
    said = giving_way.close_others(row, business_id=watch.business_id, why="was finished late and is fetched", now=now)
    move = Move(
        job.pk,
        job.fencing_token,
        JobState(job.state),
        JobState.RENDERED,
        reason="finished_late",
        words=" ".join([words, *said]),
        fields={
            "due_at": now,
            "fetch_count": 0,
            "deadline_at": job.deadline_at or now,  # it may turn out to be unfinished, and then it has one
            "poll_count": 0,  # counted anew, as the reads of this round
            "provider_status": status.status_word[:100],
            "provider_status_at": now,
            **transitions.taken_over(job.fencing_token),  # from whoever was about to send it again
        },
    )
    transitions.move(move, now=now)
    reopened = {"outcome": SubmissionOutcome.OPEN, "closed_at": None, "failed_at": None, "failed_again_at": None}
    _update(row, rescue_count=row.rescue_count + 1, **reopened, **_found(status, row, now=now))


def _wait(watch: Watch, job: Job, row: Submission, *, now: datetime) -> None:
    """Another one is under way, and whichever is stored first wins. The watch outlasts it, and says what it saw."""
    again_at = now + timedelta(seconds=ENGINE.watch_first_seconds)
    assert row.watch_until is not None
    _update(
        row, watch_at=again_at, watch_until=max(row.watch_until, now + timedelta(seconds=ENGINE.watch_most_seconds))
    )
    words = (
        f"Submission {row.sequence} ({wording.masked(watch.provider_job_id)}) is finished at the provider after all. "
        "Another one is under way: if that brings no PDF, this one is fetched."
    )
    if not JobEvent.objects.filter(job_id=job.pk, reason="finished_meanwhile", words=words).exists():
        transitions.record_ignored(job.pk, JobState(job.state), reason="finished_meanwhile", words=words, now=now)


def _found(status: JobStatus, row: Submission, *, now: datetime) -> dict[str, Any]:
    return {**polling.result_columns(status.result, status.warnings, known=row.result, now=now), "watch_at": None}


def _surplus(watch: Watch, job: Job, row: Submission, *, now: datetime) -> None:
    words = (
        f"Submission {row.sequence} ({wording.masked(watch.provider_job_id)}) was finished too, after another one's "
        "PDF had been stored. Both may be billed; the stored PDF stays. Compare them at the provider."
    )
    _update(row, outcome=SubmissionOutcome.SURPLUS, closed_at=now, watch_at=None)
    alerts.open_for_job(job.pk, AlertKind.SURPLUS, f"{watch.business_id}: {words}", now=now)
    transitions.record_ignored(job.pk, JobState(job.state), reason="surplus", words=words, now=now)


def _update(row: Submission, **fields: Any) -> None:
    Submission.objects.filter(pk=row.pk).update(**fields)
