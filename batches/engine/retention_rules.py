"""What retention may delete of a document, and why something is kept: one table of reasons, pure.

Content is deleted and proof is not: jobs, submissions, hashes, keys and ids stay for ever, and so does everything of a
document of which it is not certain what the provider has.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from batches.models import ACTIVE_STATES, KEEP_EVIDENCE_DAYS_LEAST, JobState


class Part(enum.Enum):
    """What has a clock of its own."""

    INPUTS = "inputs"
    OUTPUTS = "outputs"
    EVIDENCE = "evidence"


LABELS: Mapping[Part, str] = {
    Part.INPUTS: "Inputs, requests and rows",
    Part.OUTPUTS: "Stored PDFs",
    Part.EVIDENCE: "Facts of requests, bodies of webhooks",
}


@dataclass(frozen=True)
class Policy:
    """Days for which each part is kept after its document ended; None: for ever."""

    inputs: int | None = None
    outputs: int | None = None
    evidence: int | None = None

    def days(self, part: Part) -> int | None:
        days: int | None = getattr(self, part.value)
        if days is None or part is not Part.EVIDENCE:
            return days
        return max(days, KEEP_EVIDENCE_DAYS_LEAST)  # the model refuses fewer, but a row may have been written past it

    def is_empty(self) -> bool:
        return all(self.days(part) is None for part in Part)

    def rule(self, part: Part) -> str:
        """As a deletion names it."""
        days = self.days(part)
        return f"{part.value} are kept for {days} day{'' if days == 1 else 's'}"

    def due_at(self, part: Part, ended_at: datetime) -> datetime | None:
        """From when it is kept no longer; None: it is kept for ever."""
        days = self.days(part)
        return None if days is None else ended_at + timedelta(days=days)


@dataclass(frozen=True)
class Kept:
    """One version as retention looks at it: how its job stands, and who may still need what.

    `in_doubt`: a submission of it may be at the provider, and no job was named. `is_acted_on`: an action on it is
    confirmed and not over. `is_needed`: a batch that names it still has documents under way. `is_exported`: a file of
    it is being made. `copy_is_going`: its deletion at the provider is not settled. `newest_event_at`: when the last
    webhook of it came.
    """

    state: JobState
    ended_at: datetime
    in_doubt: bool = False
    resend_until: datetime | None = None
    watch_until: datetime | None = None
    is_acted_on: bool = False
    is_needed: bool = False
    is_exported: bool = False
    copy_is_going: bool = False
    newest_event_at: datetime | None = None


NOT_ENDED = "it has not ended yet"
_UNCERTAIN: Mapping[JobState, str] = {
    JobState.UNKNOWN: "it is not known whether the provider has it; reconcile it",
    JobState.DEADLINE_EXCEEDED: "its deadline passed, and the provider may still finish it; reconcile it",
}
IN_DOUBT = "one of its submissions may be at the provider; reconcile it"
RESENT = "it may still be sent again with the same key"
WATCHED = "the provider may still finish it, and is asked now and then"
ACTED_ON = "an action on it is under way"
NEEDED = "a batch that names it still has documents under way"
EXPORTED = "a file is being made of it"
COPY_GOING = "its deletion at the provider is under way"
EVENTS_YOUNG = f"webhooks of it came in the last {KEEP_EVIDENCE_DAYS_LEAST} days, and repeats are known by them"


def kept_because(part: Part, kept: Kept, *, now: datetime) -> str:
    """Why this part is not deleted although it is old enough; "" where nothing speaks against it."""
    return next((words for applies, words in _reasons(part, kept, now) if applies), "")


def _reasons(part: Part, kept: Kept, now: datetime) -> list[tuple[bool, str]]:
    of_part: Mapping[Part, Callable[[], list[tuple[bool, str]]]] = {
        Part.INPUTS: lambda: [(kept.is_needed, NEEDED)],
        Part.OUTPUTS: lambda: [(kept.is_exported, EXPORTED)],
        Part.EVIDENCE: lambda: [
            (kept.copy_is_going, COPY_GOING),
            (_is_after(kept.newest_event_at, now - timedelta(days=KEEP_EVIDENCE_DAYS_LEAST)), EVENTS_YOUNG),
        ],
    }
    return [
        (kept.state in ACTIVE_STATES, NOT_ENDED),
        (kept.state in _UNCERTAIN, _UNCERTAIN.get(kept.state, "")),
        (kept.in_doubt, IN_DOUBT),
        (_is_after(kept.resend_until, now), RESENT),
        (_is_after(kept.watch_until, now), WATCHED),
        (kept.is_acted_on, ACTED_ON),
        *of_part[part](),
    ]


def _is_after(at: datetime | None, than: datetime) -> bool:
    return at is not None and at > than


def input_gone(deleted_at: datetime, rule: str) -> str:
    """What is said wherever an input is asked for that was deleted."""
    by = f" by the rule “{rule}”" if rule else ""
    return f"Its input was deleted on {deleted_at:%Y-%m-%d}{by}; upload it again."
