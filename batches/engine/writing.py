"""Writing a plan down: documents, versions, jobs and the items of a batch, in groups that are one transaction each.

A batch of one group is there whole or not at all. A larger one is paused while its rows are written, so nothing of it
is sent before all of them are there; `Batch.writing_at` says so. Who dies between two groups leaves the rows that are
there, and whoever writes the same plan again goes on behind them. Groups keep SQLite's one write lock for tenths of a
second instead of minutes (docs/decisions/0024-rows-of-large-batches.md). What may be started is `intake.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Max

from batches import manifests, queue
from batches.engine import audit, bulk, keys, notices, plannedrows, running, samples, versionrows
from batches.engine.audit import By
from batches.engine.contention import again_after_deadlock
from batches.engine.errors import IntakeRefused
from batches.engine.versionrows import Content
from batches.manifests import SENDING_ACTIONS, Action, PlannedRow
from batches.models import Batch, BatchItem, Draft, DraftState, Workspace
from batches.storage import ArtifactStore

#: Rows of one transaction, and bytes of their texts: a few tenths of a second on either database.
ROWS_AT_ONCE = 2000
BYTES_AT_ONCE = 16_000_000
BEING_WRITTEN = "Its rows are still being written."
RACED = "Another batch with some of the same documents was started at this moment. Check the file again."
CHOSEN_ANEW = "Its draft was changed or discarded before all of its rows were written."
CANCELLED = "The batch was cancelled while its rows were being written."


@dataclass(frozen=True)
class Writing:
    """What is written for whom. `replan` plans some of its rows against what the workspace has by now.

    `summary` counts rows by outcome and follows where some are planned again. `hold` says why the batch stays paused
    when all is there; empty: it runs. `sample_size`: it waits until so many of its documents were looked at.
    """

    batch: Batch
    rows: Sequence[PlannedRow]
    starter: By
    store: ArtifactStore
    replan: Callable[[Sequence[PlannedRow]], manifests.Plan]
    facts: Mapping[str, Any]
    summary: dict[str, int]
    hold: str
    sample_size: int
    progress: Callable[[int], None]
    now: datetime


@dataclass(frozen=True)
class _Group:
    """Rows of one transaction, with what lies in their versions' rows, by position; read before it begins."""

    rows: Sequence[PlannedRow]
    contents: Mapping[int, Content]
    is_first: bool
    is_last: bool


class _AnothersBatch(Exception):
    """Two starts with one creation key met, and the other was first: its batch is the one."""


def write(writing: Writing, *, is_begun: bool) -> None:
    """Write what is not there yet. `is_begun`: the batch's row and some of its items are.

    Raises `IntakeRefused` with nothing of it left to be sent: no batch, or where rows were there already a cancelled
    one. What `progress` raises passes on, and the rest can be written later.
    """
    try:
        for group in _groups(writing, is_begun=is_begun):
            _write_or_plan_again(writing, group)
            writing.progress(group.rows[-1].row.position + 1 if group.rows else 0)
            is_begun = True
    except _AnothersBatch:
        return
    except IntakeRefused as refused:
        if is_begun:
            give_up(writing.batch, refused.words, now=writing.now)
        raise


def give_up(batch: Batch, words: str, *, now: datetime) -> None:
    """End a batch that was not written whole: nothing of it was sent by its own turns, nothing will be.

    Its creation key becomes free, so that the same file can be started once the reason is gone.
    """
    running.cancel(batch.pk, reason=words, by=audit.ENGINE, now=now)
    begun = Batch.objects.filter(pk=batch.pk, writing_at__isnull=False)
    begun.update(creation_key=keys.public_id("ended"))


def give_up_begun(workspace_id: int, creation_key: str, words: str, *, now: datetime) -> None:
    """As `give_up`, of what a start under this key has begun and nobody goes on with; harmless where there is none."""
    begun = Batch.objects.filter(workspace=workspace_id, creation_key=keys.kept(creation_key))
    for batch in begun.filter(writing_at__isnull=False, cancelled_at=None):
        give_up(batch, words, now=now)


def written_renders(batch: Batch) -> int:
    """How many rows that are there already are to be sent."""
    return BatchItem.objects.filter(batch=batch, intake_outcome__in=SENDING_ACTIONS).count()


def last_position(batch: Batch) -> int:
    """Of the rows that are there; -1 without any. Rows are written in their order."""
    last = BatchItem.objects.filter(batch=batch).aggregate(last=Max("position"))["last"]
    return -1 if last is None else int(last)


def end_forgotten(*, older_than: datetime, now: datetime) -> int:
    """Give up what nobody has gone on writing for long, such as a command that was killed; how many batches.

    A draft that is being started goes on by itself (`checking.py`).
    """
    starting = Draft.objects.filter(state=DraftState.STARTING).values_list("public_id", flat=True)
    begun = Batch.objects.filter(writing_at__lt=older_than, cancelled_at=None)
    forgotten = list(begun.exclude(creation_key__in=[keys.kept(key) for key in starting]).order_by("pk"))
    for batch in forgotten:
        give_up(batch, "Writing its rows was interrupted, and nobody went on.", now=now)
    return len(forgotten)


# --- groups ---------------------------------------------------------------------------------------------------------


def _groups(writing: Writing, *, is_begun: bool) -> Iterator[_Group]:
    """The rows that are not there, cut into groups; one without rows where there is nothing but the end to write."""
    there = last_position(writing.batch) if is_begun else -1
    left = [planned for planned in writing.rows if planned.row.position > there]
    is_first = not is_begun
    start, is_last = 0, False
    while not is_last:
        rows, contents = _prepared(writing, left, start)
        start += len(rows)
        is_last = start >= len(left)
        yield _Group(rows, contents, is_first, is_last)
        is_first = False


def _prepared(writing: Writing, left: Sequence[PlannedRow], start: int) -> tuple[list[PlannedRow], dict[int, Content]]:
    """The next group's rows with their contents. Large texts go into the store before any transaction, under keys that
    their content names: harmless if it never commits."""
    rows: list[PlannedRow] = []
    contents: dict[int, Content] = {}
    held = 0
    for planned in left[start : start + ROWS_AT_ONCE]:
        row = planned.row
        if rows and held >= BYTES_AT_ONCE:
            break
        writing.progress(left[start].row.position)  # filling a template may take a second a row
        if planned.action in (Action.NEW, Action.CHANGED):
            content = versionrows.of_row(row, workspace_slug=writing.batch.workspace.slug, store=writing.store)
            contents[row.position] = content
            held += len(content.inline or b"")
        rows.append(planned)
    return rows, contents


def _write_or_plan_again(writing: Writing, group: _Group) -> None:
    """Write a group. Where somebody else was first with some of it, what they started may be what this one wants."""
    try:
        _write_group(writing, group)
        return
    except IntegrityError as error:
        if group.is_first and _is_begun_by_another(writing.batch):
            raise _AnothersBatch from error
        plan = writing.replan(group.rows)
        if not plan.ok or _to_confirm(plan.rows) - _to_confirm(group.rows):  # nobody has seen, so nobody confirmed
            raise IntakeRefused(RACED) from error
    for outcomes, change in ((group.rows, -1), (plan.rows, 1)):
        for planned in outcomes:
            writing.summary[planned.action.value] = writing.summary.get(planned.action.value, 0) + change
    try:
        _write_group(writing, _Group(plan.rows, group.contents, group.is_first, group.is_last))
    except IntegrityError as error:
        raise IntakeRefused(RACED) from error


def _is_begun_by_another(batch: Batch) -> bool:
    other = Batch.objects.filter(workspace=batch.workspace_id, creation_key=batch.creation_key).first()
    return other is not None and other.public_id != batch.public_id


def _to_confirm(rows: Iterable[PlannedRow]) -> set[str]:
    return {planned.row.business_id for planned in rows if any(notice.needs_confirmation for notice in planned.notices)}


@again_after_deadlock
@transaction.atomic
def _write_group(writing: Writing, group: _Group) -> None:
    batch, rows = writing.batch, group.rows
    # Two batches that name the same new documents in different order would wait for each other (PostgreSQL).
    Workspace.objects.select_for_update(no_key=True).get(pk=batch.workspace_id)
    if group.is_first:
        _begin(writing, is_whole=group.is_last and not writing.sample_size)
    else:
        stands = Batch.objects.get(pk=batch.pk)
        if stands.cancelled_at is not None:
            raise IntakeRefused(CANCELLED)
        if stands.writing_at is None:
            return  # another worker had it meanwhile, and wrote the rest
        there = last_position(batch)
        rows = [planned for planned in rows if planned.row.position > there]
    for chunk in bulk.chunks(rows, bulk.ROWS_PER_STATEMENT):
        plannedrows.write(chunk, group.contents, batch=batch, starter=writing.starter, now=writing.now)
    if group.is_last and (writing.sample_size or not group.is_first):
        _finish(writing)
    elif not group.is_last:
        Batch.objects.filter(pk=batch.pk).update(writing_at=writing.now)
    if group.is_last and (writing.sample_size or not writing.hold) and (sends(writing.summary) or not group.is_first):
        queue.ring()


def sends(summary: Mapping[str, int]) -> bool:
    """Whether a plan with these counts renders anything."""
    return any(summary.get(action.value) for action in SENDING_ACTIONS)


def _begin(writing: Writing, *, is_whole: bool) -> None:
    batch = writing.batch
    batch.report = batch.report | {"summary": writing.summary}
    batch.writing_at = None if is_whole else writing.now
    batch.pause_reason = writing.hold if is_whole else BEING_WRITTEN
    batch.paused_at = writing.now if batch.pause_reason else None
    batch.save(force_insert=True)
    notices.watch(batch, now=writing.now)
    audit.record(
        "start_batch",
        subject=f"batch {batch.public_id}",
        workspace=batch.workspace,
        by=writing.starter,
        now=writing.now,
        facts={**writing.facts, **writing.summary},
    )


def _finish(writing: Writing) -> None:
    """All rows are there: the batch takes its turns, unless it is held back for another reason."""
    batch = writing.batch
    sample = samples.choose_of(batch, writing.sample_size)
    hold = samples.WAITS if sample.positions else writing.hold
    report = batch.report | {"summary": writing.summary} | ({"sample_words": sample.words} if sample.words else {})
    batch.paused_at = writing.now if hold else None
    Batch.objects.filter(pk=batch.pk).update(
        writing_at=None,
        paused_at=batch.paused_at,
        pause_reason=hold,
        waits_for_release=bool(sample.positions),
        report=report,
    )
    unchanged = BatchItem.objects.filter(batch=batch, intake_outcome=Action.UNCHANGED.value)
    plannedrows.take_the_lead(unchanged.values("version"))
    if sample.positions:
        samples.make(batch, sample.positions, by=writing.starter, now=writing.now)
