"""What an answer says about the account it was given to, as one value, and how that reaches the account's rows.

Judgements only name an effect. It is applied here alone, out of the outbox, after the rows of the jobs are safe; a
database that is away leaves it waiting there, and never brings the rows back with it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from batches.engine import credit, health, mishaps, pacing, retry_budget, suspects
from batches.models import ExchangeKind, HoldReason, Lane
from batches.providers.base import ExchangeFacts

if TYPE_CHECKING:
    from batches.engine.changes import Change  # each of which carries an effect


@dataclass(frozen=True)
class AccountEffect:
    """What an answer says about the account."""

    hold: HoldReason | None = None
    is_strange: bool = False  # the hold is a suspicion: it may be one document's trouble (`suspects`)
    cool_down_until: datetime | None = None
    cool_down_lane: Lane = Lane.SUBMIT
    transport_failure: bool = False
    on_submission: bool = False  # the transport failure is a submission's
    reached: bool = False
    repeat_was_accepted: bool = False
    trial_was_accepted: bool | None = None  # of an account on probation: whether the one that tried was taken
    words: str = ""

    @property
    def holds_back(self) -> bool:
        """It may change what may be sent: what a pump knows of the account is read again."""
        return bool(self.hold or self.cool_down_until or self.transport_failure)


NO_EFFECT = AccountEffect()


@dataclass(frozen=True)
class _Step:
    """One write about an account, which is made once."""

    account_id: int
    holds_back: bool
    run: Callable[[], object]


class Waiting:
    """What committed answers say about their accounts, until it is applied: each account's together, each write once.

    A database that goes away half way ends `apply`, and the next one goes on with the write that failed.
    """

    def __init__(self) -> None:
        self._told: dict[int, list[AccountEffect]] = defaultdict(list)
        self._answered: set[int] = set()
        self._steps: deque[_Step] = deque()
        self._held_back = False

    def __len__(self) -> int:
        return len(self._told) + len(self._steps)

    def add(self, account_id: int, effect: AccountEffect) -> None:
        if effect != NO_EFFECT:
            self._told[account_id].append(effect)

    def add_all(self, changes: Sequence[Change]) -> None:
        """Only of changes that are committed: the rows of the jobs are safe before their account's."""
        for change in changes:
            self.add(change.claim.account_id, change.effect)
            if any(_is_provider_answer(facts) for facts, _id in change.exchanges):
                self._answered.add(change.claim.account_id)

    def apply(self, *, now: datetime) -> None:
        told, answered = self._told, self._answered
        self._told, self._answered = defaultdict(list), set()
        for account_id, effects in told.items():
            holds_back = any(effect.holds_back for effect in effects)
            for run in _writes(account_id, effects, has_answered=account_id in answered, now=now):
                self._steps.append(_Step(account_id, holds_back, run))
        while self._steps:
            step = self._steps[0]
            with mishaps.contained(f"what the answers say about account {step.account_id}"):
                step.run()
            self._held_back |= step.holds_back
            self._steps.popleft()

    def take_held_back(self) -> bool:
        """Whether something was applied, since this was asked last, that may change what may be sent."""
        held_back, self._held_back = self._held_back, False
        return held_back


def _writes(
    account_id: int, effects: Sequence[AccountEffect], *, has_answered: bool, now: datetime
) -> Iterator[Callable[[], object]]:
    for effect in effects:
        if effect.cool_down_until:
            yield partial(pacing.cool_down, account_id, effect.cool_down_lane, effect.cool_down_until)
    trials = [effect.trial_was_accepted for effect in effects if effect.trial_was_accepted is not None]
    if trials:
        yield partial(credit.end_trial, account_id, was_accepted=any(trials), now=now)
    if repeats := sum(effect.repeat_was_accepted for effect in effects):
        yield partial(retry_budget.give_back, account_id, repeats, now=now)
    holding = next((effect for effect in effects if effect.hold and not effect.is_strange), None)
    strange = next((effect for effect in effects if effect.hold and effect.is_strange), None)
    if holding and holding.hold:
        yield partial(health.hold, account_id, reason=holding.hold, words=holding.words, now=now)
    elif strange:
        yield partial(suspects.hold_unless_others_pass, account_id, words=strange.words, now=now)
    else:
        yield from _way_there(account_id, effects, has_answered=has_answered, now=now)


def _way_there(
    account_id: int, effects: Sequence[AccountEffect], *, has_answered: bool, now: datetime
) -> Iterator[Callable[[], object]]:
    """A call that got through ends the row of all calls, but submissions have a row of their own."""
    failures = [effect for effect in effects if effect.transport_failure]
    if any(effect.reached for effect in effects) or (failures and has_answered):
        yield partial(health.note_reached, account_id)
    elif failures:
        words = failures[-1].words
        yield partial(health.note_transport_failures, account_id, len(failures), words=words, now=now)
    if of_submissions := [effect for effect in failures if effect.on_submission]:
        yield partial(health.hold_where_submissions_fail, account_id, words=of_submissions[-1].words, now=now)


def _is_provider_answer(facts: ExchangeFacts) -> bool:
    """The provider itself answered, and not only what stands before it; a download may lie on another host."""
    return facts.kind != ExchangeKind.DOWNLOAD and facts.status is not None and facts.status < 500
