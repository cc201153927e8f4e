"""What is done to a provider account on its page: limits, prices and data terms, hold and resume, testing it.

Each is a right, and writes an audit entry. Who sees the account and may not do it is refused with what to do.
"""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from batches import rights
from batches.account_forms import AccountLimitsForm
from batches.engine import account_changes, account_checks
from batches.models import ProviderAccount
from batches.views.access import SignedInRequest, by, typed
from batches.views.accounts import account_or_404

ARCHIVED = "The account is archived: nothing of it is changed."
SHARED = "Every workspace uses this account, so it takes the permission itself. Ask an administrator."
NOT_YOURS = "Your role in {workspace} may not do that. Ask an administrator of it for the role Manager."


def permitted(request: SignedInRequest, slug: str, right: str) -> ProviderAccount:
    account = account_or_404(request, slug, now=timezone.now()).account
    if not rights.may_with_account(request.user, right, account):
        workspace = account.workspace
        raise PermissionDenied(SHARED if workspace is None else NOT_YOURS.format(workspace=workspace.name))
    if account.archived_at is not None:
        raise PermissionDenied(ARCHIVED)
    return account


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def account_limits(request: SignedInRequest, slug: str) -> HttpResponse:
    account = permitted(request, slug, rights.MANAGE_ACCOUNT)
    known = {name: getattr(account, name) for name in account_changes.EDITABLE}
    form = AccountLimitsForm(request.POST or None, initial=known | {"shown": account_changes.seen(account)})
    if request.method == "POST" and form.is_valid():
        try:
            after = account_changes.change(
                account.pk,
                form.columns(),
                by=by(request),
                reason=typed(form.cleaned_data["reason"]),
                now=timezone.now(),
                shown=form.cleaned_data["shown"],
            )
        except account_changes.Refused as error:
            for name, words in error.problems.items():
                form.add_error(name if name in form.fields else None, words)
        else:
            named = ", ".join(str(form.fields[name].label).lower() for name in after)
            messages.info(request, f"Changed, and in use within a second: {named}." if after else "Nothing differed.")
            return redirect("batches:account_detail", account.slug)
    context = {"nav": "accounts", "account": account, "form": form}
    return render(request, "batches/account_limits.html", context, status=422 if form.errors else 200)


@login_required
@require_POST
def account_test(request: SignedInRequest, slug: str) -> HttpResponse:
    """One free call; what was asked and what came stands on the page that follows."""
    account = permitted(request, slug, rights.MANAGE_ACCOUNT)
    checked = account_checks.check(account.pk, by=by(request), now=timezone.now())
    (messages.success if checked.is_well else messages.error)(request, checked.words)
    return redirect("batches:account_detail", account.slug)


@login_required
@require_POST
def account_hold(request: SignedInRequest, slug: str) -> HttpResponse:
    account = permitted(request, slug, rights.HOLD_ACCOUNT)
    words = typed(request.POST.get("reason"), 500)
    if not words:
        messages.error(request, "Nothing was changed: say why, for everybody who waits reads it.")
    elif account_changes.hold(account, by=by(request), words=words, now=timezone.now()):
        messages.info(request, "Held: nothing new is sent. What the provider has is still saved.")
    else:
        messages.info(request, "It was held already; that hold stays.")
    return redirect("batches:account_detail", account.slug)


@login_required
@require_POST
def account_resume(request: SignedInRequest, slug: str) -> HttpResponse:
    account = permitted(request, slug, rights.HOLD_ACCOUNT)
    reason = typed(request.POST.get("reason"), 500)
    is_done = account_changes.resume(account, by=by(request), reason=reason, now=timezone.now())
    messages.info(request, "Resumed: what waited goes on." if is_done else "It was not held.")
    return redirect("batches:account_detail", account.slug)
