"""What commands write into the audit log: nobody is signed in, so the machine's user stands for the actor."""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from batches.engine import audit
from batches.engine.audit import By
from batches.models import Workspace

FROM_WHERE = "command line"


def record(
    action: str,
    subject: str,
    workspace: Workspace | None,
    *,
    now: datetime,
    reason: str = "",
    facts: Mapping[str, Any] | None = None,
) -> None:
    audit.record(
        action,
        subject=subject,
        workspace=workspace,
        by=by(),
        now=now,
        reason=reason,
        facts=facts,
    )


def by() -> By:
    """Who lets the engine do something, where a verb of the engine writes the entry."""
    return By(None, actor_words(), FROM_WHERE)


def actor_words() -> str:
    """Who runs this command, as the machine knows them."""
    try:
        return f"{getpass.getuser()} ({FROM_WHERE})"
    except (KeyError, OSError):  # a container's user id without a name
        return FROM_WHERE
