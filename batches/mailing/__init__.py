"""Mail as a face of its own: what happened to watched batches, in letters. It reads what every face reads, so a mail
never says other numbers than the page; what it writes down is `engine/notices.py`.

One pass is a look at the batches that are due, then the letters that are due. Safe to run twice at once, or never.
"""

from __future__ import annotations

from datetime import datetime

from batches.mailing.look import look
from batches.mailing.post import deliver


def run(*, now: datetime) -> None:
    look(now=now)
    deliver(now=now)
