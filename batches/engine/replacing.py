"""Replacing exactly the failed rows of a batch by corrected ones, from a manifest that holds just those rows.

`plan_replacement` reads and stores nothing; `replace_rows` does what it says, in one transaction or not at all. A row
that is saved or under way is never touched, and one whose content is the same as before is never sent.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from django.db import transaction

from batches.conf import ENGINE
from batches.engine import audit, bulk, making, standings, verbs, versions
from batches.engine.contention import again_after_deadlock
from batches.engine.errors import IntakeRefused
from batches.engine.making import Content, Wanted
from batches.engine.orders import NewInput, Order
from batches.engine.verbs import Asked, Standing
from batches.manifests import Manifest, ManifestRow
from batches.manifests.keys import REMARK
from batches.models import FAILED_STATES, AuditEntry, Batch, BatchItem, JobState, Verb
from batches.storage import ArtifactStore

ACTION = "replace_rows"


class Replacement(StrEnum):
    """What becomes of one corrected row."""

    CORRECTED = "corrected"  # failed, and its content differs: the next version, sent
    UNCHANGED = "unchanged"  # failed, and its content is what failed: nothing is sent
    LEFT_ALONE = "left_alone"  # not failed, so there is nothing to correct
    REFUSED = "refused"  # no row of the batch, or no version may be made of it


@dataclass(frozen=True)
class ReplacedRow:
    """One row and what becomes of it. `to_confirm` is what has to be accepted before it is sent."""

    row: ManifestRow
    outcome: Replacement
    words: str = ""
    to_confirm: str = ""
    item_id: int | None = None


@dataclass(frozen=True)
class ReplacementPlan:
    """All rows in manifest order. It may be carried out only when nothing is refused."""

    batch: Batch
    rows: tuple[ReplacedRow, ...]

    @property
    def ok(self) -> bool:
        return self.count(Replacement.REFUSED) == 0

    @property
    def needs_confirmation(self) -> tuple[ReplacedRow, ...]:
        return tuple(row for row in self.rows if row.to_confirm)

    def count(self, outcome: Replacement) -> int:
        return sum(1 for row in self.rows if row.outcome is outcome)

    def named(self, outcome: Replacement) -> list[str]:
        """Business ids of the rows with this outcome."""
        return [row.row.business_id for row in self.rows if row.outcome is outcome]

    def summary(self) -> dict[str, int]:
        """Rows by outcome, what of the batch is left as it is, and renders that are billed at most."""
        counts = Counter(row.outcome for row in self.rows)
        corrected = counts[Replacement.CORRECTED]
        untouched = BatchItem.objects.filter(batch=self.batch).count() - corrected
        by_outcome = {outcome.value: counts[outcome] for outcome in Replacement}
        return {"new": 0, **by_outcome, "untouched": untouched, "renders": corrected}


def plan_replacement(
    batch: Batch, manifest: Manifest, *, now: datetime, may_regenerate_final: bool = False
) -> ReplacementPlan:
    """What replacing would do with each valid row. Nothing is stored; the manifest's own errors are the caller's."""
    rows: list[ReplacedRow] = []
    for chunk in bulk.chunks(manifest.rows, bulk.ROWS_PER_STATEMENT):
        known = {item.document.business_id: item for item in _items(batch, chunk)}
        standing = standings.of_items(BatchItem.objects.filter(pk__in=[item.pk for item in known.values()]))
        for row in chunk:
            item = known.get(row.business_id)
            if item is None:
                rows.append(ReplacedRow(row, Replacement.REFUSED, "The batch has no row with this id."))
                continue
            rows.append(_planned(row, item, standing[item.pk], may_regenerate_final=may_regenerate_final, now=now))
    return ReplacementPlan(batch, tuple(rows))


def _items(batch: Batch, rows: Sequence[ManifestRow]) -> list[BatchItem]:
    items = BatchItem.objects.filter(batch=batch, document__business_id__in=[row.business_id for row in rows])
    related = items.select_related("batch__account", "document__workspace", "version").order_by("pk")
    return list(related.defer("version__input_inline"))


def _planned(
    row: ManifestRow, item: BatchItem, standing: Standing, *, may_regenerate_final: bool, now: datetime
) -> ReplacedRow:
    if standing.is_cancelled or standing.state not in FAILED_STATES:
        state = JobState.CANCELLED if standing.is_cancelled else standing.state
        return ReplacedRow(row, Replacement.LEFT_ALONE, f"It is not failed ({state.label.lower()}).", "", item.pk)
    if row.input_sha256 == item.version.input_sha256:
        words = "Its content and options are what failed before; nothing is sent."
        return ReplacedRow(row, Replacement.UNCHANGED, words, "", item.pk)
    asked = Asked(has_new_input=True, may_regenerate_final=may_regenerate_final)
    answer = verbs.answer(Verb.REGENERATE, standing, now=now, asked=asked)
    words = answer.words or versions.unusable(item)
    if words:
        return ReplacedRow(row, Replacement.REFUSED, words, "", item.pk)
    return ReplacedRow(row, Replacement.CORRECTED, "", answer.to_confirm, item.pk)


def replace_rows(
    plan: ReplacementPlan, manifest: Manifest, *, key: str, order: Order, store: ArtifactStore, now: datetime
) -> dict[str, int]:
    """Carry the plan out, and return its summary as it came to be; the same `key` does it once for a batch.

    Rows that were planned as failed and are not any more are left alone. Raises `IntakeRefused` with nothing changed
    where a row is refused, where something has to be confirmed and is not, or without a reason.
    """
    key = hashlib.sha256(key.encode()).hexdigest()
    known = _done(plan.batch, key)
    if known is not None:
        return known
    if not order.reason.strip():
        raise IntakeRefused(versions.NO_REASON)
    _refuse(plan, order)
    corrected = [row for row in plan.rows if row.outcome is Replacement.CORRECTED]
    contents = {row.row.business_id: _stored(plan.batch, row.row, store) for row in corrected}
    return _write(plan, manifest, contents, key=key, order=order, now=now)


def _refuse(plan: ReplacementPlan, order: Order) -> None:
    refused = [row for row in plan.rows if row.outcome is Replacement.REFUSED]
    if refused:
        raise IntakeRefused(f"{refused[0].row.business_id}: {refused[0].words}")
    unconfirmed = [row for row in plan.needs_confirmation if not order.is_confirmed]
    if unconfirmed:
        raise IntakeRefused(f"{len(unconfirmed)} of its rows need a confirmation first: {unconfirmed[0].to_confirm}")


def _stored(batch: Batch, row: ManifestRow, store: ArtifactStore) -> Content | None:
    """The input's facts; a large text goes to the store. A small one is read again where it is written."""
    if row.text_bytes <= ENGINE.inline_bytes_most:
        return None
    return _content(batch, row, store)


def _content(batch: Batch, row: ManifestRow, store: ArtifactStore | None) -> Content:
    new = NewInput(row.kind, row.text(), row.filename, row.options, row.template_key, row.template_data)
    return making.content(new, workspace_slug=batch.workspace.slug, business_id=row.business_id, store=store)


@again_after_deadlock
@transaction.atomic
def _write(
    plan: ReplacementPlan,
    manifest: Manifest,
    contents: Mapping[str, Content | None],
    *,
    key: str,
    order: Order,
    now: datetime,
) -> dict[str, int]:
    batch = plan.batch
    making.lock([row.item_id for row in plan.rows if row.item_id is not None])
    known = _done(batch, key)
    if known is not None:
        return known
    fresh = plan_replacement(batch, manifest, now=now, may_regenerate_final=order.may_regenerate_final)
    seen = {row.row.business_id for row in plan.rows if row.outcome is Replacement.CORRECTED}
    _refuse(fresh, order)
    corrected = [row for row in fresh.rows if row.outcome is Replacement.CORRECTED]
    if {row.row.business_id for row in corrected} - seen:
        raise IntakeRefused("Since the check, more of its rows failed and would be sent. Check the file again.")
    renders = 0
    for chunk in bulk.chunks(corrected, bulk.ROWS_PER_STATEMENT):
        items = {item.document.business_id: item for item in _items(batch, [row.row for row in chunk])}
        wanted = [_wanted(batch, row.row, items[row.row.business_id], contents[row.row.business_id]) for row in chunk]
        made = making.make(wanted, by=order.by, reason=order.reason, now=now)
        renders += sum(one.is_new for one in made.values())
    summary = fresh.summary() | {"renders": renders}
    audit.record(
        ACTION,
        subject=f"batch {batch.public_id}",
        workspace=batch.workspace,
        by=order.by,
        now=now,
        reason=order.reason,
        facts={"key": key, "manifest_sha256": manifest.sha256, "summary": summary},
    )
    return summary


def _wanted(batch: Batch, row: ManifestRow, item: BatchItem, content: Content | None) -> Wanted:
    given = {name: value for name, value in row.original.items() if not name.startswith(REMARK)}
    return Wanted(item.document, item.version, batch, content or _content(batch, row, None), [item], given)


def _done(batch: Batch, key: str) -> dict[str, int] | None:
    """What the same key came to before."""
    entries = AuditEntry.objects.filter(workspace=batch.workspace_id, action=ACTION, facts__key=key)
    entry = entries.filter(subject=f"batch {batch.public_id}").first()
    return None if entry is None else dict(entry.facts["summary"])
