"""The one writer of the audit log."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from batches.models import AuditEntry, Workspace


def record(
    action: str,
    *,
    subject: str,
    workspace: Workspace | None,
    actor: Any,
    actor_words: str,
    from_where: str,
    now: datetime,
    reason: str = "",
    facts: Mapping[str, Any] | None = None,
) -> AuditEntry:
    """Append one entry. `actor` is the signed-in user or None; `facts` never hold content or secrets."""
    return AuditEntry.objects.create(
        workspace=workspace,
        at=now,
        actor=actor,
        actor_words=actor_words[:150],
        action=action,
        subject=subject[:200],
        reason=reason,
        from_where=from_where[:100],
        facts=dict(facts or {}),
    )
