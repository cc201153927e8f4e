"""A batch's own stop rules: so many failures, or so many per cent of what has ended, or its spend cap, and it pauses by
itself. What it has spent, and that nothing beyond the cap leaves meanwhile, is in `spending.py`.

Asked when failures were written, once for a group of them, and by the sweep. Only what failed in the batch's own time
counts: documents that had failed before it was handed over, or before a person let it go on, do not.

Counting is what costs, in a batch of hundreds of thousands and in the pump's own thread. So a pump remembers what it
counted last (`Watch`) and counts again only once the rule may be near; and it never counts further than it has to.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta

from django.core.exceptions import ValidationError
from django.db.models import Count, Exists, OuterRef, Q, QuerySet

from batches.engine import mishaps, running, spending
from batches.engine.errors import IntakeRefused
from batches.models import (
    ACTIVE_STATES,
    FAILED_STATES,
    OUTCOME_STATES,
    Alert,
    AlertKind,
    Batch,
    BatchItem,
    Job,
    JobState,
)

log = logging.getLogger(__name__)

#: A share of fewer ended documents says nothing: of 20 one is 5 %, so that a low limit is not met by a single bad row.
ENDED_LEAST = 20
#: A pump counts again when its own failures, times this, could have reached the limit: others write failures too.
PUMPS_SUPPOSED = 16
#: A share is asked at most so often by one pump for each so many failures there are: a batch may hover below its limit
#: for hours, and the share of many moves slowly while counting them takes long.
SHARE_EVERY, SHARE_FAILURES = timedelta(seconds=1), 500
CAP_WHAT_TO_DO = (
    "Nothing new of it is sent; what the provider has is still saved. Raise the cap on its page to let it go on."
)
WHAT_TO_DO = (
    "Nothing new of it is sent; what the provider has is still saved. Look at what failed, and why, first; then resume "
    "it on its page."
)


@dataclass(frozen=True)
class Rules:
    """How a batch shares its account with others (`weight`, 1 to 100), and when it pauses by itself."""

    weight: int = 1
    stop_after_failures: int | None = None
    stop_after_percent: int | None = None

    def apply(self, batch: Batch) -> None:
        """Put them on a batch that is not written yet. Raises `IntakeRefused` for what its row would not take."""
        given = asdict(self)
        for name, value in given.items():
            setattr(batch, name, value)
        try:
            batch.clean_fields(exclude=[field.name for field in batch._meta.fields if field.name not in given])
        except ValidationError as error:
            words = "; ".join(f"{name}: {' '.join(said)}" for name, said in error.message_dict.items())
            raise IntakeRefused(words) from error


NO_RULES = Rules()


@dataclass
class Counted:
    """What was counted last: all that failed, up to the limit, and so many or more that ended; and when."""

    since: datetime
    at: datetime
    failed: int = 0
    ended_least: int = 0
    noted: int = 0  # failures of it that this pump wrote afterwards


@dataclass
class Watch:
    """What one pump remembers of the batches with a rule. A new one counts at the first failure."""

    known: dict[int, Counted] = field(default_factory=dict)

    def after_failures(self, job_ids: Sequence[int], *, now: datetime) -> None:
        """Pause the batches whose rule these failures fulfil. Never raises for the database: the sweep asks again."""
        concerned = _watched().filter(items__version__job__in=job_ids, items__cancelled_at=None)
        try:
            for batch in concerned.annotate(noted=Count("items")):
                counted = self.known.get(batch.pk)
                if counted is not None and counted.since == _since(batch):
                    counted.noted += batch.noted
                    if not may_be_near(batch, counted, now=now):
                        continue
                else:
                    counted = Counted(_since(batch), now)
                _ask(batch, counted, now=now)
                self.known[batch.pk] = counted
        except mishaps.DATABASE_AWAY:
            log.warning("the stop rules could not be asked; the sweep asks them", exc_info=True)


def at_cap(batch_ids: Iterable[int], *, now: datetime) -> int:
    """Pause those of these batches whose spend cap lets nothing more leave; how many were paused.

    Until it is done nothing of them leaves all the same, so what fails here is asked for again by the next departure.
    """
    paused = 0
    for batch_id in sorted(batch_ids):
        with mishaps.contained(f"pausing batch {batch_id} at its spend cap"):
            batch = Batch.objects.select_related("account").get(pk=batch_id)
            since = now - spending.ANSWER_WITHIN
            words = spending.why_not_go_on(batch, batch.spend_cap, unanswered_since=since)
            if not words:
                continue
            alert = f"{batch.name} was paused at its spend cap: {words} {CAP_WHAT_TO_DO}"
            if running.stop(batch.pk, reason=words, alert=alert, now=now):
                log.warning("batch %s was paused at its spend cap: %s", batch.public_id, words)
                paused += 1
    return paused


def sweep(*, now: datetime) -> int:
    """Ask every running batch's rules; returns how many were paused. Closes what is told of batches that have ended.

    A batch whose rule cannot be asked keeps no other from being asked.
    """
    _close_ended(now=now)
    paused = 0
    for batch in _watched():
        with mishaps.contained(f"asking the stop rule of batch {batch.public_id}"):
            paused += _ask(batch, Counted(_since(batch), now), now=now)
    return paused


def _close_ended(*, now: datetime) -> None:
    """A stopped batch whose documents all went in another one's turns waits for nobody any more."""
    moving = BatchItem.objects.filter(batch=OuterRef("batch"), cancelled_at=None, version__job__state__in=ACTIVE_STATES)
    told = Alert.objects.filter(kind=AlertKind.BATCH_STOPPED, closed_at=None)
    told.filter(~Exists(moving)).update(closed_at=now)


def _watched() -> QuerySet[Batch]:
    """Running batches with a rule."""
    has_rule = Q(stop_after_failures__isnull=False) | Q(stop_after_percent__isnull=False)
    return Batch.objects.filter(has_rule, paused_at=None, cancelled_at=None).order_by("pk")


def _since(batch: Batch) -> datetime:
    return max(batch.created_at, batch.stop_counts_from or batch.created_at)


def may_be_near(batch: Batch, counted: Counted, *, now: datetime) -> bool:
    """Whether what was noted since could fulfil the rule, by all pumps together. Pure."""
    failed = counted.failed + counted.noted * PUMPS_SUPPOSED
    if batch.stop_after_failures is not None and failed >= batch.stop_after_failures:
        return True
    share_every = SHARE_EVERY * max(1, counted.failed // SHARE_FAILURES)
    if batch.stop_after_percent is None or now - counted.at < share_every:
        return False
    return failed * 100 >= batch.stop_after_percent * counted.ended_least


def _ask(batch: Batch, counted: Counted, *, now: datetime) -> bool:
    """Count, remember what was counted, and pause the batch if its rule says so; true when this call paused it."""
    after, percent = batch.stop_after_failures, batch.stop_after_percent
    counted.failed = _count_since(batch, FAILED_STATES, most=after if percent is None else None)
    counted.at, counted.noted = now, 0
    ended = counted.ended_least
    if percent is not None and counted.failed * 100 >= percent * ended:
        # So many more tell that the share is below the limit; twice as many, so that the next failure needs no count.
        needed = counted.failed * 100 // percent + 1
        ended = _count_since(batch, OUTCOME_STATES, most=2 * max(needed, ENDED_LEAST))
        counted.ended_least = ended
    words = verdict(counted.failed, ended, after=after, percent=percent)
    if not words:
        return False
    if percent is None:  # the person is told how many there are by now
        words = verdict(_count_since(batch, FAILED_STATES, most=None), ended, after=after, percent=percent) or words
    alert = f"{batch.name} was paused by its own rule: {words} {WHAT_TO_DO}"
    if not running.stop(batch.pk, reason=words, alert=alert, now=now):
        return False
    log.warning("batch %s was paused by its own rule: %s", batch.public_id, words)
    return True


def verdict(failed: int, ended: int, *, after: int | None, percent: int | None) -> str:
    """Why the batch has to stop, in words; empty while it may go on. Pure."""
    if after is not None and failed >= after:
        documents = "document" if failed == 1 else "documents"
        return f"{failed:,} {documents} failed, the limit is {after:,}."
    if percent is not None and ended >= ENDED_LEAST and failed * 100 >= percent * ended:
        return f"{failed:,} of {ended:,} finished documents failed, the limit is {percent} %."
    return ""


def _count_since(batch: Batch, states: Sequence[JobState], *, most: int | None) -> int:
    """How many of its live documents came to one of `states` since its rules began to count, as far as `most`."""
    jobs = Job.objects.filter(
        state__in=states,
        state_changed_at__gte=_since(batch),
        version__items__batch=batch,
        version__items__cancelled_at=None,
    )
    return jobs.values("pk")[:most].count()
