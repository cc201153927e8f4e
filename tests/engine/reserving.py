"""A process that takes slots from a lane: `python -m tests.engine.reserving DATABASE_NAME ACCOUNT COUNT`.

Prints the slots that it was given, in microseconds since the epoch, one a line.
"""

from __future__ import annotations

import os
import sys


def main(database: str, account_id: int, count: int) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    import django
    from django.conf import settings

    settings.DATABASES["default"]["NAME"] = database
    django.setup()

    from batches.engine import pacing
    from batches.models import Lane
    from tests.factories import NOW

    _say("ready")
    sys.stdin.readline()
    limits = pacing.Limits(interval_us=50_000, burst=1, windows=((20, 2_000_000),))
    given = 0
    while given < count:
        wanted = min(1 + given % 3, count - given)
        reservation = pacing.reserve(account_id, Lane.SUBMIT, limits, wanted=wanted, now=NOW, horizon_seconds=3600)
        for slot in reservation.slots:
            _say(pacing.to_us(slot))
        given += len(reservation.slots)


def _say(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
