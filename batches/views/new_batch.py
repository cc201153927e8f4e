"""A new batch begins with a file: it is kept as a draft with an address of its own before anything of it is read."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.csrf import csrf_exempt, csrf_protect
from django.views.decorators.http import require_http_methods

from batches import filenames, selectors, uploads
from batches.engine import drafts
from batches.forms import NewBatchForm, too_large_words
from batches.models import ConflictPolicy
from batches.views import bodies
from batches.views.access import SignedInRequest, is_signed_in, may_add_workspace
from batches.views.drafts import look_and_check, received

NO_ROLE = "You may look at batches but not start one. Ask an administrator for the role Operator."
NO_WORKSPACE = "There is no workspace in which you may start a batch. Make one in the admin, under Workspaces, first."


@csrf_exempt  # checked below, once the size is known: reading the token means reading the whole body
@require_http_methods(["GET", "HEAD", "POST"])
def batch_new(request: SignedInRequest) -> HttpResponse:
    if request.method == "POST" and not is_signed_in(request):  # told before anything of the file is read
        return redirect_to_login(f"{request.path}?again=1")
    return bodies.too_large(request, settings.MAX_UPLOAD_BYTES, too_large_words()) or _batch_new(request)


@csrf_protect
@login_required
def _batch_new(request: SignedInRequest) -> HttpResponse:
    if not selectors.writable_workspaces(request.user).exists():
        raise PermissionDenied(NO_WORKSPACE if may_add_workspace(request.user) else NO_ROLE)
    is_posted = request.method == "POST"
    form = NewBatchForm(request.user, request.POST if is_posted else None, request.FILES if is_posted else None)
    if not is_posted or not form.is_valid():
        return _page(request, form, status=422 if form.is_bound else 200)
    stream, filename = form.handed_over
    chosen = form.cleaned_data
    upload = drafts.Upload(
        stream,
        filename,
        workspace=chosen["workspace"],
        account=chosen["account"],
        name=chosen["name"] or filenames.batch_name(filename),
        on_conflict=chosen["on_conflict"] or ConflictPolicy.REFUSE,
    )
    draft = received(request, upload, form)
    if draft is None:
        return _page(request, form, status=503)
    look_and_check(draft, stream)
    return redirect("batches:draft_detail", draft.public_id)


def _page(request: SignedInRequest, form: NewBatchForm, *, status: int) -> HttpResponse:
    context = {
        "form": form,
        "is_again": "again" in request.GET,
        "drafts_count": uploads.living_count(request.user),
        "nav": "batches",
    }
    return render(request, "batches/batch_new.html", context, status=status)
