"""The staff's help: its topics, and one of them. The drawer of a page loads the same address."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from batches import help as texts
from batches import rights, wording
from batches.engine.verbs import NEEDS_REASON, PRICES
from batches.models import Role, Verb


@require_safe
@login_required
def help_index(request: HttpRequest) -> HttpResponse:
    return render(request, "batches/help_index.html", {"topics": texts.TOPICS, "nav": "help"})


@require_safe
@login_required
def help_topic(request: HttpRequest, name: str) -> HttpResponse:
    topic = texts.BY_NAME.get(name)
    if topic is None:
        raise Http404("No such help.")
    return render(request, "batches/help_topic.html", {"topic": topic, "nav": "help", **facts()})


def facts() -> dict[str, Any]:
    """What the texts say of states, verbs and failures, from where it is decided."""
    return {
        "groups": wording.GROUP_BADGES.values(),
        "batch_states": wording.BATCH_BADGES.values(),
        "job_states": [
            badge for state, badge in wording.JOB_BADGES.items() if badge.colour not in ("saved", "stopped")
        ],
        "verbs": _verbs(),
        "failures": [(label, wording.WHAT_TO_DO[key]) for key, label in wording.FAILURE_LABELS.items()],
    }


def _verbs() -> list[dict[str, Any]]:
    """Each verb with its price, from whom it is asked and what it does."""
    least = {right.name: right.least for right in rights.TABLE}
    return [
        {
            "label": verb.label,
            "price": PRICES[verb].value.capitalize(),
            "meaning": wording.VERB_MEANINGS[verb],
            "who": f"{Role(least[verb]).label} or higher",
            "asks_why": verb in NEEDS_REASON,
        }
        for verb in Verb
    ]
