"""The audit log as a page and as CSV: who did what, on what, when, from where and why. Managers and admins read their
workspaces' part of it, superusers all of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from batches import audits, results, rights
from batches.audits import EntryRow, Filters
from batches.models import Workspace
from batches.views.access import SignedInRequest, record, typed

TEXT_MOST = 200
REFUSAL = "The audit log is read by managers and admins of a workspace. Ask an administrator for one of these roles."
_LINKED = {
    "batch": "batches:batch_detail",
    "document": "batches:document_detail",
    "template": "batches:template_detail",
    "account": "batches:account_detail",
    "export": "batches:export_detail",
}


@dataclass(frozen=True)
class Shown:
    """An entry, and where what it is about can be seen; empty where no page shows it."""

    entry: EntryRow
    url: str


@login_required
@require_safe
def audit_list(request: SignedInRequest) -> HttpResponse:
    workspaces = _permitted(request)
    filters = _filters(request)
    page = audits.entries_page(
        request.user, filters, after=request.GET.get("after", ""), before=request.GET.get("before", "")
    )
    path, asked = reverse("batches:audit_list"), _asked(request)
    context = {
        "page": page,
        "rows": [Shown(row, _url(row)) for row in page.rows],
        "asked": asked,
        "workspaces": workspaces,
        "actions": sorted(
            ((key, words.rstrip(":")) for key, words in audits.ACTIONS.items()), key=lambda pair: pair[1]
        ),
        "newer": f"{path}?{urlencode(asked | {'before': page.before})}" if page.before else "",
        "older": f"{path}?{urlencode(asked | {'after': page.after})}" if page.after else "",
        "csv_url": f"{reverse('batches:audit_csv')}?{urlencode(asked)}",
        "is_filtered": bool(asked),
        "nav": "audit",
    }
    return render(request, "batches/audit_list.html", context)


@login_required
@require_safe
def audit_csv(request: SignedInRequest) -> HttpResponseBase:
    """Every entry that the filters leave, streamed. That it was taken is an entry too."""
    workspaces = _permitted(request)
    chosen = next((each for each in workspaces if each.slug == request.GET.get("workspace")), None)
    only = workspaces[0] if len(workspaces) == 1 and not request.user.is_superuser else None
    record(request, "download_audit", "audit log", chosen or only, filters=_asked(request))
    lines = results.csv_lines(audits.COLUMNS, audits.table(request.user, _filters(request)))
    response = StreamingHttpResponse((line.encode() for line in lines), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = 'attachment; filename="audit.csv"'
    response["X-Content-Type-Options"] = "nosniff"
    response["Cache-Control"] = "private, no-store"
    return response


def _permitted(request: SignedInRequest) -> list[Workspace]:
    """The workspaces whose log this person may read; refuses where there is none."""
    workspaces = list(rights.workspaces(request.user, rights.VIEW_AUDIT).order_by("name", "pk"))
    if not workspaces and not request.user.is_superuser:
        raise PermissionDenied(REFUSAL)
    return workspaces


def _asked(request: HttpRequest) -> dict[str, str]:
    """The filters of the address that say something, by their names there."""
    names = ("who", "action", "subject", "workspace", "from", "to")
    given = {name: typed(request.GET.get(name), TEXT_MOST) for name in names}
    return {name: text for name, text in given.items() if text}


def _filters(request: HttpRequest) -> Filters:
    asked = _asked(request)
    return Filters(
        who=asked.get("who", ""),
        action=asked.get("action", ""),
        subject=asked.get("subject", ""),
        workspace=asked.get("workspace", ""),
        since=_date(asked.get("from", "")),
        until=_date(asked.get("to", "")),
    )


def _date(text: str) -> date | None:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    return day if 1970 <= day.year <= 9998 else None


def _url(row: EntryRow) -> str:
    if row.kind == "document" and not row.business_id:
        return ""
    if row.kind == "bulk action" and row.facts.get("batch"):
        return reverse("batches:action_detail", args=[row.facts["batch"], row.key])
    if row.kind == "bulk action" and row.key:
        return reverse("batches:across_detail", args=[row.key])
    return reverse(_LINKED[row.kind], args=[row.key]) if row.kind in _LINKED and row.key else ""
