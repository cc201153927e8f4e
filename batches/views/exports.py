"""Downloads of a batch, and exports: what can be had, ordering it, watching it being built, fetching its files."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from batches import exports, results, rights, storage
from batches.engine import exports as ordering
from batches.exports import Selection
from batches.models import KINDS_WITH_CONTENT, Batch, Export, ExportKind, ExportPart, ExportState
from batches.views import ranges
from batches.views.access import SignedInRequest, batch_or_404, by, misread, record, refuse_without
from batches.views.stored import store_away

NOTHING_NEW = 204  # htmx swaps nothing
POLL_SECONDS = 2
TYPES = {"zip": "application/zip", "pdf": "application/pdf", **results.TYPES}
#: What each kind is, in one sentence.
ABOUT = {
    ExportKind.ZIP: "Each PDF as a file of its own, with a list of all rows and checksums.",
    ExportKind.MERGED: "All PDFs one after the other, with a list of where each begins. For printing.",
    ExportKind.CSV: "One line for each row, whatever became of it. For spreadsheets.",
    ExportKind.JSONL: "The same lines for programs.",
    ExportKind.XLSX: "The same lines as a workbook; ids stay text.",
}


@login_required
@require_safe
def export_list(request: SignedInRequest) -> HttpResponse:
    """The exports of the workspaces where the person may export: their own, or all."""
    is_all, now = request.GET.get("view") == "all", timezone.now()
    after, before = request.GET.get("after", ""), request.GET.get("before", "")
    page = exports.page(request.user, mine=not is_all, after=after, before=before, now=now)
    path, view = reverse("batches:export_list"), {"view": "all"} if is_all else {}
    context = {
        "nav": "exports",
        "page": page,
        "is_all": is_all,
        "kept_days": ordering.KEPT.days,
        "newer": f"{path}?{urlencode({**view, 'before': page.before})}" if page.before else "",
        "older": f"{path}?{urlencode({**view, 'after': page.after})}" if page.after else "",
    }
    return render(request, "batches/export_list.html", context)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def batch_download(request: SignedInRequest, public_id: str) -> HttpResponse:
    """What can be had of a batch or of rows chosen on its page, at once or built in the background."""
    batch = batch_or_404(request.user, public_id)
    refuse_without(request, rights.EXPORT, batch.workspace)
    if words := exports.unreadable(_given(request), batch):
        return misread(request, words)
    if request.method == "POST" and "choose" not in request.POST:
        return _order(request, batch)
    return _download_page(request, batch)


def _given(request: SignedInRequest) -> dict[str, str]:
    """What an address or a form says; ticked rows come one by one from the list, and together from the page itself."""
    sent = request.POST if request.method == "POST" else request.GET
    return {name: ",".join(sent.getlist(name)) if name == "rows" else sent[name] for name in sent}


def _download_page(request: SignedInRequest, batch: Batch, *, error: str = "", status: int = 200) -> HttpResponse:
    given = _given(request)
    held, columns = rights.rights(request.user, batch.workspace), results.columns_as_given(batch)
    selection = Selection.of(given, batch, reads_content=rights.VIEW_CONTENT in held)
    rows = selection.rows(batch)
    offer = exports.offer(batch, rows)
    chosen = str(given.get("kind", ""))
    kinds = [kind for kind in ExportKind if rights.VIEW_CONTENT in held or kind not in KINDS_WITH_CONTENT]
    context = {
        "nav": "batches",
        "batch": batch,
        "selection": selection,
        "fields": selection.chosen.as_dict(),
        "offer": offer,
        "may_take_content": rights.VIEW_CONTENT in held,
        "archive_url": f"{reverse('batches:batch_archive', args=[batch.public_id])}?{selection.query}",
        "kinds": [(kind, kind.label, ABOUT[kind]) for kind in kinds],
        "kind": chosen if chosen in kinds else kinds[0],
        "columns": columns,
        "folders_by": given.get("folders_by", _usual_column(columns)),
        "exports": exports.of_batch(batch, request.user, now=timezone.now()),
        "kept_days": ordering.KEPT.days,
        "error": error,
    }
    return render(request, "batches/batch_download.html", context, status=status)


def _usual_column(columns: list[str]) -> str:
    return next((name for name in columns if name.casefold() == "group"), "")


def _order(request: SignedInRequest, batch: Batch) -> HttpResponse:
    kind = request.POST.get("kind", "")
    if kind not in ExportKind.values:
        return _download_page(request, batch, error="Choose what to build.", status=422)
    if kind in KINDS_WITH_CONTENT:
        refuse_without(request, rights.VIEW_CONTENT, batch.workspace)
    held = rights.rights(request.user, batch.workspace)
    selection = Selection.of(_given(request), batch, reads_content=rights.VIEW_CONTENT in held)
    rows = selection.rows(batch)
    if rows == []:
        return _download_page(request, batch, error="No document matches, so there is nothing to build.", status=422)
    if kind in KINDS_WITH_CONTENT and not exports.offer(batch, rows).documents:
        return _download_page(request, batch, error="None of these documents is saved yet.", status=422)
    order = ordering.Order(
        kind=ExportKind(kind),
        selection=selection.as_dict(),
        selection_words=selection.words,
        rows=rows,
        options=_options(request, kind, results.columns_as_given(batch), held),
        with_ids=rights.sees_ids(held),
    )
    export = ordering.order(batch, order, by=by(request), now=timezone.now())
    return redirect("batches:export_detail", export.public_id)


def _options(request: SignedInRequest, kind: str, columns: list[str], held: frozenset[str]) -> dict[str, Any]:
    """What was chosen besides, as far as it means something for this kind. Reasons of failures may quote a document."""
    if kind not in KINDS_WITH_CONTENT:
        return {"with_words": rights.VIEW_CONTENT in held}
    column = request.POST.get("folders_by", "")
    options: dict[str, Any] = {"folders_by": column} if column in columns else {}
    if kind == ExportKind.MERGED:
        options |= {"by_group": bool(options), "odd_starts": "odd_starts" in request.POST}
    return options


# --- one export -----------------------------------------------------------------------------------------------------


def _export_or_404(request: SignedInRequest, public_id: str) -> Export:
    """What lies in a workspace of theirs exists for a person; whether they may have it is another question."""
    export = get_object_or_404(Export.objects.select_related("batch", "workspace"), public_id=public_id)
    batch_or_404(request.user, export.batch.public_id)
    refuse_without(request, rights.EXPORT, export.workspace)
    return export


def _context(request: SignedInRequest, export: Export) -> dict[str, Any]:
    (row,) = exports.shown([export], request.user, now=timezone.now())
    options = export.options
    return {
        "nav": "exports",
        "row": row,
        "export": export,
        "badge": row.badge,
        "is_live": row.is_at_work,
        "poll_seconds": POLL_SECONDS,
        "live_url": reverse("batches:export_live", args=[export.public_id]),
        "summary_revision": row.revision,
        "is_mine": export.requested_by_id == request.user.pk,
        "made_of": [
            words
            for words, holds in (
                (f"One file for each {options.get('folders_by')}", options.get("by_group")),
                (f"Folders by {options.get('folders_by')}", options.get("folders_by") and not options.get("by_group")),
                ("Each document begins on an odd page", options.get("odd_starts")),
            )
            if holds
        ],
    }


@login_required
@require_safe
def export_detail(request: SignedInRequest, public_id: str) -> HttpResponse:
    export = _export_or_404(request, public_id)
    return render(request, "batches/export_detail.html", _context(request, export))


@login_required
@require_safe
def export_live(request: SignedInRequest, public_id: str) -> HttpResponse:
    context = _context(request, _export_or_404(request, public_id))
    if request.GET.get("summary", "") == context["summary_revision"]:
        return HttpResponse(status=NOTHING_NEW)
    return render(request, "batches/export_live.html", context | {"is_fragment": True})


@login_required
@require_safe
def export_file(request: SignedInRequest, public_id: str, number: int) -> HttpResponseBase:
    """One file of an export. The address works for whoever may have it at this moment, and changes nothing."""
    export = _export_or_404(request, public_id)
    held = rights.rights(request.user, export.workspace)
    if not exports.takes(held, export):
        raise PermissionDenied("It holds what your role does not include. Ask an administrator of this workspace.")
    if export.state != ExportState.READY or (export.expires_at and export.expires_at <= timezone.now()):
        raise Http404("Its files are not there. Build it again.")
    files = ExportPart.objects.filter(export=export, written_at__isnull=False, dropped_at=None, gone_at=None)
    part = get_object_or_404(files, number=number)
    kind = TYPES.get(part.name.rpartition(".")[2], "application/octet-stream")
    file = ranges.StoredFile(part.storage_key, part.byte_count, part.sha256, kind, part.name)
    wanted = ranges.asked(request, file)
    try:
        answer = ranges.answer(request, file, wanted)
    except storage.StoreError:
        return store_away(request)
    if request.method == "GET" and not wanted.is_beyond:
        named = part.number if exports.is_named_by_group(export) else part.name
        facts = {"file": named, "bytes": part.byte_count} | ({"resumed_at": wanted.start} if wanted.start else {})
        record(request, "download_export", _subject(export), export.workspace, **facts)
    return answer


@login_required
@require_POST
def export_again(request: SignedInRequest, public_id: str) -> HttpResponse:
    """The same order once more, for whoever presses it."""
    export = _export_or_404(request, public_id)
    held = rights.rights(request.user, export.workspace)
    if not exports.takes(held, export):
        raise PermissionDenied("It holds what your role does not include. Ask an administrator of this workspace.")
    made = ordering.again(export, by=by(request), now=timezone.now())
    return redirect("batches:export_detail", made.public_id)


@login_required
@require_POST
def export_cancel(request: SignedInRequest, public_id: str) -> HttpResponse:
    export = _export_or_404(request, public_id)
    try:
        ordering.cancel(export, by=by(request), now=timezone.now())
    except ordering.Refused as refused:
        messages.info(request, refused.words)
    return redirect("batches:export_detail", export.public_id)


def _subject(export: Export) -> str:
    return f"export {export.public_id} of batch {export.batch.public_id}"
