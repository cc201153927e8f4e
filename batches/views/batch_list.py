"""The list of batches with its filters, and the fragment that keeps it live without moving its rows."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from batches import batchlist, batchrows, savedviews, selectors
from batches.batchlist import STATES, Filters
from batches.models import Template, ViewPage, Workspace
from batches.views import filters as filtering
from batches.views import rows
from batches.views.access import SignedInRequest, typed
from batches.views.filters import Choice

Q_MOST = 200
NOTHING_NEW = 204  # htmx swaps nothing
POLL_SECONDS = 3


@login_required
@require_safe
def batch_list(request: SignedInRequest) -> HttpResponse:
    path, asked = reverse("batches:batch_list"), _asked(request)
    page = batchlist.page(
        request.user,
        asked,
        after=request.GET.get("after", ""),
        before=request.GET.get("before", ""),
        now=timezone.now(),
    )
    workspaces = list(selectors.visible_workspaces(request.user).order_by("name", "pk"))
    accounts = [(each.slug, each.name) for each in selectors.usable_accounts(workspaces)]
    templates = _templates(workspaces)
    words = _in_words(asked, accounts, templates, [(each.slug, each.name) for each in workspaces])
    context = {
        "page": page,
        "asked": asked,
        "chips": filtering.chips(path, asked.asked, words),
        "asked_words": filtering.in_words(list(words.values())),
        "pager": filtering.around(path, asked.asked, page),
        "states": list(STATES.items()),
        "accounts": accounts,
        "templates": templates,
        "workspaces": workspaces,
        "saved": savedviews.of(request.user, ViewPage.BATCHES, asked.asked),
        "shows_workspace": len(workspaces) > 1,
        "is_live": any(not row.is_over for row in page.rows),
        "live_url": reverse("batches:batch_list_live"),
        "poll_seconds": POLL_SECONDS,
        "nav": "batches",
    }
    return render(request, "batches/batch_list.html", context)


@login_required
@require_safe
def batch_list_live(request: SignedInRequest) -> HttpResponse:
    """The rows that changed since the page drew them, in place; the page says which it shows."""
    drawn = rows.shown(request.GET.get("rows", ""))
    now = batchrows.rows_of(request.user, drawn, now=timezone.now())
    changed = rows.changed(now, drawn)
    is_live = any(not row.is_over for row in now)
    if is_live and not changed:
        return HttpResponse(status=NOTHING_NEW)
    context = {
        "rows": changed,
        "is_live": is_live,
        "shows_workspace": selectors.visible_workspaces(request.user).count() > 1,
    }
    return render(request, "batches/batch_list_live.html", context)


def _asked(request: HttpRequest) -> Filters:
    return Filters.of({name: typed(text, Q_MOST) for name, text in request.GET.dict().items()})


def _templates(workspaces: list[Workspace]) -> list[Choice]:
    found = Template.objects.filter(workspace__in=workspaces, archived_at=None).order_by("name", "pk")
    return list(dict(found.values_list("slug", "name")).items())


def _in_words(
    asked: Filters, accounts: list[Choice], templates: list[Choice], workspaces: list[Choice]
) -> dict[str, str]:
    """Each filter as a person says it, by its name in the address."""
    said = {
        "state": STATES.get(asked.state, ""),
        "mine": "Started by me" if asked.mine else "",
        "account": asked.account and f"Account: {filtering.named(asked.account, accounts)}",
        "template": asked.template and f"Template: {filtering.named(asked.template, templates)}",
        "workspace": asked.workspace and f"Workspace: {filtering.named(asked.workspace, workspaces)}",
        "from": f"From {asked.since.isoformat()}" if asked.since else "",
        "to": f"To {asked.until.isoformat()}" if asked.until else "",
        "q": asked.q,
    }
    return {name: said[name] for name in asked.asked}
