"""What a batch gives to take away: the ZIP, the result manifest, the manifest as it was handed over. All are
written down."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from batches import archives, cursors, exports, filenames, results, rights, storage, workbooks
from batches.engine import leftout
from batches.exports import Selection
from batches.models import Batch
from batches.results import Span
from batches.views.access import SignedInRequest, batch_or_404, misread, record, refuse_without
from batches.views.stored import chunks, deleted, opened, store_away

log = logging.getLogger(__name__)


@login_required
@require_safe
def batch_archive(request: SignedInRequest, public_id: str) -> HttpResponseBase:
    """The ZIP of what is saved now of the chosen rows, streamed; where nothing is, a message.

    What is too large for one file comes in several, of which `part` chooses one.
    """
    batch = _batch_with_content(request, public_id)
    if words := exports.unreadable(request.GET, batch):
        return misread(request, words)
    selection = Selection.of(request.GET, batch, reads_content=True)
    try:
        plan = _plan(request, batch, selection)
        number = cursors.number(request.GET.get("part"))
        if number is None and len(plan.parts) > 1:
            messages.info(request, f"That is too much for one file, so it comes in {len(plan.parts)}.")
            return redirect(f"{reverse('batches:batch_download', args=[batch.public_id])}?{selection.query}")
        if not 1 <= (number or 1) <= len(plan.parts):
            raise Http404("There is no such part.")
        archive = plan.archive(number or 1)
    except archives.NothingSaved as nothing:
        messages.info(request, nothing.words("Nothing of this batch is saved yet, so there is nothing to download."))
        return redirect("batches:batch_detail", batch.public_id)
    except archives.ArchiveChanged as changed:
        messages.info(request, str(changed))
        return redirect("batches:batch_detail", batch.public_id)
    except storage.StoreError as error:
        log.warning("no archive of %s: %s", batch.public_id, error)
        messages.error(request, f"The files cannot be read at the moment. {error.words}")
        return redirect("batches:batch_detail", batch.public_id)
    if request.method == "GET":
        facts = {"documents": archive.document_count, "rows": archive.row_count} | selection.as_facts()
        facts |= {"part": number} if number else {}
        record(request, "download_archive", f"batch {batch.public_id}", batch.workspace, **facts)
    response = _attachment(_logged(archive.chunks, batch.public_id), archive.name, "application/zip")
    response["Content-Length"] = str(archive.length)
    return response


def _plan(request: SignedInRequest, batch: Batch, selection: Selection) -> archives.Plan:
    column = request.GET.get("folders_by", "")
    return archives.plan(
        batch,
        store=storage.open_store(settings.STORAGE_URL),
        now=timezone.now(),
        span=Span(chosen=selection.rows(batch)),
        selection=dict(selection.as_dict()),
        folders_by=column if column in results.columns_as_given(batch) else "",
        with_ids=rights.sees_ids(rights.rights(request.user, batch.workspace)),
    )


@login_required
@require_safe
def batch_results(request: SignedInRequest, public_id: str, format: str) -> HttpResponseBase:
    """Every row, or the chosen ones. A workbook is written whole first, so a large one is built in the background."""
    batch = batch_or_404(request.user, public_id)
    refuse_without(request, rights.EXPORT, batch.workspace)
    if format not in results.TYPES:
        raise Http404("Results come as csv, jsonl or xlsx.")
    if words := exports.unreadable(request.GET, batch):
        return misread(request, words)
    held = rights.rights(request.user, batch.workspace)
    selection = Selection.of(request.GET, batch, reads_content=rights.VIEW_CONTENT in held)
    chosen = selection.rows(batch)
    shown = {"with_ids": rights.sees_ids(held), "with_words": rights.VIEW_CONTENT in held}
    rows = results.rows(batch, **shown, span=Span(chosen=chosen))
    if format == "xlsx":
        count = batch.items.count() if chosen is None else len(chosen)
        if count > exports.SMALL_SHEET_ROWS:
            query = urlencode(selection.as_dict() | {"kind": "xlsx"})
            messages.info(request, f"A workbook of {count:,} rows takes a while, so it is built in the background.")
            return redirect(f"{reverse('batches:batch_download', args=[batch.public_id])}?{query}")
        pieces = _workbook(rows, batch)
    else:
        lines = results.csv_lines(results.COLUMNS, rows) if format == "csv" else results.jsonl_lines(rows)
        pieces = (line.encode() for line in lines)
    record(request, "download_results", f"batch {batch.public_id}", batch.workspace, format=format)
    name = f"{filenames.safe_stem(batch.name, limit=80)}-results.{format}"
    return _attachment(pieces, name, results.TYPES[format])


def _workbook(rows: Iterator[dict[str, Any]], batch: Batch) -> Iterator[bytes]:
    written = tempfile.TemporaryFile()  # noqa: SIM115  # read, and closed, by whoever takes the pieces
    workbooks.write(written, results.COLUMNS, rows, title=batch.name, at=timezone.now())
    written.seek(0)
    return chunks(written)


@login_required
@require_safe
def batch_failed(request: SignedInRequest, public_id: str) -> HttpResponseBase:
    """The failed rows as they were given, with the reason of each: to be corrected and handed over again."""
    batch = _batch_with_content(request, public_id)
    if words := _rows_gone(batch):
        return deleted(request, words)
    record(request, "download_failed_list", f"batch {batch.public_id}", batch.workspace)
    name = f"{filenames.safe_stem(batch.name, limit=80)}-failed.csv"
    written = results.Written.as_given(batch)
    return _attachment(written.encoded(results.failed_lines(batch)), name, written.content_type)


@login_required
@require_safe
def batch_left_out(request: SignedInRequest, public_id: str) -> HttpResponseBase:
    """The rows that were left out when the good ones were taken, as they were given, each with what was wrong."""
    batch = _batch_with_content(request, public_id)
    if words := _rows_gone(batch):
        return deleted(request, words)
    try:
        store = storage.open_store(settings.STORAGE_URL)
        lines = results.left_out_lines(batch, lambda: leftout.rows(batch, store))
    except storage.StoreError:
        return store_away(request)
    record(request, "download_left_out_list", f"batch {batch.public_id}", batch.workspace)
    name = f"{filenames.safe_stem(batch.name, limit=80)}-left-out.csv"
    # Half of a character may be what was wrong with a row; it is spelled out.
    written = results.Written.as_given(batch)
    return _attachment(written.encoded(lines), name, written.content_type)


@login_required
@require_safe
def batch_manifest(request: SignedInRequest, public_id: str) -> HttpResponseBase:
    """The file as it was handed over, byte for byte."""
    batch = _batch_with_content(request, public_id)
    if words := _rows_gone(batch):
        return deleted(request, words)
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


def _rows_gone(batch: Batch) -> str:
    """What is said where its file and its rows are kept no longer; empty where they are there."""
    if batch.rows_deleted_at is None:
        return ""
    at = f"{batch.rows_deleted_at:%Y-%m-%d}"
    return f"Its file and its rows were deleted on {at}, as the workspace keeps them no longer. Its results stay."


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
