"""Bulk actions: the bar on the batch page, the plan to confirm, its progress and results, and a batch's earlier ones.

What is chosen and shown is `actions.py`; what is planned, confirmed and ended `engine/bulk_actions.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.crypto import get_random_string
from django.views.decorators.http import require_POST, require_safe

from batches import actions, comparing, cursors, failedlist, failures, filenames, results, rights, selectors, wording
from batches.actions import Chosen
from batches.engine import applying, bulk_actions, verbs
from batches.engine.bulk_actions import Refused
from batches.engine.verbs import Asked
from batches.failedlist import Wanted
from batches.models import Batch, BatchItem, BulkAction, ItemResult, ProviderAccount, Verb, Workspace
from batches.views import rows
from batches.views.access import SignedInRequest, batch_or_404, by, record, refuse_without, typed
from batches.wording import Badge

NOTHING_NEW = 204  # htmx swaps nothing
POLL_SECONDS = 2
REASON_MOST = 1000
#: Of a filter as it was sent; ticked rows are the longest of it.
FIELD_MOST = 20_000
NOTHING_OF_IT = "None of these documents stands so that it could be applied."


@dataclass(frozen=True)
class Button:
    """One verb over all that match: pressed it makes a plan. `refusal` says why it cannot be; empty where it can."""

    verb: Verb
    words: str
    price: str
    refusal: str = ""

    @property
    def renders_least(self) -> int:
        """Of each document."""
        return verbs.PRICES[self.verb].renders_least

    @property
    def renders_most(self) -> int:
        return verbs.PRICES[self.verb].renders_most


@dataclass(frozen=True)
class Bar:
    """What the batch page offers for many documents. `chosen` is false where nothing was chosen yet."""

    chosen: Chosen
    matching: int
    buttons: list[Button]
    ticked: list[Button]
    key: str
    earlier: int

    @property
    def fields(self) -> dict[str, str]:
        return self.chosen.as_dict()

    @property
    def refused(self) -> list[tuple[str, list[str]]]:
        """Each sentence that refuses, with the names of the verbs that it refuses."""
        told: dict[str, list[str]] = {}
        for button in self.buttons:
            if button.refusal:
                told.setdefault(button.refusal, []).append(button.verb.label)
        return list(told.items())

    @property
    def refused_labels(self) -> list[str]:
        return [button.verb.label for button in self.buttons if button.refusal]


def bar(batch: Batch, chosen: Chosen, held: Collection[str], *, earlier: int, known: int | None = None) -> Bar | None:
    """The bar for a person with the rights `held`; None for those who may do nothing here.

    `earlier` is how many actions the batch has; `known` how many match, where the page has counted them already.
    """
    if not may_do_any(held):
        return None
    ticked = [Button(verb, verb.label, verbs.PRICES[verb].value) for verb in _verbs() if verb in held]
    buttons: list[Button] = []
    matching = 0
    offers: dict[Verb, bulk_actions.Offer] = {}
    if chosen:
        found = chosen.matching(batch, reads_content=rights.VIEW_CONTENT in held)
        matching = found.order_by().count() if known is None else known
        if matching:
            offers = bulk_actions.offers(found, matching, now=timezone.now(), asked=_asked(held))
        buttons = [_button(verb, offers.get(verb), held) for verb in _verbs()]
    return Bar(chosen, matching, buttons, ticked, get_random_string(32), earlier)


def may_do_any(held: Collection[str]) -> bool:
    """Whether these rights are good for some verb over many documents."""
    return any(verb in held for verb in applying.APPLY)


def _verbs() -> Iterator[Verb]:
    return (verb for verb in Verb if verb in applying.APPLY)


def _button(verb: Verb, offer: bulk_actions.Offer | None, held: Collection[str]) -> Button:
    if verb not in held:
        return Button(verb, verb.label, "", refusal=_not_allowed(verb))
    if offer is None or not offer.count:
        return Button(verb, verb.label, "", refusal=NOTHING_OF_IT)
    at_most = "" if offer.is_exact else "up to "
    return Button(verb, f"{verb.label} {at_most}{offer.count:,}", offer.price_words)


def _not_allowed(verb: Verb) -> str:
    return f"Your role does not allow you to {verb.label.lower()} here. Ask a manager of this workspace."


def _refuse_unless_allowed(request: SignedInRequest, verb: Verb, workspace: Workspace) -> frozenset[str]:
    held = rights.rights(request.user, workspace)
    if verb not in held:
        raise PermissionDenied(_not_allowed(verb))
    return held


def _asked(held: Collection[str]) -> Asked:
    return Asked(may_regenerate_final=rights.REGENERATE_FINAL in held)


def _action_or_404(request: SignedInRequest, public_id: str, action_id: str) -> BulkAction:
    """The action of a batch; without one, an action over several batches of a workspace that the person may see."""
    found = BulkAction.objects.select_related("actor", "workspace").filter(public_id=action_id)
    batch = batch_or_404(request.user, public_id) if public_id else None
    if batch is None:
        found = found.filter(workspace__in=selectors.visible_workspaces(request.user))
    action = found.filter(batch=batch).first()
    if action is None:
        raise Http404("No such bulk action.")
    action.batch = batch
    return action


@dataclass(frozen=True)
class Origin:
    """The page on which an action's items were chosen: where it leads back to, and where it is planned again."""

    chosen: Chosen | Wanted
    words: str
    url: str
    plan_url: str

    @property
    def fields(self) -> list[tuple[str, str]]:
        """What a form sends that plans the same anew. Pairs: a template takes `items` of a dictionary for its key."""
        return list(self.chosen.as_dict().items())


def _origin(action: BulkAction, held: Collection[str]) -> Origin:
    if action.batch is not None:
        chosen = Chosen.of_action(action).shown(reads_content=rights.VIEW_CONTENT in held)
        plan_url = reverse("batches:action_plan", args=[action.batch.public_id])
        return Origin(chosen, action.batch.name, _batch_url(action.batch, chosen), plan_url)
    wanted, path = Wanted.of_action(action), reverse("batches:failed_list")
    url = f"{path}?{wanted.query}" if wanted.query else path
    return Origin(wanted, "Needs a person", url, reverse("batches:failed_plan"))


def _matching_now(action: BulkAction, *, held: Collection[str], now: datetime) -> QuerySet[BatchItem]:
    if action.batch is not None:
        return Chosen.of_action(action).matching(action.batch, reads_content=rights.VIEW_CONTENT in held)
    own = Workspace.objects.filter(pk=action.workspace_id)
    return failedlist.matching(own, Wanted.of_action(action), now=now)


# --- planning -------------------------------------------------------------------------------------------------------


@login_required
@require_POST
def action_plan(request: SignedInRequest, public_id: str) -> HttpResponse:
    """Freeze what the filter matches, or the ticked rows, and lead to the plan. Nothing is done yet."""
    batch = batch_or_404(request.user, public_id)
    verb = actions.verb_of(request.POST.get("verb", ""))
    if verb is None or verb not in applying.APPLY:
        raise Http404("No such verb for many documents.")
    held = _refuse_unless_allowed(request, verb, batch.workspace)
    sent = {**request.POST.dict(), "rows": ",".join(request.POST.getlist("rows"))}
    given = {name: typed(text, FIELD_MOST) for name, text in sent.items()}
    chosen = Chosen.of(given)
    if misread := actions.misread(given):  # what cannot be read is never left out: more would match than was meant
        messages.error(request, misread)
        return redirect(_batch_url(batch, Chosen()))
    try:
        account = chosen_account(request, verb, batch.workspace, own=batch.account)
    except Refused as refused:
        messages.error(request, refused.words)
        return redirect(_batch_url(batch, chosen))
    # A form without a key of its own has its CSRF token, which is new on each page: a second press is the same action.
    key = request.POST.get("key") or request.POST.get("csrfmiddlewaretoken") or get_random_string(32)
    try:
        action = bulk_actions.plan(
            batch,
            verb,
            chosen.matching(batch, reads_content=rights.VIEW_CONTENT in held),
            chosen_by=_kept(batch, chosen),
            by=by(request),
            creation_key=f"{request.user.pk} {batch.pk} {key} {verb} {sorted(chosen.as_dict().items())} {account}",
            now=timezone.now(),
            asked=_asked(held),
            account=account,
        )
    except Refused as refused:
        messages.error(request, refused.words)
        return redirect(_batch_url(batch, chosen))
    return redirect("batches:action_detail", batch.public_id, action.public_id)


def chosen_account(
    request: SignedInRequest, verb: Verb, workspace: Workspace, *, own: ProviderAccount | None = None
) -> ProviderAccount | None:
    """The account that was chosen to regenerate at; None: that of each batch, `own` where it is one. Raises `Refused`
    for one that the workspace may not use."""
    slug = typed(request.POST.get("at"), 60)
    if verb is not Verb.REGENERATE or not slug or (own is not None and slug == own.slug):
        return None
    found = selectors.usable_accounts([workspace]).filter(slug=slug).first()
    if found is None:
        raise Refused("That account is not there any more, so nothing was planned. Choose another one.")
    return found


def _kept(batch: Batch, chosen: Chosen) -> dict[str, str]:
    """What the action keeps of what was chosen: a cause with its title, which nobody could find later."""
    title = failures.title_of(batch, chosen.cause) if chosen.cause else ""
    return chosen.as_dict() | ({"cause_title": title} if title else {})


def _batch_url(batch: Batch, chosen: Chosen) -> str:
    path = reverse("batches:batch_detail", args=[batch.public_id])
    return f"{path}?{chosen.query}#documents" if chosen.query else path


# --- one action -----------------------------------------------------------------------------------------------------


@login_required
@require_safe
def action_detail(request: SignedInRequest, action_id: str, public_id: str = "") -> HttpResponse:
    """The plan to look at and confirm; from then on progress and the result of each document."""
    action = _action_or_404(request, public_id, action_id)
    return _page(request, action)


def _page(request: SignedInRequest, action: BulkAction, *, error: str = "", status: int = 200) -> HttpResponse:
    result = request.GET.get("result", "")
    result = result if result in ItemResult.values else ""
    after, before = (cursors.number(request.GET.get(name)) for name in ("after", "before"))
    page = actions.items_page(action, result=result, after=after, before=before)
    context = _context(request, action) | {
        "page": page,
        "result": result,
        "error": error,
        "reason": typed(request.POST.get("reason"), REASON_MOST),
        "tabs": _tabs(action, result),
        "previous": f"?result={result}&before={page.before}" if page.before else "",
        "next": f"?result={result}&after={page.after}" if page.after else "",
    }
    context |= _planned(request, action) if action.confirmed_at is None and action.finished_at is None else {}
    return render(request, "batches/bulk_action.html", context, status=status)


def _context(request: SignedInRequest, action: BulkAction) -> dict[str, Any]:
    """What the page and its live fragment both show."""
    counts = actions.counts(action)
    verb, held = Verb(action.verb), rights.rights(request.user, action.workspace)
    is_running = action.confirmed_at is not None and action.finished_at is None
    origin = _origin(action, held)
    return {
        "action": action,
        "batch": action.batch,
        "origin": origin,
        "urls": {page: actions.address(action, page) for page in ("confirm", "abort", "items")},
        "where": actions.where(action),
        "elsewhere": bulk_actions.account_of(action),
        "verb": verb,
        "badge": actions.badge(action),
        "planned_badge": wording.PLANNED_BADGE,
        "counts": counts,
        "segments": _segments(counts),
        "results": [(ItemResult(key), badge, counts.of(key)) for key, badge in wording.RESULT_BADGES.items()],
        "chosen": origin.chosen,
        "price": verbs.price_of_many(verb, action.plan.get("renders_most", 0)),
        "may_act": verb in held,
        "may_export": rights.EXPORT in held,
        "not_allowed": _not_allowed(verb),
        "key": get_random_string(32),
        "is_live": is_running,
        "live_url": actions.address(action, "live"),
        "poll_seconds": POLL_SECONDS,
        "summary_revision": hashlib.sha256(f"{counts} {action.finished_at}".encode()).hexdigest()[:12],
        "nav": "batches" if action.batch else "actions",
    }


def _planned(request: SignedInRequest, action: BulkAction) -> dict[str, Any]:
    """What a person looks at before it is confirmed."""
    now = timezone.now()
    held = rights.rights(request.user, action.workspace)
    found = bulk_actions.drift(action, _matching_now(action, held=held, now=now), now=now, asked=_asked(held))
    verb = Verb(action.verb)
    noun = f"{found.eligible:,} document{'' if found.eligible == 1 else 's'}"
    return {
        "is_planned": True,
        "drift": found,
        "is_outdated": bulk_actions.is_outdated(action, now=now),
        "price_now": verbs.price_of_many(verb, found.renders_most),
        "confirm_words": f"{verb.label}: {noun}",
        "needs_reason": verb in verbs.NEEDS_REASON,
        "number_to_type": found.renders_most if found.renders_most > bulk_actions.TYPED_ABOVE else None,
        "estimate": actions.estimate(action),
        "estimates": actions.estimates(action),
        "comparison": _comparison(action, found.renders_most) if verb is Verb.REGENERATE and verb in held else None,
    }


def _comparison(action: BulkAction, renders: int) -> comparing.Comparison | None:
    """Where it could be rendered instead, side by side; None where there is no choice."""
    offered = list(selectors.usable_accounts([action.workspace]))
    found = comparing.of_action(action, offered, renders) if len(offered) > 1 else None
    return found if found is not None and found.is_choice else None


@dataclass(frozen=True)
class Segment:
    colour: str
    x: float
    width: float


def _segments(counts: actions.Counts) -> list[Segment]:
    """The bar's parts, of a thousand."""
    parts: list[Segment] = []
    x = 0.0
    for key, badge in wording.RESULT_BADGES.items():
        width = 1000 * counts.of(key) / (counts.total or 1)
        if width and key != ItemResult.WAITING:
            parts.append(Segment(badge.colour, round(x, 1), round(width, 1)))
            x += width
    return parts


@dataclass(frozen=True)
class Tab:
    label: str
    url: str
    count: int
    is_current: bool
    badge: Badge | None = None


def _tabs(action: BulkAction, result: str) -> list[Tab]:
    counts = actions.counts(action)
    is_running = action.confirmed_at is not None and action.finished_at is None
    tabs = [Tab("All", "?#results", counts.total, not result)]
    for key, badge in wording.RESULT_BADGES.items():
        if counts.of(key) or key == result or is_running:
            tabs.append(Tab(badge.label, f"?result={key}#results", counts.of(key), key == result, badge))
    return tabs


@login_required
@require_safe
def action_live(request: SignedInRequest, action_id: str, public_id: str = "") -> HttpResponse:
    """What changed on the action's page: its progress, and the rows that the page shows, each in its place."""
    action = _action_or_404(request, public_id, action_id)
    context = _context(request, action)
    drawn = rows.shown(request.GET.get("rows", ""))
    changed = rows.changed(actions.items_at(action, rows.positions(drawn)), drawn)
    if request.GET.get("summary", "") == context["summary_revision"] and not changed:
        return HttpResponse(status=NOTHING_NEW)
    return render(request, "batches/bulk_action_live.html", context | {"changed_rows": changed, "is_fragment": True})


@login_required
@require_POST
def action_confirm(request: SignedInRequest, action_id: str, public_id: str = "") -> HttpResponse:
    action = _action_or_404(request, public_id, action_id)
    held = _refuse_unless_allowed(request, Verb(action.verb), action.workspace)
    try:
        bulk_actions.confirm(
            action,
            by=by(request),
            reason=typed(request.POST.get("reason"), REASON_MOST),
            typed=request.POST.get("typed", "")[:20],
            now=timezone.now(),
            asked=_asked(held),
        )
    except Refused as refused:
        return _page(request, action, error=refused.words, status=422)
    return redirect(actions.address(action))


@login_required
@require_POST
def action_abort(request: SignedInRequest, action_id: str, public_id: str = "") -> HttpResponse:
    """End it, planned or running; what was done stays done."""
    action = _action_or_404(request, public_id, action_id)
    held = _refuse_unless_allowed(request, Verb(action.verb), action.workspace)
    was_planned = action.confirmed_at is None
    if not bulk_actions.abort(action, by=by(request), now=timezone.now()):
        messages.info(request, "It had ended before.")
    elif was_planned:
        messages.info(request, "The plan was given up; nothing was done.")
        return redirect(_origin(action, held).url)
    return redirect(actions.address(action))


@login_required
@require_safe
def action_items(request: SignedInRequest, action_id: str, public_id: str = "") -> HttpResponseBase:
    """Every document of the action with its result, as CSV."""
    action = _action_or_404(request, public_id, action_id)
    refuse_without(request, rights.EXPORT, action.workspace)
    about = {"verb": action.verb, **({"batch": action.batch.public_id} if action.batch else {})}
    record(request, "download_bulk_action", f"bulk action {action.public_id}", action.workspace, **about)
    lines = results.csv_lines(actions.EXPORT_COLUMNS, actions.export_rows(action))
    response = StreamingHttpResponse((line.encode() for line in lines), content_type="text/csv; charset=utf-8")
    name = f"{filenames.safe_stem(actions.where(action), limit=60)}-{action.verb}-{action.public_id}.csv"
    response["Content-Disposition"] = filenames.content_disposition(name)
    response["X-Content-Type-Options"] = "nosniff"
    response["Cache-Control"] = "private, no-store"
    return response


@login_required
@require_safe
def action_list(request: SignedInRequest, public_id: str) -> HttpResponse:
    """The bulk actions of a batch, newest first."""
    batch = batch_or_404(request.user, public_id)
    reads_content = rights.may(request.user, rights.VIEW_CONTENT, batch.workspace)
    before = cursors.number(request.GET.get("before"))
    page = actions.actions_page(batch, before=before, reads_content=reads_content)
    older = f"?before={page.after}" if page.after else ""
    context = {"batch": batch, "page": page, "older": older, "nav": "batches"}
    return render(request, "batches/bulk_actions.html", context)
