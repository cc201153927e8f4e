"""The pages of a draft: source, map, check and run on one page, and the list of drafts.

Every step saves what it holds in the draft, which has an address until it is started or over. What is chosen, checked
and started is `engine/drafts.py` and `engine/checking.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, BinaryIO

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.forms import Form
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from batches import selectors, storage, uploads
from batches.engine import drafts, pumping
from batches.engine.drafts import Changes, Refused, Run, Upload
from batches.forms import CheckForm, RunForm, account_for
from batches.models import WORKING_STATES, Batch, Draft, DraftState
from batches.storage import StoreError
from batches.views import steps
from batches.views.access import SignedInRequest, by, typed

log = logging.getLogger(__name__)

NOT_YOURS = "Only who uploaded the file may change or start its draft. Upload it yourself to make a batch of it."
NO_ROLE = "You may no longer start a batch in this workspace. Ask an administrator for the role Operator."
FIELD_MOST = 500
LIVE_SECONDS = 1


def draft_or_404(request: SignedInRequest, public_id: str) -> Draft:
    draft = uploads.visible_drafts(request.user).filter(public_id=public_id).first()
    if draft is None:
        raise Http404("No such draft.")
    return draft


def own_draft_or_refuse(request: SignedInRequest, public_id: str) -> Draft:
    """The draft for a change of it. Somebody else's is refused with a sentence."""
    draft = draft_or_404(request, public_id)
    if not uploads.may_change(request.user, draft):
        raise PermissionDenied(NO_ROLE if draft.created_by_id == request.user.pk else NOT_YOURS)
    return draft


# --- looking --------------------------------------------------------------------------------------------------------


@login_required
@require_safe
def draft_list(request: SignedInRequest) -> HttpResponse:
    """Uploads that are not started yet, newest first; what is over on a tab of its own."""
    is_over = request.GET.get("view") == "over"
    after, before = request.GET.get("after", ""), request.GET.get("before", "")
    page = uploads.drafts_page(request.user, is_over=is_over, after=after, before=before)
    view = "view=over&" if is_over else ""
    context = {
        "page": page,
        "is_over": is_over,
        "may_start": selectors.writable_workspaces(request.user).exists(),
        "newer": f"?{view}before={page.before}" if page.before else "",
        "older": f"?{view}after={page.after}" if page.after else "",
        "kept_days": drafts.KEPT.days,
        "nav": "batches",
    }
    return render(request, "batches/draft_list.html", context)


@login_required
@require_safe
def draft_detail(request: SignedInRequest, public_id: str) -> HttpResponse:
    return page(request, draft_or_404(request, public_id))


def page(
    request: SignedInRequest,
    draft: Draft,
    *,
    words: str = "",
    typed_run: Mapping[str, Any] | None = None,
    status: int = 200,
) -> HttpResponse:
    """The four steps of a draft. `words` say why what was asked for was not done."""
    context = steps.context(draft, may_change=uploads.may_change(request.user, draft), typed_run=typed_run)
    context |= {"words": words or draft.words, "live_url": reverse("batches:draft_live", args=[draft.public_id])}
    context |= {"poll_seconds": LIVE_SECONDS, "nav": "batches"}
    return render(request, "batches/draft_detail.html", context, status=status)


@login_required
@require_safe
def draft_live(request: SignedInRequest, public_id: str) -> HttpResponse:
    """How far the worker is; once it is done, the page is asked for again."""
    draft = draft_or_404(request, public_id)
    live_url = reverse("batches:draft_live", args=[draft.public_id])
    if draft.state in WORKING_STATES:
        context = {"draft": draft, "progress": steps.progress(draft), "live_url": live_url}
        return render(request, "batches/_draft_progress.html", context | {"poll_seconds": LIVE_SECONDS})
    answer = HttpResponse(status=200)
    made = made_of(draft)
    if made is not None:
        answer["HX-Redirect"] = reverse("batches:batch_detail", args=[made.public_id])
    else:
        answer["HX-Refresh"] = "true"
    return answer


# --- changing -------------------------------------------------------------------------------------------------------


@login_required
@require_POST
def draft_choose(request: SignedInRequest, public_id: str) -> HttpResponse:
    """Take over what a step's form holds, look again, and check where that was asked for and nothing is open."""
    draft = own_draft_or_refuse(request, public_id)
    step = request.POST.get("step", "")
    changes, words = _changes(request, draft, step)
    if words:
        return page(request, draft, words=words, status=422)
    try:
        draft = drafts.choose(draft.pk, changes, by=by(request), now=timezone.now())
        draft = _looked_again(draft)
        if request.POST.get("then") == "check" and draft.state == DraftState.OPEN:
            if steps.open_questions(draft):
                return page(request, draft, words=steps.ANSWER_FIRST, status=422)
            draft = _checked(draft)
    except (Refused, StoreError) as error:
        return page(request, _fresh(request, draft), words=error.words, status=422)
    return redirect(_address(draft, step))


def _changes(request: SignedInRequest, draft: Draft, step: str) -> tuple[Changes, str]:
    """What the form of a step says, and why it cannot be taken; only fields that it has are changed."""
    sent = {name: typed(request.POST.get(name), FIELD_MOST) for name in request.POST}
    if step == "source":
        return Changes(choices=steps.source_choices(sent)), ""
    if step == "map":
        choices, words = steps.map_choices(draft, sent)
        return Changes(choices=choices), words
    if step == "check":
        form = CheckForm(request.POST)
        if not form.is_valid():
            return Changes(), "Choose what happens to those rows again."
        chosen = form.cleaned_data
        return Changes(on_conflict=chosen["on_conflict"] or None, take=chosen["take"] or None), ""
    if step == "account":
        account = account_for(draft, sent.get("account", ""))
        return Changes(account=account), "" if account else "That account is not there any more. Choose another one."
    return Changes(), "The form did not arrive whole. Try again."


@login_required
@require_POST
def draft_check(request: SignedInRequest, public_id: str) -> HttpResponse:
    """Check it as it is chosen."""
    draft = own_draft_or_refuse(request, public_id)
    if draft.state in drafts.CHANGEABLE and steps.open_questions(draft):
        return page(request, draft, words=steps.ANSWER_FIRST, status=422)
    try:
        draft = _checked(draft)
    except Refused as refused:
        return page(request, _fresh(request, draft), words=refused.words, status=422)
    return redirect(_address(draft, "check"))


@login_required
@require_POST
def draft_start(request: SignedInRequest, public_id: str) -> HttpResponse:
    """Start what was checked, once: a second press, another tab or Back leads to the batch that the first one made."""
    draft = own_draft_or_refuse(request, public_id)
    made = made_of(draft)
    if made is not None:
        return redirect("batches:batch_detail", made.public_id)
    form = RunForm(request.POST)
    if not form.is_valid():
        words = " ".join(f"{form.fields[name].label or name}: {errors[0]}" for name, errors in form.errors.items())
        return page(request, draft, words=words, typed_run=request.POST, status=422)
    chosen = form.cleaned_data
    run = Run(
        generation=chosen["generation"],
        renders_shown=chosen["renders"],
        is_confirmed=chosen["confirmed"],
        name=chosen["name"],
        sample_size=chosen["sample_size"] or 0,
        stop_after_failures=chosen["stop_after_failures"],
        spend_cap=chosen["spend_cap"],
        wants_notices=chosen["wants_notices"],
    )
    try:
        draft = drafts.ask_start(draft.pk, run, by=by(request), now=timezone.now())
    except Refused as refused:
        return page(request, _fresh(request, draft), words=refused.words, typed_run=request.POST, status=422)
    pumping.work_on_small(draft)
    draft = _fresh(request, draft)
    made = made_of(draft)
    if made is not None:
        return redirect("batches:batch_detail", made.public_id)
    return redirect("batches:draft_detail", draft.public_id)


def made_of(draft: Draft) -> Batch | None:
    """What a start of it made, or whose rows it replaced."""
    return (draft.batch or draft.target) if draft.state == DraftState.STARTED else None


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def draft_discard(request: SignedInRequest, public_id: str) -> HttpResponse:
    """What would be lost, and the button that does it; a draft that is over has nothing to lose."""
    draft = own_draft_or_refuse(request, public_id)
    if request.method != "POST":
        if draft.state not in drafts.CHANGEABLE:
            return redirect("batches:draft_detail", draft.public_id)
        context = {"draft": draft, "title": draft.name or draft.filename, "nav": "batches"}
        return render(request, "batches/draft_discard.html", context)
    store = storage.open_store(settings.STORAGE_URL)
    try:
        is_done = drafts.discard(draft.pk, by=by(request), store=store, now=timezone.now())
    except Refused as refused:
        return page(request, _fresh(request, draft), words=refused.words, status=422)
    messages.info(request, "The draft and its file were discarded." if is_done else "It was over before.")
    return redirect("batches:draft_list")


# --- in the request -------------------------------------------------------------------------------------------------


def received(request: SignedInRequest, upload: Upload, form: Form) -> Draft | None:
    """The draft that an upload became; None where the store cannot keep the file, which the form says then."""
    store = storage.open_store(settings.STORAGE_URL)
    try:
        return drafts.receive(upload, by=by(request), store=store, now=timezone.now())
    except StoreError as error:
        log.warning("an upload could not be stored: %s", error)
        form.add_error(None, f"The file could not be stored. {error.words} Try again in a moment.")
        return None


def look_and_check(draft: Draft, stream: BinaryIO) -> Draft:
    """What follows an upload: its head is looked at; where that leaves no question, it is checked."""
    draft = drafts.look(draft, stream, now=timezone.now())
    if draft.state == DraftState.OPEN and not steps.open_questions(draft):
        draft = _checked(draft)
    return draft


def _looked_again(draft: Draft) -> Draft:
    """The head with the choices as they are now. Store errors pass."""
    store = storage.open_store(settings.STORAGE_URL)
    with store.open(draft.upload_key) as stream:
        return drafts.look(draft, stream, now=timezone.now())


def _checked(draft: Draft) -> Draft:
    """Ask for the check; a small file is checked here and now."""
    draft = drafts.ask_check(draft.pk, now=timezone.now())
    pumping.work_on_small(draft)
    return draft


def _fresh(request: SignedInRequest, draft: Draft) -> Draft:
    return draft_or_404(request, draft.public_id)


def _address(draft: Draft, step: str) -> str:
    path = reverse("batches:draft_detail", args=[draft.public_id])
    return f"{path}#{'run' if step == 'account' else step}" if step in steps.ANCHORS else path
