"""The one writer of the audit log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

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
    return AuditEntry.objects.create(
        workspace=workspace,
        at=now,
        actor=by.actor,
        actor_words=by.words[:150],
        action=action,
        subject=subject[:200],
        reason=reason,
        from_where=by.from_where[:100],
        facts=dict(facts or {}),
    )
