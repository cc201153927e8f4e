"""The home page: what needs this person, what runs, how the accounts are, what ended lately.

What stands there is read by `overview.py`, `attention.py` and `failedlist.py`, in a constant number of queries.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.crypto import get_random_string
from django.views.decorators.http import require_safe

from batches import actionlist, attention, failedlist, figures, listings, overview, rights, selectors
from batches.actionlist import ActionRow
from batches.engine import work
from batches.failedlist import Causes, Wanted
from batches.models import ProviderAccount, Workspace
from batches.overview import AccountRow, Drafts, Overview
from batches.views import demonstration
from batches.views.access import SignedInRequest, may_add_workspace
from batches.views.failed import cards

NOTHING_NEW = 204  # htmx swaps nothing
POLL_SECONDS = 5
CAUSES_SHOWN = 5


@dataclass(frozen=True)
class _Read:
    """All that the page says, as it was read."""

    workspaces: dict[int, Workspace]
    causes: Causes
    overview: Overview
    accounts: list[AccountRow]
    alerts: attention.Alerts
    drafts: Drafts
    actions: list[ActionRow]
    standstill: str
    now: datetime

    @property
    def needs_nobody(self) -> bool:
        held = any(row.is_held for row in self.accounts)
        waits = self.overview.running.to_look_at or self.drafts.shown
        return not (self.causes.count or waits or held or self.alerts.shown or self.standstill)


def _read(user: User, *, now: datetime) -> _Read:
    mine = overview.with_flags(selectors.visible_workspaces(user), user)
    visible = {each.pk: each for each in mine.order_by("name", "pk")}
    workspaces: list[Any] = list(visible.values())
    mine = Workspace.objects.filter(pk__in=list(visible))
    return _Read(
        workspaces=visible,
        causes=failedlist.causes(mine, Wanted(), now=now),
        overview=overview.batches(workspaces, now=now),
        accounts=overview.accounts(workspaces),
        alerts=attention.open_alerts(workspaces),
        drafts=overview.drafts(user, [each for each in workspaces if each.has_drafts]),
        actions=actionlist.rows(attention.running_actions([each for each in workspaces if each.has_actions])),
        standstill=work.standstill(now=now),
        now=now,
    )


def summary(read: _Read) -> str:
    """The first sentence of the page, with facts also where nothing is wrong."""
    running, count = read.overview.running, read.causes.count
    needs = "Nothing needs you."
    if count:
        least = "More than " if read.causes.is_cut else ""
        needs = f"{least}{figures.documents(count)} need{'s' if count == 1 else ''} a person."
    elif not read.needs_nobody:
        needs = "No document needs a person; see below what does."
    moving = running.moving_count
    runs = f"{moving:,} batch{'' if moving == 1 else 'es'} run{'s' if moving == 1 else ''}" if moving else ""
    oldest = running.oldest
    if runs and oldest:
        runs += f", the oldest due document is {oldest.waited_words} old"
    return f"{needs} {runs or 'Nothing runs'}."


@login_required
@require_safe
def home(request: SignedInRequest) -> HttpResponse:
    return render(request, "batches/home.html", _context(request))


@login_required
@require_safe
def home_live(request: SignedInRequest) -> HttpResponse:
    """The parts of the page that changed since it drew them."""
    context = _context(request) | {"is_fragment": True}
    fresh = {part for part in ("summary", "notices", "facts") if request.GET.get(part) != context[f"{part}_revision"]}
    if not fresh:
        return HttpResponse(status=NOTHING_NEW)
    return render(request, "batches/home_live.html", context | {"fresh": fresh})


def _context(request: SignedInRequest) -> dict[str, Any]:
    now = timezone.now()
    read = _read(request.user, now=now)
    held = rights.by_workspace(request.user, read.workspaces.values())
    may_start = any(rights.START in each for each in held.values())
    shown, running = read.causes.all[:CAUSES_SHOWN], read.overview.running
    words = summary(read)
    held_accounts = [row.account for row in read.accounts if row.is_held]
    is_new = not (running.rows or read.overview.finished or read.drafts.shown)
    return {
        "read": read,
        "words": words,
        "cards": cards(shown, read.workspaces, held, Wanted()),
        "more_causes": len(read.causes.all) - len(shown),
        "shows_workspace": len(read.workspaces) > 1,
        "held_accounts": held_accounts,
        "standstill": read.standstill,
        "all_alerts_url": _all_alerts(request.user) if read.alerts.more_count else "",
        "may_start": may_start,
        "may_add_workspace": may_add_workspace(request.user),
        "is_new": is_new,
        "demo_account": _demo_account(read) if is_new and may_start else None,
        "form_key": get_random_string(32),
        "summary_revision": listings.digest(words),
        "notices_revision": listings.digest(
            read.causes,
            [row.key for row in running.to_look_at],
            [(draft.public_id, draft.state) for draft in read.drafts.shown],
            [(account.pk, account.hold_words) for account in held_accounts],
            [alert.pk for alert in read.alerts.shown],
            [(row.key, row.counts) for row in read.actions],
            read.standstill,
        ),
        "facts_revision": listings.digest(
            [row.revision for row in (*running.rows, *read.overview.finished)],
            running.more_count,
            [(row.account.pk, row.is_held, row.in_flight, row.webhook_at) for row in read.accounts],
        ),
        "is_live": not is_new,
        "live_url": reverse("batches:home_live"),
        "poll_seconds": POLL_SECONDS,
        "nav": "home",
    }


def _all_alerts(user: User) -> str:
    """Where every open alert stands, for whoever may see it; for the others, the batches that need a person."""
    if user.is_staff and user.has_perm("batches.view_alert"):
        return f"{reverse('admin:batches_alert_changelist')}?closed_at__isempty=1"
    return f"{reverse('batches:batch_list')}?state=attention"


def _demo_account(read: _Read) -> ProviderAccount | None:
    return next((row.account for row in read.accounts if row.account.slug == demonstration.ACCOUNT), None)
