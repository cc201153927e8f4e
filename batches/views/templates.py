"""Templates: the list, uploading one, and the page of one with its versions. A version's own: `template_versions`."""

from __future__ import annotations

from typing import Any, BinaryIO, cast
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt, csrf_protect
from django.views.decorators.http import require_http_methods, require_safe

from batches import figures, rights, selectors, storage, template_rows
from batches.engine import publishing, template_uploads
from batches.engine.errors import TemplateRule
from batches.engine.template_uploads import Uploaded
from batches.models import Template, Workspace
from batches.templating import Problem, TemplateRefused
from batches.views import bodies
from batches.views.access import SignedInRequest, by, typed

NOT_ALLOWED = "You may look at templates but not change them. Ask an administrator for the role Manager."
NO_FILE = Problem(None, None, "Choose a file: an HTML file, or a ZIP with one and its pictures, fonts and styles.", "")


def template_or_404(request: SignedInRequest, slug: str) -> Template:
    """The template of that name; `workspace` says which, where a person sees several."""
    found = template_rows.visible_templates(request.user).filter(slug=slug)
    if workspace := request.GET.get("workspace", "").replace("\0", ""):
        found = found.filter(workspace__slug=workspace)
    template = found.order_by("workspace__name", "pk").first()
    if template is None:
        raise Http404("No such template.")
    return template


def refuse_unless_publisher(request: SignedInRequest, workspace: Workspace) -> None:
    if not rights.may(request.user, rights.PUBLISH_TEMPLATE, workspace):
        raise PermissionDenied(NOT_ALLOWED)


def address(name: str, template: Template, *arguments: Any, **query: Any) -> str:
    """Of one of the template's pages."""
    path = reverse(f"batches:{name}", args=[template.slug, *arguments])
    return f"{path}?{urlencode({'workspace': template.workspace.slug, **query})}"


@login_required
@require_safe
def template_list(request: SignedInRequest) -> HttpResponse:
    is_archived = request.GET.get("view") == "archived"
    context = {
        "nav": "templates",
        "rows": [
            (row, address("template_detail", row.template))
            for row in template_rows.template_rows(request.user, is_archived=is_archived)
        ],
        "is_archived": is_archived,
        "may_publish": bool(template_rows.publishing_workspaces(request.user)),
        "has_workspaces": selectors.visible_workspaces(request.user).count() > 1,
    }
    return render(request, "batches/template_list.html", context)


def _too_large(request: SignedInRequest) -> HttpResponse | None:
    most = template_uploads.LIMITS.max_upload_bytes
    words = f"The template is too large; {figures.size(most)} are allowed. Use smaller pictures and fewer fonts."
    return bodies.too_large(request, most, words)


@csrf_exempt  # checked below, once the size is known: reading the token means reading the whole body
@require_http_methods(["GET", "HEAD", "POST"])
def template_new(request: SignedInRequest) -> HttpResponse:
    return _too_large(request) or _template_new(request)


@csrf_protect
@login_required
def _template_new(request: SignedInRequest) -> HttpResponse:
    workspaces = template_rows.publishing_workspaces(request.user)
    if not workspaces:
        raise PermissionDenied(NOT_ALLOWED)
    name = typed(request.POST.get("name"), 200)
    slug = typed(request.POST.get("slug"), 100) or template_uploads.slug_of(name)
    note = typed(request.POST.get("note"), 2000)
    chosen = request.POST.get("workspace", "") or workspaces[0].slug
    problems: list[Problem] = []
    if request.method == "POST":
        workspace = next((each for each in workspaces if each.slug == chosen), None)
        if workspace is None:
            raise PermissionDenied(NOT_ALLOWED)
        problems += _name_problems(workspace, name, slug)
        made = _uploaded(request, workspace, slug, name, note, problems, is_first=True)
        if made is not None:
            messages.info(request, "Version 1 was uploaded. Look at it, then publish it: rows get published versions.")
            return redirect(address("template_version", made.version.template, made.version.number))
    context = {
        "nav": "templates",
        "workspaces": workspaces,
        "problems": problems,
        "given": {"name": name, "slug": slug, "note": note, "workspace": chosen},
        "most_bytes": template_uploads.LIMITS.max_upload_bytes,
    }
    return render(request, "batches/template_new.html", context, status=422 if problems else 200)


def _name_problems(workspace: Workspace, name: str, slug: str) -> list[Problem]:
    if not name:
        return [Problem(None, None, "The template has no name.", "Give it one, such as Invoice.")]
    if words := template_uploads.slug_refused(slug):
        return [Problem(None, None, words, "")]
    if Template.objects.filter(workspace=workspace, slug=slug).exists():
        words = f"There is a template {slug} already."
        return [Problem(None, None, words, "Upload the new version on its page, or choose another short name.")]
    return []


def _uploaded(
    request: SignedInRequest,
    workspace: Workspace,
    slug: str,
    name: str,
    note: str,
    problems: list[Problem],
    *,
    is_first: bool,
) -> Uploaded | None:
    """The version that the file became; None with what is wrong in `problems`, the file's own problems too."""
    file = request.FILES.get("file")
    if file is None or not file.name:
        problems.append(NO_FILE)
        return None
    try:
        checked = template_uploads.checked(cast(BinaryIO, file.file), file.name)
    except TemplateRefused as refused:
        problems += refused.problems
        return None
    if problems:
        return None
    try:
        return template_uploads.upload(
            checked,
            workspace=workspace,
            slug=slug,
            name=name,
            note=note,
            by=by(request),
            store=storage.open_store(settings.STORAGE_URL),
            now=timezone.now(),
            is_first=is_first,
        )
    except TemplateRule as rule:
        problems.append(Problem(None, None, rule.words, ""))
    except storage.StoreError as error:
        problems.append(Problem(None, None, f"The file could not be stored. {error.words}", "Try again in a moment."))
    return None


@csrf_exempt  # as for a new one
@require_http_methods(["GET", "HEAD", "POST"])
def template_detail(request: SignedInRequest, slug: str) -> HttpResponse:
    return _too_large(request) or _template_detail(request, slug)


@csrf_protect
@login_required
def _template_detail(request: SignedInRequest, slug: str) -> HttpResponse:
    template = template_or_404(request, slug)
    problems: list[Problem] = []
    if request.method == "POST":
        refuse_unless_publisher(request, template.workspace)
        answer = _changed(request, template, problems)
        if answer is not None:
            return answer
    rows = template_rows.versions(template)
    context = {
        "nav": "templates",
        "template": template,
        "rows": [
            (
                row,
                address("template_version", template, row.number),
                address("template_publish", template, row.number),
                address("template_version", template, row.number, against=older.number) if older else "",
            )
            for row, older in zip(rows, [*rows[1:], None], strict=True)
        ],
        "problems": problems,
        "note": typed(request.POST.get("note"), 2000),
        "may_publish": rights.may(request.user, rights.PUBLISH_TEMPLATE, template.workspace),
        "sample_url": address("template_sample", template),
        "most_bytes": template_uploads.LIMITS.max_upload_bytes,
    }
    return render(request, "batches/template_detail.html", context, status=422 if problems else 200)


def _changed(request: SignedInRequest, template: Template, problems: list[Problem]) -> HttpResponse | None:
    """Do what was asked for; None with what is wrong."""
    what, now = request.POST.get("what", "upload"), timezone.now()
    here = redirect(address("template_detail", template))
    if what in ("archive", "restore"):
        is_archived = what == "archive"
        publishing.archive(template.pk, is_archived=is_archived, by=by(request), now=now)
        messages.info(request, "It is archived: no new row gets it." if is_archived else "It is in use again.")
        return here
    if what == "unpublish":
        publishing.unpublish(template.pk, by=by(request), now=now)
        messages.info(request, "No version is published now: rows have to pin one.")
        return here
    note = typed(request.POST.get("note"), 2000)
    made = _uploaded(request, template.workspace, template.slug, template.name, note, problems, is_first=False)
    if made is None:
        return None
    if not made.is_new:
        messages.info(request, f"Version {made.version.number} is the same to the last character: nothing was added.")
        return here
    messages.info(request, f"Version {made.version.number} was uploaded. It is used once it is published.")
    return redirect(address("template_version", template, made.version.number))
