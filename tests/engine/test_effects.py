"""What answers say about their account, and what of it lands on the account's rows when the group is written."""

from __future__ import annotations

from datetime import timedelta

from batches.conf import ENGINE
from batches.engine import claims
from batches.engine.changes import Change
from batches.engine.effects import AccountEffect
from batches.engine.outbox import Outbox
from batches.models import AccountHealth, Batch, HoldReason, JobState, Lane, PacingLane, ProviderAccount
from tests import factories
from tests.factories import NOW

LATER = NOW + timedelta(seconds=2)


def effect(batch: Batch, *effects: AccountEffect) -> ProviderAccount:
    jobs = [factories.make_job(batch=batch) for _ in effects]
    taken = claims.claim_due(batch.account, [JobState.PENDING], owner="a", now=NOW, most=99)
    found = [claim for claim in taken if claim.job_id in {job.pk for job in jobs}]
    outbox = Outbox(ENGINE)
    for claim, each in zip(found, effects, strict=True):
        outbox.add(Change(claim=claim, at=NOW, effect=each), NOW)
    list(outbox.write(NOW))
    return ProviderAccount.objects.get(pk=batch.account_id)


def test_a_refused_key_holds_the_account_with_the_providers_words(batch: Batch) -> None:
    account = effect(batch, AccountEffect(hold=HoldReason.AUTH, words="Bad key."))
    assert (account.health, account.hold_reason, account.hold_words) == ("held", "auth", "Bad key.")


def test_a_hold_outranks_an_answer_of_the_same_moment(batch: Batch) -> None:
    account = effect(batch, AccountEffect(reached=True), AccountEffect(hold=HoldReason.CREDIT, words="No funds."))
    assert account.hold_reason == HoldReason.CREDIT


def test_failures_to_get_through_add_up_and_one_success_breaks_the_row(batch: Batch) -> None:
    away = AccountEffect(transport_failure=True, words="Refused.")
    assert effect(batch, away, away).transport_failure_count == 2
    assert effect(batch, AccountEffect(reached=True)).transport_failure_count == 0
    assert effect(batch, away, AccountEffect(reached=True)).transport_failure_count == 0
    account = effect(batch, away, away, away)
    assert (account.health, account.hold_reason) == (AccountHealth.HELD, HoldReason.UNREACHABLE)
    assert account.hold_words == "Refused."


def test_a_cool_down_lands_on_its_own_lane(batch: Batch) -> None:
    effect(batch, AccountEffect(cool_down_until=LATER, cool_down_lane=Lane.POLL))
    assert [lane.lane for lane in PacingLane.objects.filter(cool_down_until_us__gt=0)] == [Lane.POLL]
