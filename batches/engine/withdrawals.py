"""Cancel, Dismiss and Reopen: a person gives an item up, before it is sent or after it failed, or takes that back.

They act on the item; its job follows only where no other item needs it. The rest is as in `repairs`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from batches import queue
from batches.engine import permits, reviving, running, settled, transitions, turns
from batches.engine.contention import again_after_deadlock
from batches.engine.orders import Order, Result
from batches.models import BatchItem, Job, JobState, Verb


@again_after_deadlock
@transaction.atomic
def cancel(item_ids: Sequence[int], *, order: Order, now: datetime) -> dict[int, Result]:
    """Never send it. What may have left is resolved first: it ends as cancelled only if it proves not to have arrived.

    A job that another batch needs as well goes on for that one.
    """
    allowed, results = permits.permitted(Verb.CANCEL, item_ids, order=order, now=now, with_workspace=True)
    BatchItem.objects.filter(pk__in=[permit.item.pk for permit in allowed]).update(cancelled_at=now)
    settled.void(permit.item.batch_id for permit in allowed)
    permits.note(Verb.CANCEL, allowed, order=order, now=now, in_history=True)
    jobs = Job.objects.filter(pk__in=permits.jobs_of(allowed))
    turns.choose_leads(jobs)
    by_workspace: dict[int, set[int]] = defaultdict(set)
    for permit in allowed:
        by_workspace[permit.item.batch.workspace_id].add(permit.job.pk)
    for workspace_id, ids in sorted(by_workspace.items()):
        running.end(workspace_id, sorted(ids), now=now)  # those that wait, and that nobody leads any more
    waited = [permit for permit in allowed if permit.job.state == JobState.PENDING]
    sent = [permit for permit in allowed if permit.job.state != JobState.PENDING]
    results |= permits.done(waited, "It is cancelled, and is not sent for this batch.")
    return results | permits.done(
        sent, "It is cancelled if it proves not to have arrived; else what came of it is kept."
    )


@again_after_deadlock
@transaction.atomic
def dismiss(item_ids: Sequence[int], *, order: Order, now: datetime) -> dict[int, Result]:
    """It stays failed, is counted as failed, and needs nobody any more; the reason is kept as its note."""
    allowed, results = permits.permitted(Verb.DISMISS, item_ids, order=order, now=now)
    items = BatchItem.objects.filter(pk__in=[permit.item.pk for permit in allowed])
    items.update(dismissed_at=now, dismissed_note=order.reason)
    settled.void(permit.item.batch_id for permit in allowed)
    permits.note(Verb.DISMISS, allowed, order=order, now=now, in_history=True)
    return results | permits.done(allowed, "It is dismissed, with your note.")


@again_after_deadlock
@transaction.atomic
def reopen(item_ids: Sequence[int], *, order: Order, now: datetime) -> dict[int, Result]:
    """Take back a cancellation, so that what was never sent is sent after all, or a dismissal."""
    allowed, results = permits.permitted(Verb.REOPEN, item_ids, order=order, now=now, with_workspace=True)
    items = BatchItem.objects.filter(pk__in=[permit.item.pk for permit in allowed])
    items.update(cancelled_at=None, dismissed_at=None, dismissed_note=None)
    settled.void(permit.item.batch_id for permit in allowed)
    why, words, actor = Verb.REOPEN.value, permits.words(Verb.REOPEN, order), permits.actor(order)
    moves = [
        reviving.back(job, reason=why, words=words, actor=actor, now=now)
        for job in permits.jobs_of(allowed).values()
        if job.state == JobState.CANCELLED
    ]
    moved = transitions.move_many(moves, now=now)
    turns.choose_leads(Job.objects.filter(pk__in=permits.jobs_of(allowed)))
    unmoved = [permit for permit in allowed if permit.job.pk not in moved]
    sent = [permit for permit in allowed if permit.job.pk in moved]
    permits.note(Verb.REOPEN, unmoved, order=order, now=now, in_history=True)
    permits.note(Verb.REOPEN, sent, order=order, now=now, in_history=False)
    if allowed:
        queue.ring()
    results |= permits.done(unmoved, "It is open again.")
    return results | permits.done(sent, "It is open again, and is sent as soon as its turn comes.")
