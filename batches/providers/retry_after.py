"""Reading `Retry-After`. Pure: says how long a provider asked us to wait, decides nothing about waiting."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

#: Longest wait that one header may ask for, in seconds. More than that is asked again, so that a wrong header
#: (9999999999 was seen in the wild) cannot park an account for good.
MAX_RETRY_AFTER = 300.0

_SECONDS = re.compile(r"[0-9]{1,20}(?:\.[0-9]{1,20})?")


def parse_retry_after(value: str | None, *, now: datetime, date: str | None = None) -> float | None:
    """Seconds to wait, over 0 and at most `MAX_RETRY_AFTER`; None where the header gives no usable wait.

    Takes whole and fractional seconds (rounded up) and HTTP dates in the three forms of RFC 9110 section 5.6.7. None
    means "use your own backoff": absent, empty, zero, negative, in the past, or not readable. `date` is the answer's
    own `Date` header: a date is measured against it where it can be read, so that a wrong clock on either side does no
    harm, else against `now`.
    """
    text = (value or "").strip()
    if not text or len(text) > 100:
        return None
    if _SECONDS.fullmatch(text):
        seconds = float(math.ceil(float(text)))
    else:
        until = _http_date(text)
        if until is None:
            return None
        seconds = (until - (_http_date(date or "") or now)).total_seconds()
    if seconds <= 0:
        return None
    return min(seconds, MAX_RETRY_AFTER)


def _http_date(text: str) -> datetime | None:
    if not text or len(text) > 100:
        return None
    try:
        moment = parsedate_to_datetime(text)
        # "-0000" and asctime dates come back naive; HTTP dates are always UTC.
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
