"""What a batch may have cost so far, and how many more of its documents fit under its cap. Reads only.

Counted is what was sent in its turns, and in those of its sample: every submission that may be billed, at the account's
price, or at what the provider says that it billed where that is more. `submission.commit_intents` asks under the lock
of the account's lane, so that at one account no pump commits an intent beyond the cap, however many there are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from functools import reduce

from django.core.exceptions import ValidationError
from django.db.models import Count, Max, Q, QuerySet, Sum

from batches import figures
from batches.engine.errors import IntakeRefused
from batches.models import (
    DELIVERED,
    MAYBE_THERE,
    NOTHING_THERE,
    Batch,
    ProviderAccount,
    Submission,
    SubmissionOutcome,
)

#: Submissions that cost nothing by all that is known: refused, read as failed and not billed, or never there so far.
UNBILLED = (
    Q(outcome=SubmissionOutcome.REFUSED)
    | Q(outcome=SubmissionOutcome.RENDER_FAILED, failed_at__isnull=False)
    | Q(NOTHING_THERE, outcome=SubmissionOutcome.OPEN)
)
#: A pump adds what is new to what it counted; all is counted again after so long, when something that was refused went
#: out once more, and before anything is held back.
COUNT_EVERY = timedelta(seconds=10)
#: For so long a submission without an answer may still prove never to have left: no batch is paused for it before.
ANSWER_WITHIN = timedelta(seconds=30)
#: More than anybody sends: what a price of nothing allows.
UNLIMITED = 10**9


@dataclass(frozen=True)
class Spent:
    """`count` submissions that may be billed; of `known_count` of them the provider says that they cost `known`."""

    count: int = 0
    known: Decimal = Decimal(0)
    known_count: int = 0

    def amount(self, price: Decimal) -> Decimal:
        """What they may cost together."""
        return max(self.count * price, self.known + (self.count - self.known_count) * price)

    def each(self, price: Decimal) -> Decimal:
        """What one more is reckoned at."""
        return max(price, self.known / self.known_count) if self.known_count else price

    def room(self, cap: Decimal, price: Decimal) -> int:
        """How many more documents fit under the cap."""
        left, each = cap - self.amount(price), self.each(price)
        if left < 0:
            return 0
        return int(left // each) if each > 0 else UNLIMITED

    def plus(self, more: Spent) -> Spent:
        return Spent(self.count + more.count, self.known + more.known, self.known_count + more.known_count)


@dataclass
class _Counted:
    spent: Spent
    last: int  # primary key of the newest submission that is in it
    at: datetime
    family: tuple[int, ...]
    anew: int = 0


@dataclass
class Purse:
    """What one pump remembers of batches with a cap, so that a large one is not counted whole for each document."""

    known: dict[int, _Counted] = field(default_factory=dict)

    def room(
        self, batch_id: int, cap: Decimal, account: ProviderAccount, *, wanted: int, anew: int, now: datetime
    ) -> int:
        """How many of `wanted` more documents of the batch may leave. Call it under the lock of the account's lane.

        `anew` is the lane's own: what was refused, and so not counted, and went out again is no new row to be added.
        """
        price = account.price_per_job
        if price is None:
            return 0  # nobody knows what they cost, so no cap could be kept
        counted = self.known.get(batch_id)
        if counted is None or now - counted.at >= COUNT_EVERY or counted.anew != anew:
            counted = _count(batch_id, anew=anew, now=now)
        else:
            more, last = _sum(counted.family, after=counted.last)
            counted.spent, counted.last = counted.spent.plus(more), max(counted.last, last)
        if counted.spent.room(cap, price) < wanted and counted.at != now:
            counted = _count(batch_id, anew=anew, now=now)  # some of it may have been refused since
        self.known[batch_id] = counted
        return min(wanted, counted.spent.room(cap, price))


@dataclass(frozen=True)
class HeldBack:
    """Jobs that do not fit under the cap of their batch just now, and the batches under whose cap none fits."""

    jobs: frozenset[int] = frozenset()
    reached: frozenset[int] = frozenset()


NOTHING_HELD_BACK = HeldBack()


def held_back(
    purse: Purse,
    account: ProviderAccount,
    asked: Iterable[int],
    *,
    led: Mapping[int, int],
    caps: Mapping[int, Decimal],
    anew: int = 0,
    now: datetime,
) -> HeldBack:
    """What of the jobs `asked` may not leave, the last of each batch first. `led` and `caps` as `claims.Standing`,
    `anew` as `Purse.room`."""
    by_batch: dict[int, list[int]] = {}
    for job_id in asked if caps else ():
        if led.get(job_id) in caps:
            by_batch.setdefault(led[job_id], []).append(job_id)
    back: set[int] = set()
    reached: set[int] = set()
    for batch_id, jobs in by_batch.items():
        room = purse.room(batch_id, caps[batch_id], account, wanted=len(jobs), anew=anew, now=now)
        back |= set(jobs[room:])
        if not room:
            reached.add(batch_id)
    return HeldBack(frozenset(back), frozenset(reached)) if back else NOTHING_HELD_BACK


def spent(batch_id: int, *, unanswered_since: datetime | None = None) -> Spent:
    """What was sent of it; not counted is what was sent after `unanswered_since` and has no answer so far."""
    which = Q()
    if unanswered_since is not None:
        which = ~Q(MAYBE_THERE, outcome=SubmissionOutcome.OPEN, last_sent_at__gt=unanswered_since)
    return _sum(_family(batch_id), which=which)[0]


def spent_by_batch(
    families: Mapping[int, Collection[int]], delivered: Mapping[int, Spent] | None = None
) -> dict[int, Spent]:
    """As `spent`, of many batches at once, in one query; each with its own key and that of its sample, if it has one.

    `delivered`, by key, is what is known already of delivered submissions (`engine/settled.py`): those are not counted.
    """
    found = dict(delivered or {})
    keys = {key for family in families.values() for key in family}
    arms = [_by_batch(Submission.objects.filter(~DELIVERED, ~UNBILLED, batch__in=keys))]
    if uncounted := keys - found.keys():
        arms.append(_by_batch(Submission.objects.filter(DELIVERED, batch__in=uncounted)))
    for key, count, known, known_count in arms[0].union(*arms[1:], all=True):
        found[key] = found.get(key, Spent()).plus(Spent(count, known or Decimal(0), known_count))
    together = {batch_id: reduce(Spent.plus, _each(found, family)) for batch_id, family in families.items()}
    return {batch_id: spent for batch_id, spent in together.items() if spent.count}


def _each(found: Mapping[int, Spent], family: Collection[int]) -> list[Spent]:
    return [found.get(key, Spent()) for key in family]


def _by_batch(submissions: QuerySet[Submission]) -> QuerySet[Submission, tuple[int, int, Decimal | None, int]]:
    counted = submissions.order_by().values_list("batch")
    # Of rows, not of keys: the key is in no index that tells the rest.
    return counted.annotate(count=Count("*"), known=Sum("billed_amount"), known_count=Count("billed_amount"))


def why_not_start(account: ProviderAccount, cap: Decimal | None, renders: int) -> str:
    """Why a batch with this cap is not started, with both figures; empty where it is."""
    if cap is None:
        return ""
    if account.price_per_job is None:
        return (
            f"A spend cap needs a price, and {account.name} names none. Set the account's price per job, or leave the "
            "cap out."
        )
    cost = renders * account.price_per_job
    if cost <= cap:
        return ""
    named, most = _figures(cost, cap, account.price_currency)
    each = f"{account.price_per_job.normalize():f} {account.price_currency}".strip()
    return (
        f"{figures.documents(renders)} at {each} each cost {named}, and the spend cap is {most}. Raise the cap, or "
        "hand over fewer documents."
    )


def refuse_to_start(account: ProviderAccount, cap: Decimal | None, renders: int) -> None:
    """Raises `IntakeRefused` with the words of `why_not_start`, where it has any."""
    words = why_not_start(account, cap, renders)
    if words:
        raise IntakeRefused(words)


def put_cap(batch: Batch, cap: Decimal | None) -> None:
    """Put it on a batch that is not written yet. Raises `IntakeRefused` for what its row would not take."""
    batch.spend_cap = cap
    try:
        batch.clean_fields(exclude=[field.name for field in batch._meta.fields if field.name != "spend_cap"])
    except ValidationError as error:
        raise IntakeRefused(f"The spend cap cannot be kept: {' '.join(error.messages)}") from error


def why_not_go_on(batch: Batch, cap: Decimal | None, *, unanswered_since: datetime | None = None) -> str:
    """Why a batch may send nothing more under this cap, with both figures; empty where it may. Counted as `spent`."""
    if cap is None:
        return ""
    price, currency = batch.account.price_per_job, batch.account.price_currency
    if price is None:
        return (
            f"{batch.account.name} names no price any more, so the spend cap of {figures.money(cap, currency)} cannot "
            "be kept."
        )
    by_now = spent(batch.pk, unanswered_since=unanswered_since)
    if by_now.room(cap, price):
        return ""
    named, most = _figures(by_now.amount(price) + by_now.each(price), cap, currency)
    return f"With one more document it may have cost {named}, and its spend cap is {most}."


def _figures(cost: Decimal, cap: Decimal, currency: str) -> tuple[str, str]:
    """Both amounts in words that differ where the amounts do."""
    named, most = figures.money(cost, currency), figures.money(cap, currency)
    if named != most:
        return named, most
    return f"{cost.normalize():f} {currency}".strip(), f"{cap.normalize():f} {currency}".strip()


def _family(batch_id: int) -> tuple[int, ...]:
    """The batch and its sample."""
    return (batch_id, *Batch.objects.filter(sample_of=batch_id).values_list("pk", flat=True))


def _count(batch_id: int, *, anew: int, now: datetime) -> _Counted:
    family = _family(batch_id)
    counted, last = _sum(family)
    return _Counted(counted, last, now, family, anew)


def _sum(family: Collection[int], *, after: int = 0, which: Q | None = None) -> tuple[Spent, int]:
    costs = ~UNBILLED & (which or Q())
    found = Submission.objects.filter(batch__in=family, pk__gt=after).aggregate(
        last=Max("pk"),
        count=Count("pk", filter=costs),
        known=Sum("billed_amount", filter=costs),
        known_count=Count("billed_amount", filter=costs),
    )
    return Spent(found["count"], found["known"] or Decimal(0), found["known_count"]), found["last"] or 0
