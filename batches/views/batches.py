"""The batch page, with the fragment that keeps it live without moving its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.crypto import get_random_string
from django.views.decorators.http import require_safe

from batches import (
    attention,
    audits,
    cursors,
    exports,
    failures,
    listings,
    places,
    rights,
    searching,
    selectors,
    wording,
)
from batches.actions import Chosen
from batches.batchfacts import Facts
from batches.engine import elsewhere, work
from batches.models import Alert, Batch, ProviderAccount, Verb
from batches.views import batch_head, bulk_actions, causes, problems, rows
from batches.views.access import SignedInRequest, batch_and_facts_or_404, typed
from batches.wording import Group

Q_MOST = 200
NOTHING_NEW = 204  # htmx swaps nothing


@dataclass(frozen=True)
class Tab:
    """One choice of a filter: its address, its count where it has one, its colour where it has one."""

    key: str
    label: str
    url: str
    is_current: bool
    count: int | None = None
    colour: str = ""
    meaning: str = ""


def _search(request: HttpRequest) -> str:
    return typed(request.GET.get("q"), Q_MOST)


def _with(path: str, **parameters: str) -> str:
    """`path` with those parameters that say something."""
    query = urlencode({name: value for name, value in parameters.items() if value})
    return f"{path}?{query}" if query else path


@login_required
@require_safe
def batch_detail(request: SignedInRequest, public_id: str) -> HttpResponse:
    batch, facts = batch_and_facts_or_404(request.user, public_id)
    group, cause, q = _filter(request), _cause(request), _search(request)
    is_noticed = bool(request.GET.get("notice"))
    context = _batch_context(request, batch, facts, group=group, cause=cause, q=q)
    page = listings.items_page(
        batch,
        group=group,
        cause=cause,
        q=q,
        is_noticed=is_noticed,
        after=cursors.number(request.GET.get("after")),
        before=cursors.number(request.GET.get("before")),
        reads_content=context["may_see_content"],
    )
    path = reverse("batches:batch_detail", args=[batch.public_id])
    shown = {"state": group, "cause": cause, "q": q, "notice": "1" if is_noticed else ""}
    context |= {
        "page": page,
        "previous": _with(path, **shown, before=page.before) if page.before else "",
        "next": _with(path, **shown, after=page.after) if page.after else "",
    }
    cause_title = context["causes"].titles.get(cause, "")
    chosen = replace(Chosen.of(request.GET.dict()), cause_title=cause_title)
    known = None if q or is_noticed else _matching(context, group=group, cause=cause)
    context |= {
        "search_notes": searching.read(q).notes,
        "search_examples": searching.EXAMPLES,
        "bulk": bulk_actions.bar(batch, chosen, context["held_rights"], earlier=facts.action_count, known=known),
        "cause_label": cause_title or "one cause" if cause else "",
        "corrections": audits.corrections(batch) if facts.has_corrections else [],
        "conflict_words": batch.get_on_conflict_display(),
        "last_position": page.rows[-1].position if page.rows else None,
        "plan_words": problems.plan_words(batch.report.get("summary", {})),
        # They quote cells.
        "warnings": problems.presented(batch.report.get("warnings", [])) if context["may_see_content"] else [],
    }
    return render(request, "batches/batch_detail.html", context)


def _matching(context: dict[str, Any], *, group: str, cause: str) -> int | None:
    """How many match a state or a cause, as far as the page has counted them already."""
    if cause:
        return next((each.count for each in context["causes"].shown if each.key == cause), None)
    return context["current"].count if group else None


@login_required
@require_safe
def batch_live(request: SignedInRequest, public_id: str) -> HttpResponse:
    """What changed on the batch page: summary, notices, and the rows that the page shows, each in its place."""
    batch, facts = batch_and_facts_or_404(request.user, public_id)
    context = _batch_context(request, batch, facts, group=_filter(request), cause=_cause(request), q=_search(request))
    drawn = rows.shown(request.GET.get("rows", ""))
    now = listings.items_at(batch, rows.positions(drawn), reads_content=context["may_see_content"])
    changed = rows.changed(now, drawn)
    has_new_notices = request.GET.get("notices", "") != context["notices_revision"]
    has_new_sample = request.GET.get("sample", "") != context["sample_revision"]
    is_new = changed or has_new_notices or has_new_sample
    if request.GET.get("summary", "") == context["summary_revision"] and not is_new:
        return HttpResponse(status=NOTHING_NEW)
    context |= {"changed_rows": changed, "has_new_notices": has_new_notices, "has_new_sample": has_new_sample}
    context["is_fragment"] = True
    context["changed_count"] = _changed_count(context, changed, cursors.number(request.GET.get("matching")))
    return render(request, "batches/batch_live.html", context)


def _changed_count(context: dict[str, Any], changed: list[listings.ItemRow], matched: int | None) -> int:
    """How many rows a filtered list would gain or lose if it were drawn anew; it is never redrawn by itself."""
    if not context["group"]:
        return 0
    left = sum(1 for row in changed if row.group != context["group"])
    return left + max(0, context["matching"] - matched) if matched is not None else left


def _filter(request: HttpRequest) -> str:
    wanted = request.GET.get("state", "")
    return wanted if wanted in Group.values else ""


def _cause(request: HttpRequest) -> str:
    """The cause of a filter, only together with the failed rows that it narrows."""
    wanted = request.GET.get("cause", "")
    return wanted if _filter(request) == Group.FAILED and failures.is_key(wanted) else ""


def _shows_all_causes(request: HttpRequest) -> bool:
    return request.GET.get("causes", "") == "all"


def _batch_context(
    request: SignedInRequest, batch: Batch, facts: Facts, *, group: str, cause: str, q: str
) -> dict[str, Any]:
    """What the page and its live fragment both show of a batch."""
    held_rights = rights.rights(request.user, batch.workspace)
    all_causes = "all" if _shows_all_causes(request) else ""
    progress = selectors.progress(batch)
    held = selectors.held_accounts(batch, progress)
    notices = attention.notices(batch, progress.counts)
    reads_content = rights.VIEW_CONTENT in held_rights
    found = failures.Causes()
    if progress.needs_attention:
        found = failures.causes(
            batch, total=progress.counts.total, shows_all=bool(all_causes), reads_content=reads_content
        )
    is_live = progress.state not in wording.ENDED_STATES
    standstill, account_alerts = _trouble(batch, facts) if is_live else ("", [])
    head = batch_head.head(batch, facts, progress, held, now=timezone.now())
    sample = listings.sample_of(batch, progress, reads_content=reads_content)
    tabs = _tabs(batch, progress, group=group, q=q)
    current = next(tab for tab in tabs if tab.is_current)
    return {
        "batch": batch,
        "nav": "batches",
        "progress": progress,
        **head,
        "causes": found,
        "form_key": get_random_string(32),
        "cause_cards": causes.cards(found, held_rights, batch.workspace) if found.shown else [],
        **_permissions(request, batch, progress, held_rights),
        "held_accounts": held,
        "could_take": elsewhere.could_take_of(batch, held) if Verb.REGENERATE in held_rights else [],
        "standstill": standstill,
        "account_alerts": account_alerts,
        "noticed": notices,
        "sample": sample,
        "download": exports.at_once(batch, progress.counts.saved),
        "tabs": tabs,
        "current": current,
        "matching": current.count,
        "live_url": _with(
            reverse("batches:batch_live", args=[batch.public_id]),
            state=group,
            cause=cause,
            q=q,
            notice="1" if request.GET.get("notice") else "",
            causes=all_causes,
        ),
        "group": group,
        "cause": cause,
        "q": q,
        "list_query": places.query(batch, Chosen.of(request.GET.dict())),
        "is_live": is_live,
        # A batch of 100,000 takes about 0.2 s to count, so large ones are asked less often.
        "poll_seconds": 2 if progress.counts.total <= 5000 else 5,
        "sample_revision": listings.digest(
            sample and (sample.sentence, [row.revision for row in sample.rows]), batch.waits_for_release
        ),
        "notices_revision": _notices_revision(found, notices, held, standstill, account_alerts),
    }


def _trouble(batch: Batch, facts: Facts) -> tuple[str, list[Alert]]:
    """What keeps a batch from moving, or may, beside a hold of its account."""
    alerts = attention.account_alerts(batch) if facts.has_account_alerts else []
    return work.standstill_since(facts.pump_moved_at, now=timezone.now()), alerts


def _notices_revision(
    found: failures.Causes,
    notices: attention.Notices,
    held: Sequence[ProviderAccount],
    standstill: str,
    alerts: Sequence[Alert],
) -> str:
    """Changes with whatever the notices show, so that the live fragment sends them only then."""
    accounts = [(account.pk, account.hold_reason, account.hold_words) for account in held]
    return listings.digest(found, notices, accounts, standstill, [alert.words for alert in alerts])


def _permissions(
    request: SignedInRequest, batch: Batch, progress: selectors.Progress, held: frozenset[str]
) -> dict[str, Any]:
    """What of the page is there for this person."""
    may_stop = bool(held & {rights.PAUSE_BATCH, rights.CANCEL_BATCH})
    return {
        "held_rights": held,
        "may_audit": rights.VIEW_AUDIT in held,
        "may_see_content": rights.VIEW_CONTENT in held,
        "may_export": rights.EXPORT in held,
        "may_take_content": rights.EXPORT in held and rights.VIEW_CONTENT in held,
        "may_run": may_stop and batch.cancelled_at is None and progress.state not in wording.ENDED_STATES,
        "may_release": batch.waits_for_release and rights.PAUSE_BATCH in held,
        "may_correct": Verb.REGENERATE in held,
        "may_cancel": rights.CANCEL_BATCH in held,
        "bulk_rights": bulk_actions.may_do_any(held),
    }


def _tabs(batch: Batch, progress: selectors.Progress, *, group: str, q: str) -> list[Tab]:
    path, numbers = reverse("batches:batch_detail", args=[batch.public_id]), progress.counts.as_dict()
    tabs = [Tab("", "All", _with(path, q=q), not group, numbers["total"])]
    for key, badge in wording.GROUP_BADGES.items():
        url = _with(path, state=key, q=q)
        tabs.append(Tab(key, badge.label, url, key == group, numbers[key], badge.colour, badge.meaning))
    return tabs
