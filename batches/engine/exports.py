"""The one writer of an export's state: ordered, taken by a worker, built part by part, ready, expired, swept.

What is in its files is `exporting.py`'s. Every object in the store has its row before it is there, and is removed by
the sweep once nothing needs it: whoever dies at any moment leaves nothing that nobody knows.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F, Max, Q, QuerySet

from batches import queue
from batches.conf import ENGINE
from batches.engine import audit, keys, leases
from batches.engine.audit import By
from batches.models import (
    EXPORTS_AT_WORK,
    KINDS_WITH_CONTENT,
    Artifact,
    Batch,
    BatchItem,
    Export,
    ExportKind,
    ExportPart,
    ExportState,
)
from batches.storage import ArtifactStore, StoreDenied, StoreError, export_key

log = logging.getLogger(__name__)

#: Files are kept so long after they were built.
KEPT = timedelta(days=7)
LEASE = timedelta(minutes=5)
#: Turns in a row that may end in a mishap, a killed worker's too; a file written ends the row, or a wait for the store.
TRIES_MOST = 5
PUT_OFF_FIRST, PUT_OFF_MOST = timedelta(seconds=5), timedelta(minutes=1)
#: An object whose writer was thought dead may still appear so long after its row.
ABANDONED_AGE = timedelta(hours=1)
SWEPT_AT_ONCE = 200
ROWS_READ = 2000
#: Stored PDFs that one pass compares with the exports that are ready.
COMPARED_AT_ONCE = 10_000
#: A stored PDF may become visible after others with higher keys. So long after it was stored it is there for certain;
#: no more than `COMPARED_AT_ONCE` keys behind the newest one that an export was compared with.
VISIBLE_AFTER = timedelta(minutes=10)
WAITED = f"It waited {ENGINE.export_wait_hours:.0f} hours for the store. Order it again once the store answers."
HELD_WHAT_WENT = "It held a PDF that is kept no longer. Order it again: it will say what it lacks."
#: Behind what stopped it last, where that is known: of a worker that was killed it is not.
GAVE_UP = f"It was tried {TRIES_MOST} times and then given up. Order it again; if that fails too, report it."


class Refused(Exception):
    """It cannot be done; `words` say why, for a person."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = words


class NotOurs(Exception):
    """It was cancelled, or another worker has it."""


@dataclass(frozen=True)
class Order:
    """What somebody wants. `rows` are the positions that `selection` matched when it was asked; None: all."""

    kind: ExportKind
    selection: Mapping[str, Any] = field(default_factory=dict)
    selection_words: str = ""
    rows: Sequence[int] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    with_ids: bool = False

    def digest(self, by: By) -> str:
        facts = [self.kind, self.options, self.rows, self.with_ids, by.words]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def order(batch: Batch, wanted: Order, *, by: By, now: datetime) -> Export:
    """Ask for it; the same order that is still at work is the one that is given back."""
    digest = wanted.digest(by)
    at_work = Export.objects.filter(batch=batch, order_sha256=digest, state__in=EXPORTS_AT_WORK)
    try:
        with transaction.atomic():
            made = Export.objects.create(
                public_id=keys.public_id("exp"),
                workspace_id=batch.workspace_id,
                batch=batch,
                kind=wanted.kind,
                options=dict(wanted.options),
                selection=dict(wanted.selection),
                selection_words=wanted.selection_words[:400],
                rows=None if wanted.rows is None else list(wanted.rows),
                order_sha256=digest,
                with_ids=wanted.with_ids,
                requested_by=by.actor,
                requester_words=by.words[:150],
                from_where=by.from_where[:100],
                created_at=now,
                due_at=now,
            )
            _record("order_export", made, by=by, now=now, facts=_ordered(made))
            queue.ring_exports()
            return made
    except IntegrityError:
        found = at_work.first()
        if found is None:
            raise
        return found


def again(export: Export, *, by: By, now: datetime) -> Export:
    """The same order once more, as the documents are by now; the old one stays as it is until it expires."""
    wanted = Order(
        kind=ExportKind(export.kind),
        selection=export.selection,
        selection_words=export.selection_words,
        rows=export.rows,
        options=export.options,
        with_ids=export.with_ids,
    )
    return order(export.batch, wanted, by=by, now=now)


def cancel(export: Export, *, by: By, now: datetime) -> None:
    """End it before it is ready. Raises `Refused` where it is over already."""
    with transaction.atomic():
        at_work = Export.objects.filter(pk=export.pk, state__in=EXPORTS_AT_WORK)
        if not at_work.update(state=ExportState.CANCELLED, due_at=None, **leases.NOBODY):
            raise Refused("It is not being built any more.")
        _record("cancel_export", export, by=by, now=now)


# --- a worker's turn ------------------------------------------------------------------------------------------------


def due(*, now: datetime) -> list[int]:
    """Exports in the worker's turn that no worker has, the one that waits longest first."""
    return list(leases.free(_waiting(now), now=now).order_by("due_at", "pk").values_list("pk", flat=True)[:100])


def is_busy(*, now: datetime) -> bool:
    """Whether some worker has an export in hand, for perhaps many minutes."""
    return leases.is_any_held(Export.objects.filter(state=ExportState.BUILDING), now=now)


def _waiting(now: datetime) -> QuerySet[Export]:
    return Export.objects.filter(state__in=EXPORTS_AT_WORK, due_at__lte=now + leases.CLOCKS_APART)


def release_life(life: str) -> int:
    """Give back the exports that workers of a cluster had which is proven dead (`batches/lives.py`); how many."""
    return leases.release_life(Export.objects.all(), life)


def take(export_id: int, owner: str, *, now: datetime) -> Export | None:
    """The export, ours for the lease and under a token of its own; None where somebody else has it."""
    begun = {"state": ExportState.BUILDING, "token": F("token") + 1, "tries": F("tries") + 1}
    if not leases.take(_waiting(now).filter(pk=export_id), owner, until=now + LEASE, now=now, **begun):
        return None
    Export.objects.filter(pk=export_id, begun_at=None).update(begun_at=now)
    found = Export.objects.select_related("batch__workspace", "workspace", "requested_by")
    return found.get(pk=export_id)


def _taken(export: Export) -> tuple[QuerySet[Export], str]:
    """The row as it was taken, and by whom: what `leases` asks for."""
    assert export.lease_owner is not None, "it was taken"
    return Export.objects.filter(pk=export.pk, token=export.token, state=ExportState.BUILDING), export.lease_owner


def _renew(export: Export, *, now: datetime, **columns: Any) -> None:
    """Keep it, its columns set with that. Raises `NotOurs`."""
    rows, owner = _taken(export)
    if not leases.renew(rows, owner, until=now + LEASE, **columns):
        raise NotOurs


def _give_back(export: Export, **columns: Any) -> bool:
    rows, owner = _taken(export)
    return bool(leases.give_back(rows, owner, **columns))


def beat(export: Export, *, done: int, now: datetime) -> None:
    """Renew the lease and tell how far it is. Raises `NotOurs`."""
    _renew(export, now=now, documents_done=done)


@dataclass(frozen=True)
class Stored:
    """Which stored PDFs the rows of an export have at a moment, and the newest of all; see `Export`."""

    sha256: str
    newest: int


def stored(batch_id: int, rows: Sequence[int] | None) -> Stored:
    """Asked for before an export's rows are looked at, since what comes while they are may not be in it.

    One pass over all rows of the batch, by two columns of each.
    """
    newest = Artifact.objects.aggregate(newest=Max("pk"))["newest"] or 0
    chosen, digest = None if rows is None else set(rows), hashlib.sha256()
    there = BatchItem.objects.filter(batch=batch_id, version__artifact__isnull=False).order_by("position")
    for position, artifact in there.values_list("position", "version__artifact__pk").iterator(chunk_size=ROWS_READ):
        if chosen is None or position in chosen:
            digest.update(f"{position} {artifact}\n".encode())
    return Stored(digest.hexdigest(), newest)


def begin(
    export: Export,
    *,
    contents_sha256: str,
    row_count: int,
    document_count: int,
    had: Stored,
    now: datetime,
    is_anew: bool = False,
) -> set[int]:
    """Say what it will hold; the numbers of the parts that are there already, of a turn before this one.

    Where what it holds is another by now, or `is_anew`, they are dropped and it starts over. `had`: what its rows had
    before they were looked at.
    """
    with transaction.atomic():
        is_same = export.contents_sha256 == contents_sha256 and not is_anew
        facts = {"row_count": row_count, "document_count": document_count, "contents_sha256": contents_sha256}
        _renew(export, now=now, stored_sha256=had.sha256, seen_artifact=had.newest, **facts)
        whole = ExportPart.objects.filter(export=export, written_at__isnull=False, dropped_at=None)
        if not is_same:
            whole.update(dropped_at=now)
        return set(whole.values_list("number", flat=True))


def begin_part(export: Export, number: int, *, ending: str, document_count: int, now: datetime) -> ExportPart:
    """The row of a part, before its object is there; it gets its name with it."""
    key = export_key(export.workspace.slug, export.public_id, export.token, number, ending)
    with transaction.atomic():
        _renew(export, now=now)
        return ExportPart.objects.create(
            export=export,
            number=number,
            token=export.token,
            storage_key=key,
            document_count=document_count,
            created_at=now,
        )


def recount(export: Export, document_count: int, *, now: datetime) -> None:
    """Say that it holds fewer documents than it was begun with. Raises `NotOurs`."""
    _renew(export, now=now, document_count=document_count)


def placed_in(export: Export) -> dict[int, list[Any]]:
    """What the merged files that are there hold (`ExportPart.placed`), by their numbers."""
    whole = ExportPart.objects.filter(export=export, written_at__isnull=False, dropped_at=None)
    return dict(whole.values_list("number", "placed"))


def end_part(
    export: Export,
    part: ExportPart,
    *,
    name: str,
    sha256: str,
    byte_count: int,
    now: datetime,
    placed: Sequence[Any] = (),
) -> None:
    """Its object is in the store, so the store answers and this turn came to something. Raises `NotOurs`: then the
    sweep removes it."""
    with transaction.atomic():
        _renew(export, now=now, tries=1, waits_since=None)
        export.tries, export.waits_since = 1, None
        written = {"name": name, "sha256": sha256, "byte_count": byte_count, "written_at": now, "placed": list(placed)}
        ExportPart.objects.filter(pk=part.pk).update(**written)


def finish(export: Export, *, now: datetime) -> None:
    """All parts are there."""
    built = {"words": "", "documents_done": F("document_count"), "built_at": now, "expires_at": now + KEPT}
    if not _give_back(export, state=ExportState.READY, due_at=None, **built):
        raise NotOurs


def fail(export: Export, words: str) -> None:
    """It cannot be built as things stand; a person reads why, and may have it built again."""
    _give_back(export, state=ExportState.FAILED, words=words, due_at=None)


def give_up(export: Export, words: str) -> None:
    """It was tried often enough; `words` say what stopped it last, or nothing."""
    fail(export, f"{words} {GAVE_UP}".strip())


def put_off(export: Export, words: str, *, now: datetime, is_counted: bool = True) -> None:
    """It is tried again later; where that was often enough, it has failed. Not counted: the worker only had to stop."""
    if is_counted and export.tries >= TRIES_MOST:
        give_up(export, words)
        return
    wait = min(PUT_OFF_MOST, PUT_OFF_FIRST * 2 ** max(0, export.tries - 1)) if is_counted else timedelta(0)
    tries: dict[str, Any] = {} if is_counted else {"tries": F("tries") - 1}
    _give_back(export, words=words, due_at=now + wait, **tries)


def wait_for_store(export: Export, words: str, *, now: datetime) -> None:
    """The store does not answer: it is tried again later and later, and in the end it fails.

    The turn ended in order, so it is no try and ends the row of mishaps before it.
    """
    since = export.waits_since or now
    if now >= since + timedelta(hours=ENGINE.export_wait_hours):
        fail(export, f"{words} {WAITED}")
        return
    first, most = ENGINE.export_wait_first_seconds, ENGINE.export_wait_most_seconds
    wait = timedelta(seconds=min(most, max(first, (now - since).total_seconds() / 2)))
    _give_back(export, words=words, waits_since=since, due_at=now + wait, tries=0)


# --- the sweep ------------------------------------------------------------------------------------------------------


def sweep(store: ArtifactStore, *, now: datetime) -> int:
    """Expire what is old, mark what is outdated, and remove the objects that nothing needs; how many rows and files."""
    old = Export.objects.filter(state=ExportState.READY, expires_at__lte=now)
    expired = old.update(state=ExportState.EXPIRED)
    return expired + mark_outdated(now=now) + _remove_unneeded(store, now=now)


def expire_holding(version_ids: Sequence[int], *, now: datetime) -> None:
    """Offer no more the files that may hold the PDF of one of these versions; the sweep removes them. In the caller's
    transaction, in which those PDFs are marked as deleted."""
    naming = BatchItem.objects.filter(version__in=version_ids).order_by().values("batch")
    ready = Export.objects.filter(state=ExportState.READY, kind__in=KINDS_WITH_CONTENT, batch__in=naming)
    ready.update(state=ExportState.EXPIRED, expires_at=now, words=HELD_WHAT_WENT)


def mark_outdated(*, now: datetime) -> int:
    """Mark the ready exports of rows that another PDF was stored for; how many.

    Each pass looks only at what was stored since the one before it, and again at what was stored lately: a PDF may be
    committed after one with a higher key. Whether an export holds it, what its rows had then tells.
    """
    ready = Export.objects.filter(state=ExportState.READY, outdated_at=None)
    seen = list(ready.values_list("pk", "batch_id", "seen_artifact"))
    if not seen:
        return 0
    lowest, lately = min(artifact for _, _, artifact in seen), now - VISIBLE_AFTER
    newer = list(Artifact.objects.filter(pk__gt=lowest).order_by("pk").values_list("pk", flat=True)[:COMPARED_AT_ONCE])
    newest = newer[-1] if newer else lowest
    met = BatchItem.objects.filter(
        Q(version__artifact__pk__gt=lowest) | Q(version__artifact__stored_at__gte=lately),
        version__artifact__pk__gt=lowest - COMPARED_AT_ONCE,
        version__artifact__pk__lte=newest,
        batch__in={batch for _, batch, _ in seen},
    )
    news: dict[int, list[tuple[int, int, bool]]] = {}
    columns = ("batch_id", "position", "version__artifact__pk", "version__artifact__stored_at")
    for batch_id, position, artifact, stored_at in met.values_list(*columns):
        news.setdefault(batch_id, []).append((position, artifact, stored_at >= lately))
    outdated = [pk for pk, batch_id, artifact in seen if _is_touched(pk, artifact, news.get(batch_id, []))]
    ready.filter(pk__in=outdated).update(outdated_at=now)
    ready.filter(pk__in=[pk for pk, _, _ in seen], seen_artifact__lt=newest).update(seen_artifact=newest)
    return len(outdated)


def _is_touched(export_id: int, seen: int, news: Sequence[tuple[int, int, bool]]) -> bool:
    """Whether its rows have other PDFs than they had; asked only where one of them may."""
    positions = {position for position, artifact, is_late in news if artifact > seen or is_late}
    if not positions:
        return False
    batch_id, rows, had = Export.objects.values_list("batch", "rows", "stored_sha256").get(pk=export_id)
    if rows is not None and positions.isdisjoint(rows):
        return False
    return bool(stored(batch_id, rows).sha256 != had)


def _remove_unneeded(store: ArtifactStore, *, now: datetime) -> int:
    ended = (ExportState.EXPIRED, ExportState.CANCELLED, ExportState.FAILED)
    unneeded = Q(dropped_at__isnull=False) | Q(export__state__in=ended)
    unneeded |= Q(written_at=None) & ~Q(token=F("export__token"))
    left = ExportPart.objects.filter(unneeded, gone_at=None)
    left = left.filter(Q(written_at__isnull=False) | Q(created_at__lt=now - ABANDONED_AGE))
    removed = 0
    for pk, key in left.order_by("pk").values_list("pk", "storage_key")[:SWEPT_AT_ONCE]:
        try:
            store.delete(key)
        except StoreDenied as error:  # that one, perhaps: those behind it do not wait for it
            log.warning("a file of an export stays in the store for now: %s", error.words)
            continue
        except StoreError as error:
            log.warning("files of exports stay in the store for now: %s", error.words)
            break
        removed += ExportPart.objects.filter(pk=pk).update(gone_at=now)
    return removed


def _ordered(export: Export) -> dict[str, Any]:
    """What was ordered; not by which words it was searched for, or whose group it is: those may quote a document."""
    return {"kind": export.kind, "rows": "all" if export.rows is None else len(export.rows)}


def _record(action: str, export: Export, *, by: By, now: datetime, facts: Mapping[str, Any] | None = None) -> None:
    subject = f"export {export.public_id} of batch {export.batch.public_id}"
    audit.record(action, subject=subject, workspace=export.batch.workspace, by=by, now=now, facts=facts)
