"""What a fault of our own in the pump's thread costs: one job, one event, one read, and never the pump of all accounts.

A database that is away is no such fault: those errors pass through, and what was to be written waits in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import DatabaseError, InterfaceError, OperationalError

log = logging.getLogger(__name__)

#: How Django says so. The one name for it in the engine.
DATABASE_AWAY = (OperationalError, InterfaceError)


@contextmanager
def contained(what: str, *, also_away: bool = False) -> Iterator[None]:
    """Log what goes wrong inside and go on behind it. Raises only what says that the database is away, and with
    `also_away` not even that."""
    try:
        yield
    except DATABASE_AWAY:
        if not also_away:
            raise
        log.warning("%s was left out: the database did not answer", what, exc_info=True)
    except Exception as error:
        log.exception("%s failed; it is left out and the others go on", what, exc_info=without_row(error))


def without_row(error: Exception) -> Exception:
    """The exception as the log may show it, with its trace: the database's own text quotes the row that it refuses.

    Of a provider job id that is the whole key to a PDF; everywhere else it is masked.
    """
    if not isinstance(error, DatabaseError):
        return error
    kept = DatabaseError(f"{type(error).__name__}; what the database said is left out, since it quotes the row")
    return kept.with_traceback(error.__traceback__)
