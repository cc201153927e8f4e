"""Corrected rows of a batch, from an upload that names just those: what would become of each, and carrying it out.

The upload is a draft with a target (`drafts.py`), read like any other with the columns and the template that the batch
was made with. Mostly it is the batch's own list of failed rows, edited in a spreadsheet program: its guarded cells come
back as they were, and a document that the list could not hold is the one that failed (`completing.py`). A row whose
file is not in the upload, or that misses data of its template, counts as unchanged if all of it is as it was before.
What may be replaced is decided in `replacing.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from batches import manifests, rights, rownumbers
from batches.cells import ROW
from batches.engine import accounts, agreed, bulk, completing, estimates, replacing, templates
from batches.engine.agreed import Agreed
from batches.engine.audit import By
from batches.engine.errors import IntakeRefused
from batches.engine.orders import Order
from batches.engine.replacing import Replacement, ReplacementPlan
from batches.manifests import Manifest, ManifestSource
from batches.manifests.choices import Choices
from batches.manifests.corrections import place_of
from batches.manifests.keys import REMARK
from batches.models import FAILED_STATES, Batch, BatchItem, Draft, Verb
from batches.storage import ArtifactStore

#: Rows of each outcome that the report names one by one.
ROWS_NAMED = 1000
NO_RIGHT = "Whoever uploaded it may no longer regenerate documents in this workspace."
ALL_REFUSED = "Nothing of it is replaced while a row is refused. Correct those rows, or leave them out of the file."


@dataclass
class Correction:
    """A corrections file as it was read: what would become of its rows, and how many of them are as they were."""

    manifest: Manifest
    plan: ReplacementPlan
    refused: Mapping[str, str] = field(default_factory=dict)
    """Rows that are refused here, with the reason, by business id."""
    left_count: int = 0

    @property
    def ok(self) -> bool:
        return self.manifest.ok and self.plan.ok and not self.refused

    def report(self) -> dict[str, Any]:
        """JSON values: as the answer of a check, with the outcome of each row under `rows_by_outcome`."""
        summary = self.plan.summary()
        summary["unchanged"] += self.left_count
        summary["refused"] += sum(1 for row in self.plan.rows if self._refusal(row) and not _is_refused(row))
        report = self.manifest.report()
        report["summary"] = summary | {"invalid": self.manifest.invalid_count}
        renders = summary["renders"]
        return report | {
            "ok": self.ok and renders > 0,
            "renders": renders,
            "contents_sha256": agreed.contents_sha256(self.manifest.rows),
            "left_out": 0,
            "notices": self._notices(),
            "rows_by_outcome": self._rows(),
            "estimate": estimates.of(self.plan.batch.account, renders).as_dict(),
        }

    @property
    def by_now(self) -> Agreed:
        """What carrying it out comes to."""
        to_confirm = frozenset(row.row.position for row in self.plan.needs_confirmation)
        contents = agreed.contents_sha256(self.manifest.rows)
        return Agreed(self.plan.count(Replacement.CORRECTED), contents, to_confirm=to_confirm)

    def _refusal(self, row: replacing.ReplacedRow) -> str:
        return self.refused.get(row.row.business_id, "")

    def _rows(self) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = {outcome.value: [] for outcome in Replacement}
        for row in self.plan.rows:
            refusal = self._refusal(row)
            outcome = Replacement.REFUSED if refusal else row.outcome
            if len(found[outcome.value]) < ROWS_NAMED:
                words = refusal or row.words or row.to_confirm
                facts = {"row": row.row.position, "line": row.row.line, "id": row.row.business_id, "words": words}
                found[outcome.value].append(facts)
        return found

    def _notices(self) -> list[dict[str, Any]]:
        by_words: dict[str, list[int]] = {}
        for row in self.plan.needs_confirmation:
            by_words.setdefault(row.to_confirm, []).append(row.row.position)
        return [
            {"kind": "to_confirm", "message": words, "needs_confirmation": True, "rows": rows, "count": len(rows)}
            for words, rows in by_words.items()
        ]


def _is_refused(row: replacing.ReplacedRow) -> bool:
    return row.outcome is Replacement.REFUSED


# --- reading --------------------------------------------------------------------------------------------------------


def remembered_choices(batch: Batch) -> Choices:
    """What the batch's own upload was read with, as far as it says something about another file."""
    draft = Draft.objects.filter(batch=batch).only("choices").first()
    # A batch of the command line has no draft.
    made_with = Choices.from_dict(draft.choices if draft else batch.report.get("choices", {}))
    return Choices(
        mapping=made_with.mapping,
        template=made_with.template,
        template_version=made_with.template_version,
        are_provider_templates=made_with.are_provider_templates,
    )


def fitting_choices(batch: Batch, look: Mapping[str, Any]) -> Choices:
    """Those of `remembered_choices` that fit what the head of another file shows (`manifests.look`). Where its encoding
    is in doubt it is that of the batch's own table, in which the list of failed rows went out."""
    kept, encoding = remembered_choices(batch), batch.report.get("encoding", "")
    if any(each["encoding"] == encoding for each in look.get("other_encodings") or ()):
        kept = replace(kept, encoding=encoding)
    columns = set(look.get("columns") or ()) if look.get("header_sha256") else set()
    names_id = next((name for name, target in (kept.mapping or {}).items() if target == "id"), None)
    return kept if names_id in columns else replace(kept, mapping=None)


@contextmanager
def read(
    source: ManifestSource,
    batch: Batch,
    *,
    choices: Choices,
    may_regenerate_final: bool,
    store: ArtifactStore | None = None,
    now: datetime,
    progress: Callable[[int], None],
) -> Iterator[Correction]:
    """The upload, read and planned, open until the end of the block. Raises `manifests.ManifestRefused`."""
    known = _AsBefore(batch)
    with manifests.read(
        source,
        accounts.document_limits(batch.account),
        choices=choices,
        templates=templates.of(batch.workspace),
        corrects=True,
        is_as_before=known.look,
        progress=progress,
    ) as manifest:
        plan = replacing.plan_replacement(
            batch, manifest, now=now, may_regenerate_final=may_regenerate_final, store=store
        )
        progress(manifest.row_count)
        yield Correction(manifest, plan, _misplaced(batch, plan), known.count)


class _AsBefore:
    """Knows the failed rows of a batch as they were given, by digests; counts those that it was asked of."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._known: set[bytes] | None = None
        self.count = 0

    def look(self, columns: Mapping[str, Any]) -> bool:
        if self._known is None:
            failed = BatchItem.objects.filter(
                batch=self._batch, cancelled_at=None, version__job__state__in=FAILED_STATES
            )
            rows = failed.order_by().values_list("original_row", flat=True)
            self._known = {_digest(row) for row in rows.iterator(chunk_size=1000)}
        is_known = _digest(columns) in self._known
        self.count += is_known
        return is_known


def _digest(row: Mapping[str, Any]) -> bytes:
    """Of a row's cells as a table would hold them: text, without what is empty, line ends alike."""
    cells = sorted((name, completing.cell(value)) for name, value in row.items() if not name.startswith(REMARK))
    told = [(name, cell) for name, cell in cells if cell]
    return hashlib.sha256(json.dumps(told).encode()).digest()


def _misplaced(batch: Batch, plan: ReplacementPlan) -> dict[str, str]:
    """Rows whose id is not the one that stood in their place: a spreadsheet program has changed it."""
    places = {row.row.business_id: place for row in plan.rows if (place := place_of(row.row.original)) is not None}
    found: dict[str, str] = {}
    for chunk in bulk.chunks(sorted(places.items()), bulk.ROWS_PER_STATEMENT):
        part = dict(chunk)
        items = BatchItem.objects.filter(batch=batch, position__in=part.values())
        there = dict(items.values_list("position", "document__business_id"))
        for business_id, place in part.items():
            before = there.get(place)
            if before is not None and before != business_id:
                found[business_id] = (
                    f"Row {rownumbers.said(place):,} of the batch ({ROW} {place}) has the id “{before}”. A spreadsheet "
                    "program may have changed it: cells with ids have to be text."
                )
    return found


# --- the draft's turns ----------------------------------------------------------------------------------------------


def rights_of(draft: Draft) -> frozenset[str]:
    return rights.rights(draft.created_by, draft.workspace) if draft.created_by else frozenset()


def of_draft(
    draft: Draft, source: ManifestSource, *, store: ArtifactStore, now: datetime, progress: Callable[[int], None]
) -> AbstractContextManager[Correction]:
    """As `read`, of a draft with a target."""
    assert draft.target is not None
    return read(
        source,
        draft.target,
        choices=Choices.from_dict(draft.choices),
        may_regenerate_final=rights.REGENERATE_FINAL in rights_of(draft),
        store=store,
        now=now,
        progress=progress,
    )


def carry_out(correction: Correction, draft: Draft, *, store: ArtifactStore, now: datetime) -> dict[str, int]:
    """Replace the rows, once for a draft; what it came to. Raises `IntakeRefused` with nothing changed."""
    known = replacing.carried_out(correction.plan.batch, draft.public_id)
    if known is not None:
        return known  # by a worker that died before it could say so
    if Verb.REGENERATE not in rights_of(draft):
        raise IntakeRefused(NO_RIGHT)
    shown = agreed.of_report(draft.report or {}, draft.renders_shown or 0)
    if words := agreed.why_not(shown, correction.by_now):
        raise IntakeRefused(words)
    assert draft.created_by is not None, "nobody has no rights"
    order = Order(
        By(draft.created_by, draft.created_by.get_username(), draft.from_where),
        reason=draft.reason,
        is_confirmed=draft.is_confirmed,
        may_regenerate_final=rights.REGENERATE_FINAL in rights_of(draft),
    )
    return replace_rows(correction, key=draft.public_id, order=order, store=store, now=now)


def replace_rows(
    correction: Correction, *, key: str, order: Order, store: ArtifactStore, now: datetime
) -> dict[str, int]:
    """As `replacing.replace_rows`, where no row of the file is refused. Raises `IntakeRefused` with nothing changed."""
    if correction.manifest.errors or correction.refused or not correction.plan.ok:
        raise IntakeRefused(ALL_REFUSED)
    return replacing.replace_rows(correction.plan, correction.manifest, key=key, order=order, store=store, now=now)
