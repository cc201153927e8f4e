"""A corrected row in full: what it leaves as it was is taken from the version that failed.

Reads the inputs of such versions, and writes nothing. Call it before the transaction: a large input lies in the store.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from django.conf import settings

from batches.engine import bulk, versionrows
from batches.engine.versionrows import Content
from batches.manifests import ManifestRow, SourceKind, fingerprint
from batches.manifests.evidence import is_placeholder
from batches.manifests.keys import REMARK, SOURCES
from batches.manifests.manifest import fingerprint_of_digest
from batches.models import Batch, BatchItem, DocumentVersion
from batches.storage import ArtifactStore, open_store

_READ_BYTES = 1 << 20
#: What the columns of a table become: a row that is an object says it itself, and has no mapping.
Mapped = Mapping[str, str]


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
    if options != version.options and version.input_deleted_at is None:
        digest = fingerprint_of_digest(kind, _text_sha256(version, store), options)
    return replace(row, kind=kind, options=options, text_bytes=version.input_bytes, input_sha256=digest)


def _text_sha256(version: DocumentVersion, store: ArtifactStore | None) -> str:
    digest = hashlib.sha256()
    for part in _parts(version, store):
        digest.update(part)
    return digest.hexdigest()


def kept_document(batch: Batch, row: ManifestRow, store: ArtifactStore | None) -> tuple[str, str] | None:
    """Kind and text of the document that a row leaves as it was; None where the batch has no such row, or its input
    was deleted."""
    item = (
        BatchItem.objects.filter(batch=batch, document__business_id=row.business_id).select_related("version").first()
    )
    if item is None or item.version.input_deleted_at is not None:
        return None
    return item.version.kind, b"".join(_parts(item.version, store)).decode()


def _parts(version: DocumentVersion, store: ArtifactStore | None) -> Iterator[bytes]:
    if version.input_inline is not None:
        yield bytes(version.input_inline)
        return
    assert version.input_key is not None, "the database holds exactly one of the two"
    with (store or open_store(settings.STORAGE_URL)).open(version.input_key) as stream:
        while part := stream.read(_READ_BYTES):
            yield part


def content(row: ManifestRow, version: DocumentVersion) -> Content:
    """The input of the next version, of a completed row that keeps the document of this one."""
    kept = versionrows.of_version(version)
    return replace(kept, sha256=row.input_sha256, filename=row.filename, options=dict(row.options))


def names_a_document(row: ManifestRow, item: BatchItem, mapped: Mapped) -> bool:
    """Whether the row says which document is meant: one of its own, or the one that a list could not hold."""
    if not row.keeps_input:
        return True
    given = (*row.original.items(), *item.original_row.items())
    return any(_is_source(name, mapped) and is_placeholder(value) for name, value in given)


def is_as_listed(row: ManifestRow, item: BatchItem, mapped: Mapped) -> bool:
    """Whether nothing that would be sent was changed in the row, as far as a list of failed rows holds that."""
    return row.keeps_input and _options(row.original, mapped) == _options(item.original_row, mapped)


def as_given(row: ManifestRow, item: BatchItem, mapped: Mapped) -> Mapping[str, Any]:
    """The row to be kept with the item; a document that was left as it was stays told as it was."""
    given = {name: value for name, value in row.original.items() if not name.startswith(REMARK)}
    if not row.keeps_input:
        return given
    told = {name: value for name, value in item.original_row.items() if _is_source(name, mapped)}
    return {name: value for name, value in given.items() if not _is_source(name, mapped)} | told


def cell(value: Any) -> str:
    """A value of a row as a table holds it, however it is written: JSON in one spelling, line ends alike."""
    if value is None:
        return ""
    if isinstance(value, dict | list | bool):
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    text = str(value)
    if text[:1] + text[-1:] in ("{}", "[]"):
        try:
            return json.dumps(json.loads(text), ensure_ascii=False, sort_keys=True)
        except (ValueError, RecursionError):
            pass
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _options(row: Mapping[str, Any], mapped: Mapped) -> dict[str, str]:
    found = {name: cell(value) for name, value in row.items() if _is_option(mapped.get(name, name))}
    return {name: text for name, text in found.items() if text not in ("", "{}")}


def _is_option(target: str) -> bool:
    return target == "options" or target.startswith("option.")


def _is_source(name: str, mapped: Mapped) -> bool:
    return mapped.get(name, name) in SOURCES
