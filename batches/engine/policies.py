"""Who changes for how long a workspace keeps content: checked as the model checks it, and written down."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from django.core.exceptions import ValidationError
from django.db import transaction

from batches.engine import audit
from batches.engine.audit import By
from batches.models import Workspace

FIELDS = ("keep_inputs_days", "keep_outputs_days", "keep_evidence_days")


class Refused(Exception):
    """Nothing was changed; `problems` says why, by the name of the field."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__("; ".join(problems.values()))
        self.problems = problems


def change(workspace_id: int, days: Mapping[str, int | None], *, by: By, reason: str, now: datetime) -> bool:
    """Keep so many days of each from now on (None: for ever); false where that is so already. Raises `Refused`."""
    with transaction.atomic():
        workspace = Workspace.objects.select_for_update(no_key=True).get(pk=workspace_id)
        before = {name: getattr(workspace, name) for name in FIELDS}
        for name in FIELDS:
            setattr(workspace, name, days[name])
        try:
            workspace.clean_fields(exclude=[field.name for field in workspace._meta.fields if field.name not in FIELDS])
        except ValidationError as error:
            raise Refused({name: " ".join(words) for name, words in error.message_dict.items()}) from None
        after = {name: getattr(workspace, name) for name in FIELDS}
        if after == before:
            return False
        workspace.save(update_fields=FIELDS)
        subject = f"workspace {workspace.slug}"
        facts = {"before": _said(before), "after": _said(after)}
        audit.record(
            "change_retention", subject=subject, workspace=workspace, by=by, now=now, reason=reason, facts=facts
        )
    return True


def _said(days: Mapping[str, int | None]) -> dict[str, str]:
    return {name: "for ever" if each is None else f"{each} days" for name, each in days.items()}
