"""The health of the installation as a page: whether documents move, who works on them, what the sweeps found, what is
amiss and what to do. `/healthz` and `/readyz`, for machines, are `health.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from batches import attention, figures, rights, selectors, wording
from batches.engine import vitals, work
from batches.engine.vitals import Oldest, Pump, Schedule, StoreState
from batches.models import StoreSweep
from batches.views.access import SignedInRequest

REFUSAL = "The health page is for who works with batches. Ask an administrator for the role Operator."
POLL_SECONDS = 10
ALERTS_SHOWN = 20
#: With less room the store soon takes no PDF.
FREE_LEAST = 2 * 10**9
#: Documents that are due for longer, with nobody at work, wait for a worker that is not there.
DUE_LONG = timedelta(seconds=work.STILL_SECONDS)
#: What a pass of the sweep did, by the names of its report.
SWEPT: Mapping[str, str] = {
    "leases_cleared": "leases of dead workers cleared",
    "slots_cleared": "places of dead pumps cleared",
    "temporaries_removed": "half-written files removed",
    "late_downloads": "alerts about late downloads changed",
    "batches_stopped": "batches stopped by their own rule",
    "unneeded_ended": "documents ended that no batch needs",
    "notices_changed": "PDFs marked as worth a look, or no longer",
    "events_matched": "webhook events matched",
    "secrets_ended": "replaced webhook secrets ended",
    "silences_changed": "alerts about silent webhooks changed",
    "batches_given_up": "half-written batches given up",
    "drafts_swept": "forgotten uploads removed",
}


@dataclass(frozen=True)
class Trouble:
    """Something amiss, and what to do about it."""

    words: str
    what_to_do: str


@login_required
@require_safe
def vitals_page(request: SignedInRequest) -> HttpResponse:
    return render(request, "batches/vitals.html", _context(request))


@login_required
@require_safe
def vitals_live(request: SignedInRequest) -> HttpResponse:
    return render(request, "batches/vitals_live.html", _context(request) | {"is_fragment": True})


def _context(request: SignedInRequest) -> dict[str, Any]:
    user, now = request.user, timezone.now()
    if rights.VIEW_HEALTH not in rights.somewhere(user):
        raise PermissionDenied(REFUSAL)
    # What other workspaces do is not told: a superuser sees the installation, everybody else their part of it.
    mine = None if user.is_superuser else selectors.visible_workspaces(user)
    (pumps, leases), schedules, store = vitals.pumps(now=now), vitals.schedules(now=now), vitals.store()
    oldest, backlog = vitals.oldest_due(mine, now=now), vitals.backlog(now=now)
    saved = vitals.saved_per_minute(mine, now=now)
    alerts = attention.open_alerts(list(selectors.visible_workspaces(user)), most=ALERTS_SHOWN, with_held=True)
    troubles = _troubles(pumps, schedules, store, oldest, now=now)
    sweep, (walks, findings) = vitals.last_sweep(), vitals.store_sweeps()
    return {
        "nav": "vitals",
        "troubles": troubles,
        "alerts": alerts.shown,
        "more_alerts": alerts.more_count,
        "oldest": oldest,
        "oldest_age": figures.length((now - oldest.due_at).total_seconds()) if oldest else "",
        "saved": saved,
        "saved_total": sum(saved),
        "is_whole": mine is None,
        "pumps": pumps,
        "alive": sum(pump.is_alive for pump in pumps),
        "seen_at": max((pump.seen_at for pump in pumps if pump.seen_at), default=None),
        "leases": leases,
        "schedules": schedules,
        "backlog": backlog,
        "sweep": sweep,
        "swept": _swept(sweep.found if sweep else {}),
        "store": store,
        "store_sweeps": [(each, _walked(each)) for each in walks],
        "findings": findings,
        "database": vitals.database(),
        "is_live": True,
        "poll_seconds": POLL_SECONDS,
        "live_url": reverse("batches:vitals_live"),
    }


def _troubles(
    pumps: Sequence[Pump], schedules: Sequence[Schedule], store: StoreState, oldest: Oldest | None, *, now: datetime
) -> list[Trouble]:
    found = []
    if all(schedule.is_late for schedule in schedules):
        words = "No worker cluster is running: none has started what runs each minute."
        found.append(Trouble(words, f"{work.START_A_WORKER} Documents, sweeps and bulk actions wait until then."))
    elif late := [schedule.name for schedule in schedules if schedule.is_late]:
        words = f"Not started in time: {', '.join(late)}."
        found.append(
            Trouble(words, "Look at the cluster's log; `manage.py bootstrap` makes a schedule that is missing.")
        )
    is_still = not any(pump.is_alive for pump in pumps)
    if oldest is not None and now - oldest.due_at >= DUE_LONG and is_still and not found:
        age = figures.length((now - oldest.due_at).total_seconds())
        found.append(Trouble(f"A document has been due for {age}, and no pump is at work.", work.START_A_WORKER))
    if store.trouble:
        what = (
            "What is rendered waits at the provider meanwhile. Look at STORAGE_URL, the mount or the bucket's rights."
        )
        found.append(Trouble(f"The store cannot be used: {wording.sentence(store.trouble)}", what))
    elif store.free_bytes is not None and store.free_bytes < FREE_LEAST:
        words = f"The store has {figures.size(store.free_bytes)} left."
        found.append(
            Trouble(words, "Make room, or move it to a larger disk: nothing is lost, but nothing new is saved.")
        )
    return found


def _swept(found: Mapping[str, int]) -> str:
    return ", ".join(f"{SWEPT.get(name, name.replace('_', ' '))}: {count:,}" for name, count in sorted(found.items()))


def _walked(sweep: StoreSweep) -> str:
    """How far a walk through the store has come."""
    looked_at = sweep.facts.get("looked_at")
    counted = f"{looked_at:,} looked at" if isinstance(looked_at, int) else ""
    if trouble := sweep.facts.get("trouble"):
        return wording.sentence(str(trouble))
    return counted
