"""Two transactions that wait for each other's rows: PostgreSQL ends one of them, and here that one is done again.

Writes of many rows take their locks in whatever order the plan finds the rows, so a pause, a renewal and a grouped
write can meet like that. Nothing of the one that was ended is left, and the other has gone on, so repeating is safe
and soon succeeds. SQLite's writers are alone: there it never happens.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from django.db import OperationalError, connection

log = logging.getLogger(__name__)

#: A deadlock takes about a second to be found, so these are seconds; a person waits for no more.
TRIES = 5
DEADLOCK = "40P01"

P = ParamSpec("P")
R = TypeVar("R")


def again_after_deadlock(work: Callable[P, R]) -> Callable[P, R]:
    """Decorates a function that is one transaction, or statements of which each may be done twice.

    Called inside another transaction it does nothing: what was ended there is that one, and its own function repeats
    it. Raises `OperationalError` when the last try was ended too.
    """

    @functools.wraps(work)
    def run(*given: P.args, **named: P.kwargs) -> R:
        for _ in range(TRIES - 1):
            try:
                return work(*given, **named)
            except OperationalError as error:
                if connection.in_atomic_block or not is_deadlock(error):
                    raise
                log.info("%s is done again after a deadlock", work.__qualname__)
        return work(*given, **named)

    return run


def is_deadlock(error: OperationalError) -> bool:
    return getattr(error.__cause__, "sqlstate", None) == DEADLOCK
