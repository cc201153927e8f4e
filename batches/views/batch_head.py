"""The head of a batch's page: how it is, how far it has come, what it may cost, in badges and sentences. Asks readers
only; what it is made of is decided there."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from batches import figures, finishing, headway, listings, selectors, sentences, wording
from batches.batchfacts import Facts
from batches.engine import spending
from batches.models import Batch, ProviderAccount

#: Of a larger batch what it has cost is summed up only where it has a cap: each submission is looked at for it.
SUMMED_MOST = 5000
#: How long ago the last document was saved is told anew so often, in seconds.
TOLD_EVERY = 10


def head(
    batch: Batch, facts: Facts, progress: selectors.Progress, held: Sequence[ProviderAccount], *, now: datetime
) -> dict[str, Any]:
    """What stands above the documents; `summary_revision` changes with what of it does."""
    is_asked_to_wait = facts.cooled_down_at is not None and facts.cooled_down_at > now
    waits_until = facts.cooled_down_at if progress.waiting_count and is_asked_to_wait else None
    is_paused, is_cancelled = batch.paused_at is not None, batch.cancelled_at is not None
    going = headway.of(batch, progress, now=now)
    since_saved = (now - going.last_saved_at).total_seconds() if going.last_saved_at else 0.0
    sentence = sentences.status_sentence(
        batch, progress, held, waits_until=waits_until, cancelled_because=selectors.cancel_reason(batch)
    )
    cost_words = _cost_words(batch, progress)
    return {
        "badge": wording.BATCH_BADGES[progress.state],
        "second_badge": wording.second_badge(progress.state, is_paused=is_paused, is_cancelled=is_cancelled),
        "starter": facts.starter,
        "sentence": sentence,
        "breakdown": sentences.breakdown(progress),
        "headway": going,
        "last_saved": f"{finishing.age(since_saved)} ago" if going.last_saved_at else "",
        "estimate": "" if going.words or going.why_not else sentences.sending_estimate(batch, progress),
        "attention": sentences.attention_sentence(progress),
        "cost_words": cost_words,
        "summary_revision": listings.digest(
            progress, sentence, cost_words, going.revision, int(since_saved // TOLD_EVERY)
        ),
    }


def _cost_words(batch: Batch, progress: selectors.Progress) -> str:
    """What the batch may have cost so far, what all of it comes to, and its cap, as far as the price is known."""
    price, currency = batch.account.price_per_job, batch.account.price_currency
    cap = "" if batch.spend_cap is None else figures.money(batch.spend_cap, currency)
    if price is None:
        return f"Its spend cap is {cap}, and its account names no price." if cap else ""
    if not cap and progress.counts.total > SUMMED_MOST:
        return ""
    sample = getattr(batch, "sample", None)
    family = [batch.pk] if sample is None else [batch.pk, sample.pk]
    spent = spending.spent_by_batch({batch.pk: family}).get(batch.pk, spending.Spent())
    if not cap and not spent.count:
        return ""
    so_far = figures.money(spent.amount(price), currency)
    if cap:
        return f"It may have cost {so_far} so far; its spend cap is {cap}."
    rest = progress.counts.in_progress + progress.counts.held
    if not rest:
        return f"It may have cost {so_far}."
    waiting = progress.waiting_count + progress.counts.held
    whole = figures.money(spent.amount(price) + waiting * spent.each(price), currency)
    return f"It may have cost {so_far} so far, and about {whole} when all of it is sent."
