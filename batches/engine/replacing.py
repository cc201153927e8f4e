"""Replacing exactly the failed rows of a batch by corrected ones, from a manifest that holds just those rows.

`plan_replacement` stores nothing; `replace_rows` does what it says, in one transaction or not at all. A row that is
saved or under way is never touched, and neither is one that another batch gave a newer version. Content that failed
before is no correction and is never sent, whichever version had it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from django.db import transaction

from batches.engine import audit, bulk, completing, intake, keys, making, standings, verbs, versionrows, versions
from batches.engine.completing import Mapped
from batches.engine.contention import again_after_deadlock
from batches.engine.errors import IntakeRefused
from batches.engine.making import Made, Wanted
from batches.engine.orders import Order
from batches.engine.verbs import Asked, Standing
from batches.engine.versionrows import Content
from batches.manifests import Manifest, ManifestRow
from batches.manifests.keys import REMARK
from batches.models import FAILED_STATES, AuditEntry, Batch, BatchItem, DocumentVersion, JobState, Verb
from batches.storage import ArtifactStore

ACTION = "replace_rows"
NO_SUCH_ROW = "The batch has no row with this id. Take it out of the file, and hand it over in a batch of its own."


class Replacement(StrEnum):
    """What becomes of one corrected row."""

    CORRECTED = "corrected"  # failed, and its content differs: the next version, sent
    UNCHANGED = "unchanged"  # failed, and its content is what failed, now or as an earlier version: nothing is sent
    LEFT_ALONE = "left_alone"  # not failed, or newer elsewhere, so there is nothing to correct
    REFUSED = "refused"  # no row of the batch, or no version may be made of it


@dataclass(frozen=True)
class ReplacedRow:
    """One row and what becomes of it. `to_confirm` is what has to be accepted before it is sent.

    `version_id` is the version that it was compared with.
    """

    row: ManifestRow
    outcome: Replacement
    words: str = ""
    to_confirm: str = ""
    item_id: int | None = None
    version_id: int | None = None


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
    batch: Batch,
    manifest: Manifest,
    *,
    now: datetime,
    may_regenerate_final: bool = False,
    store: ArtifactStore | None = None,
) -> ReplacementPlan:
    """What replacing would do with each valid row. Nothing is stored; the manifest's own errors are the caller's.

    The manifest was read as corrections (`manifests.read(…, corrects=True)`), so that rows may leave out what the
    failed versions have. Such an input may lie in the store; its errors pass.
    """
    rows = completing.completed(batch, manifest.rows, store)
    return _plan(batch, rows, manifest.mapping, may_regenerate_final=may_regenerate_final, now=now)


def _plan(
    batch: Batch, rows: Sequence[ManifestRow], mapped: Mapped, *, may_regenerate_final: bool, now: datetime
) -> ReplacementPlan:
    planned: list[ReplacedRow] = []
    for chunk in bulk.chunks(rows, bulk.ROWS_PER_STATEMENT):
        known = {item.document.business_id: item for item in _items(batch, chunk)}
        standing = standings.of_items(BatchItem.objects.filter(pk__in=[item.pk for item in known.values()]))
        alike = _alike(chunk, known)
        asked = Asked(has_new_input=True, may_regenerate_final=may_regenerate_final)
        for row in chunk:
            item = known.get(row.business_id)
            if item is None:
                planned.append(ReplacedRow(row, Replacement.REFUSED, NO_SUCH_ROW))
                continue
            failed = alike.get((item.document_id, row.input_sha256))
            outcome, words, to_confirm = _judged(row, item, standing[item.pk], failed, asked, mapped, now=now)
            planned.append(ReplacedRow(row, outcome, words, to_confirm, item.pk, item.version_id))
    return ReplacementPlan(batch, tuple(planned))


def _items(batch: Batch, rows: Sequence[ManifestRow]) -> list[BatchItem]:
    items = BatchItem.objects.filter(batch=batch, document__business_id__in=[row.business_id for row in rows])
    related = items.select_related("batch__account", "document__workspace", "version").order_by("pk")
    return list(related.defer("version__input_inline"))


def _alike(rows: Sequence[ManifestRow], items: Mapping[str, BatchItem]) -> dict[tuple[int, str], int]:
    """Numbers of versions that failed, by document and input: where several have one input, the newest one decides."""
    documents = [item.document_id for item in items.values()]
    versions = DocumentVersion.objects.filter(
        document__in=documents, input_sha256__in={row.input_sha256 for row in rows}, input_deleted_at=None
    )
    newest = {
        (document_id, sha256): (number, state)
        for document_id, sha256, number, state in versions.order_by("number").values_list(
            "document", "input_sha256", "number", "job__state"
        )
    }
    return {key: number for key, (number, state) in newest.items() if state in FAILED_STATES}


def _judged(
    row: ManifestRow,
    item: BatchItem,
    standing: Standing,
    failed: int | None,
    asked: Asked,
    mapped: Mapped,
    *,
    now: datetime,
) -> tuple[Replacement, str, str]:
    """What becomes of the row, why, and what to confirm. `failed` is a version that failed with its input."""
    if standing.is_cancelled or standing.state not in FAILED_STATES:
        state = JobState.CANCELLED if standing.is_cancelled else standing.state
        return Replacement.LEFT_ALONE, f"It is not failed ({state.label.lower()}).", ""
    if not standing.is_current:
        return Replacement.LEFT_ALONE, "A newer version of its document exists; this row is left as it is.", ""
    if not completing.names_a_document(row, item, mapped):
        return Replacement.REFUSED, "It names no document.", ""
    if standing.input_gone and row.keeps_input:
        return Replacement.REFUSED, standing.input_gone, ""
    is_same = row.input_sha256 == item.version.input_sha256 and not standing.input_gone
    if is_same or completing.is_as_listed(row, item, mapped):
        return Replacement.UNCHANGED, "Its content and options are what failed before; nothing is sent.", ""
    if failed is not None:
        words = f"Its content and options are those of version {failed}, which failed too; nothing is sent."
        return Replacement.UNCHANGED, words, ""
    answer = verbs.answer(Verb.REGENERATE, standing, now=now, asked=asked)
    words = answer.words or versions.unusable(item)
    if words:
        return Replacement.REFUSED, words, ""
    return Replacement.CORRECTED, "", answer.to_confirm


def replace_rows(
    plan: ReplacementPlan, manifest: Manifest, *, key: str, order: Order, store: ArtifactStore, now: datetime
) -> dict[str, int]:
    """Carry the plan out, and return its summary as it came to be; the same `key` does it once for a batch.

    Rows that were planned as failed and are not any more are left alone. Raises `IntakeRefused` with nothing changed
    where a row is refused, where something has to be confirmed and is not, or without a reason.
    """
    known = carried_out(plan.batch, key)
    if known is not None:
        return known
    if not order.reason.strip():
        raise IntakeRefused(versions.NO_REASON)
    _refuse(plan, order)
    corrected = [row for row in plan.rows if row.outcome is Replacement.CORRECTED]
    contents = {row.row.business_id: _stored(plan.batch, row.row, store) for row in corrected}
    return _write(plan, manifest, contents, key=keys.kept(key), order=order, now=now)


def _refuse(plan: ReplacementPlan, order: Order) -> None:
    refused = [row for row in plan.rows if row.outcome is Replacement.REFUSED]
    if refused:
        raise IntakeRefused(f"{refused[0].row.business_id}: {refused[0].words}")
    unconfirmed = [row for row in plan.needs_confirmation if not order.is_confirmed]
    if unconfirmed:
        raise IntakeRefused(f"{len(unconfirmed)} of its rows need a confirmation first: {unconfirmed[0].to_confirm}")


def _stored(batch: Batch, row: ManifestRow, store: ArtifactStore) -> Content | None:
    """The input's facts; a large text goes to the store. A small one is read again where it is written."""
    if row.keeps_input or versionrows.is_small(row.text_bytes):
        return None
    return _content(batch, row, store)


def _content(batch: Batch, row: ManifestRow, store: ArtifactStore | None) -> Content:
    return versionrows.of_row(row, workspace_slug=batch.workspace.slug, store=store)


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
    rows = [row.row for row in plan.rows]
    fresh = _plan(batch, rows, manifest.mapping, may_regenerate_final=order.may_regenerate_final, now=now)
    _refuse(fresh, order)
    corrected = [row for row in fresh.rows if row.outcome is Replacement.CORRECTED]
    _refuse_what_was_not_seen(plan, corrected)
    renders = 0
    for chunk in bulk.chunks(corrected, bulk.ROWS_PER_STATEMENT):
        wanted = _wanted(batch, [row.row for row in chunk], contents, manifest.mapping)
        if versionrows.deleted_since((each.document.pk, each.content) for each in wanted):
            raise IntakeRefused(versionrows.DELETED_MEANWHILE)
        made = making.make(wanted, by=order.by, reason=order.reason, now=now)
        renders += sum(one.is_new for one in made.values())
        _record_each(batch, wanted, made, order, manifest, now=now)
    _keep_columns(batch, [row.row for row in corrected])
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


def _refuse_what_was_not_seen(plan: ReplacementPlan, corrected: Sequence[ReplacedRow]) -> None:
    """Whoever carries it out looked at these rows as corrections, each of the version that its item names now."""
    seen = {row.item_id: row.version_id for row in plan.rows if row.outcome is Replacement.CORRECTED}
    if any(row.item_id not in seen for row in corrected):
        raise IntakeRefused("Since the check, more of its rows failed and would be sent. Check the file again.")
    if any(row.version_id != seen[row.item_id] for row in corrected):
        raise IntakeRefused("Since the check, some of its rows got another version. Check the file again.")


def _wanted(
    batch: Batch, rows: Sequence[ManifestRow], contents: Mapping[str, Content | None], mapped: Mapped
) -> list[Wanted]:
    items = {item.document.business_id: item for item in _items(batch, rows)}
    keeping = [items[row.business_id].version_id for row in rows if row.keeps_input]
    kept = DocumentVersion.objects.in_bulk(keeping)
    wanted = []
    for row in rows:
        item = items[row.business_id]
        if row.keeps_input:
            content = completing.content(row, kept[item.version_id])
        else:
            content = contents[row.business_id] or _content(batch, row, None)
        given = completing.as_given(row, item, mapped)
        wanted.append(Wanted(item.document, item.version, batch, batch.account, content, [item], given))
    return wanted


def _record_each(
    batch: Batch,
    wanted: Sequence[Wanted],
    made: Mapping[int, Made],
    order: Order,
    manifest: Manifest,
    *,
    now: datetime,
) -> None:
    """What was done to each document, so that its own part of the log says so."""
    facts = {"batch": batch.public_id, "manifest_sha256": manifest.sha256}
    audit.record_each(
        Verb.REGENERATE.value,
        [
            (f"document {each.document.public_id}", facts | versions.facts_of(each, made[each.document.pk]))
            for each in wanted
        ],
        workspace=batch.workspace,
        by=order.by,
        now=now,
        reason=order.reason,
    )


def _keep_columns(batch: Batch, rows: Sequence[ManifestRow]) -> None:
    """Columns that only corrected rows have, so that the next list of failed rows has them too."""
    report = Batch.objects.select_for_update(no_key=True).values_list("report", flat=True).get(pk=batch.pk)
    if "columns" not in report:
        return  # a list looks into every row then
    given = (name for row in rows for name in row.original if not name.startswith(REMARK))
    columns = list(dict.fromkeys((*report["columns"], *given)))
    if columns != report["columns"]:
        kept = intake.kept_columns(columns, are_all=report.get("columns_are_all", False))
        Batch.objects.filter(pk=batch.pk).update(report=report | kept)


def carried_out(batch: Batch, key: str) -> dict[str, int] | None:
    """What replacing rows of this batch under this key came to; None where it was not done."""
    return _done(batch, keys.kept(key))


def _done(batch: Batch, key: str) -> dict[str, int] | None:
    """What the same key came to before."""
    entries = AuditEntry.objects.filter(workspace=batch.workspace_id, action=ACTION, facts__key=key)
    entry = entries.filter(subject=f"batch {batch.public_id}").first()
    return None if entry is None else dict(entry.facts["summary"])
