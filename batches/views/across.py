"""The list of all bulk actions, over all batches that a person may see. One of them is shown by `bulk_actions.py`."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from batches import actionlist, rights, savedviews, selectors
from batches.actionlist import STATES, Filters
from batches.engine import applying
from batches.models import Verb, ViewPage, Workspace
from batches.views import filters as filtering
from batches.views import rows
from batches.views.access import SignedInRequest, typed

Q_MOST = 200
NOTHING_NEW = 204  # htmx swaps nothing
POLL_SECONDS = 3


@login_required
@require_safe
def across_list(request: SignedInRequest) -> HttpResponse:
    path, asked, workspaces = reverse("batches:across_list"), _asked(request), _visible(request)
    after, before = request.GET.get("after", ""), request.GET.get("before", "")
    page = actionlist.page(
        request.user, workspaces, asked, reading=_reading(request, workspaces), after=after, before=before
    )
    names = [(each.slug, each.name) for each in workspaces]
    words = {
        "state": STATES.get(asked.state, ""),
        "verb": Verb(asked.verb).label if asked.verb else "",
        "mine": "Mine",
        "workspace": f"Workspace: {filtering.named(asked.workspace, names)}",
        "q": asked.q,
    }
    context = {
        "page": page,
        "asked": asked,
        "chips": filtering.chips(path, asked.asked, words),
        "asked_words": filtering.in_words([words[name] for name in asked.asked]),
        "pager": filtering.around(path, asked.asked, page),
        "states": list(STATES.items()),
        "verbs": [verb for verb in Verb if verb in applying.APPLY],
        "workspaces": workspaces,
        "shows_workspace": len(workspaces) > 1,
        "saved": savedviews.of(request.user, ViewPage.ACTIONS, asked.asked),
        "is_live": any(row.is_running for row in page.rows),
        "live_url": reverse("batches:across_list_live"),
        "poll_seconds": POLL_SECONDS,
        "nav": "actions",
    }
    return render(request, "batches/across_list.html", context)


@login_required
@require_safe
def across_list_live(request: SignedInRequest) -> HttpResponse:
    """The rows that changed since the page drew them, in place."""
    drawn, workspaces = rows.shown(request.GET.get("rows", "")), _visible(request)
    now = actionlist.rows_of(workspaces, drawn, reading=_reading(request, workspaces))
    changed = rows.changed(now, drawn)
    is_live = any(row.is_running for row in now)
    if is_live and not changed:
        return HttpResponse(status=NOTHING_NEW)
    context = {"rows": changed, "is_live": is_live, "shows_workspace": len(workspaces) > 1}
    return render(request, "batches/across_list_live.html", context)


def _visible(request: SignedInRequest) -> list[Workspace]:
    return list(selectors.visible_workspaces(request.user).order_by("name", "pk"))


def _reading(request: SignedInRequest, workspaces: list[Workspace]) -> list[int]:
    """Those whose content this person may see."""
    held = rights.by_workspace(request.user, workspaces)
    return [key for key, rights_there in held.items() if rights.VIEW_CONTENT in rights_there]


def _asked(request: HttpRequest) -> Filters:
    return Filters.of({name: typed(text, Q_MOST) for name, text in request.GET.dict().items()})
