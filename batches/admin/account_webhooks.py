"""An account's webhooks in the admin: what is registered at the provider, and registering, rotating, deleting it.

One page and one address; each button is a POST of its own. Only who may change the account gets here.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils import timezone

from batches.engine import webhook_health, webhook_setup
from batches.models import ACCOUNT_SECRETS, ProviderAccount
from batches.views.access import by, typed

TEMPLATE = "admin/batches/provideraccount/webhooks.html"


def page(admin: Any, request: HttpRequest, account_id: int) -> HttpResponse:
    """GET shows it, and with `?list` asks the provider for its list; POST does what `action` says."""
    account = ProviderAccount.objects.defer(*ACCOUNT_SECRETS).filter(pk=account_id).first()
    if account is None or not admin.has_view_permission(request, account):
        raise Http404("No such account.")
    if not admin.has_change_permission(request, account):
        raise PermissionDenied("Registering webhooks takes the right to change the account.")
    if request.method == "POST":
        try:
            messages.success(request, _done(request, account))
        except webhook_setup.Refused as error:
            messages.error(request, error.words)
        return HttpResponseRedirect(f"{request.path}?list")
    return TemplateResponse(request, TEMPLATE, _context(admin, request, account))


def _done(request: HttpRequest, account: ProviderAccount) -> str:
    reason, now = typed(request.POST.get("reason")), timezone.now()
    action = request.POST.get("action")
    if action == "register":
        url = typed(request.POST.get("url"))
        return webhook_setup.register(account.pk, url, by=by(request), reason=reason, now=now)
    if action == "rotate":
        return webhook_setup.rotate(account.pk, by=by(request), reason=reason, now=now)
    if action == "delete":
        endpoint_id = typed(request.POST.get("endpoint"))
        return webhook_setup.delete(account.pk, endpoint_id, by=by(request), reason=reason, now=now)
    raise webhook_setup.Refused("Choose what to do: register, rotate or delete.")


def _context(admin: Any, request: HttpRequest, account: ProviderAccount) -> dict[str, Any]:
    listed, trouble, is_listed = [], "", "list" in request.GET
    if is_listed:
        try:
            listed = webhook_setup.listed(account.pk, now=timezone.now())
        except webhook_setup.Refused as error:
            trouble, is_listed = error.words, False
    return {
        **admin.admin_site.each_context(request),
        "opts": admin.opts,
        "title": f"Webhooks of {account.name}",
        "account": account,
        "health": webhook_health.words(webhook_health.of(account.pk)),
        "is_listed": is_listed,
        "listed": listed,
        "trouble": trouble,
        "suggested_url": settings.PUBLIC_URL or request.build_absolute_uri("/").rstrip("/"),
    }
