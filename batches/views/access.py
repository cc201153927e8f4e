"""Who asks, and what they may see: the first lines of every view. What somebody may not see does not exist (404)."""

from __future__ import annotations

import unicodedata
from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from batches import batchfacts, rights, selectors
from batches.batchfacts import Facts
from batches.engine import audit
from batches.engine.audit import By
from batches.models import Batch, Document, Workspace


class SignedInRequest(HttpRequest):
    """A request behind `login_required`, for type checking."""

    user: User


def may_add_workspace(user: User) -> bool:
    """Whether this person may make a workspace, and give roles in it, in the admin."""
    return user.is_staff and user.has_perm("batches.add_workspace")


def is_signed_in(request: HttpRequest) -> bool:
    """For what is asked before `login_required` is."""
    return request.user.is_authenticated


def typed(given: str | None, most: int = 1000) -> str:
    """What somebody typed, bounded and without surrounding space: control characters, which PostgreSQL or a page cannot
    take, are replaced by a mark that no stored text holds; tabs and line ends stay."""
    text = (given or "")[:most].encode("utf-8", "replace").decode()
    return "".join(c if c in "\t\r\n" or unicodedata.category(c) != "Cc" else "\ufffd" for c in text).strip()


def batch_or_404(user: User, public_id: str) -> Batch:
    batch = selectors.visible_batches(user).select_related("created_by", "sample").filter(public_id=public_id).first()
    if batch is None:
        raise Http404("No such batch.")
    return batch


def batch_and_facts_or_404(user: User, public_id: str) -> tuple[Batch, Facts]:
    """As `batch_or_404`, with what its own page asks besides."""
    found = batchfacts.read(user, public_id)
    if found is None:
        raise Http404("No such batch.")
    return found


def document_or_404(user: User, public_id: str) -> Document:
    visible = Document.objects.filter(workspace__in=selectors.visible_workspaces(user))
    document = visible.select_related("workspace", "current_version").filter(public_id=public_id).first()
    if document is None:
        raise Http404("No such document.")
    return document


def refuse_without(request: SignedInRequest, right: str, workspace: Workspace) -> None:
    """Raises `PermissionDenied` with what is missing and which role has it, unless the person has the right there."""
    if not rights.may(request.user, right, workspace):
        raise PermissionDenied(rights.refusal(right))


def misread(request: HttpRequest, words: str) -> HttpResponse:
    """400 for an address or a form of which a part cannot be read: what was left out would mean more than was meant."""
    return render(request, "400.html", {"words": words}, status=400)


def by(request: HttpRequest) -> By:
    """Who lets the engine do something, and from where."""
    return By(request.user, request.user.get_username(), request.META.get("REMOTE_ADDR", ""))


def record(request: HttpRequest, action: str, subject: str, workspace: Workspace | None, **facts: Any) -> None:
    """Write down who did this, from where; pages and admin alike."""
    audit.record(
        action,
        subject=subject,
        workspace=workspace,
        by=by(request),
        now=timezone.now(),
        facts=facts,
    )
