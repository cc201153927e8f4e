"""Slots for what a verb asks a provider outside the pumps: the account's pace of status reads holds for people too.

It waits for a slot and says when it is, or that there is none soon. It reads nothing itself.
"""

from __future__ import annotations

import threading
from datetime import datetime, timedelta

from batches.conf import ENGINE
from batches.engine import pacing
from batches.engine.blocks import Blocks
from batches.engine.clock import Clock
from batches.models import Lane, ProviderAccount

#: Between two looks at a lane that has no slot yet.
LOOK_SECONDS_LEAST = 0.05


class ReadPace:
    """Of one thread. `patience`: how long it waits for one slot."""

    def __init__(self, clock: Clock, *, patience: timedelta) -> None:
        self._clock = clock
        self._patience = patience
        self._slots = Blocks(Lane.POLL, ENGINE)
        self._never = threading.Event()

    def next(self, account: ProviderAccount) -> datetime | None:
        """Wait for the account's next slot; the time then. None where the provider asked for a longer pause."""
        now = self._clock.now()
        until = now + self._patience
        while now <= until:
            given = self._slots.take(account.pk, pacing.poll_limits(account), wanted=1, now=now)
            at = given.slots[0] if given.slots else given.ask_again_at
            seconds = (at - now).total_seconds()
            if given.slots:
                if seconds > 0:
                    self._clock.wait(self._never, seconds)
                return max(at, now)
            self._clock.wait(self._never, max(seconds, LOOK_SECONDS_LEAST))
            now = self._clock.now()
        return None
