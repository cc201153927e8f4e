"""A corrected row in full: what it leaves as it was is taken from the version that failed.

Reads the inputs of such versions, and writes nothing. Call it before the transaction: a large input lies in the store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from django.conf import settings

from batches.engine import bulk
from batches.engine.making import Content
from batches.manifests import ManifestRow, SourceKind, fingerprint
from batches.manifests.evidence import is_placeholder
from batches.manifests.keys import REMARK, SOURCES
from batches.manifests.manifest import fingerprint_of_digest
from batches.models import Batch, BatchItem, DocumentVersion
from batches.storage import ArtifactStore, open_store

_READ_BYTES = 1 << 20


def completed(batch: Batch, rows: Sequence[ManifestRow], store: ArtifactStore | None) -> list[ManifestRow]:
    """The rows in their order, each with the digest of what would be sent; store errors pass.

    A row that leaves nothing as it was comes back as it is, and so does one of which nothing is known here.
    """
    found: list[ManifestRow] = []
    for chunk in bulk.chunks(rows, bulk.ROWS_PER_STATEMENT):
        keeping = [row.business_id for row in chunk if row.keeps_input or row.keeps_options]
        items = BatchItem.objects.filter(batch=batch, document__business_id__in=keeping)
        versions = {item.document.business_id: item.version for item in items.select_related("document", "version")}
        found += [
            _completed(row, versions[row.business_id], store) if row.business_id in versions else row for row in chunk
        ]
    return found


def _completed(row: ManifestRow, version: DocumentVersion, store: ArtifactStore | None) -> ManifestRow:
    options = version.options if row.keeps_options else row.options
    if not row.keeps_input:
        # Its own text, at most a document's size, with the options that it leaves as they were.
        digest = fingerprint(row.kind, row.text(), options)
        return replace(row, options=options, input_sha256=digest)
    kind, digest = cast(SourceKind, version.kind), version.input_sha256
    if options != version.options:
        digest = fingerprint_of_digest(kind, _text_sha256(version, store), options)
    return replace(row, kind=kind, options=options, text_bytes=version.input_bytes, input_sha256=digest)


def _text_sha256(version: DocumentVersion, store: ArtifactStore | None) -> str:
    if version.input_inline is not None:
        return hashlib.sha256(bytes(version.input_inline)).hexdigest()
    assert version.input_key is not None, "the database holds exactly one of the two"
    digest = hashlib.sha256()
    with (store or open_store(settings.STORAGE_URL)).open(version.input_key) as stream:
        while part := stream.read(_READ_BYTES):
            digest.update(part)
    return digest.hexdigest()


def content(row: ManifestRow, version: DocumentVersion) -> Content:
    """The input of the next version, of a completed row that keeps the document of this one."""
    inline = None if version.input_inline is None else bytes(version.input_inline)
    key, byte_count = version.input_key, version.input_bytes
    return Content(version.kind, inline, key, row.input_sha256, byte_count, row.filename, dict(row.options))


def names_a_document(row: ManifestRow, item: BatchItem) -> bool:
    """Whether the row says which document is meant: one of its own, or the one that a list could not hold."""
    if not row.keeps_input:
        return True
    return any(is_placeholder(given.get(name)) for given in (row.original, item.original_row) for name in SOURCES)


def is_as_listed(row: ManifestRow, item: BatchItem) -> bool:
    """Whether nothing that would be sent was changed in the row, as far as a list of failed rows holds that."""
    return row.keeps_input and (row.original.get("options") or None) == (item.original_row.get("options") or None)


def as_given(row: ManifestRow, item: BatchItem) -> Mapping[str, Any]:
    """The row to be kept with the item; a document that was left as it was stays told as it was."""
    given = {name: value for name, value in row.original.items() if not name.startswith(REMARK)}
    if not row.keeps_input:
        return given
    told = {name: value for name, value in item.original_row.items() if name in SOURCES}
    return {name: value for name, value in given.items() if name not in SOURCES} | told
