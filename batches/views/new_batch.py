"""A new batch in two steps: a file is checked and its plan shown, then started once, however often the button is hit.

Between the steps the file lies in the store, since the next request may reach another machine.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, BinaryIO, cast

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt, csrf_protect
from django.views.decorators.http import require_http_methods, require_POST

from batches import filenames, selectors, sentences, storage
from batches.engine import intake, versions
from batches.engine.errors import IntakeRefused
from batches.forms import NewBatchForm, too_large_words
from batches.manifests import ManifestRefused, from_upload
from batches.models import Batch, ProviderAccount, Workspace
from batches.storage import ObjectMissing, StoreError, upload_key
from batches.views import drafts, problems
from batches.views.access import SignedInRequest, record
from batches.views.drafts import Draft, DraftRefused

log = logging.getLogger(__name__)

#: Room for the other fields of the form beside the file.
FORM_BYTES = 64 * 1024


@csrf_exempt  # checked below, once the size is known: reading the token means reading the whole body
@require_http_methods(["GET", "HEAD", "POST"])
def batch_new(request: SignedInRequest) -> HttpResponse:
    length = request.META.get("CONTENT_LENGTH") or "0"
    if not length.isdigit() or int(length) > settings.MAX_UPLOAD_BYTES + FORM_BYTES:
        return render(request, "413.html", {"words": too_large_words()}, status=413)
    return _batch_new(request)


@csrf_protect
@login_required
def _batch_new(request: SignedInRequest) -> HttpResponse:
    if not selectors.writable_workspaces(request.user).exists():
        raise PermissionDenied("You may look at batches but not start one. Ask an administrator for the role Operator.")
    is_posted = request.method == "POST"
    form = NewBatchForm(request.user, request.POST if is_posted else None, request.FILES if is_posted else None)
    if not is_posted or not form.is_valid():
        status = 422 if form.is_bound else 200
        return render(request, "batches/batch_new.html", {"form": form}, status=status)
    file, chosen = form.cleaned_data["file"], form.cleaned_data
    draft = Draft(
        token=drafts.new_token(),
        user_id=request.user.pk,
        workspace=chosen["workspace"].slug,
        account=chosen["account"].slug,
        on_conflict=chosen["on_conflict"],
        filename=file.name,
        name=chosen["name"],
        upload_sha256="",
        renders=0,
    )
    try:
        return _check(request, draft, file, chosen["workspace"], chosen["account"])
    except StoreError as error:
        log.warning("an upload could not be stored: %s", error)
        form.add_error(None, f"The file could not be stored. {error.words} Try again in a moment.")
        return render(request, "batches/batch_new.html", {"form": form}, status=503)


def _check(
    request: SignedInRequest, draft: Draft, file: UploadedFile, workspace: Workspace, account: ProviderAccount
) -> HttpResponse:
    """Check the upload, keep it if it holds, and show what was found."""
    assert file.file is not None  # Django has read it whole
    facts: dict[str, Any] = {"filename": draft.filename[:200], "bytes": file.size}
    try:
        check = intake.check(
            from_upload(file.file, draft.filename), workspace=workspace, account=account, on_conflict=draft.on_conflict
        )
    except ManifestRefused as refused:
        record(request, "check_upload", "upload", workspace, **facts, refused=str(refused.code))
        return _report(request, draft, refused.report(), workspace, account)
    with check.manifest:
        facts |= {"sha256": check.manifest.upload_sha256, "is_ok": check.ok}
        record(request, "check_upload", "upload", workspace, **facts)
        versions.note_offered(check, now=timezone.now())
        if not check.ok:
            return _report(request, draft, check.report(), workspace, account)
        file.file.seek(0)
        store = storage.open_store(settings.STORAGE_URL)
        store.put(upload_key(workspace.slug, draft.token), cast(BinaryIO, file.file))
        kept = _checked(draft, check)
        return _report(request, kept, check.report(), workspace, account, can_start=True)


def _checked(draft: Draft, check: intake.Check) -> Draft:
    return replace(draft, upload_sha256=check.manifest.upload_sha256, renders=check.plan.render_count)


def _report(
    request: SignedInRequest,
    draft: Draft,
    report: dict[str, Any],
    workspace: Workspace,
    account: ProviderAccount,
    *,
    can_start: bool = False,
    words: str = "",
) -> HttpResponse:
    notices = report.get("notices", [])
    errors = problems.presented(report["errors"])
    context = {
        "draft": draft,
        "report": report,
        "errors": errors,
        "errors_have_rows": any(problem["rows"] for problem in errors),
        "warnings": problems.presented(report["warnings"]),
        "title": draft.name or filenames.batch_name(draft.filename),
        "outcomes": problems.outcomes(report["summary"]),
        "without_sending": problems.without_sending(report["summary"]),
        "failed_before": report["summary"].get("attached_failed", 0),
        "workspace": workspace,
        "account": account,
        "can_start": can_start,
        "signed": draft.signed() if can_start else "",
        "estimate": sentences.estimate(account, report.get("renders", 0)),
        "needs_confirmation": any(notice["needs_confirmation"] for notice in notices),
        "words": words,
    }
    return render(request, "batches/batch_check.html", context, status=200 if can_start else 422)


@login_required
@require_POST
def batch_start(request: SignedInRequest) -> HttpResponse:
    """Start what was checked. A second press, another tab or Back leads to the batch that the first one made."""
    try:
        draft = drafts.read(request.POST.get("draft", ""), user_id=request.user.pk)
    except DraftRefused as refused:
        messages.error(request, str(refused))
        return redirect("batches:batch_new")
    workspace = selectors.writable_workspaces(request.user).filter(slug=draft.workspace).first()
    if workspace is None:
        raise PermissionDenied("You may no longer start a batch in this workspace.")
    started = selectors.started_batch(workspace, draft.token)
    if started is not None:
        return redirect("batches:batch_detail", started.public_id)
    account = selectors.usable_accounts([workspace]).filter(slug=draft.account).first()
    try:
        if account is None:
            raise IntakeRefused("The account that was chosen is no longer there. Choose another one.")
        return _start(request, draft, workspace, account)
    except (IntakeRefused, ManifestRefused, StoreError) as error:
        # Another tab may have been faster and put the upload away.
        started = selectors.started_batch(workspace, draft.token)
        if started is not None:
            return redirect("batches:batch_detail", started.public_id)
        log.warning("a checked upload did not start: %s", error)
        words = getattr(error, "words", str(error))
        messages.error(request, "The upload is no longer there." if isinstance(error, ObjectMissing) else words)
        return redirect("batches:batch_new")


def _start(request: SignedInRequest, draft: Draft, workspace: Workspace, account: ProviderAccount) -> HttpResponse:
    """Check the stored upload once more, since the workspace may have changed, and start it as it was shown."""
    store = storage.open_store(settings.STORAGE_URL)
    with store.open(upload_key(workspace.slug, draft.token)) as file:
        check = intake.check(
            from_upload(file, draft.filename), workspace=workspace, account=account, on_conflict=draft.on_conflict
        )
        with check.manifest:
            is_confirmed = request.POST.get("confirmed") == "yes"
            words = _why_not(draft, check, is_confirmed=is_confirmed)
            if words:
                kept = _checked(draft, check)
                return _report(request, kept, check.report(), workspace, account, can_start=check.ok, words=words)
            batch = intake.start(
                check,
                name=draft.name or filenames.batch_name(draft.filename),
                actor=request.user,
                actor_words=request.user.get_username(),
                from_where=request.META.get("REMOTE_ADDR", ""),
                creation_key=draft.token,
                store=store,
                now=timezone.now(),
                confirmed=is_confirmed,
            )
    _forget_upload(store, workspace, draft, batch)
    return redirect("batches:batch_detail", batch.public_id)


def _why_not(draft: Draft, check: intake.Check, *, is_confirmed: bool) -> str:
    """Why the start must be asked for again, or nothing."""
    if not check.ok:
        return "Since the check, something changed and it no longer holds; see below."
    if check.plan.render_count > draft.renders:
        return "Since the check, something changed and more documents would be sent. Look at the plan again."
    if check.plan.needs_confirmation and not is_confirmed:
        return "Confirm the notices first."
    return ""


def _forget_upload(store: storage.ArtifactStore, workspace: Workspace, draft: Draft, batch: Batch) -> None:
    try:
        store.delete(upload_key(workspace.slug, draft.token))
    except StoreError:
        log.warning("the upload of %s stays in the store as %s", batch.public_id, draft.token, exc_info=True)
