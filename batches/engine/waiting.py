"""Which rows of a plan wait in a batch that is paused: starting another one sends them, and its check says so.

Reads only; that it sends them is `turns.choose_leads`.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from batches import figures
from batches.engine import bulk
from batches.manifests import Action, Plan
from batches.models import Job, JobState, Workspace


def notices(workspace: Workspace, plan: Plan) -> tuple[dict[str, Any], ...]:
    """One notice per paused batch, in the shape of the plan's own (manifests/README.md); none asks to be confirmed."""
    attached = {
        (planned.row.business_id, planned.version_number): planned.row.position
        for planned in plan.rows
        if planned.action is Action.UNCHANGED
    }
    # A paused batch leads only what no running one names.
    waiting = Job.objects.filter(
        state=JobState.PENDING, lead_batch__paused_at__isnull=False, version__document__workspace=workspace
    )
    columns = ("lead_batch", "lead_batch__name", "version__document__business_id", "version__number")
    found: dict[tuple[int, str], list[int]] = defaultdict(list)
    ids = [business_id for business_id, _number in attached]
    for chunk in bulk.chunks(ids, bulk.ROWS_PER_STATEMENT):
        rows = waiting.filter(version__document__business_id__in=chunk).values_list(*columns)
        for batch_id, name, business_id, number in rows:
            position = attached.get((business_id, number))
            if position is not None:
                found[batch_id, name].append(position)
    return tuple(_notice(name, sorted(positions)) for (_batch_id, name), positions in sorted(found.items()))


def _notice(name: str, positions: list[int]) -> dict[str, Any]:
    waits, them = ("waits", "it") if len(positions) == 1 else ("wait", "them")
    documents = figures.documents(len(positions))
    return {
        "kind": "waits_in_paused_batch",
        "message": f"{documents} also {waits} in a batch that is paused ({name}); starting this one sends {them}.",
        "needs_confirmation": False,
        "rows": positions,
        "count": len(positions),
    }
