"""Verbs in the admin: each only makes a plan of the ticked rows and leads to it, on the product's own page.

Nothing is done, and nothing can be billed, before somebody has read that plan and confirmed it there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.crypto import get_random_string

from batches import rights
from batches.actions import TICKED_MOST, Chosen
from batches.engine import applying, bulk_actions
from batches.engine.bulk_actions import Refused
from batches.engine.verbs import Asked
from batches.models import Batch, BatchItem, Verb
from batches.views.access import by

ONE_BATCH = "Tick rows of one batch only: a plan is about one. Search for the batch's id first."
TOO_MANY = f"Tick at most {TICKED_MOST} rows. More are planned on the page of the batch, by a state or a cause."
Planner = Callable[[Any, HttpRequest, QuerySet[Any]], HttpResponse | None]


def plan_items(model_admin: Any, request: HttpRequest, verb: Verb, ticked: QuerySet[BatchItem]) -> HttpResponse | None:
    """A plan over the ticked items of one batch."""
    places = list(ticked.order_by().values_list("batch", "position")[: TICKED_MOST + 1])
    if len(places) > TICKED_MOST:
        return _refused(model_admin, request, TOO_MANY)
    if len({batch for batch, _ in places}) != 1:
        return _refused(model_admin, request, ONE_BATCH)
    batch = Batch.objects.select_related("workspace", "account").get(pk=places[0][0])
    return _planned(model_admin, request, batch, verb, Chosen(rows=tuple(sorted(row for _, row in places))))


def plan_failed(model_admin: Any, request: HttpRequest, batches: QuerySet[Batch]) -> HttpResponse | None:
    """A plan to retry what failed of one batch."""
    two = list(batches.select_related("workspace", "account")[:2])
    if len(two) != 1:
        return _refused(model_admin, request, ONE_BATCH)
    return _planned(model_admin, request, two[0], Verb.RETRY, Chosen(group="failed"))


def _planned(model_admin: Any, request: HttpRequest, batch: Batch, verb: Verb, chosen: Chosen) -> HttpResponse | None:
    held = rights.rights(request.user, batch.workspace)
    if verb not in held:
        return _refused(
            model_admin, request, f"Your role does not allow you to {verb.label.lower()} in this workspace."
        )
    try:
        action = bulk_actions.plan(
            batch,
            verb,
            chosen.matching(batch, reads_content=rights.VIEW_CONTENT in held),
            chosen_by=chosen.as_dict(),
            by=by(request),
            creation_key=get_random_string(32),
            now=timezone.now(),
            asked=Asked(may_regenerate_final=rights.REGENERATE_FINAL in held),
        )
    except Refused as refused:
        return _refused(model_admin, request, refused.words)
    return redirect("batches:action_detail", batch.public_id, action.public_id)


def _refused(model_admin: Any, request: HttpRequest, words: str) -> HttpResponse | None:
    """Nothing was planned; the list is shown again with the words."""
    model_admin.message_user(request, words, messages.ERROR)
    return None


def _action(verb: Verb) -> Planner:
    @admin.action(description=f"Plan: {verb.label}", permissions=["view"])
    def plan(model_admin: Any, request: HttpRequest, ticked: QuerySet[Any]) -> HttpResponse | None:
        return plan_items(model_admin, request, verb, ticked)

    plan.__name__ = f"plan_{verb.value}"
    return plan


#: One for each verb that many documents can have, in the order of the page.
ITEM_ACTIONS: tuple[Planner, ...] = tuple(_action(verb) for verb in Verb if verb in applying.APPLY)


@admin.action(description="Plan: Retry what failed of the batch", permissions=["view"])
def plan_retry_of_failed(model_admin: Any, request: HttpRequest, batches: QuerySet[Batch]) -> HttpResponse | None:
    return plan_failed(model_admin, request, batches)
