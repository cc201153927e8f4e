"""The webhook inbox: what providers told us, what it did, and working a range of it through again.

The receiving end is `webhooks.py`. A body may name a provider job, which opens a PDF: it is shown to who may see that
content, one at a time, and each look is written down.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from batches import cursors, inbox_rows, rights, wording
from batches.engine import replays
from batches.inbox_rows import EventRow, Filters
from batches.models import ProviderAccount, WebhookOutcome
from batches.views.access import SignedInRequest, by, record, typed

REFUSAL = (
    "The webhook inbox is read by managers and admins of a workspace. Ask an administrator for one of these roles."
)
NO_REPLAY = "Your role may not replay the events of this account. Ask an administrator."
NO_CONTENT = "Your role may not see the content of this event. Ask an administrator."
TEXT_MOST = 200
#: What can be replayed, by the word of an address.
OUTCOMES = {
    "woke": WebhookOutcome.WOKE,
    "late": WebhookOutcome.IGNORED,
    "unmatched": WebhookOutcome.UNMATCHED,
    "waiting": WebhookOutcome.WAITING,
}


@login_required
@require_safe
def inbox(request: SignedInRequest) -> HttpResponse:
    mine, asked = _accounts(request), _asked(request)
    cursor = {name: request.GET.get(name, "") for name in ("after", "before")}
    page = inbox_rows.events_page(request.user, mine, _filters(asked), **cursor)
    path = reverse("batches:inbox")
    chosen = _chosen(mine, asked.get("account", ""))
    context = {
        "nav": "inbox",
        "page": page,
        "asked": asked,
        "accounts": mine,
        "effects": wording.EVENT_BADGES,
        "newer": f"{path}?{urlencode(asked | {'before': page.before})}" if page.before else "",
        "older": f"{path}?{urlencode(asked | {'after': page.after})}" if page.after else "",
        "refusals": inbox_rows.refusals(mine, now=timezone.now()),
        "replay_url": _replay_url(request, asked, chosen),
        "is_filtered": bool(asked),
    }
    return render(request, "batches/inbox.html", context)


@login_required
@require_safe
def inbox_event(request: SignedInRequest, number: int) -> HttpResponse:
    row = _event_or_404(request, number)
    return render(request, "batches/inbox_event.html", _event_context(request, row))


@login_required
@require_POST
def inbox_reveal(request: SignedInRequest, number: int) -> HttpResponse:
    """The event with its body, which may name a provider job whole."""
    row = _event_or_404(request, number)
    if not _may_see_body(request, row):
        raise PermissionDenied(NO_CONTENT)
    workspace = inbox_rows.body_workspace(row)
    record(request, "reveal_event", f"webhook {row.event.pk}", workspace, account=row.event.account.slug)
    context = _event_context(request, row) | {"body": inbox_rows.body(row.event)}
    return render(request, "batches/inbox_event.html", context)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def inbox_replay(request: SignedInRequest, slug: str) -> HttpResponse:
    """GET counts what a replay would look at, POST does it."""
    asked = _asked(request) | {"account": slug}
    account = next((each for each in _accounts(request) if each.slug == slug), None)
    if account is None:
        raise Http404("No such account.")
    if not rights.may_with_account(request.user, rights.REPLAY_EVENTS, account):
        raise PermissionDenied(NO_REPLAY)
    asked.pop("q", None)  # a replay is of a time, not of one document: that has verbs of its own
    filters = _filters(asked)
    if filters.effect and filters.effect not in OUTCOMES:
        raise Http404("These name no document, so there is nothing to wake.")
    if _is_misread(asked):  # a bound that is left out would mean more than was meant
        raise Http404("These times cannot be read, so nothing was replayed.")
    outcome = OUTCOMES.get(filters.effect, "")
    wanted = replays.Range(account, filters.since, filters.until, outcome)
    if request.method == "POST":
        up_to = cursors.number(request.POST.get("up_to"))
        wanted = replays.Range(account, filters.since, filters.until, outcome, up_to or 0)
        messages.info(request, replays.run(wanted, by=by(request), now=timezone.now()).words)
        return redirect(f"{reverse('batches:inbox')}?{urlencode(asked)}")
    plan = replays.plan(wanted)
    context = {
        "nav": "inbox",
        "account": account,
        "asked": asked,
        "plan": plan,
        "counts": [(wording.EVENT_BADGES[word].label, plan.by_outcome.get(key, 0)) for word, key in OUTCOMES.items()],
        "effect": wording.EVENT_BADGES.get(filters.effect),
        "most": replays.EVENTS_MOST,
        "back_url": f"{reverse('batches:inbox')}?{urlencode(asked)}",
    }
    return render(request, "batches/inbox_replay.html", context)


def _replay_url(request: SignedInRequest, asked: dict[str, str], account: ProviderAccount | None) -> str:
    """Where what is listed can be replayed; empty where it is no range of one account, or not this person's to do."""
    is_range = asked.get("effect", "woke") in OUTCOMES and "q" not in asked and not _is_misread(asked)
    if account is None or not is_range or not rights.may_with_account(request.user, rights.REPLAY_EVENTS, account):
        return ""
    rest = {name: text for name, text in asked.items() if name != "account"}
    return f"{reverse('batches:inbox_replay', args=[account.slug])}?{urlencode(rest)}"


def _accounts(request: SignedInRequest) -> list[ProviderAccount]:
    """Those whose events this person may read; refuses where the right is held nowhere."""
    mine = inbox_rows.accounts(request.user)
    if not mine and rights.VIEW_EVENTS not in rights.somewhere(request.user):
        raise PermissionDenied(REFUSAL)
    return mine


def _event_or_404(request: SignedInRequest, number: int) -> EventRow:
    row = inbox_rows.event_row(request.user, _accounts(request), number)
    if row is None:
        raise Http404("No such event.")
    return row


def _may_see_body(request: SignedInRequest, row: EventRow) -> bool:
    """What is of no workspace that can be told may be of any: only who has the permission itself sees it."""
    workspace = inbox_rows.body_workspace(row)
    if workspace is not None:
        return rights.may(request.user, rights.VIEW_CONTENT, workspace)
    return not row.is_elsewhere and rights.may_with_account(request.user, rights.VIEW_CONTENT, row.event.account)


def _event_context(request: SignedInRequest, row: EventRow) -> dict[str, Any]:
    event = row.event
    asked = {"account": event.account.slug, "from": _minute(event.received_at), "to": _minute(event.received_at, 1)}
    return {
        "nav": "inbox",
        "row": row,
        "event": event,
        "badge": row.badge,
        "body": None,
        "may_see_body": _may_see_body(request, row),
        "replay_url": _replay_url(request, asked, event.account) if event.provider_job_id else "",
    }


def _chosen(mine: list[ProviderAccount], slug: str) -> ProviderAccount | None:
    """The account that is asked for, or the only one."""
    found = [account for account in mine if slug in ("", account.slug)]
    return found[0] if len(found) == 1 else None


def _asked(request: HttpRequest) -> dict[str, str]:
    """The filters of the address that say something, by their names there."""
    given = {name: typed(request.GET.get(name), TEXT_MOST) for name in ("account", "effect", "q", "from", "to")}
    return {name: text for name, text in given.items() if text}


def _filters(asked: dict[str, str]) -> Filters:
    return Filters(
        account=asked.get("account", ""),
        effect=asked.get("effect", ""),
        q=asked.get("q", ""),
        since=_instant(asked.get("from", "")),
        until=_instant(asked.get("to", "")),
    )


def _is_misread(asked: dict[str, str]) -> bool:
    return any(name in asked and _instant(asked[name]) is None for name in ("from", "to"))


def _instant(text: str) -> datetime | None:
    """What a field for date and time sends, in UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    found = found.replace(tzinfo=UTC) if found.tzinfo is None else found
    return found if 1971 <= found.year <= 9998 else None


def _minute(at: datetime, more: int = 0) -> str:
    whole = at.astimezone(UTC).replace(second=0, microsecond=0)
    return datetime.fromtimestamp(whole.timestamp() + 60 * more, UTC).strftime("%Y-%m-%dT%H:%M")
