"""Check again, Fetch again and Retry: a person sets a job going once more that stands still, or looks again at once.

What is allowed is the table in `verbs.py`, asked under the locks. Each function is one transaction over at most a few
hundred items and does nothing at the provider itself: rows become due, and a pump goes on. A pump that holds a job
loses it by the raised fencing token; what it still writes is refused and recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Coalesce, Greatest

from batches import queue
from batches.conf import ENGINE
from batches.engine import giving_way, permits, settled, transitions, turns
from batches.engine.contention import again_after_deadlock
from batches.engine.orders import Order, Result
from batches.engine.permits import Permit
from batches.engine.transitions import Move
from batches.models import (
    MAYBE_THERE,
    BatchItem,
    ItemResult,
    Job,
    JobState,
    Submission,
    SubmissionOutcome,
    Verb,
)


@again_after_deadlock
@transaction.atomic
def check_again(item_ids: Sequence[int], *, order: Order, now: datetime) -> dict[int, Result]:
    """One status read, now; free. What was given up on is read by the late watch, which says what was answered."""
    allowed, results = permits.permitted(Verb.CHECK_AGAIN, item_ids, order=order, now=now)
    waiting = [permit for permit in allowed if permit.job.state == JobState.ACCEPTED]
    given_up = [permit for permit in allowed if permit.job.state != JobState.ACCEPTED]
    _make_due(waiting, now=now)
    readable = Submission.objects.filter(job__in=permits.jobs_of(given_up), provider_job_id__isnull=False)
    readable.exclude(outcome__in=(SubmissionOutcome.DELIVERED, SubmissionOutcome.SURPLUS)).update(
        watch_at=now,
        watch_until=Greatest(Coalesce(F("watch_until"), now), now),  # one read at least, also after the retention
        rescue_count=0,  # a person asked, so a result that is said to be finished is fetched again
    )
    permits.note(Verb.CHECK_AGAIN, allowed, order=order, now=now, in_history=True)
    _ring(allowed)
    return results | permits.done(allowed, "Its status is read now; the answer is kept in its history.")


@again_after_deadlock
@transaction.atomic
def fetch_again(item_ids: Sequence[int], *, order: Order, now: datetime) -> dict[int, Result]:
    """One more round of downloads of what is finished at the provider; free. What is gone ends as expired again."""
    allowed, results = permits.permitted(Verb.FETCH_AGAIN, item_ids, order=order, now=now)
    waiting = [permit for permit in allowed if permit.job.state == JobState.RENDERED]
    ended = [permit for permit in allowed if permit.job.state != JobState.RENDERED]
    _make_due(waiting, now=now)
    permits.note(Verb.FETCH_AGAIN, waiting, order=order, now=now, in_history=True)
    names = {permit.job.pk: permit.item.document.business_id for permit in ended}
    for job in permits.jobs_of(ended).values():
        _reopen_finished(job, names[job.pk], now=now)
    moved = _move(
        ended,
        JobState.RENDERED,
        Verb.FETCH_AGAIN,
        order=order,
        now=now,
        fields=lambda job: {
            "due_at": now,
            "fetch_count": 0,
            # Should it turn out to be unfinished, it is read on, and has its end already.
            "deadline_at": job.deadline_at or now,
        },
    )
    permits.note(Verb.FETCH_AGAIN, moved, order=order, now=now, in_history=False)
    _not_dismissed(moved)
    _ring([*waiting, *moved])
    results |= permits.done(waiting, "It is fetched now.")
    return results | _told(ended, moved, "It is fetched once more.")


@again_after_deadlock
@transaction.atomic
def retry(item_ids: Sequence[int], *, order: Order, now: datetime) -> dict[int, Result]:
    """The same version once more: its submission in doubt with the same key and bytes, or another where nothing is.

    Whether a repeat may still leave is asked again right before its bytes do. On a held account, or in a paused batch,
    what was never sent waits.
    """
    allowed, results = permits.permitted(Verb.RETRY, item_ids, order=order, now=now, with_workspace=True)
    again = [permit for permit in allowed if permit.job.state == JobState.UNKNOWN]
    anew = [permit for permit in allowed if permit.job.state != JobState.UNKNOWN]
    _open_window(again, now=now)
    moved = _move(again, JobState.SUBMITTING, Verb.RETRY, order=order, now=now, fields=lambda _job: {"due_at": now})
    moved_anew = _move(
        anew,
        JobState.PENDING,
        Verb.RETRY,
        order=order,
        now=now,
        fields=lambda _job: {"due_at": now, "deadline_at": None, "poll_count": 0, "fetch_count": 0},
    )
    both = [*moved, *moved_anew]
    turns.choose_leads(Job.objects.filter(pk__in=permits.jobs_of(both)))
    permits.note(Verb.RETRY, both, order=order, now=now, in_history=False)
    _not_dismissed(both)
    _ring(both)
    results |= _told(again, moved, "Its submission is sent once more, with the same key and the same bytes.")
    return results | _told(anew, moved_anew, "It is sent once more, as soon as its turn comes.")


def _open_window(again: Sequence[Permit], *, now: datetime) -> None:
    """Where nothing is billed twice there is no moment after which a person's repeat is unsafe."""
    harmless = [permit for permit in again if permit.standing.repeat_price is not None]
    until = now + timedelta(seconds=ENGINE.harmless_resend_seconds)
    rows = Submission.objects.filter(MAYBE_THERE, job__in=permits.jobs_of(harmless), outcome=SubmissionOutcome.OPEN)
    rows.update(resend_until=Greatest(Coalesce(F("resend_until"), until), until))


def _make_due(allowed: Sequence[Permit], *, now: datetime) -> None:
    """Take waiting jobs from the pumps that hold them, due at once: whichever claims them next makes the step."""
    held: QuerySet[Job] = Job.objects.filter(pk__in=permits.jobs_of(allowed))
    held.update(due_at=now, fencing_token=F("fencing_token") + 1, lease_owner=None, lease_until=None)


def _move(
    allowed: Sequence[Permit],
    to_state: JobState,
    verb: Verb,
    *,
    order: Order,
    now: datetime,
    fields: Any,
) -> list[Permit]:
    """Each job once along its edge, with the person as its actor. Returns the permits whose job moved."""
    moves = [
        Move(
            job.pk,
            job.fencing_token,
            JobState(job.state),
            to_state,
            reason=verb.value,
            words=permits.words(verb, order),
            actor=permits.actor(order),
            fields={**fields(job), **transitions.taken_over(job.fencing_token)},
        )
        for job in permits.jobs_of(allowed).values()
    ]
    moved = transitions.move_many(moves, now=now)
    return [permit for permit in allowed if permit.job.pk in moved]


def _reopen_finished(job: Job, business_id: str, *, now: datetime) -> None:
    """The submission that was said to be finished is the open one, and is no longer watched: it is fetched.

    That is no rescue of the late watch, so none is counted, and a provider that now calls it unfinished ends it.
    """
    rows = Submission.objects.filter(job=job).defer("body_inline").order_by("-sequence")
    with_id = [row for row in rows if row.provider_job_id is not None]
    order = (SubmissionOutcome.OPEN, SubmissionOutcome.DELIVERED)
    finished = [row for outcome in order for row in with_id if row.outcome == outcome]
    chosen = next(iter([*finished, *(row for row in with_id if row.result), *with_id]))
    giving_way.close_others(chosen, business_id=business_id, why="is fetched again", now=now)
    Submission.objects.filter(pk=chosen.pk).update(
        outcome=SubmissionOutcome.OPEN,
        closed_at=None,
        failed_at=None,
        failed_again_at=None,
        watch_at=None,
        watch_until=None,
    )


def _not_dismissed(moved: Iterable[Permit]) -> None:
    """Whoever sets it going again wants to hear of its next failure."""
    ids = [permit.item.pk for permit in moved if permit.standing.is_dismissed]
    BatchItem.objects.filter(pk__in=ids).update(dismissed_at=None, dismissed_note=None)
    settled.void_items(ids)


def _ring(allowed: Sequence[Permit]) -> None:
    if allowed:
        queue.ring()


def _told(asked: Sequence[Permit], moved: Sequence[Permit], words: str) -> dict[int, Result]:
    lost = {permit.item.pk: Result(ItemResult.SKIPPED, permits.MOVED_MEANWHILE) for permit in asked}
    return lost | permits.done(moved, words)
