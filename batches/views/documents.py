"""The document page: what happened to one document, its versions, its evidence, and its PDF."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.cache import patch_vary_headers
from django.views.decorators.clickjacking import xframe_options_sameorigin
from django.views.decorators.http import require_POST, require_safe

from batches import cursors, deletions, documents, filenames, listings, places, rights, selectors, storage, wording
from batches.engine import elsewhere, notes, staleness, standings, terms
from batches.models import (
    FAILED_STATES,
    Artifact,
    Document,
    DocumentVersion,
    JobState,
    ProviderAccount,
    Submission,
    TemplateVersion,
    Verb,
)
from batches.views import foreign, ranges, templates, verbs
from batches.views.access import SignedInRequest, by, document_or_404, record, refuse_without, typed
from batches.views.stored import deleted, store_away

NOTHING_NEW = 204


@login_required
@require_safe
def document_detail(request: SignedInRequest, public_id: str) -> HttpResponse:
    """The page; for the drawer beside a list (`panels.js`), its short form."""
    document = document_or_404(request.user, public_id)
    is_beside = request.headers.get("HX-Target") == "drawer-body"
    name = "batches/document_panel.html" if is_beside else "batches/document_detail.html"
    context = _context(request, document, request.GET.get("version")) | {"is_beside": is_beside}
    response = render(request, name, context)
    patch_vary_headers(response, ["HX-Target"])
    return response


@login_required
@require_safe
def document_live(request: SignedInRequest, public_id: str) -> HttpResponse:
    document = document_or_404(request.user, public_id)
    context = _context(request, document, request.GET.get("version"))
    if request.GET.get("summary", "") == context["summary_revision"]:
        return HttpResponse(status=NOTHING_NEW)
    return render(request, "batches/document_live.html", context | {"is_fragment": True})


@login_required
@require_POST
def document_note(request: SignedInRequest, public_id: str) -> HttpResponse:
    """Append a note. The address carries what the page's does, so that it comes back as it was."""
    document = document_or_404(request.user, public_id)
    refuse_without(request, rights.NOTE, document.workspace)
    text = typed(request.POST.get("text"), notes.LONGEST)
    if text:
        notes.write(document, text, by=by(request), now=timezone.now())
    else:
        messages.error(request, "A note needs some words.")
    place = "#document-notes"
    address, carried = reverse("batches:document_detail", args=[document.public_id]), request.GET.urlencode()
    return redirect(f"{address}?{carried}{place}" if carried else f"{address}{place}")


@login_required
@require_POST
def document_reveal(request: SignedInRequest, public_id: str) -> HttpResponse:
    """Show a provider job id whole, which at RelayPDF fetches the file without a key: a right of its own, written
    down."""
    document = document_or_404(request.user, public_id)
    refuse_without(request, rights.REVEAL, document.workspace)
    refuse_without(request, rights.VIEW_CONTENT, document.workspace)
    key = request.POST.get("submission", "")
    submission = get_object_or_404(
        Submission.objects.select_related("job__version"),
        pk=int(key) if key.isascii() and key.isdigit() and len(key) < 18 else 0,
        job__version__document=document,
        provider_job_id__isnull=False,
    )
    subject = f"document {document.public_id} submission {submission.sequence}"
    record(request, "reveal_provider_job", subject, document.workspace)
    context = _context(request, document, str(submission.job.version.number))
    is_earlier = any(row.submission == submission for row in context["history"].earlier)
    return render(
        request, "batches/document_detail.html", context | {"revealed": submission.pk, "revealed_earlier": is_earlier}
    )


def _could_take(document: Document, version: DocumentVersion, held: ProviderAccount) -> list[ProviderAccount]:
    """Accounts at which a document that waits for a held one could be rendered instead."""
    others = selectors.usable_accounts([document.workspace]).exclude(pk=held.pk)
    return elsewhere.could_take(others, [version.kind])


def _context(request: SignedInRequest, document: Document, wanted: str | None) -> dict[str, Any]:
    held = rights.rights(request.user, document.workspace)
    reads_content = rights.VIEW_CONTENT in held
    history = documents.history(
        document,
        number=cursors.number(wanted),
        reads_content=reads_content,
        audits=rights.VIEW_AUDIT in held,
    )
    if history is None:
        raise Http404("No such version.")
    job, now = history.job, timezone.now()
    is_current = history.version == document.current_version
    offers = verbs.offers(request, document, now=now) if is_current else []
    may = verbs.allowed(offers, wording.suggested_verb(job.failure_class, job.failure_code))
    is_live = not history.is_at_rest or verbs.waits_for_answer(history.events, now=now)
    news = staleness.of_document(document) if is_current else None
    price = standings.repeat_price(job.account.kind)
    started = history.terms_batch
    is_elsewhere = started is not None and started.account_id != job.account_id
    place = places.place(history.items, request.GET, reads_content=reads_content)
    return {
        "place": place,
        "page_url": f"{reverse('batches:document_detail', args=[document.public_id])}?{request.GET.urlencode()}",
        "may_note": rights.NOTE in held,
        "note_longest": notes.LONGEST,
        "template_news": news,
        "made_with": _made_with(history.version),
        "document": document,
        "nav": "batches",
        "history": history,
        "countdown": deletions.countdown(history.version, job, now=now),
        "terms_batch": None if is_elsewhere else started,
        "terms_account": job.account if is_elsewhere else None,
        "terms": terms.of_account(job.account) if is_elsewhere else started.terms if started else {},
        "badge": history.chosen.badge,
        "held_accounts": [job.account] if history.chosen.is_held else [],
        "could_take": _could_take(document, history.version, job.account)
        if history.chosen.is_held and is_current and Verb.REGENERATE in held
        else [],
        "failure_label": wording.failure_label(job.failure_class, job.failure_code),
        "what_to_do": wording.what_to_do(job.failure_class, job.failure_code, price.value if price else ""),
        "ways_out": [each for each in may if each.verb in verbs.WAYS_OUT] if job.failure_class else [],
        # Actions are about the current version; what may be at the provider of an older one is known there too.
        "may_reconcile": Verb.RECONCILE in held and not is_current and _is_uncertain(history),
        "dismissed": [item for item in history.items if item.dismissed_at is not None],
        "rights": held,
        "final_badge": wording.FINAL_BADGE,
        "stale_badge": wording.STALE_BADGE,
        "may_reveal": rights.sees_ids(held),
        "may_see_content": reads_content,
        "is_live": is_live,
        "offers": may,
        "refused_offers": verbs.refused(offers),
        "may_audit": rights.VIEW_AUDIT in held,
        "poll_seconds": 2,
        "live_url": f"{reverse('batches:document_live', args=[document.public_id])}?version={history.version.number}",
        "summary_revision": listings.digest(
            job.state,
            job.state_changed_at,
            len(history.timeline),
            job.account.health,
            job.account.hold_words,
            history.waits,
            [item.dismissed_at for item in history.items],
        ),
    }


def _made_with(version: DocumentVersion) -> dict[str, str] | None:
    """The template that made it, where one of ours did."""
    if version.template_version_id is None:
        return None
    made = TemplateVersion.objects.select_related("template__workspace").defer("source")
    found = made.get(pk=version.template_version_id)
    url = templates.address("template_version", found.template, found.number)
    return {"url": url, "words": f"{found.template.slug} v{found.number}"}


def _is_uncertain(history: documents.History) -> bool:
    """Whether something of it may be at the provider, as the verb Reconcile asks."""
    if history.job.state not in FAILED_STATES or not history.items:
        return False
    return history.job.state != JobState.FAILED or any(
        row.submission.in_doubt or row.submission.provider_job_id for row in history.submissions
    )


@login_required
@require_safe
@xframe_options_sameorigin
def document_pdf(request: SignedInRequest, public_id: str, number: int) -> HttpResponseBase:
    """The stored PDF of one version, to look at or, with `?download`, to keep."""
    document = document_or_404(request.user, public_id)
    refuse_without(request, rights.VIEW_CONTENT, document.workspace)
    artifact = get_object_or_404(
        Artifact.objects.select_related("version"), version__document=document, version__number=number
    )
    if artifact.local_deleted_at is not None:
        at = f"{artifact.local_deleted_at:%Y-%m-%d}"
        return deleted(request, f"The stored PDF was deleted on {at}, as the workspace keeps PDFs no longer.")
    if artifact.missing_at is not None:
        raise Http404("The stored file is missing or damaged, and not stored again yet.")
    is_download = "download" in request.GET
    name = filenames.pdf_name(document.business_id, number, artifact.version.filename)
    facts = (artifact.storage_key, artifact.byte_count, artifact.sha256, "application/pdf", name)
    file = ranges.StoredFile(*facts, is_inline=not is_download)
    wanted = ranges.asked(request, file)
    try:
        response = ranges.answer(request, file, wanted)
    except storage.StoreError:
        return store_away(request)
    if request.method == "GET" and wanted.is_beginning:  # a viewer asks for the rest in pieces
        subject = f"document {document.public_id} v{number}"
        record(request, "download_pdf" if is_download else "view_pdf", subject, document.workspace)
    foreign.shut_in(response, foreign.PDF_POLICY)
    return response
