"""Corrected rows of a batch: the upload that names just those. What follows is on the page of its draft."""

from __future__ import annotations

from typing import BinaryIO, cast

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt, csrf_protect
from django.views.decorators.http import require_http_methods

from batches import rights, selectors, sentences
from batches.engine import correcting, drafts
from batches.engine.drafts import Changes
from batches.forms import CorrectionForm, too_large_words
from batches.manifests.choices import NO_CHOICES
from batches.models import Batch, DraftState, Verb
from batches.views import bodies
from batches.views.access import SignedInRequest, batch_or_404, by
from batches.views.drafts import look_and_check, received

NO_RIGHT = "Your role in this workspace does not allow it: corrected rows are rendered and billed. Ask a manager."


@csrf_exempt  # checked below, once the size is known: reading the token means reading the whole body
@require_http_methods(["GET", "HEAD", "POST"])
def batch_correct(request: SignedInRequest, public_id: str) -> HttpResponse:
    refusal = bodies.too_large(request, settings.MAX_UPLOAD_BYTES, too_large_words())
    return refusal or _batch_correct(request, public_id)


@csrf_protect
@login_required
def _batch_correct(request: SignedInRequest, public_id: str) -> HttpResponse:
    batch = batch_or_404(request.user, public_id)
    if Verb.REGENERATE not in rights.rights(request.user, batch.workspace):
        raise PermissionDenied(NO_RIGHT)
    is_posted = request.method == "POST"
    form = CorrectionForm(request.POST if is_posted else None, request.FILES if is_posted else None)
    if not is_posted or not form.is_valid():
        return _page(request, batch, form, status=422 if form.is_bound else 200)
    file = form.cleaned_data["file"]
    upload = drafts.Upload(
        cast(BinaryIO, file.file),
        file.name,
        workspace=batch.workspace,
        account=batch.account,
        name=sentences.correction_name(batch),
        target=batch,
        reason=form.cleaned_data["reason"],
    )
    draft = received(request, upload, form)
    if draft is None:
        return _page(request, batch, form, status=503)
    now = timezone.now()
    draft = drafts.look(draft, upload.stream, now=now)
    chosen = correcting.fitting_choices(batch, draft.look)
    if draft.state == DraftState.OPEN and chosen != NO_CHOICES:
        draft = drafts.choose(draft.pk, Changes(choices=chosen.as_dict()), by=by(request), now=now)
    if draft.state == DraftState.OPEN:
        upload.stream.seek(0)
        look_and_check(draft, upload.stream)
    return redirect("batches:draft_detail", draft.public_id)


def _page(request: SignedInRequest, batch: Batch, form: CorrectionForm, *, status: int) -> HttpResponse:
    context = {"batch": batch, "form": form, "failed": selectors.batch_counts(batch).failed, "nav": "batches"}
    return render(request, "batches/batch_correct.html", context, status=status)
