"""One version of a template: its fields, how it looks filled, what differs from another, and publishing it."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.clickjacking import xframe_options_sameorigin
from django.views.decorators.http import require_http_methods, require_safe

from batches import cursors, differences, filenames, rights, template_rows, templating
from batches.engine import publishing, staleness, templates
from batches.engine.errors import TemplateRule
from batches.manifests.problems import Unfit
from batches.models import Template, TemplateVersion
from batches.templating import Need
from batches.views import foreign
from batches.views.access import SignedInRequest, by, refuse_without, typed
from batches.views.templates import address, refuse_unless_publisher, template_or_404

NEEDS = {
    Need.ALWAYS: "Every row needs it",
    Need.SOMETIMES: "Rows for which its condition holds need it",
    Need.NEVER: "Optional",
}
_DATA_ADDRESS = re.compile(r"data:([a-z0-9+./-]+);base64,([A-Za-z0-9+/=]{200,})")


def version_or_404(template: Template, number: int) -> TemplateVersion:
    version = template.versions.select_related("created_by").filter(number=number).first()
    if version is None:
        raise Http404("No such version.")
    version.template = template
    return version


@login_required
@require_safe
def template_version(request: SignedInRequest, slug: str, number: int) -> HttpResponse:
    template = template_or_404(request, slug)
    version = version_or_404(template, number)
    may_see_content = rights.may(request.user, rights.VIEW_CONTENT, template.workspace)
    against = _against(request, template) if may_see_content else None
    reads = templating.of_fields(version.fields)
    context = {
        "nav": "templates",
        "template": template,
        "version": version,
        "is_published": template.published_id == version.pk,
        "fields": [(read, NEEDS[read.need]) for read in reads],
        "has_lists": any("[]" in read.path for read in reads),
        "warnings": templating.inlined(version.source, _NoFiles()).warnings,
        "byte_count": len(version.source.encode()),
        "others": [
            (each, address("template_version", template, number, against=each))
            for each in template_rows.numbers(template, besides=version.number)
        ],
        "against": against,
        "may_see_content": may_see_content,
        "found": differences.between(_shortened(against.source), _shortened(version.source)) if against else None,
        "may_publish": rights.may(request.user, rights.PUBLISH_TEMPLATE, template.workspace),
        "template_url": address("template_detail", template),
        "preview_url": address("template_preview", template, number),
        "publish_url": address("template_publish", template, number),
        "sample_url": address("template_sample", template, version=number),
    }
    return render(request, "batches/template_version.html", context)


class _NoFiles:
    """Everything is inside already; what is left is on the web."""

    def read(self, path: str) -> bytes:
        raise templating.Fault(f"{path} is not inside.", "Upload the template again.")


def _against(request: SignedInRequest, template: Template) -> TemplateVersion | None:
    number = cursors.number(request.GET.get("against"))
    return None if number is None else version_or_404(template, number)


def _shortened(source: str) -> str:
    """The text for comparing by eye: a picture is told by its kind and size and what it ends in."""
    return _DATA_ADDRESS.sub(_told, source)


def _told(found: re.Match[str]) -> str:
    return f"data:{found[1]} ({len(found[2]) * 3 // 4:,} bytes …{found[2][-12:]})"


@login_required
@require_safe
@xframe_options_sameorigin
def template_preview(request: SignedInRequest, slug: str, number: int) -> HttpResponse:
    """The version filled from invented data, for a frame that runs nothing and fetches nothing."""
    template = template_or_404(request, slug)
    refuse_without(request, rights.VIEW_CONTENT, template.workspace)
    version = version_or_404(template, number)
    try:
        text = templates.fillable(version).fill(templating.example(templating.of_fields(version.fields)))
        response = HttpResponse(text)
    except Unfit as unfit:
        words = f"Invented data does not fill it: {unfit.message} {unfit.fix} Rows of your own may."
        response = HttpResponse(words, content_type="text/plain; charset=utf-8")
    foreign.shut_in(response, foreign.HTML_POLICY)
    return response


@login_required
@require_safe
def template_sample(request: SignedInRequest, slug: str) -> HttpResponse:
    """A table for the template: a column for each field and one row; of the published version, else of the newest."""
    template = template_or_404(request, slug)
    number = cursors.number(request.GET.get("version"))
    if number is not None:
        version: TemplateVersion | None = version_or_404(template, number)
    else:
        version = template.published or publishing.latest(template)
    if version is None:
        raise Http404("It has no version yet.")
    columns = templating.columns(templating.of_fields(version.fields))
    held = io.StringIO()
    writer = csv.writer(held)
    writer.writerow(["id", *columns])
    writer.writerow(["A-1001", *columns.values()])
    response = HttpResponse("\ufeff" + held.getvalue(), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = filenames.content_disposition(f"{template.slug}-sample.csv", inline=False)
    return response


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def template_publish(request: SignedInRequest, slug: str, number: int) -> HttpResponse:
    """What publishing a version would leave stale; with POST, publish it."""
    template = template_or_404(request, slug)
    refuse_unless_publisher(request, template.workspace)
    version = version_or_404(template, number)
    error = ""
    if request.method == "POST":
        reason = typed(request.POST.get("reason"), 2000)
        try:
            is_done = publishing.publish(template.pk, number, by=by(request), now=timezone.now(), reason=reason)
        except TemplateRule as rule:
            error = rule.words
        else:
            words = f"Version {number} is published: rows that pin none get it from now on."
            messages.info(request, words if is_done else f"Version {number} was published already.")
            return redirect(address("template_detail", template))
    after = cursors.number(request.GET.get("after")) or 0
    look = staleness.look(version, after=after)
    context: dict[str, Any] = {
        "nav": "templates",
        "template": template,
        "version": version,
        "error": error,
        "look": look,
        "made": staleness.made_by(version).exclude(current_version__template_version=version).count(),
        "after": after,
        "further": address("template_publish", template, number, after=look.after) if look.after else "",
        "from_start": address("template_publish", template, number),
        "version_url": address("template_version", template, number),
        "is_published": template.published_id == version.pk,
        "is_older": bool(template.published and template.published.number > number),
    }
    return render(request, "batches/template_publish.html", context, status=422 if error else 200)
