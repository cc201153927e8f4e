"""What an answer says about the account it was given to, as one value, and how that reaches the account's rows.

Judgements only name an effect. It is applied here alone, by `writes`, after the rows of the jobs are safe.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from batches.engine import credit, health, mishaps, pacing, retry_budget
from batches.models import ExchangeKind, HoldReason, Lane
from batches.providers.base import ExchangeFacts

if TYPE_CHECKING:
    from batches.engine.changes import Change  # each of which carries an effect


@dataclass(frozen=True)
class AccountEffect:
    """What an answer says about the account."""

    hold: HoldReason | None = None
    cool_down_until: datetime | None = None
    cool_down_lane: Lane = Lane.SUBMIT
    transport_failure: bool = False
    reached: bool = False
    repeat_was_accepted: bool = False
    trial_was_accepted: bool | None = None  # of an account on probation: whether the one that tried was taken
    words: str = ""

    @property
    def holds_back(self) -> bool:
        """It may change what may be sent: what a pump knows of the account is read again."""
        return bool(self.hold or self.cool_down_until or self.transport_failure)


NO_EFFECT = AccountEffect()


def apply_all(changes: Sequence[Change], *, now: datetime) -> None:
    """What the answers say about their accounts, each account once and after the rows are safe."""
    by_account: dict[int, list[AccountEffect]] = defaultdict(list)
    for change in changes:
        if change.effect != NO_EFFECT:
            by_account[change.claim.account_id].append(change.effect)
    answered = {
        change.claim.account_id
        for change in changes
        if any(_is_provider_answer(facts) for facts, _id in change.exchanges)
    }
    for account_id, effects in by_account.items():
        with mishaps.contained(f"what the answers say about account {account_id}"):
            _apply_to_account(account_id, effects, has_answered=account_id in answered, now=now)


def _apply_to_account(account_id: int, effects: Sequence[AccountEffect], *, has_answered: bool, now: datetime) -> None:
    for effect in effects:
        if effect.cool_down_until:
            pacing.cool_down(account_id, effect.cool_down_lane, effect.cool_down_until)
    trials = [effect.trial_was_accepted for effect in effects if effect.trial_was_accepted is not None]
    if trials:
        credit.end_trial(account_id, was_accepted=any(trials))
    if repeats := sum(effect.repeat_was_accepted for effect in effects):
        retry_budget.give_back(account_id, repeats, now=now)
    holding = next((effect for effect in effects if effect.hold), None)
    failures = [effect for effect in effects if effect.transport_failure]
    if holding and holding.hold:
        health.hold(account_id, reason=holding.hold, words=holding.words, now=now)
    elif any(effect.reached for effect in effects) or (failures and has_answered):
        health.note_reached(account_id)
    elif failures:
        health.note_transport_failures(account_id, len(failures), words=failures[-1].words, now=now)


def _is_provider_answer(facts: ExchangeFacts) -> bool:
    """The provider itself answered, and not only what stands before it; a download may lie on another host."""
    return facts.kind != ExchangeKind.DOWNLOAD and facts.status is not None and facts.status < 500
