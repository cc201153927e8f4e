"""Provider accounts: the list of them, and the page of one with its live part. Changes: `account_changes.py`.

An account that no workspace of a person may use does not exist for them. Whoever sees one reads its state and limits;
changing something is a right.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from batches import account_rows, comparing, figures, rights, sentences, wording
from batches.account_rows import AccountRow
from batches.engine import accounts, capacity, health, pacing, webhook_health
from batches.models import LearnedDeadline
from batches.views.access import SignedInRequest

POLL_SECONDS = 5


def account_or_404(request: SignedInRequest, slug: str, *, now: datetime) -> AccountRow:
    row = account_rows.row(request.user, slug, now=now)
    if row is None:
        raise Http404("No such account.")
    return row


@login_required
@require_safe
def account_list(request: SignedInRequest) -> HttpResponse:
    is_archived, now = request.GET.get("view") == "archived", timezone.now()
    rows = account_rows.rows(request.user, is_archived=is_archived, now=now)
    context = {
        "nav": "accounts",
        "rows": [(row, _badge(row)) for row in rows],
        "is_archived": is_archived,
        "may_add": rights.MANAGE_ACCOUNT in rights.somewhere(request.user),
        "counted_most": account_rows.COUNTED_MOST,
    }
    return render(request, "batches/account_list.html", context)


@login_required
@require_safe
def account_detail(request: SignedInRequest, slug: str) -> HttpResponse:
    now = timezone.now()
    row = account_or_404(request, slug, now=now)
    return render(request, "batches/account_detail.html", _now(row, now=now) | _rest(request, row))


@login_required
@require_safe
def account_live(request: SignedInRequest, slug: str) -> HttpResponse:
    now = timezone.now()
    row = account_or_404(request, slug, now=now)
    return render(request, "batches/account_live.html", _now(row, now=now) | {"is_fragment": True})


def _badge(row: AccountRow) -> wording.Badge:
    state = sentences.account_state(row.account, is_asked_to_wait=row.pause_until is not None)
    return wording.ACCOUNT_BADGES[state]


def _now(row: AccountRow, *, now: datetime) -> dict[str, Any]:
    """What changes from second to second."""
    account = row.account
    outlook = pacing.outlook(account, account_rows.lane(account), now=now)
    sent = capacity.sending(account.pk)
    return {
        "row": row,
        "account": account,
        "badge": _badge(row),
        "counted_most": account_rows.COUNTED_MOST,
        "next_at": outlook.next_at if outlook.next_at > now else None,
        "sent": sent,
        "breaker": sentences.breaker(account, opens_at=health.OPENS_AT),
        "credit": sentences.credit(account),
        "is_live": account.archived_at is None,
        "poll_seconds": POLL_SECONDS,
        "live_url": reverse("batches:account_live", args=[account.slug]),
    }


def _rest(request: SignedInRequest, row: AccountRow) -> dict[str, Any]:
    """What is reckoned when the page is opened."""
    account: Any = row.account
    documents = capacity.ended(account.pk)
    times, levels = capacity.times(documents), capacity.levels(documents)
    interval_ms = sentences.interval_ms(account)
    can = accounts.capabilities(account)
    secrets = account_rows.secrets(account)
    has_secret = secrets["webhook_secret"].is_set or secrets["webhook_secret_previous"].is_set
    webhooks = webhook_health.of_account(account, has_secret=has_secret, last=row.event_at)
    batches = account_rows.batches_on(account, request.user)
    held = rights.rights_with_account(request.user, account)
    may = held if account.archived_at is None else frozenset[str]()
    # Events of an account that all share are read by who reads those of any workspace.
    is_reader = rights.VIEW_EVENTS in held or (
        account.workspace is None and rights.VIEW_EVENTS in rights.somewhere(request.user)
    )
    return {
        "nav": "accounts",
        "pace": figures.pace(interval_ms),
        "takes_key": can.client_key,
        "lost_answer": comparing.lost_answer(can),
        "times": _times(times),
        "levels": levels,
        "enough": capacity.enough(levels),
        "advice": capacity.advice(levels, known=times, interval_ms=interval_ms, cap=account.max_in_flight),
        "suggestion": _suggestion(account, documents),
        "webhook_words": webhook_health.words(webhooks),
        "is_silent": webhooks.is_silent,
        "secrets": [
            ("API key", secrets["api_key"]),
            ("Webhook secret", secrets["webhook_secret"]),
            ("Webhook secret before", secrets["webhook_secret_previous"]),
        ],
        "data_terms": sentences.data_terms(account),
        "batches": batches[: account_rows.BATCHES_SHOWN],
        "has_more_batches": len(batches) > account_rows.BATCHES_SHOWN,
        "alerts": account_rows.alerts_of(account),
        "may_manage": rights.MANAGE_ACCOUNT in may,
        "may_hold": rights.HOLD_ACCOUNT in may,
        "may_read_events": is_reader,
        "may_open_admin": request.user.is_staff and request.user.has_perm("batches.change_provideraccount"),
    }


def _times(times: capacity.Times | None) -> dict[str, Any] | None:
    if times is None:
        return None
    names = (
        ("Half within", times.p50),
        ("95 % within", times.p95),
        ("99 % within", times.p99),
        ("Slowest", times.worst),
    )
    measured = [(name, figures.length(seconds)) for name, seconds in names]
    return {"count": times.count, "since": times.since, "measured": measured}


def _suggestion(account: Any, documents: list[capacity.Ended]) -> str:
    if account.learned_deadline == LearnedDeadline.OFF:
        return ""
    found = capacity.suggested_deadline(documents)
    if found is None:
        return ""
    is_used = account.learned_deadline == LearnedDeadline.ON
    return f"{found.words} {'It is used.' if is_used else 'It is only suggested; the deadline above holds.'}"
