"""Pausing, resuming and cancelling a batch from its page: one page that says what each would do, with a reason."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from batches import figures, rights, selectors, wording
from batches.engine import running, samples
from batches.engine.errors import SpendCapReached
from batches.forms import spend_cap_field
from batches.models import Batch
from batches.views.access import SignedInRequest, batch_or_404, by, typed

REASON_CHARACTERS_MOST = 1000
#: What may be asked for, with the right that it needs and the engine's function.
VERBS: dict[str, tuple[str, Callable[..., bool]]] = {
    "pause": (rights.PAUSE_BATCH, running.pause),
    "resume": (rights.PAUSE_BATCH, running.resume),
    "cancel": (rights.CANCEL_BATCH, running.cancel),
}
DONE = {
    "pause": "Paused: nothing new of it is sent; what the provider has is still saved.",
    "resume": "It goes on.",
    "cancel": "Cancelled: what was not sent is given up; what the provider has is still saved.",
}
NOTHING = {
    "pause": "It was paused, cancelled or over already; that stays as it is.",
    "resume": "It was not paused; nothing was changed.",
    "cancel": "It was cancelled or over already; nothing was changed.",
}
NO_RIGHT = "Your role in this workspace does not allow it. Ask an administrator of the workspace."


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def batch_running(request: SignedInRequest, public_id: str) -> HttpResponse:
    """The page, and on POST what `verb` asks for; pausing and cancelling need a reason."""
    batch = batch_or_404(request.user, public_id)
    held = rights.rights(request.user, batch.workspace)
    if not held & {rights.PAUSE_BATCH, rights.CANCEL_BATCH}:
        raise PermissionDenied(NO_RIGHT)
    if request.method != "POST":
        return _page(request, batch, held)
    verb = request.POST.get("verb", "")
    if verb not in VERBS:
        return _page(request, batch, held, error="Choose what to do: pause, resume or cancel.", status=422)
    right, function = VERBS[verb]
    if right not in held:
        raise PermissionDenied(NO_RIGHT)
    reason = typed(request.POST.get("reason"), REASON_CHARACTERS_MOST)
    if not reason and verb != "resume":
        return _page(request, batch, held, error="Say why; the words are kept with what was done.", status=422)
    is_over = selectors.progress(batch).state in wording.ENDED_STATES
    try:
        more = {"spend_cap": _new_cap(request, batch)} if verb == "resume" else {}
        is_done = not is_over and function(batch.pk, reason=reason, by=by(request), now=timezone.now(), **more)
    except SpendCapReached as reached:
        return _page(request, batch, held, error=reached.words, status=422)
    if is_done:
        messages.info(request, DONE[verb])
    else:
        messages.error(request, NOTHING[verb])
    return redirect("batches:batch_detail", batch.public_id)


@login_required
@require_POST
def batch_release(request: SignedInRequest, public_id: str) -> HttpResponse:
    """Somebody has looked at the sample: the batch goes on."""
    batch = batch_or_404(request.user, public_id)
    if rights.PAUSE_BATCH not in rights.rights(request.user, batch.workspace):
        raise PermissionDenied(NO_RIGHT)
    try:
        is_done = samples.release(batch.pk, by=by(request), now=timezone.now())
    except SpendCapReached as reached:
        messages.error(request, reached.words)
        return redirect("batches:batch_running", batch.public_id)
    if is_done:
        messages.info(request, wording.RELEASED)
    else:
        messages.error(request, "It does not wait for its release; nothing was changed.")
    return redirect("batches:batch_detail", batch.public_id)


def _new_cap(request: SignedInRequest, batch: Batch) -> Decimal | None:
    """The cap that somebody typed; None where it stays. Raises `SpendCapReached` for what is no amount."""
    words = typed(request.POST.get("spend_cap"), 40)
    if not words or batch.spend_cap is None:
        return None
    try:
        return spend_cap_field().clean(words)  # type: ignore[no-any-return] # a Decimal
    except ValidationError as error:
        raise SpendCapReached(f"The new spend cap cannot be taken: {' '.join(error.messages)}") from error


def _page(
    request: SignedInRequest, batch: Batch, held: frozenset[str], *, error: str = "", status: int = 200
) -> HttpResponse:
    progress = selectors.progress(batch)
    states = progress.in_progress_states
    unsent = progress.counts.held + states.get("pending", 0)
    context = {
        "batch": batch,
        "is_over": progress.state in wording.ENDED_STATES,
        "unsent": figures.documents(unsent),
        "at_provider": figures.documents(progress.counts.in_progress - states.get("pending", 0)),
        "cap": "" if batch.spend_cap is None else figures.money(batch.spend_cap, batch.account.price_currency),
        "chosen_cancel": (request.POST or request.GET).get("verb") == "cancel",
        "typed_cap": typed(request.POST.get("spend_cap"), 40),
        "may_pause": rights.PAUSE_BATCH in held,
        "may_cancel": rights.CANCEL_BATCH in held,
        "reason": typed(request.POST.get("reason"), REASON_CHARACTERS_MOST),
        "error": error,
        "nav": "batches",
    }
    return render(request, "batches/batch_running.html", context, status=status)
