"""The rows of a new version: its own, with the text inline when it is small, else in the store; its job; and that it is
its document's current one.

Owns which columns these rows have, whoever makes them: a plan (`plannedrows.py`) or a person (`making.py`). Decides
nothing and owns no transaction.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from batches import manifests
from batches.conf import ENGINE
from batches.engine import bulk
from batches.engine.audit import By
from batches.engine.orders import NewInput
from batches.manifests import ManifestRow
from batches.models import Batch, Document, DocumentVersion, Job
from batches.storage import ArtifactStore, input_key


@dataclass(frozen=True)
class Content:
    """The input of a version as its row holds it: the text inline when small, else in the store under `key`."""

    kind: str
    inline: bytes | None = field(repr=False)
    key: str | None
    sha256: str
    byte_count: int
    filename: str
    options: Mapping[str, Any]
    template_version_id: int | None = None
    """Our template that made the text, with the data that it was filled from; none for any other text."""
    template_data: Mapping[str, Any] | None = field(default=None, repr=False)
    deletions: int | None = None
    """Of a text that was put for this: how many versions with it had been deleted by then (`deleted_since`)."""


DELETED_MEANWHILE = "The same content of it was deleted by retention at this moment. Try again."


# --- contents -------------------------------------------------------------------------------------------------------


def is_small(byte_count: int) -> bool:
    """Whether a text lies in the version's row."""
    return byte_count <= ENGINE.inline_bytes_most


def of_input(new: NewInput, *, workspace_slug: str, business_id: str, store: ArtifactStore | None) -> Content:
    """The input's facts. A large one is put into the store, under a key that its content names: harmless if it is
    never used. Call it before the transaction (with no store only for a small one); store errors pass."""
    text = new.text.encode()
    sha256 = manifests.fingerprint(new.kind, new.text, new.options)  # type: ignore[arg-type] # the model's own kinds
    inline, key, deletions = _placed(text, sha256, workspace_slug, business_id, store)
    made_by = (new.template_version_id, new.template_data)
    return Content(new.kind, inline, key, sha256, len(text), new.filename, dict(new.options), *made_by, deletions)


def of_row(row: ManifestRow, *, workspace_slug: str, store: ArtifactStore | None) -> Content:
    """As `of_input`, of a row of a manifest."""
    inline, key, deletions = _placed(row.text().encode(), row.input_sha256, workspace_slug, row.business_id, store)
    data = None if row.template_data is None else dict(row.template_data)
    made_by = (row.template_key, data)
    facts = (row.input_sha256, row.text_bytes, row.filename, dict(row.options), *made_by, deletions)
    return Content(row.kind, inline, key, *facts)


def of_version(version: DocumentVersion) -> Content:
    """What an earlier version has, to be sent once more."""
    return Content(
        version.kind,
        None if version.input_inline is None else bytes(version.input_inline),
        version.input_key,
        version.input_sha256,
        version.input_bytes,
        version.filename,
        version.options,
        version.template_version_id,
        version.template_data,
    )


def _placed(
    text: bytes, sha256: str, workspace_slug: str, business_id: str, store: ArtifactStore | None
) -> tuple[bytes | None, str | None, int | None]:
    """The text where it is small; where it is large, the key under which the store has it, and its `deletions`."""
    if is_small(len(text)):
        return text, None, None
    if store is None:
        raise ValueError("a large input is put into the store before the transaction")
    deletions = DocumentVersion.objects.filter(
        document__workspace__slug=workspace_slug,
        document__business_id=business_id,
        input_sha256=sha256,
        input_deleted_at__isnull=False,
    ).count()
    key = input_key(workspace_slug, business_id, sha256, deletions)
    store.put(key, io.BytesIO(text))
    return None, key, deletions


def deleted_since(placed: Iterable[tuple[int, Content | None]]) -> set[int]:
    """Of these documents, given with their new contents, those of which the same text was put here and a version with
    it deleted since: the text may have gone with that one, so no row may name it.

    Asked in the transaction that writes the rows, which holds the workspace, as a request for a deletion does: what is
    requested only after it finds these rows, and leaves the text to them.
    """
    put = {pk: content for pk, content in placed if content is not None and content.deletions is not None}
    found: Counter[tuple[int, str]] = Counter()
    for ids in bulk.chunks(list(put), bulk.ROWS_PER_STATEMENT):
        gone = DocumentVersion.objects.filter(document__in=ids, input_deleted_at__isnull=False)
        found.update(gone.values_list("document", "input_sha256"))
    return {pk for pk, content in put.items() if found[pk, content.sha256] != content.deletions}


# --- rows -----------------------------------------------------------------------------------------------------------


def columns(content: Content, *, document: int, number: int, reason: str, by: By, now: datetime) -> dict[str, Any]:
    """Of the row of a version, as `bulk.insert` takes them."""
    return {
        "document": document,
        "number": number,
        "kind": content.kind,
        "input_inline": content.inline,
        "input_key": content.key,
        "input_sha256": content.sha256,
        "input_bytes": content.byte_count,
        "filename": content.filename,
        "options": dict(content.options),
        "template_version": content.template_version_id,
        "template_data": content.template_data,
        "reason": reason,
        "created_by": by.actor.pk if by.actor else None,
        "created_at": now,
    }


def insert_jobs(made: Iterable[tuple[int, Batch, int]], *, now: datetime) -> None:
    """A job of each version, due now: in the turns of the batch, at the account with this key."""
    times = {"due_at": now, "created_at": now, "state_changed_at": now}
    rows = [{"version": pk, "account": account, "lead_batch": batch.pk, **times} for pk, batch, account in made]
    bulk.insert(Job, rows)


def make_current(made: Sequence[tuple[int, int]], *, is_stale: bool = False) -> None:
    """Each document, given with a version of it, has that one from now on. Unless it `is_stale` all the same, nothing
    newer than this was offered."""
    is_taken = {} if is_stale else {"source_sha256": "", "source_seen_at": None}
    bulk.guarded_update(Document, [{"pk": pk, "current_version": version_id, **is_taken} for pk, version_id in made])
