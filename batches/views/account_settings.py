"""Making a provider account, kind first, and changing how one that exists is reached: address, options and secrets.

Who makes one needs the right where it shall be used; one for every workspace takes the permission itself, as does any
change of it. A secret is only ever typed: pages say whether one is set, and since when.
"""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.forms import Form
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from batches import account_rows, comparing, rights
from batches.account_forms import AccountLimitsForm, AccountReachForm, NewAccountForm
from batches.engine import account_changes, account_ties, accounts
from batches.models import ProviderAccount, Workspace
from batches.views.access import SignedInRequest, by, typed
from batches.views.account_changes import permitted

#: For every workspace, instead of the slug of one; no slug looks so.
EVERYBODY = "*"


@login_required
@require_safe
def account_new(request: SignedInRequest) -> HttpResponse:
    """The kinds of provider that there are."""
    _places(request)
    kinds = [(kind, adapter.label, adapter.base_url, _promises(kind)) for kind, adapter in accounts.adapters().items()]
    return render(request, "batches/account_new.html", {"nav": "accounts", "kinds": kinds})


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def account_add(request: SignedInRequest, kind: str) -> HttpResponse:
    places = _places(request)
    adapter = accounts.adapters().get(kind)
    if adapter is None:
        raise Http404("No such kind of provider.")
    known = accounts.defaults(kind)
    empty, data = ProviderAccount(**known), request.POST if request.method == "POST" else None
    limits = {name: getattr(empty, name) for name in account_changes.EDITABLE}
    whose = NewAccountForm(
        [(place.slug, place.name) if place else (EVERYBODY, "Every workspace") for place in places], data
    )
    reach = AccountReachForm(adapter.options, data, initial=known, has_events=adapter.capabilities.webhook_success)
    limiting = AccountLimitsForm(data, initial=limits | {"shown": "new"})
    limiting.fields["price_per_job"].help_text = _unit_words(kind)
    forms: list[Form] = [whose, reach, limiting]
    if request.method == "POST" and all(form.is_valid() for form in forms):
        workspace = next((place for place in places if place and place.slug == whose.cleaned_data["workspace"]), None)
        account = ProviderAccount(
            **{"kind": kind, "slug": whose.cleaned_data["slug"], "workspace": workspace}
            | reach.columns()
            | limiting.columns()
        )
        reason = typed(limiting.cleaned_data["reason"])
        try:
            account_changes.add(account, by=by(request), reason=reason, now=timezone.now())
        except account_changes.Refused as error:
            _say(error, forms)
        else:
            messages.success(request, f"Added {account.name}. Test the connection now: that is free.")
            return redirect("batches:account_detail", account.slug)
    context = {"nav": "accounts", "label": adapter.label, "whose": whose, "reach": reach, "limits": limiting}
    context["is_refused"] = any(form.errors for form in forms)
    return render(request, "batches/account_add.html", context, status=422 if context["is_refused"] else 200)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def account_settings(request: SignedInRequest, slug: str) -> HttpResponse:
    account = permitted(request, slug, rights.MANAGE_ACCOUNT)
    secrets = account_rows.secrets(account)
    form = _settings_form(request, account, {name for name, secret in secrets.items() if secret.is_set})
    shown, data = account_changes.seen(account), request.POST
    if request.method == "POST" and form.is_valid():
        try:
            after = account_changes.change(
                account.pk,
                form.columns(),
                by=by(request),
                reason=typed(data.get("reason"), 500),
                now=timezone.now(),
                shown=typed(data.get("shown"), 40),
                is_same_account=bool(form.cleaned_data.get("is_same_account")),
            )
        except account_changes.Refused as error:
            _say(error, [form])
        else:
            named = ", ".join(name.replace("_", " ") for name in after)
            messages.info(request, f"Changed, and in use within a second: {named}." if after else "Nothing differed.")
            return redirect("batches:account_detail", account.slug)
    context = {"nav": "accounts", "account": account, "form": form, "shown": shown, "secrets": secrets}
    context["reason"] = typed(data.get("reason"), 500)
    return render(request, "batches/account_settings.html", context, status=422 if form.errors else 200)


def _settings_form(request: SignedInRequest, account: ProviderAccount, secrets: set[str]) -> AccountReachForm:
    kept = account.options if isinstance(account.options, dict) else {}
    adapter = accounts.adapters()[account.kind]
    return AccountReachForm(
        adapter.options,
        request.POST if request.method == "POST" else None,
        initial={name: getattr(account, name) for name in account_changes.SETTINGS},
        has_events=adapter.capabilities.webhook_success,
        is_tied=account_ties.is_tied(account),
        is_new=False,
        unfinished=account_ties.unfinished(account),
        kept={name: value for name, value in kept.items() if isinstance(value, str)},
        secrets=secrets,
    )


def _places(request: SignedInRequest) -> list[Workspace | None]:
    """Where the person may make an account; None stands for every workspace. Refuses who may nowhere."""
    places: list[Workspace | None] = list(rights.workspaces(request.user, rights.MANAGE_ACCOUNT).order_by("name", "pk"))
    if rights.may_with_account(request.user, rights.MANAGE_ACCOUNT, ProviderAccount(workspace=None)):
        places.append(None)
    if not places:
        raise PermissionDenied(rights.refusal(rights.MANAGE_ACCOUNT))
    return places


def _say(error: account_changes.Refused, forms: list[Form]) -> None:
    """Each problem beside its field, or above them all."""
    for name, words in error.problems.items():
        form = next((form for form in forms if name in form.fields), None)
        (form or forms[-1]).add_error(name if form else None, words)


def _unit_words(kind: str) -> str:
    capabilities = accounts.adapters()[kind].capabilities
    return f"Of one {capabilities.billed_unit}. Empty: not known." if capabilities.bills else "It bills nothing: 0."


def _promises(kind: str) -> list[str]:
    """What somebody who chooses between kinds wants to know first."""
    can: Any = accounts.adapters()[kind].capabilities
    bills = f"Bills each {can.billed_unit}." if can.bills else "Bills nothing; it runs on machines of your own."
    return [bills, f"After a lost answer: {comparing.lost_answer(can)}."]
