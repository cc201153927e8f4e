"""The staff's help: its topics, and one of them. The drawer of a page loads the same address."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from batches import help as texts
from batches import wording


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
    context = {
        "topic": topic,
        "nav": "help",
        "groups": wording.GROUP_BADGES.values(),
        "batch_states": wording.BATCH_BADGES.values(),
        "job_states": [
            badge for state, badge in wording.JOB_BADGES.items() if badge.colour not in ("saved", "stopped")
        ],
        "failures": [(label, wording.WHAT_TO_DO[key]) for key, label in wording.FAILURE_LABELS.items()],
    }
    return render(request, "batches/help_topic.html", context)
