"""Everything that needs a person, over all batches: the list with its causes and filters, its plan, and as CSV.

What is listed is `failedlist.py`. Planned is one bulk action over several batches of one workspace: what people may do
and what it costs is a workspace's, so nothing is planned across two.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import urlencode

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

from batches import actions, failedlist, results, rights, savedviews, selectors, wording
from batches.engine import applying, bulk_actions, verbs
from batches.engine.bulk_actions import Refused
from batches.engine.verbs import Asked
from batches.failedlist import AGES, Cause, Wanted
from batches.models import Batch, ProviderAccount, Verb, ViewPage, Workspace
from batches.views import filters as filtering
from batches.views import rows
from batches.views.access import SignedInRequest, by, record, typed
from batches.views.bulk_actions import chosen_account

FIELD_MOST = 20_000
NOTHING_NEW = 204  # htmx swaps nothing
POLL_SECONDS = 5


@dataclass(frozen=True)
class CauseCard:
    """A cause of one workspace with the verb that is suggested. `refusal`: why this person may not press it;
    `whom_to_ask`: said in place of verb and advice to whoever may apply none."""

    cause: Cause
    workspace: Workspace
    label: str = ""
    price: str = ""
    refusal: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    whom_to_ask: str = ""

    @property
    def query(self) -> str:
        return urlencode(self.fields)


def cards(
    shown: Iterable[Cause], workspaces: Mapping[int, Workspace], held: Mapping[int, Collection[str]], wanted: Wanted
) -> list[CauseCard]:
    """One per cause, in their order; `wanted` are the filters under which it is shown."""
    return [_card(cause, workspaces[cause.workspace_id], held[cause.workspace_id], wanted) for cause in shown]


def _card(cause: Cause, workspace: Workspace, held: Collection[str], wanted: Wanted) -> CauseCard:
    fields = wanted.filters | {"workspace": workspace.slug, "cause": cause.key}
    verb, ask = cause.suggested, rights.whom_to_ask(held, workspace)
    if ask or verb is None or not cause.key:
        return CauseCard(cause, workspace, fields=fields, whom_to_ask=ask)
    refusal = "" if verb in held else rights.refusal(verb)
    price = verbs.price_of_many(verb, verbs.PRICES[verb].renders_most * cause.count)
    return CauseCard(cause, workspace, wording.verb_these(verb, cause.count), price, refusal, fields)


# --- the list -------------------------------------------------------------------------------------------------------


@login_required
@require_safe
def failed_list(request: SignedInRequest) -> HttpResponse:
    visible = _visible(request)
    wanted = Wanted.of(request.GET.dict())
    now, asked = timezone.now(), replace(wanted, items=())
    found = failedlist.matching(_query(visible), asked, now=now)
    held = rights.by_workspace(request.user, visible.values())
    reading = [key for key, rights_there in held.items() if rights.VIEW_CONTENT in rights_there]
    after, before = request.GET.get("after", ""), request.GET.get("before", "")
    page = failedlist.page(found, reading=reading, after=after, before=before)
    causes = failedlist.causes(_query(visible), asked, now=now) if page.rows else failedlist.Causes()
    accounts = list(selectors.usable_accounts(_query(visible)))
    words = _in_words(wanted, visible, accounts, causes)
    path = reverse("batches:failed_list")
    shown = causes.all if request.GET.get("causes") == "all" else causes.all[: failedlist.CAUSES_SHOWN]
    context = {
        "page": page,
        "wanted": wanted,
        "causes": causes,
        "cards": cards(shown, visible, held, wanted),
        "more_causes": len(causes.all) - len(shown),
        "all_causes_url": _with(path, wanted, causes="all"),
        "bar": _bar(wanted, causes, visible, held),
        "chips": filtering.chips(path, wanted.filters, words),
        "asked_words": filtering.in_words(list(words.values())),
        "pager": filtering.around(path, wanted.filters, page),
        "csv_url": _with(reverse("batches:failed_csv"), wanted),
        "may_export": any(rights.EXPORT in each for each in held.values()),
        "workspaces": list(visible.values()),
        "accounts": accounts,
        "verbs": wording.helping_verbs(),
        "ages": [(key, words) for key, (words, _least, _most) in AGES.items()],
        "saved": savedviews.of(request.user, ViewPage.FAILED, wanted.filters),
        "shows_workspace": len(visible) > 1,
        "form_key": get_random_string(32),
        "is_live": bool(page.rows),
        "live_url": reverse("batches:failed_live"),
        "poll_seconds": POLL_SECONDS,
        "nav": "failed",
    }
    return render(request, "batches/failed_list.html", context)


@login_required
@require_safe
def failed_live(request: SignedInRequest) -> HttpResponse:
    """The rows that changed since the page drew them, in place; one that was repaired stays, and says so."""
    drawn = rows.shown(request.GET.get("rows", ""))
    visible, reading = selectors.visible_workspaces(request.user), _reading(request)
    now = failedlist.rows_at(visible, rows.positions(drawn), reading=reading)
    changed = rows.changed(now, drawn)
    if not changed:
        return HttpResponse(status=NOTHING_NEW)
    return render(request, "batches/failed_list_live.html", {"rows": changed, "ticks": True})


def _reading(request: SignedInRequest) -> list[int]:
    """The workspaces whose content this person may see."""
    return list(rights.workspaces(request.user, rights.VIEW_CONTENT).values_list("pk", flat=True))


def _visible(request: SignedInRequest) -> dict[int, Workspace]:
    return {each.pk: each for each in selectors.visible_workspaces(request.user).order_by("name", "pk")}


def _query(visible: Mapping[int, Workspace]) -> QuerySet[Workspace]:
    """They were asked for once."""
    return Workspace.objects.filter(pk__in=list(visible))


def _with(path: str, wanted: Wanted, **further: str) -> str:
    return filtering.with_query(path, wanted.filters, **further)


def _named(
    wanted: Wanted, visible: Mapping[int, Workspace], accounts: Iterable[ProviderAccount], causes: failedlist.Causes
) -> Wanted:
    """With its filters in words."""
    return replace(wanted, named=tuple(_in_words(wanted, visible, accounts, causes).values()))


def _in_words(
    wanted: Wanted, visible: Mapping[int, Workspace], accounts: Iterable[ProviderAccount], causes: failedlist.Causes
) -> dict[str, str]:
    """Each filter as a chip says it, by its name in the address."""
    workspaces = {each.slug: each.name for each in visible.values()}
    slugs = {each.slug: each.name for each in accounts}
    said = {}
    if wanted.workspace:
        said["workspace"] = f"Workspace: {workspaces.get(wanted.workspace, wanted.workspace)}"
    if wanted.account:
        said["account"] = f"Account: {slugs.get(wanted.account, wanted.account)}"
    if wanted.batch:
        mine = Batch.objects.filter(public_id=wanted.batch, workspace__in=list(visible))
        said["batch"] = f"Batch: {mine.values_list('name', flat=True).first() or wanted.batch}"
    if wanted.cause:
        said["cause"] = f"Cause: {causes.title_of(wanted.cause) or 'one cause'}"
    if wanted.helps:
        said["helps"] = f"Helps: {Verb(wanted.helps).label}"
    if wanted.age:
        said["age"] = AGES[wanted.age][0]
    return said


@dataclass(frozen=True)
class Choice:
    verb: Verb
    is_selected: bool

    @property
    def price(self) -> verbs.Price:
        return verbs.PRICES[self.verb]


@dataclass(frozen=True)
class Bar:
    """What can be done with many. `refusal`: why not with all that match; ticked ones are another matter."""

    matching: int
    choices: list[Choice]
    refusal: str


def _bar(
    wanted: Wanted, causes: failedlist.Causes, visible: Mapping[int, Workspace], held: Mapping[int, Collection[str]]
) -> Bar | None:
    """None for those who may do nothing here."""
    concerned = causes.workspace_ids
    may = [verb for verb in applying.APPLY if any(verb in held[key] for key in concerned)]
    if not may:
        return None
    suggested = {cause.suggested for cause in causes.all}
    chosen = Verb(wanted.helps) if wanted.helps else suggested.pop() if len(suggested) == 1 else None
    refusal = ""
    if len(concerned) > 1:
        names = " and ".join(sorted(visible[key].name for key in concerned)[:4])
        refusal = f"They are of {len(concerned)} workspaces ({names}). Choose one of them: a plan is made for one."
    return Bar(causes.count, [Choice(verb, verb == chosen) for verb in Verb if verb in may], refusal)


# --- planning -------------------------------------------------------------------------------------------------------


@login_required
@require_POST
def failed_plan(request: SignedInRequest) -> HttpResponse:
    """Freeze what the filters match, or the ticked rows, and lead to the plan. Nothing is done yet."""
    verb = actions.verb_of(request.POST.get("verb", ""))
    if verb is None or verb not in applying.APPLY:
        raise Http404("No such verb for many documents.")
    ticked = "" if request.POST.get("all") else ",".join(request.POST.getlist("items"))
    given = {name: typed(text, FIELD_MOST) for name, text in {**request.POST.dict(), "items": ticked}.items()}
    wanted = Wanted.of(given)
    back = _with(reverse("batches:failed_list"), wanted)
    if words := failedlist.misread(given):
        messages.error(request, words)
        return redirect("batches:failed_list")
    if not ticked and not request.POST.get("all"):
        messages.error(request, "Tick rows of the list first, or plan for all that match.")
        return redirect(back)
    now, visible = timezone.now(), _visible(request)
    found = failedlist.matching(_query(visible), wanted, now=now)
    concerned = list(found.order_by().values_list("batch__workspace", flat=True).distinct())
    if len(concerned) != 1:
        words = "They are of several workspaces; choose one." if concerned else bulk_actions.NOTHING_MATCHES
        messages.error(request, words)
        return redirect(back)
    workspace = visible[concerned[0]]
    held = rights.rights(request.user, workspace)
    if verb not in held:
        words = f"Your role does not allow you to {verb.label.lower()} here. Ask a manager of this workspace."
        raise PermissionDenied(words)
    try:
        account = chosen_account(request, verb, workspace)
    except Refused as refused:
        messages.error(request, refused.words)
        return redirect(back)
    accounts = selectors.usable_accounts(_query(visible)) if wanted.account else ()
    causes = failedlist.causes(_query(visible), wanted, now=now) if wanted.cause else failedlist.Causes()
    # A form without a key of its own has its CSRF token, which is new on each page: a second press is the same action.
    key = request.POST.get("key") or request.POST.get("csrfmiddlewaretoken") or get_random_string(32)
    try:
        action = bulk_actions.plan(
            workspace,
            verb,
            found,
            chosen_by=_named(wanted, visible, accounts, causes).kept(workspace),
            by=by(request),
            creation_key=f"{request.user.pk} failed {key} {verb} {sorted(wanted.as_dict().items())} {account}",
            now=now,
            asked=Asked(may_regenerate_final=rights.REGENERATE_FINAL in held),
            account=account,
        )
    except Refused as refused:
        messages.error(request, refused.words)
        return redirect(back)
    return redirect(actions.address(action))


# --- taking it away -------------------------------------------------------------------------------------------------


@login_required
@require_safe
def failed_csv(request: SignedInRequest) -> HttpResponseBase:
    """Every document that the filters leave, streamed; of the workspaces whose lists the person may take away."""
    allowed = rights.workspaces(request.user, rights.EXPORT)
    if not allowed.exists():
        raise PermissionDenied("Your role may not download lists. Ask a manager of your workspace.")
    wanted = replace(Wanted.of(request.GET.dict()), items=())
    chosen = allowed.filter(slug=wanted.workspace).first() if wanted.workspace else None
    record(request, "download_failed_list", "all batches", chosen, filters=wanted.filters)
    found = failedlist.matching(allowed, wanted, now=timezone.now())
    lines = results.csv_lines(failedlist.COLUMNS, failedlist.table(found, reading=_reading(request)))
    response = StreamingHttpResponse((line.encode() for line in lines), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = 'attachment; filename="needs-a-person.csv"'
    response["X-Content-Type-Options"] = "nosniff"
    response["Cache-Control"] = "private, no-store"
    return response
