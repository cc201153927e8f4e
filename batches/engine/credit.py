"""After an empty wallet: how a top-up is noticed, and the trial on which the account goes on.

Balances are compared in the provider's own unit and never counted as money. A rise of the balance over the least that
was seen since the hold, or the provider's own event of a top-up, opens the account on probation: one submission at a
time until one is accepted, or another 402 holds it again. So does a probe that got through after submissions that had
not (`health.reopen`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from django.db import transaction

from batches import wording
from batches.conf import ENGINE
from batches.engine import alerts, health
from batches.models import (
    AccountHealth,
    AlertKind,
    HoldNote,
    HoldReason,
    Job,
    JobState,
    ProviderAccount,
    Submission,
    WebhookEvent,
)

if TYPE_CHECKING:
    from batches.engine.preparing import Prepared

NO_BALANCE_WORDS = "The provider names no balance, so nothing here can see a top-up."


def was_announced(account_id: int, topup_events: Collection[str], *, held_at: datetime) -> bool:
    """Whether a proven event of the provider told of a top-up after the hold began."""
    return (
        bool(topup_events)
        and WebhookEvent.objects.filter(
            account_id=account_id, type__in=list(topup_events), received_at__gt=held_at
        ).exists()
    )


def heed_topup(account_id: int, *, now: datetime) -> bool:
    """The provider told of a top-up: have an account that is held for credit looked at now. True when one is."""
    held = ProviderAccount.objects.filter(pk=account_id, health=AccountHealth.HELD, hold_reason=HoldReason.CREDIT)
    return bool(held.update(probe_at=now))


def heed_shortage(account_id: int, *, told_at: datetime) -> bool:
    """The provider told that money is short: let the next submission go alone and its answer decide.

    The event may be old or wrong, so it holds nobody: a 402 does that, as ever, and an acceptance ends the trial at the
    price of one submission's time. One that was accepted after the event was signed has disproved it already.
    """
    if Submission.objects.filter(account_id=account_id, accepted_at__gt=told_at).exists():
        return False
    account = ProviderAccount.objects.filter(pk=account_id, health=AccountHealth.OPEN, on_probation=False)
    return bool(account.update(on_probation=True, probe_at=None, balance_seen=None))


def note_balance(account_id: int, balance: Decimal | None, *, now: datetime) -> None:
    """What a check of an account that is held for credit showed."""
    held = ProviderAccount.objects.filter(pk=account_id, health=AccountHealth.HELD, hold_reason=HoldReason.CREDIT).only(
        "name", "hold_words", "hold_note", "balance_seen"
    )
    account = held.first()
    if account is None:
        return  # a person was first
    if balance is not None and account.balance_seen is not None and balance > account.balance_seen:
        open_on_probation(account_id, balance=balance, now=now)
        return
    _say_whether_a_balance_is_named(account, is_named=balance is not None)
    held.update(
        # The least that was seen: work that was accepted before is still charged.
        balance_seen=account.balance_seen if balance is None else balance,
        probe_at=now + timedelta(seconds=ENGINE.credit_check_seconds),
    )


def _say_whether_a_balance_is_named(account: ProviderAccount, *, is_named: bool) -> None:
    """Add to the words of the hold that no balance is named, once; take it back when one is."""
    if is_named == (account.hold_note != HoldNote.NO_BALANCE):
        return
    if is_named:
        words, note = account.hold_words.removesuffix(NO_BALANCE_WORDS).strip(), HoldNote.NONE
    else:
        words, note = f"{wording.sentence(account.hold_words)} {NO_BALANCE_WORDS}", HoldNote.NO_BALANCE
    held = ProviderAccount.objects.filter(
        pk=account.pk, hold_reason=HoldReason.CREDIT, hold_note=account.hold_note, hold_words=account.hold_words
    )
    if held.update(hold_words=words, hold_note=note):
        alerts.reword_for_account(
            account, AlertKind.ACCOUNT_HELD, health.alert_words(account.name, HoldReason.CREDIT, words)
        )


def open_on_probation(account_id: int, *, balance: Decimal | None, now: datetime) -> bool:
    """Let one submission try whether there is credit again; true when this call opened the account."""
    return health.open_account(
        account_id,
        ProviderAccount.objects.filter(hold_reason=HoldReason.CREDIT),
        now=now,
        on_probation=True,
        balance_seen=balance,
    )


# --- the trial ---


def admit(account: ProviderAccount, chosen: Sequence[Prepared], *, now: datetime) -> Sequence[Prepared]:
    """What may leave of `chosen`: all of it, or one alone while the account is on probation.

    Call it under the lane's lock. What may have arrived before goes first, and nothing new goes beside it.
    """
    if not account.on_probation:
        return chosen
    row = ProviderAccount.objects.filter(pk=account.pk, health=AccountHealth.OPEN)
    found = row.values_list("on_probation", "probe_at").first()
    if found is None:
        return []  # held again meanwhile
    on_probation, taken_until = found
    if not on_probation:
        return chosen
    never_left = [prepared for prepared in chosen if prepared.is_resend and not prepared.doubt_before]
    if never_left:
        return never_left[:1]  # the trial is its own already; it missed its slot
    if taken_until is not None and taken_until > now:
        return []
    repeats = [prepared for prepared in chosen if prepared.is_resend]
    if repeats:
        return repeats[:1]
    if Job.objects.filter(account_id=account.pk, state=JobState.SUBMITTING).exists():
        return []
    return chosen[:1]


def begin_trial(account: ProviderAccount, *, now: datetime) -> None:
    """One submission has its slot: nothing else leaves before its answer, or before it could have had one."""
    longest = ENGINE.slot_horizon_seconds + ENGINE.connect_timeout + ENGINE.read_timeout + ENGINE.lease_margin_seconds
    ProviderAccount.objects.filter(pk=account.pk, on_probation=True).update(probe_at=now + timedelta(seconds=longest))


def end_trial(account_id: int, *, was_accepted: bool, now: datetime) -> None:
    """Accepted: the account is open as before. Any other answer proves nothing, and another may try."""
    with transaction.atomic():
        trial = ProviderAccount.objects.filter(pk=account_id, health=AccountHealth.OPEN, on_probation=True)
        if was_accepted:
            if trial.update(on_probation=False, probe_at=None, balance_seen=None):
                account = ProviderAccount.objects.only("pk").get(pk=account_id)
                alerts.close_for_account(account, AlertKind.ACCOUNT_HELD, now=now)
        else:
            trial.update(probe_at=None)
