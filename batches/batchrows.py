"""Read-only: a batch as a list shows it, with its progress, its pace, its cost and how long its oldest document waits.

A constant number of queries for any number of batches; what is over is not measured again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from django.db.models import OuterRef, QuerySet, Subquery

from batches import counting, figures, finishing, listings, selectors, sentences, wording
from batches.engine import spending
from batches.models import ACCOUNT_SECRETS, AccountHealth, Batch, Job, JobState
from batches.wording import ENDED_STATES, Badge, BatchState

#: Over which the pace of a batch is told.
RATE_OVER = timedelta(minutes=finishing.WINDOWS_MOST)


@dataclass(frozen=True)
class Pace:
    """What is measured of a batch that is not over. `rate` is saved documents a minute, None before the first."""

    rate: float | None = None
    oldest_due_at: datetime | None = None
    left: finishing.Left | None = None


NO_PACE, NOTHING_SPENT = Pace(), spending.Spent()


@dataclass(frozen=True)
class BatchRow:
    """A batch with its progress; its sample stands beside it, and is no row of its own: its documents are the same."""

    batch: Batch
    progress: selectors.Progress
    starter: str = ""
    sample: selectors.Progress | None = None
    pace: Pace = NO_PACE
    spent: spending.Spent = NOTHING_SPENT
    now: datetime | None = None

    @property
    def is_over(self) -> bool:
        return self.progress.state in ENDED_STATES

    @property
    def is_moving(self) -> bool:
        """Whether anything of it is sent or fetched."""
        return self.progress.state == BatchState.RUNNING and self.batch.paused_at is None

    @property
    def has_sample_to_look_at(self) -> bool:
        return self.batch.waits_for_release and self.sample is not None and self.sample.state in ENDED_STATES

    @property
    def sample_words(self) -> str:
        return sentences.sample_in_short(self.batch, self.sample) if self.sample else ""

    @property
    def badge(self) -> Badge:
        return wording.BATCH_BADGES[self.progress.state]

    @property
    def second_badge(self) -> Badge | None:
        is_paused, is_cancelled = self.batch.paused_at is not None, self.batch.cancelled_at is not None
        return wording.second_badge(self.progress.state, is_paused=is_paused, is_cancelled=is_cancelled)

    @property
    def sentence(self) -> str:
        account = self.batch.account
        held = [account] if account.health == AccountHealth.HELD else []
        return sentences.status_sentence(self.batch, self.progress, held)

    @property
    def rate_words(self) -> str:
        """`20`, `0.4`; empty where nothing was saved in these minutes."""
        rate = self.pace.rate
        return "" if not rate else f"{rate:,.0f}" if rate >= 3 else f"{rate:.1f}"

    @property
    def left_words(self) -> str:
        """`about 24–31 min`; by the account's pace alone where it is too early, empty where nothing can be said."""
        if not self.is_moving or self.batch.account.health == AccountHealth.HELD:
            return ""
        left = self.pace.left
        return finishing.between(left.low, left.high) if left else sentences.sending_duration(self.batch, self.progress)

    @property
    def cost_words(self) -> str:
        """What it may have cost so far; empty where nothing of it was sent, or its account names no price."""
        price, currency = self.batch.account.price_per_job, self.batch.account.price_currency
        if not self.spent.count or price is None:
            return ""
        return figures.money(self.spent.amount(price), currency)

    @property
    def waited_words(self) -> str:
        """How long its oldest document has been due: `12 s`; empty where none is."""
        due = self.pace.oldest_due_at if self.is_moving else None
        return figures.age((self.now - due).total_seconds()) if due and self.now else ""

    @property
    def key(self) -> str:
        return self.batch.public_id

    @property
    def revision(self) -> str:
        """Without what changes with every second."""
        counts = self.progress.counts
        facts = (self.progress.state, self.second_badge, counts.as_dict(), self.progress.attention_count)
        return listings.digest(*facts, self.sample_words, self.sentence, self.cost_words)


def readable(found: QuerySet[Batch], *, now: datetime) -> QuerySet[Batch]:
    """With what `rows` asks of each: its sample, who started it, and since when a document of it has been due."""
    waiting = Job.objects.filter(
        account=OuterRef("account"), lead_batch=OuterRef("pk"), state=JobState.PENDING, due_at__lte=now
    )
    kept, unread = selectors.WITH_KEPT, selectors.KEPT_UNREAD
    joined = found.select_related("workspace", "account", "created_by", "sample", kept, f"sample__{kept}").defer(
        *("report", "notify", "sample__report", "sample__notify", unread, f"sample__{unread}"),
        *(f"account__{name}" for name in ACCOUNT_SECRETS),
    )
    return joined.annotate(due_since=Subquery(waiting.order_by("due_at").values("due_at")[:1]))


def rows(found: Sequence[Batch], *, now: datetime, in_short: bool = False) -> list[BatchRow]:
    """These batches as they are now, in their order, as `readable` reads them; `in_short` without who started them, and
    what they cost."""
    samples = {batch.pk: batch.sample for batch in found if hasattr(batch, "sample")}
    everything = [*found, *samples.values()]
    progress = selectors.progress_of(everything)
    starters = {} if in_short else selectors.starters(found)
    moving = [batch for batch in found if progress[batch.pk].state not in ENDED_STATES]
    paces = _paces(moving, progress, now=now)
    families = {} if in_short else {batch.pk: (batch.pk, *_keys(samples.get(batch.pk))) for batch in found}
    spent = spending.spent_by_batch(families, _delivered(everything)) if families else {}
    return [
        BatchRow(
            batch,
            progress[batch.pk],
            starters.get(batch.pk, ""),
            progress[samples[batch.pk].pk] if batch.pk in samples else None,
            paces.get(batch.pk, NO_PACE),
            spent.get(batch.pk, NOTHING_SPENT),
            now,
        )
        for batch in found
    ]


def _delivered(batches: Sequence[Batch]) -> dict[int, spending.Spent]:
    """What delivered documents cost of the batches at rest."""
    return {
        key: spending.Spent(row.delivered or 0, row.billed or Decimal(0), row.billed_count or 0)
        for key, row in selectors.kept(batches).items()
    }


def _keys(sample: Batch | None) -> tuple[int, ...]:
    return (sample.pk,) if sample else ()


def rows_of(user: selectors.Person, public_ids: Iterable[str], *, now: datetime) -> list[BatchRow]:
    """The batches of these ids as they are now, as far as the user may see them."""
    wanted = selectors.visible_batches(user).filter(public_id__in=list(public_ids))
    return rows(list(readable(wanted, now=now)), now=now)


def _paces(moving: Sequence[Batch], progress: Mapping[int, selectors.Progress], *, now: datetime) -> Mapping[int, Pace]:
    """In one query over what came to rest in these minutes."""
    if not moving:
        return {}
    lately = counting.lately([batch.pk for batch in moving], now=now, minutes=finishing.WINDOWS_MOST)
    shares = _shares(moving, progress)
    paces = {}
    for batch in moving:
        rested = lately[batch.pk]
        left = _left(batch, progress[batch.pk], rested.by_minute, shares[batch.account_id], now=now)
        paces[batch.pk] = Pace(_rate(rested.saved, batch, now), getattr(batch, "due_since", None), left)
    return paces


def _shares(moving: Sequence[Batch], progress: Mapping[int, selectors.Progress]) -> Mapping[int, int]:
    """By account, the weights of those of these batches that are sent there."""
    weights: dict[int, int] = defaultdict(int)
    for batch in moving:
        is_sent = progress[batch.pk].waiting_count and batch.paused_at is None
        weights[batch.account_id] += batch.weight if is_sent else 0
    return weights


def _left(
    batch: Batch, progress: selectors.Progress, finished: Sequence[int], shares: int, *, now: datetime
) -> finishing.Left | None:
    """As on the batch's page, which knows of a batch's first minutes and its tail as well."""
    count, span = finishing.spans(max(1.0, (now - batch.created_at).total_seconds()))
    if span != 60:
        return None
    return finishing.left(
        finishing.Work(
            remaining=progress.counts.in_progress,
            waiting=progress.waiting_count,
            saved=progress.counts.saved,
            age=(now - batch.created_at).total_seconds(),
            finished=finished[:count],
            span=span,
            interval=sentences.interval_ms(batch.account) / 1000,
            share=batch.weight,
            shares=max(shares, batch.weight),
        )
    )


def _rate(saved: int, batch: Batch, now: datetime) -> float | None:
    """Over the last minutes, or since it was started where that is less; a minute at the least."""
    minutes = max(1.0, min(RATE_OVER, now - batch.created_at) / timedelta(minutes=1))
    return saved / minutes if saved else None
