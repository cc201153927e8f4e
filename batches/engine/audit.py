"""The one writer of the audit log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from batches.engine import bulk
from batches.models import AuditEntry, Workspace


@dataclass(frozen=True)
class By:
    """Who does something, and from where. `actor` is the signed-in user or None."""

    actor: Any
    words: str
    from_where: str


#: What the engine does by itself.
ENGINE = By(None, "engine", "engine")


def record(
    action: str,
    *,
    subject: str,
    workspace: Workspace | None,
    by: By,
    now: datetime,
    reason: str = "",
    facts: Mapping[str, Any] | None = None,
) -> AuditEntry:
    """Append one entry. `facts` never hold content or secrets."""
    return AuditEntry.objects.create(**_columns(action, subject, workspace, by, reason, facts or {}, now=now))


def record_each(
    action: str,
    entries: Sequence[tuple[str, Mapping[str, Any]]],
    *,
    workspace: Workspace,
    by: By,
    now: datetime,
    reason: str = "",
) -> None:
    """As `record`, one entry for each subject with its facts, in a statement for many."""
    rows = [_columns(action, subject, workspace, by, reason, facts, now=now) for subject, facts in entries]
    bulk.insert(AuditEntry, rows)


def _columns(
    action: str,
    subject: str,
    workspace: Workspace | None,
    by: By,
    reason: str,
    facts: Mapping[str, Any],
    *,
    now: datetime,
) -> dict[str, Any]:
    return {
        "workspace_id": workspace.pk if workspace else None,
        "at": now,
        "actor_id": by.actor.pk if by.actor else None,
        "actor_words": by.words[:150],
        "action": action,
        "subject": subject[:200],
        "reason": reason,
        "from_where": by.from_where[:100],
        "facts": dict(facts),
    }
