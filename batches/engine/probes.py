"""The single free call that may end a hold: when it is due, which pump makes it, and what its answer changes."""

from __future__ import annotations

import random
from datetime import datetime
from decimal import Decimal

from batches.engine import credit, health
from batches.models import AccountHealth, HoldReason, ProviderAccount
from batches.providers import errors
from batches.providers.base import Capabilities

#: No answer that could be read came back. Wider than `retries.TRANSPORT_ERRORS`: what cannot be read ends no hold,
#: though it begins none. Any other refusal shows that the provider can be reached, and nothing else.
NOT_REACHED = (errors.NotSent, errors.OutcomeUnknown)


def is_due(account: ProviderAccount, *, now: datetime) -> bool:
    """As far as the row says that was read last; `claim` has the last word."""
    is_held = account.health == AccountHealth.HELD and account.archived_at is None
    return is_held and account.probe_at is not None and account.probe_at <= now


def claim(account: ProviderAccount, capabilities: Capabilities, *, now: datetime) -> bool:
    """Take the right to the one probe that is due. An announced top-up opens the account without a probe."""
    if not health.claim_probe(account.pk, now=now):
        return False
    if account.hold_reason != HoldReason.CREDIT or account.held_at is None:
        return True
    if not credit.was_announced(account.pk, capabilities.topup_events, held_at=account.held_at):
        return True
    credit.open_on_probation(account.pk, balance=None, now=now)
    return False


def settle(
    account_id: int,
    error: errors.ProviderError | None,
    *,
    hold: HoldReason | None,
    balance: Decimal | None,
    now: datetime,
    rng: random.Random,
) -> None:
    """What the probe's answer means for the hold that it was made for; a hold that a person ends stays."""
    reason = ProviderAccount.objects.values_list("hold_reason", flat=True).get(pk=account_id)
    if reason == HoldReason.CREDIT:
        if error is None:
            credit.note_balance(account_id, balance, now=now)
        elif hold is not None:
            health.hold(account_id, reason=hold, words=error.words, now=now)
        return  # else it was not learned; `claim_probe` has put the next look off already
    if reason != HoldReason.UNREACHABLE:
        return
    if error is not None and hold is not None:
        health.hold(account_id, reason=hold, words=error.words, now=now)
    elif isinstance(error, NOT_REACHED):
        health.probe_failed(account_id, now=now, rng=rng)
    else:
        health.reopen(account_id, now=now)
