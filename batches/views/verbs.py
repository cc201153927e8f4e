"""Verbs on the document page: what is offered with its price or its refusal, and applying one to its items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.db.models import F, QuerySet
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST

from batches import rights
from batches.engine import applying, latewatch, standings, verbs
from batches.engine.orders import Order
from batches.engine.verbs import Answer, Asked
from batches.models import BatchItem, Document, ItemResult, JobEvent, Verb
from batches.views.access import SignedInRequest, batch_or_404, by, document_or_404, typed

NO_RIGHT = "Your role in this workspace does not allow it."
#: Verbs with a page of their own, to which the panel leads; the others it applies itself.
PAGES: Mapping[Verb, str] = {
    Verb.REGENERATE: "batches:document_regenerate",
    Verb.RECONCILE: "batches:document_reconcile",
}
OFFERED = tuple(verb for verb in Verb if verb not in PAGES)
#: Verbs that lead out of a failure, as its banner names them; Dismiss and Cancel give it up.
WAYS_OUT = (Verb.CHECK_AGAIN, Verb.FETCH_AGAIN, Verb.RETRY, Verb.RECONCILE, Verb.REGENERATE)
REASON_CHARACTERS_MOST = 1000
#: How long the page looks for the answer that a person asked for.
ANSWER_WITHIN = timedelta(seconds=60)


@dataclass(frozen=True)
class Offer:
    """One verb as a button, or as a link where it has a page: `refusal` says why it is disabled, `to_confirm` what has
    to be accepted first."""

    verb: Verb
    price: str
    refusal: str
    to_confirm: str
    needs_reason: bool
    page: str = ""

    @property
    def label(self) -> str:
        return str(self.verb.label)


@login_required
@require_POST
def document_verb(request: SignedInRequest, public_id: str, verb: str) -> HttpResponse:
    """Apply one verb to the items of the document's current version, or to that of `?batch=` alone.

    Not those with a page of their own, which knows what a person looked at: a second press here would bill again.
    """
    document = document_or_404(request.user, public_id)
    if verb not in OFFERED or verb not in applying.APPLY:
        raise Http404("There is no such verb, or it has a page of its own.")
    wanted = Verb(verb)
    if not rights.may(request.user, wanted, document.workspace):
        raise PermissionDenied(f"{wanted.label}: {NO_RIGHT}")
    items = items_of(document)
    if batch_id := typed(request.GET.get("batch"), 100):
        items = items.filter(batch=batch_or_404(request.user, batch_id))
    order = Order(
        by(request),
        reason=typed(request.POST.get("reason"), REASON_CHARACTERS_MOST),
        is_confirmed="confirmed" in request.POST,
        may_regenerate_final=rights.may(request.user, rights.REGENERATE_FINAL, document.workspace),
    )
    ids = list(items.values_list("pk", flat=True))
    results = applying.apply(wanted, ids, order=order, now=timezone.now())
    done = any(result.is_done for result in results.values())
    told = Counter((result.result, result.words) for result in results.values())
    for (result, words), count in told.items():
        if done and result == ItemResult.SKIPPED:
            continue  # of a document that is in several batches, what could be done is done
        in_how_many = f" (in {count:,} batches)" if count > 1 else ""
        tell = messages.info if result == ItemResult.DONE else messages.error
        tell(request, f"{wanted.label}{in_how_many}: {words}")
    if not results:
        messages.error(request, f"{wanted.label}: no batch has this version of the document.")
    return redirect("batches:document_detail", public_id)


def items_of(document: Document) -> QuerySet[BatchItem]:
    """The items that name the document's current version."""
    return BatchItem.objects.filter(document=document, version=F("document__current_version"))


def offers(request: SignedInRequest, document: Document, *, now: datetime) -> list[Offer]:
    """Every verb. The page of Regenerate takes other content as well."""
    found = standings.of_items(items_of(document).order_by("-batch"))
    held = rights.rights(request.user, document.workspace)
    asked = Asked(has_new_input=True, may_regenerate_final=rights.REGENERATE_FINAL in held)
    all_of_them = []
    for verb in Verb:
        answers = [verbs.answer(verb, standing, now=now, asked=asked) for standing in found.values()]
        page = reverse(PAGES[verb], args=[document.public_id]) if verb in PAGES else ""
        all_of_them.append(_offer(verb, answers, has_right=verb in held, page=page))
    return all_of_them


def allowed(offered: Sequence[Offer], suggested: Verb | None) -> list[Offer]:
    """Those that may be applied now: what is mostly right first, then those that lead out of a failure."""
    order = [*WAYS_OUT, *(verb for verb in Verb if verb not in WAYS_OUT)]
    may = [offer for offer in offered if not offer.refusal]
    return sorted(may, key=lambda offer: (offer.verb != suggested, order.index(offer.verb)))


def refused(offered: Sequence[Offer]) -> list[tuple[str, list[Offer]]]:
    """The others, by the sentence that refuses them."""
    told: dict[str, list[Offer]] = {}
    for offer in offered:
        if offer.refusal:
            told.setdefault(offer.refusal, []).append(offer)
    return list(told.items())


def _offer(verb: Verb, answers: Sequence[Answer], *, has_right: bool, page: str) -> Offer:
    """Of several items, the first that it may be applied to speaks for it, else the newest batch's says why not."""
    none = Answer(None, "No batch has this version of the document.")
    best = next((answer for answer in answers if answer.allowed), answers[0] if answers else none)
    refusal = best.words if not best.allowed else "" if has_right else NO_RIGHT
    price = best.price or verbs.PRICES[verb]
    return Offer(verb, price.value, refusal, best.to_confirm, verb in verbs.NEEDS_REASON, page)


def waits_for_answer(events: Iterable[JobEvent], *, now: datetime) -> bool:
    """Whether somebody has just asked the provider (Check again), and the answer is not there yet, by the newest events
    of the job, the last one first."""
    reasons = (Verb.CHECK_AGAIN.value, latewatch.ANSWERED)
    last = next((event for event in events if event.reason in reasons), None)
    return last is not None and last.reason == Verb.CHECK_AGAIN and last.at > now - ANSWER_WITHIN
