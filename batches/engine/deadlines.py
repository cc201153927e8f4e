"""The deadline of a job: by its account's seconds, and the one that the account's own durations suggest.

A suggestion goes by size class and has a reason; the table behind it is made here too.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from batches import figures
from batches.engine import expectations
from batches.models import Duration, JobState, ProviderAccount
from batches.models.accounts import sound_limit

#: Only the newest are looked at: an old habit of the provider says nothing of today.
ROWS_MOST = 2000
#: With fewer, the slowest twentieth would be one or two documents.
SAMPLES_LEAST = 50
#: Far past what was ever seen, so that a bad hour of the provider ends nothing: a deadline is for what never ends.
P95_TIMES = 4.0
WORST_TIMES = 2.0
#: A provider that restarts is back within two minutes; nobody should wait half a day in silence.
FLOOR_SECONDS = 120.0
CEILING_SECONDS = 12 * 3600.0


@dataclass(frozen=True)
class Facts:
    """Durations of one outcome and size class, in seconds; `polls` is status reads per document."""

    outcome: str
    size_class: int
    count: int
    p50: float
    p95: float
    worst: float
    polls: float


@dataclass(frozen=True)
class Suggestion:
    """A deadline in seconds and why, as a sentence. `size_class` is None for documents of any size."""

    size_class: int | None
    seconds: int
    words: str


def of_account(account: ProviderAccount, accepted_at: datetime) -> datetime:
    """The deadline by the account's own seconds. Never raises, whatever the row holds: an id may wait for it."""
    return accepted_at + timedelta(seconds=sound_limit(account, "deadline_seconds"))


def size_words(size_class: int | None) -> str:
    """`documents of up to 64 KB`, counting a KB as 1,024 bytes."""
    if size_class is None:
        return "documents"
    if size_class < len(expectations.SIZE_CLASSES):
        return f"documents of up to {expectations.SIZE_CLASSES[size_class] // 1024} KB"
    return f"documents of more than {expectations.SIZE_CLASSES[-1] // 1024} KB"


def table(account_id: int) -> list[Facts]:
    """What the newest durations of the account were, by outcome and size class."""
    groups: dict[tuple[str, int], list[tuple[float, int]]] = defaultdict(list)
    for outcome, seconds, polls, byte_count in _rows(account_id):
        groups[outcome, expectations.size_class(byte_count)].append((seconds, polls))
    facts = []
    for (outcome, size), group in sorted(groups.items()):
        times = sorted(seconds for seconds, _polls in group)
        reads = sum(polls for _seconds, polls in group) / len(group)
        facts.append(Facts(outcome, size, len(group), _at(times, 0.5), _at(times, 0.95), times[-1], reads))
    return facts


def suggestions(account_id: int) -> dict[int | None, Suggestion]:
    """By size class; under None for all sizes together. Empty while too few durations are known.

    A success that only the late watch saw is left out: it ended at some time between the deadline and that look.
    """
    times: dict[int | None, list[float]] = defaultdict(list)
    for outcome, seconds, _polls, byte_count in _rows(account_id, seen_in_time=True):
        if outcome == JobState.SAVED:
            times[None].append(seconds)
            times[expectations.size_class(byte_count)].append(seconds)
    found = {size: suggest(size, known) for size, known in times.items()}
    return {size: suggestion for size, suggestion in found.items() if suggestion is not None}


def suggest(size_class: int | None, times: Sequence[float]) -> Suggestion | None:
    """The deadline that these durations suggest; None while they are too few."""
    if len(times) < SAMPLES_LEAST:
        return None
    known = sorted(times)
    p95, worst = _at(known, 0.95), known[-1]
    wanted = max(FLOOR_SECONDS, P95_TIMES * p95, WORST_TIMES * worst)
    seconds = int(min(CEILING_SECONDS, math.ceil(wanted / 30) * 30))
    words = (
        f"95 % of {len(known):,} {size_words(size_class)} finished within {figures.length(p95)}, the slowest in "
        f"{figures.length(worst)}: {figures.length(seconds)} suggested."
    )
    return Suggestion(size_class, seconds, words)


def suggested_for(known: Mapping[int | None, Suggestion], byte_count: int) -> Suggestion | None:
    """The suggestion for one document: its size class's, else that for all sizes."""
    return known.get(expectations.size_class(byte_count)) or known.get(None)


def _rows(account_id: int, *, seen_in_time: bool = False) -> list[tuple[str, float, int, int]]:
    rows = Duration.objects.filter(account_id=account_id).order_by("-id")
    if seen_in_time:
        rows = rows.filter(remote_seconds__isnull=False)
    values = rows.values_list("outcome", "remote_seconds", "total_seconds", "poll_count", "request_bytes")[:ROWS_MOST]
    return [
        (outcome, total if remote is None else remote, polls, byte_count)
        for outcome, remote, total, polls, byte_count in values
    ]


def _at(ascending: Sequence[float], share: float) -> float:
    return ascending[max(0, math.ceil(share * len(ascending)) - 1)]
