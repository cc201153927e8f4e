"""An account's health: when it is held, why, and what ends the hold. Held stops new submissions only."""

from __future__ import annotations

import itertools
import logging
import random
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal

from django.db import transaction
from django.db.models import Case, F, QuerySet, When

from batches import wording
from batches.conf import ENGINE
from batches.engine import alerts, pacing, retries
from batches.engine.contention import again_after_deadlock
from batches.models import (
    AccountHealth,
    AlertKind,
    Exchange,
    ExchangeKind,
    HoldNote,
    HoldReason,
    Job,
    JobState,
    Lane,
    ProviderAccount,
    UnreadableSecret,
)
from batches.models.accounts import unreadable_limits

log = logging.getLogger(__name__)

#: Calls in a row that did not get through hold an account.
OPENS_AT = ENGINE.unreachable_after
#: How far back `submissions_failed` looks: further than one document has tries.
SUBMISSIONS_LOOKED_AT = 30


@again_after_deadlock
def hold(account_id: int, *, reason: HoldReason, words: str, now: datetime) -> bool:
    """Hold an open account; true when this call did it.

    A hold that a person must end outranks those that end by themselves: `unreachable`, and missing credit, which a
    top-up ends.

    A refused key is added to the words of a person's hold, which stays theirs.
    When it returns, no further intent of the account is committed: that is done under the same row.
    """
    with transaction.atomic():
        if reason is HoldReason.AUTH:
            told = _with_what_stands(account_id, words)
            if told is None:
                return False
            words = told
        pacing.lock(account_id, Lane.SUBMIT)
        open_now = ProviderAccount.objects.filter(pk=account_id, health=AccountHealth.OPEN)
        if reason is not HoldReason.UNREACHABLE:
            open_now = open_now | ProviderAccount.objects.filter(
                pk=account_id, health=AccountHealth.HELD, hold_reason__in=_outranked_by(reason)
            )
        probe_at = _first_probe_at(account_id, reason, now)
        held = open_now.update(
            health=AccountHealth.HELD,
            hold_reason=reason,
            hold_words=words,
            hold_note=HoldNote.NONE,
            held_at=now,
            probe_at=probe_at,
            on_probation=False,
            # A trial that failed keeps what was seen when it began: only a further rise is another top-up.
            balance_seen=Case(When(on_probation=True, then=F("balance_seen")), default=None),
        )
        if not held:
            return False
        account = _named(account_id)
        if reason is not HoldReason.UNREACHABLE:
            alerts.close_for_account(account, AlertKind.ACCOUNT_HELD, now=now)
        # One that is open still is that of the outage before whose trial failed: it is the same outage.
        alerts.tell_for_account(account, AlertKind.ACCOUNT_HELD, alert_words(account.name, reason, words), now=now)
    log.warning("account %s is held (%s): %r", account.slug, reason, words)
    return True


def _outranked_by(reason: HoldReason) -> tuple[HoldReason, ...]:
    ends_by_itself = (HoldReason.UNREACHABLE, HoldReason.CREDIT)
    return ends_by_itself if reason in (HoldReason.AUTH, HoldReason.PERSON) else (HoldReason.UNREACHABLE,)


def _with_what_stands(account_id: int, words: str) -> str | None:
    """The words of a refused key, with those of a hold for credit; None where the hold that stands is to stay.

    A person's hold gets the words added, once.
    """
    held = ProviderAccount.objects.filter(pk=account_id, health=AccountHealth.HELD)
    reason, known, note = held.values_list("hold_reason", "hold_words", "hold_note").first() or ("", "", "")
    if reason == HoldReason.CREDIT:
        return f"{wording.sentence(words)} Before that it had no credit: {wording.sentence(known)}"
    if reason == HoldReason.PERSON and note != HoldNote.KEY_REFUSED:
        both = f"{wording.sentence(known)} Its key is refused too: {wording.sentence(words)}"
        unchanged = held.filter(hold_reason=HoldReason.PERSON, hold_words=known)
        if unchanged.update(hold_words=both, hold_note=HoldNote.KEY_REFUSED):
            told = f"{both} {wording.HOLD_WHAT_TO_DO[HoldReason.AUTH]}"
            account = _named(account_id)
            words_now = alert_words(account.name, HoldReason.PERSON, told)
            alerts.reword_for_account(account, AlertKind.ACCOUNT_HELD, words_now)
    return None if reason in (HoldReason.AUTH, HoldReason.PERSON) else words


def alert_words(name: str, reason: HoldReason, words: str) -> str:
    return f"{name} is held: {wording.sentence(words)} {wording.HOLD_WHAT_TO_DO[reason]}"


def _first_probe_at(account_id: int, reason: HoldReason, now: datetime) -> datetime | None:
    if reason is HoldReason.UNREACHABLE:
        failures = 0
        if ProviderAccount.objects.filter(pk=account_id, on_probation=True).exists():
            failures = submissions_failed(account_id) - ENGINE.unreachable_after
        return now + retries.probe_ceiling(failures)  # each trial that fails comes later than the one before
    if reason is HoldReason.CREDIT:
        return now + timedelta(seconds=ENGINE.credit_check_first_seconds)
    return None


def resume(account_id: int, *, now: datetime) -> bool:
    """A person opens a held account, and all that waits is due, repeats too; harmless when it is open."""
    return open_account(
        account_id,
        ProviderAccount.objects.all(),
        now=now,
        on_probation=False,
        balance_seen=None,
        due=(JobState.PENDING, JobState.SUBMITTING),
    )


def reopen(account_id: int, *, now: datetime) -> bool:
    """A probe got through. It is a read: where submissions failed, one at a time finds out whether they do again."""
    held = ProviderAccount.objects.filter(hold_reason=HoldReason.UNREACHABLE)
    on_trial = submissions_failed(account_id) > 0
    return open_account(account_id, held, now=now, on_probation=on_trial, balance_seen=None, keeps_alert=on_trial)


@again_after_deadlock
def open_account(
    account_id: int,
    held: QuerySet[ProviderAccount],
    *,
    now: datetime,
    on_probation: bool,
    balance_seen: Decimal | None,
    due: Sequence[JobState] = (JobState.PENDING,),
    keeps_alert: bool = False,
) -> bool:
    """Open the account if it is held and among `held`; true when this call did it.

    What backed off in a state of `due` does not wait out its delay. What is in doubt waits on unless a person opens: an
    account that opens by itself again and again would use up its tries in no time.
    """
    with transaction.atomic():
        resumed = held.filter(pk=account_id, health=AccountHealth.HELD).update(
            health=AccountHealth.OPEN,
            hold_reason="",
            hold_words="",
            hold_note=HoldNote.NONE,
            held_at=None,
            probe_at=None,
            transport_failure_count=0,
            on_probation=on_probation,
            balance_seen=balance_seen,
        )
        if not resumed:
            return False
        account = _named(account_id)
        if keeps_alert:
            words = f"{account.name}: {wording.ON_TRIAL}"
            alerts.reword_for_account(account, AlertKind.ACCOUNT_HELD, words)
        else:
            alerts.close_for_account(account, AlertKind.ACCOUNT_HELD, now=now)
        Job.objects.filter(account_id=account_id, state__in=due, lease_owner=None, due_at__gt=now).update(due_at=now)
    log.warning("account %s goes on%s", account.slug, ", one document first" if on_probation else "")
    return True


def note_transport_failures(account_id: int, count: int, *, words: str, now: datetime) -> None:
    """Count calls that did not get through; enough in a row hold the account as unreachable.

    While it is held they count for nothing: accepted work is still read, and would drive the probes apart.
    """
    open_now = ProviderAccount.objects.filter(pk=account_id, health=AccountHealth.OPEN)
    if not open_now.update(transport_failure_count=F("transport_failure_count") + count):
        return
    failures = ProviderAccount.objects.values_list("transport_failure_count", flat=True).get(pk=account_id)
    if failures >= ENGINE.unreachable_after:
        hold(account_id, reason=HoldReason.UNREACHABLE, words=words, now=now)


def hold_where_submissions_fail(account_id: int, *, words: str, now: datetime) -> None:
    """Enough submissions in a row that did not get through hold the account, whatever its reads came to meanwhile.

    Called when the exchanges of the failures are committed.
    """
    is_open = ProviderAccount.objects.filter(pk=account_id, health=AccountHealth.OPEN).exists()
    if is_open and submissions_failed(account_id) >= ENGINE.unreachable_after:
        hold(account_id, reason=HoldReason.UNREACHABLE, words=words, now=now)


def submissions_failed(account_id: int) -> int:
    """How many of the last submissions did not get through, one after the other.

    None where all are of one document: that it never gets through says nothing of the others.
    """
    sent = Exchange.objects.filter(account_id=account_id, kind=ExchangeKind.SUBMIT).order_by("-id")
    last = sent.values_list("error_class", "job_id")[:SUBMISSIONS_LOOKED_AT]
    row = [job_id for _name, job_id in itertools.takewhile(lambda one: one[0] in retries.TRANSPORT_ERROR_NAMES, last)]
    return len(row) if len(set(row)) > 1 else 0


def note_reached(account_id: int) -> None:
    """A call got through, so the row of failures is broken."""
    ProviderAccount.objects.filter(pk=account_id, health=AccountHealth.OPEN).exclude(transport_failure_count=0).update(
        transport_failure_count=0
    )


def _named(account_id: int) -> ProviderAccount:
    """The account without its secrets, which may not be readable."""
    return ProviderAccount.objects.only("name", "slug").get(pk=account_id)


def readable_accounts(*, now: datetime) -> dict[int, ProviderAccount]:
    """All accounts by id. One whose stored key cannot be decrypted is held and left out; the others go on."""
    try:
        return {account.pk: account for account in ProviderAccount.objects.all()}
    except UnreadableSecret:
        pass  # which one, is found one by one
    readable = {}
    for pk in ProviderAccount.objects.values_list("pk", flat=True):
        try:
            readable[pk] = ProviderAccount.objects.get(pk=pk)
        except UnreadableSecret as error:
            hold(pk, reason=HoldReason.AUTH, words=str(error), now=now)
    return readable


def usable_accounts(make: Callable[[ProviderAccount], object], *, now: datetime) -> dict[int, ProviderAccount]:
    """The readable accounts that can be worked with: `make` makes an adapter, and every limit is a number.

    Another is held and left out; the others go on.
    """
    usable = readable_accounts(now=now)
    for pk, account in list(usable.items()):
        try:
            make(account)
            if unreadable := unreadable_limits(account):
                raise ValueError(", ".join(unreadable))
        except Exception as error:
            del usable[pk]
            words = f"Its settings cannot be used ({type(error).__name__}). Correct its address, hosts, key and limits."
            if hold(pk, reason=HoldReason.AUTH, words=words, now=now):
                log.exception("account %s is held: its settings cannot be used", pk)
    return usable


def claim_probe(account_id: int, *, now: datetime) -> bool:
    """Take the right to send the one probe that is due; false when another pump has it or none is due."""
    return bool(
        ProviderAccount.objects.filter(
            pk=account_id,
            health=AccountHealth.HELD,
            hold_reason__in=(HoldReason.UNREACHABLE, HoldReason.CREDIT),
            probe_at__lte=now,
        ).update(probe_at=now + timedelta(seconds=ENGINE.read_timeout + ENGINE.probe_most_seconds))
    )


def probe_failed(account_id: int, *, now: datetime, rng: random.Random) -> None:
    """Still not reachable: the next probe comes later than this one did."""
    counted = ProviderAccount.objects.values_list("transport_failure_count", flat=True).get(pk=account_id)
    failures = counted + 1
    ProviderAccount.objects.filter(pk=account_id, health=AccountHealth.HELD, hold_reason=HoldReason.UNREACHABLE).update(
        transport_failure_count=failures,
        probe_at=now + retries.probe_delay(failures - ENGINE.unreachable_after, rng),
    )
