"""Which items a verb may be applied to, asked of the rule table under the locks, and the record of what was done.

Every verb begins with `permitted` inside its transaction and ends with `note`. Nothing here changes a job.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from batches.engine import audit, standings, transitions, verbs
from batches.engine.orders import Order, Result
from batches.engine.verbs import Answer, Asked, Standing
from batches.models import BatchItem, ItemResult, Job, JobState, Verb, Workspace

#: The job moved between two looks at it, which the locks make rare.
MOVED_MEANWHILE = "It moved on at this very moment, so nothing was done; look at it again."


@dataclass(frozen=True)
class Permit:
    """An item that the verb may be applied to. Its rows are locked until the transaction ends."""

    item: BatchItem
    job: Job
    standing: Standing
    answer: Answer


def permitted(
    verb: Verb, item_ids: Sequence[int], *, order: Order, now: datetime, with_workspace: bool = False
) -> tuple[list[Permit], dict[int, Result]]:
    """The items that it may be applied to, in the order of their keys, and of each other one why not.

    `with_workspace` is for verbs that choose which batch leads a job: intake attaches documents under that lock, and
    batches are paused and cancelled under it. The lanes of the accounts are not needed: the jobs' own rows are held,
    so that no intent of them is committed before this ends, and one that was is seen.
    """
    if verb in verbs.NEEDS_REASON and not order.reason.strip():
        why = f"{verb.label} asks for a reason; give one."
        return [], {item_id: Result(ItemResult.SKIPPED, why) for item_id in item_ids}
    jobs = _locked(item_ids, with_workspace=with_workspace)
    # By a statement of its own: what the locking one read is as old as its wait (PostgreSQL).
    items = BatchItem.objects.filter(pk__in=item_ids)
    found = standings.of_items(items)
    rows = items.select_related("batch", "document__workspace", "version").defer(
        "original_row", "batch__report", "version__input_inline"
    )
    permits: list[Permit] = []
    skipped = {item_id: Result(ItemResult.SKIPPED, "There is no such document in a batch.") for item_id in item_ids}
    for item in rows.order_by("pk"):
        standing = found[item.pk]
        asked = Asked(has_new_input=item.pk in order.inputs, may_regenerate_final=order.may_regenerate_final)
        answer = verbs.answer(verb, standing, now=now, asked=asked)
        job = jobs.get(item.version_id)
        why = order.why_not(verb, item.pk, standing, answer)
        if why or job is None:
            skipped[item.pk] = Result(ItemResult.SKIPPED, why or MOVED_MEANWHILE)
            continue
        permits.append(Permit(item, job, standing, answer))
        del skipped[item.pk]
    return permits, skipped


def _locked(item_ids: Sequence[int], *, with_workspace: bool) -> dict[int, Job]:
    """The items' jobs by version, with everything locked in the order of `running`: workspaces, items, jobs."""
    items = BatchItem.objects.filter(pk__in=item_ids)
    if with_workspace:
        ids = items.order_by().values("batch__workspace")
        list(Workspace.objects.filter(pk__in=ids).order_by("pk").select_for_update(no_key=True))
    list(items.order_by("pk").select_for_update(no_key=True, of=("self",)).values_list("pk", flat=True))
    jobs = Job.objects.filter(version__in=items.order_by().values("version")).order_by("pk")
    return {job.version_id: job for job in jobs.select_for_update(no_key=True, of=("self",))}


def jobs_of(permits: Iterable[Permit]) -> dict[int, Job]:
    """Each job once, by primary key, in their order; several items may share one."""
    return dict(sorted({permit.job.pk: permit.job for permit in permits}.items()))


def note(verb: Verb, permits: Sequence[Permit], *, order: Order, now: datetime, in_history: bool) -> None:
    """Keep in the audit log that it was done; with `in_history` also in the histories of the jobs that did not move."""
    if in_history:
        jobs = [(pk, JobState(job.state)) for pk, job in jobs_of(permits).items()]
        transitions.record_unmoved(jobs, reason=verb.value, words=words(verb, order), now=now, actor=actor(order))
    if not order.is_audited:
        return
    for permit in permits:
        audit.record(
            verb.value,
            subject=f"document {permit.item.document.public_id}",
            workspace=permit.item.document.workspace,
            by=order.by,
            now=now,
            reason=order.reason,
            facts={
                "batch": permit.item.batch.public_id,
                "version": permit.item.version.number,
                "from_state": permit.standing.state.value,
                "price": permit.answer.price.value if permit.answer.price else "",
            },
        )


def actor(order: Order) -> str:
    """As the history of a job names them."""
    return order.by.words[:150]


def words(verb: Verb, order: Order) -> str:
    """What the history of a job says of it."""
    return f"{verb.label}: {order.reason}" if order.reason else f"{verb.label}."


def done(permits: Iterable[Permit], words: str) -> dict[int, Result]:
    return {permit.item.pk: Result(ItemResult.DONE, words) for permit in permits}
