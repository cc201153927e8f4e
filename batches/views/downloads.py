"""What a batch gives to take away: the ZIP, the result manifest, the manifest as it was handed over. All are
written down."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.http import require_safe

from batches import archives, filenames, results, rights, storage
from batches.engine import leftout
from batches.models import Batch
from batches.views.access import SignedInRequest, batch_or_404, record, refuse_without
from batches.views.stored import chunks, opened, store_away

log = logging.getLogger(__name__)

TYPES = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson"}


@login_required
@require_safe
def batch_archive(request: SignedInRequest, public_id: str) -> HttpResponseBase:
    """The ZIP of what is saved now, streamed. Where nothing is, a message instead of an empty archive."""
    batch = _batch_with_content(request, public_id)
    try:
        store = storage.open_store(settings.STORAGE_URL)
        with_ids = rights.sees_ids(rights.rights(request.user, batch.workspace))
        archive = archives.build(batch, store=store, now=timezone.now(), with_ids=with_ids)
    except archives.NothingSaved:
        messages.info(request, "Nothing of this batch is saved yet, so there is nothing to download.")
        return redirect("batches:batch_detail", batch.public_id)
    except storage.StoreError as error:
        log.warning("no archive of %s: %s", batch.public_id, error)
        messages.error(request, f"The files cannot be read at the moment. {error.words}")
        return redirect("batches:batch_detail", batch.public_id)
    facts = {"documents": archive.document_count, "rows": archive.row_count}
    record(request, "download_archive", f"batch {batch.public_id}", batch.workspace, **facts)
    response = _attachment(_logged(archive.chunks, batch.public_id), archive.name, "application/zip")
    response["Content-Length"] = str(archive.length)
    return response


@login_required
@require_safe
def batch_results(request: SignedInRequest, public_id: str, format: str) -> HttpResponseBase:
    batch = batch_or_404(request.user, public_id)
    refuse_without(request, rights.EXPORT, batch.workspace)
    if format not in TYPES:
        raise Http404("Results come as csv or jsonl.")
    record(request, "download_results", f"batch {batch.public_id}", batch.workspace, format=format)
    held = rights.rights(request.user, batch.workspace)
    rows = results.rows(batch, with_ids=rights.sees_ids(held), with_words=rights.VIEW_CONTENT in held)
    lines = results.csv_lines(results.COLUMNS, rows) if format == "csv" else results.jsonl_lines(rows)
    name = f"{filenames.safe_stem(batch.name, limit=80)}-results.{format}"
    return _attachment((line.encode() for line in lines), name, TYPES[format])


@login_required
@require_safe
def batch_failed(request: SignedInRequest, public_id: str) -> HttpResponseBase:
    """The failed rows as they were given, with the reason of each: to be corrected and handed over again."""
    batch = _batch_with_content(request, public_id)
    record(request, "download_failed_list", f"batch {batch.public_id}", batch.workspace)
    name = f"{filenames.safe_stem(batch.name, limit=80)}-failed.csv"
    return _attachment((line.encode() for line in results.failed_lines(batch)), name, TYPES["csv"])


@login_required
@require_safe
def batch_left_out(request: SignedInRequest, public_id: str) -> HttpResponseBase:
    """The rows that were left out when the good ones were taken, as they were given, each with what was wrong."""
    batch = _batch_with_content(request, public_id)
    try:
        store = storage.open_store(settings.STORAGE_URL)
        lines = results.left_out_lines(batch, lambda: leftout.rows(batch, store))
    except storage.StoreError:
        return store_away(request)
    record(request, "download_left_out_list", f"batch {batch.public_id}", batch.workspace)
    name = f"{filenames.safe_stem(batch.name, limit=80)}-left-out.csv"
    # Half of a character may be what was wrong with a row.
    return _attachment((line.encode(errors="backslashreplace") for line in lines), name, TYPES["csv"])


@login_required
@require_safe
def batch_manifest(request: SignedInRequest, public_id: str) -> HttpResponseBase:
    """The file as it was handed over, byte for byte."""
    batch = _batch_with_content(request, public_id)
    try:
        file = opened(batch.manifest_key, byte_count=batch.manifest_bytes)
    except storage.StoreError:
        return store_away(request)
    record(request, "download_manifest", f"batch {batch.public_id}", batch.workspace)
    response = _attachment(chunks(file), batch.manifest_name, "application/octet-stream")
    response["Content-Length"] = str(batch.manifest_bytes)
    return response


def _batch_with_content(request: SignedInRequest, public_id: str) -> Batch:
    """The batch, for whoever may take its documents and rows away."""
    batch = batch_or_404(request.user, public_id)
    refuse_without(request, rights.EXPORT, batch.workspace)
    refuse_without(request, rights.VIEW_CONTENT, batch.workspace)
    return batch


def _attachment(chunks: Iterator[bytes], name: str, content_type: str) -> StreamingHttpResponse:
    response = StreamingHttpResponse(chunks, content_type=content_type)
    response["Content-Disposition"] = filenames.content_disposition(name)
    response["X-Content-Type-Options"] = "nosniff"
    response["Cache-Control"] = "private, no-store"
    return response


def _logged(chunks: Iterator[bytes], public_id: str) -> Iterator[bytes]:
    """Pass the bytes on. What breaks them off reaches the log, and the reader sees a cut download, not a short one."""
    try:
        yield from chunks
    except (archives.ArchiveBroken, storage.StoreError):
        log.exception("the archive of %s was broken off", public_id)
        raise
