"""The page Notices: what happened to the batches of which a person wants to hear. It is their own list, and nobody
else's."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from batches import cursors
from batches.engine import notices as written
from batches.notices import SHOWN_PER_PAGE, gives_addresses, notices_for, why_no_mail
from batches.views.access import SignedInRequest


@login_required
@require_safe
def notice_list(request: SignedInRequest) -> HttpResponse:
    before = request.GET.get("before", "")
    found = notices_for(request.user, before=before, limit=SHOWN_PER_PAGE)
    is_first = cursors.number(before) is None
    lacks_address = not request.user.email and gives_addresses(request.user)
    context = {
        "notices": found,
        "newest": "" if is_first else request.path,
        "older": f"?before={found.older}" if found.older else "",
        "why_no_mail": why_no_mail(request.user),
        "address_url": reverse("admin:auth_user_change", args=[request.user.pk]) if lacks_address else "",
        "is_first": is_first,
        "nav": "notices",
    }
    return render(request, "batches/notice_list.html", context)


@login_required
@require_POST
def notices_seen(request: SignedInRequest) -> HttpResponse:
    """The person saw those that the page showed; what came since stays new."""
    up_to = cursors.number(request.POST.get("up_to"))
    if up_to is not None:
        written.see(request.user, up_to=up_to, now=timezone.now())
    return redirect("batches:notice_list")
