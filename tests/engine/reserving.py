"""A process that takes slots from a lane: `python -m tests.engine.reserving DATABASE_NAME ACCOUNT COUNT`.

Prints the slots that it was given, in microseconds since the epoch, one a line.
"""

from __future__ import annotations

import sys

from tests.engine import racing


def main(database: str, account_id: int, count: int) -> None:
    racing.set_up(database)

    from batches.engine import pacing
    from batches.models import Lane
    from tests.factories import NOW

    racing.wait_for_the_others()
    limits = pacing.Limits(interval_us=50_000, burst=1, windows=((20, 2_000_000),))
    given = 0
    while given < count:
        wanted = min(1 + given % 3, count - given)
        reservation = pacing.reserve(account_id, Lane.SUBMIT, limits, wanted=wanted, now=NOW, horizon_seconds=3600)
        for slot in reservation.slots:
            racing.say(pacing.to_us(slot))
        given += len(reservation.slots)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
