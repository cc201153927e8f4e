"""Keeping the filters of a list under a name, and renaming and deleting such a view. Everybody's own: no right is asked
for, since a view only leads to the list as whoever opens it sees it."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST

from batches import savedviews
from batches.engine import savedviews as keeping
from batches.models import SavedView, ViewPage
from batches.views.access import SignedInRequest, typed

PAGES = {
    ViewPage.BATCHES: "batches:batch_list",
    ViewPage.FAILED: "batches:failed_list",
    ViewPage.ACTIONS: "batches:across_list",
}


@login_required
@require_POST
def view_save(request: SignedInRequest, page: str) -> HttpResponse:
    """Keep the filters that the form names; only filters of an address, whatever else was sent."""
    if page not in ViewPage.values:
        raise Http404("No such list.")
    of_page = ViewPage(page)
    sent = QueryDict(typed(request.POST.get("query"), keeping.QUERY_MOST + 1)).dict()
    query = savedviews.query_of({name: typed(text, 200) for name, text in sent.items()})
    name = typed(request.POST.get("name"), keeping.NAME_MOST + 1)
    try:
        view = keeping.save(request.user, of_page, name, query, now=timezone.now())
    except keeping.Refused as refused:
        messages.error(request, refused.words)
    else:
        messages.success(request, f"Kept as “{view.name}”.")
    return _back(of_page, query)


@login_required
@require_POST
def view_change(request: SignedInRequest, page: str, key: int) -> HttpResponse:
    """Rename it, or delete it."""
    view = SavedView.objects.filter(user=request.user, page=page, pk=key).first()
    if view is None:
        raise Http404("No such view.")
    query, name = view.query, view.name
    if request.POST.get("then") == "delete":
        keeping.delete(view)
        messages.success(request, f"“{name}” is deleted; the list is as it was.")
    else:
        try:
            keeping.rename(view, typed(request.POST.get("name"), keeping.NAME_MOST + 1))
        except keeping.Refused as refused:
            messages.error(request, refused.words)
    return _back(ViewPage(page), query)


def _back(page: ViewPage, query: str) -> HttpResponse:
    path = reverse(PAGES[page])
    return redirect(f"{path}?{query}" if query else path)
