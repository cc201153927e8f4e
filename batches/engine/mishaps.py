"""What a fault of our own in the pump's thread costs: one job, one event, one read, and never the pump of all accounts.

A database that is away is no such fault: those errors pass through, and what was to be written waits in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import InterfaceError, OperationalError

log = logging.getLogger(__name__)

#: How Django says so. The one name for it in the engine.
DATABASE_AWAY = (OperationalError, InterfaceError)


@contextmanager
def contained(what: str) -> Iterator[None]:
    """Log what goes wrong inside and go on behind it. Raises only what says that the database is away."""
    try:
        yield
    except DATABASE_AWAY:
        raise
    except Exception:
        log.exception("%s failed; it is left out and the others go on", what)
