"""One row of a draft as it would be rendered, before anything of it is sent: beside the row as it was given.

The document is somebody else's HTML. It is answered by itself, under a policy that lets it run nothing, send nothing
and load nothing but what it brings along, and is shown in a frame that has no origin.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from batches import storage, uploads
from batches.engine import completing, draftfiles
from batches.engine.accounts import document_limits
from batches.engine.templates import of as templates_of
from batches.manifests import Manifest, ManifestRefused, ManifestRow, read
from batches.manifests.choices import Choices
from batches.models import Draft
from batches.storage import ObjectMissing, StoreError
from batches.views import foreign
from batches.views.access import SignedInRequest
from batches.views.drafts import draft_or_404
from batches.views.stored import store_away

GONE = "The file of this draft is no longer kept."
NO_ROW = "The file has no such row."
CELL_MOST = 2000


@login_required
@require_safe
def draft_row(request: SignedInRequest, public_id: str, number: int) -> HttpResponse:
    """The row's page; with `?frame` the document alone."""
    draft = draft_or_404(request, public_id)
    if draft.state not in uploads.LIVING:
        raise Http404(GONE)
    try:
        with _row_of(draft, number) as manifest:
            if "frame" in request.GET:
                return _frame(draft, manifest)
            return render(request, "batches/draft_row.html", _context(draft, manifest, number))
    except ManifestRefused as refused:
        raise Http404(NO_ROW) from refused
    except ObjectMissing as missing:
        raise Http404(GONE) from missing
    except StoreError:
        return store_away(request)


@contextmanager
def _row_of(draft: Draft, number: int) -> Iterator[Manifest]:
    store = storage.open_store(settings.STORAGE_URL)
    choices = Choices.from_dict(draft.choices)
    with store.open(draft.upload_key) as stream:
        source = draftfiles.source(draft, stream)
        known = templates_of(draft.workspace)
        corrects = draft.target_id is not None
        limits = document_limits(draft.account)
        with read(source, limits, choices=choices, templates=known, corrects=corrects, only=number) as manifest:
            yield manifest


def _context(draft: Draft, manifest: Manifest, number: int) -> dict[str, Any]:
    row = manifest.rows[0] if manifest.rows else None
    total = (draft.report or {}).get("rows")
    path = reverse("batches:draft_row", args=[draft.public_id, number])
    return {
        "draft": draft,
        "number": number,
        "row": row,
        "cells": [(name, _shown(value)) for name, value in row.original.items()] if row else [],
        "frame_url": f"{path}?frame" if row else "",
        "errors": _messages(manifest.errors),
        "warnings": _messages(manifest.warnings),
        "previous": number - 1 if number else None,
        "next": number + 1 if total is None or number + 1 < total else None,
        "total": total,
        "nav": "batches",
    }


def _messages(problems: Any) -> list[Mapping[str, str]]:
    """What is said of this row; rules between rows are not asked here."""
    found: list[Mapping[str, str]] = []
    for problem in problems:
        for place in problem.places or ():
            found.append({"message": place.message or problem.message, "fix": place.fix or problem.fix})
        if not problem.places and not problem.rows:
            found.append({"message": problem.message, "fix": problem.fix})
    return found


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= CELL_MOST else f"{text[:CELL_MOST]}…"


def _frame(draft: Draft, manifest: Manifest) -> HttpResponse:
    """The document as the provider would get it. What a provider makes of Markdown, an address or a template of its
    own is not known here: that is shown as text."""
    if not manifest.rows:
        raise Http404("This row has no document that could be shown.")
    row = manifest.rows[0]
    kind, text = _document(draft, row)
    if kind != "html":
        text = f'<!doctype html><meta charset="utf-8"><pre style="white-space:pre-wrap">{html.escape(text)}</pre>'
    response = HttpResponse(text.encode(), content_type="text/html; charset=utf-8")
    foreign.shut_in(response, foreign.HTML_POLICY)
    response["Referrer-Policy"] = "no-referrer"
    return response


def _document(draft: Draft, row: ManifestRow) -> tuple[str, str]:
    """Kind and text of the row's document; a corrected row may leave the one of the version that failed."""
    if not row.keeps_input or draft.target is None:
        return row.kind, row.text()
    kept = completing.kept_document(draft.target, row, storage.open_store(settings.STORAGE_URL))
    if kept is None:
        raise Http404("The batch has no row with this id, or its input was deleted.")
    return kept
