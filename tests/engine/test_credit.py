"""After an empty wallet: what counts as a top-up, and the trial of one submission that follows it."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from batches.conf import ENGINE
from batches.engine import claims, credit, health, probes, steps
from batches.engine.preparing import Prepared
from batches.models import Alert, Batch, HoldReason, Job, JobState, ProviderAccount
from batches.providers import errors
from batches.providers.base import AccountState, Capabilities, PreparedRequest
from tests import factories
from tests.engine import racing
from tests.engine.simulated import SimulatedProvider
from tests.engine.test_intents import commit, jobs_of, prepared
from tests.engine.virtual_time import VirtualClock
from tests.factories import NOW

pytestmark = pytest.mark.django_db
RNG = random.Random(4)
KNOWS_EVENTS = Capabilities(client_key=True, topup_events=frozenset({"wallet.topup"}))
CHECK = timedelta(seconds=ENGINE.credit_check_first_seconds)


def hold_for_credit(account: ProviderAccount, at: datetime = NOW) -> None:
    assert health.hold(account.pk, reason=HoldReason.CREDIT, words="No funds are left.", now=at)
    account.refresh_from_db()


def shows(account: ProviderAccount, balance: object, at: datetime = NOW) -> ProviderAccount:
    """A check of the account answers with this balance."""
    amount = None if balance is None else Decimal(str(balance))
    probes.settle(account.pk, None, hold=None, balance=amount, now=at, rng=RNG)
    account.refresh_from_db()
    return account


# --- what counts as a top-up ---


@pytest.mark.parametrize(
    ("balances", "opens"),
    [
        ([0], False),  # the first look only says what there was
        ([500], False),
        ([0, 0, 0], False),
        ([0, 500], True),
        ([10, 9], False),
        ([10, 3, 8], True),  # accepted work was charged meanwhile: the least that was seen counts
        (["0.000001", "0.000002"], True),
        ([-40, -39], True),
        ([7, None, 7], False),
        ([7, None, 8], True),
        ([None, None], False),
        ([None, 5], False),
    ],
)
def test_only_a_rise_over_the_least_that_was_seen_is_a_top_up(
    account: ProviderAccount, balances: list[Any], opens: bool
) -> None:
    hold_for_credit(account)
    for balance in balances:
        shows(account, balance)
    assert (account.health, account.on_probation) == (("open", True) if opens else ("held", False))
    if opens:
        assert account.balance_seen == Decimal(str(balances[-1]))
        assert Alert.objects.get().closed_at == NOW


def test_looks_are_far_apart(account: ProviderAccount) -> None:
    hold_for_credit(account)
    assert account.probe_at == NOW + CHECK
    assert not health.claim_probe(account.pk, now=NOW)
    assert [health.claim_probe(account.pk, now=NOW + CHECK) for _ in range(2)] == [True, False], "one pump looks"
    shows(account, 3)
    assert account.probe_at == NOW + timedelta(seconds=ENGINE.credit_check_seconds)


@pytest.mark.parametrize("kind", [errors.NotSent, errors.ServerFault])
def test_a_look_that_failed_shows_nothing_and_changes_no_hold(
    account: ProviderAccount, kind: type[errors.ProviderError]
) -> None:
    hold_for_credit(account)
    shows(account, 3)
    probes.settle(account.pk, kind("No."), hold=None, balance=None, now=NOW, rng=RNG)
    account.refresh_from_db()
    assert (account.hold_reason, account.balance_seen) == ("insufficient_credit", 3)


def test_what_a_person_held_meanwhile_is_not_opened_by_a_top_up(account: ProviderAccount) -> None:
    hold_for_credit(account)
    shows(account, 0)
    assert health.hold(account.pk, reason=HoldReason.PERSON, words="Wrong prices.", now=NOW)
    shows(account, 500)
    assert (account.health, account.hold_reason, account.probe_at) == ("held", "person", None)


@pytest.mark.parametrize("kind", [errors.RateLimited, errors.InsufficientCredit, errors.NotFound])
def test_a_look_that_was_refused_says_nothing_about_what_balance_is_named(
    account: ProviderAccount, kind: type[errors.ProviderError]
) -> None:
    hold_for_credit(account)
    shows(account, 3)

    class Refusing(SimulatedProvider):
        def check_account(self, *, now: datetime) -> AccountState:
            raise kind("Not now.")

    said = steps.probe(account.pk, Refusing(VirtualClock(NOW)), now=NOW)
    probes.settle(account.pk, said.error, hold=said.hold, balance=said.balance, now=NOW, rng=RNG)
    account.refresh_from_db()
    assert (account.hold_words, account.balance_seen) == ("No funds are left.", 3)
    assert shows(account, 4).health == "open"


@pytest.mark.parametrize("kind", [errors.RateLimited, errors.InsufficientCredit, errors.NotFound])
def test_a_refused_look_shows_that_an_account_that_was_away_can_be_reached(
    account: ProviderAccount, kind: type[errors.ProviderError]
) -> None:
    health.hold(account.pk, reason=HoldReason.UNREACHABLE, words="Nobody answers.", now=NOW)
    probes.settle(account.pk, kind("Not now."), hold=None, balance=None, now=NOW, rng=RNG)
    account.refresh_from_db()
    assert account.health == "open"


def test_a_look_whose_key_is_refused_holds_for_the_key_and_says_both(account: ProviderAccount) -> None:
    hold_for_credit(account)
    refused = errors.Unauthorized("The key is refused.")
    probes.settle(account.pk, refused, hold=HoldReason.AUTH, balance=None, now=NOW, rng=RNG)
    account.refresh_from_db()
    assert (account.hold_reason, account.probe_at) == ("auth", None)
    assert account.hold_words.startswith("The key is refused. Before that it had no credit:")


def test_a_provider_that_names_no_balance_is_told_apart_in_the_alert(account: ProviderAccount) -> None:
    hold_for_credit(account)
    for _ in range(3):
        shows(account, None)
    alert = Alert.objects.get(closed_at=None)
    for words in (alert.words, account.hold_words):
        assert words.count(credit.NO_BALANCE_WORDS) == 1
    assert "resume the account" in alert.words
    shows(account, 3)
    alert.refresh_from_db()
    assert account.hold_words == "No funds are left."
    assert credit.NO_BALANCE_WORDS not in alert.words, "a balance that is named after all can show a top-up"
    assert account.probe_at == NOW + timedelta(seconds=ENGINE.credit_check_seconds)


@pytest.mark.parametrize(
    ("kind", "seconds", "capabilities", "opens"),
    [
        ("wallet.topup", 1, KNOWS_EVENTS, True),
        ("wallet.topup", -1, KNOWS_EVENTS, False),  # it came before the 402
        ("wallet.payment_required", 1, KNOWS_EVENTS, False),
        ("wallet.topup", 1, Capabilities(client_key=True), False),
    ],
)
def test_the_providers_own_event_of_a_top_up_opens_the_account_without_a_look(
    account: ProviderAccount, kind: str, seconds: int, capabilities: Capabilities, opens: bool
) -> None:
    hold_for_credit(account)
    factories.make_event(account=account, type=kind, at=NOW + timedelta(seconds=seconds))
    factories.make_event(type="wallet.topup", at=NOW + timedelta(seconds=1))
    assert probes.claim(account, capabilities, now=NOW + CHECK) is not opens
    account.refresh_from_db()
    assert account.on_probation is opens


def test_an_event_opens_once(account: ProviderAccount) -> None:
    hold_for_credit(account)
    factories.make_event(account=account, type="wallet.topup", at=NOW + timedelta(seconds=1))
    probes.claim(account, KNOWS_EVENTS, now=NOW + CHECK)
    later = NOW + timedelta(minutes=1)
    hold_for_credit(account, later)
    assert probes.claim(account, KNOWS_EVENTS, now=later + CHECK), "the old event says nothing about this hold"


def test_a_person_resumes_without_a_trial(account: ProviderAccount) -> None:
    hold_for_credit(account)
    shows(account, 3)
    assert health.resume(account.pk, now=NOW)
    account.refresh_from_db()
    assert (account.health, account.on_probation, account.balance_seen, account.probe_at) == ("open", False, None, None)


# --- the trial ---


@pytest.fixture
def trial(batch: Batch) -> ProviderAccount:
    """The batch's account, on probation, with no pace to speak of."""
    account = batch.account
    ProviderAccount.objects.filter(pk=account.pk).update(submit_interval_ms=1, max_in_flight=50)
    hold_for_credit(account)
    shows(account, 0)
    return shows(account, 5)


def test_one_submission_leaves_and_the_others_wait(batch: Batch, trial: ProviderAccount) -> None:
    jobs = [factories.make_job(batch=batch) for _ in range(3)]
    ready = prepared(trial)
    intents = commit(trial, ready)
    assert jobs_of(intents) == [jobs[0].pk]
    assert intents.lost == set()
    for seconds in (0, 1, 20):
        assert commit(trial, ready[1:], now=NOW + timedelta(seconds=seconds)).sendings == []


def test_an_acceptance_ends_the_trial_for_all(batch: Batch, trial: ProviderAccount) -> None:
    for _ in range(3):
        factories.make_job(batch=batch)
    ready = prepared(trial)
    commit(trial, ready[:1])
    credit.end_trial(trial.pk, was_accepted=True, now=NOW)
    trial.refresh_from_db()
    assert (trial.on_probation, trial.probe_at, trial.balance_seen) == (False, None, None)
    assert len(commit(trial, ready[1:]).sendings) == 2


def test_a_402_holds_it_again_until_the_balance_rises_further(batch: Batch, trial: ProviderAccount) -> None:
    factories.make_job(batch=batch)
    commit(trial, prepared(trial))
    credit.end_trial(trial.pk, was_accepted=False, now=NOW)
    hold_for_credit(trial)
    assert (trial.on_probation, trial.balance_seen) == (False, 5)
    assert shows(trial, 5).health == "held"
    assert shows(trial, 6).on_probation


def test_any_other_answer_lets_another_one_try_but_never_beside_one_in_doubt(
    batch: Batch, trial: ProviderAccount
) -> None:
    for _ in range(2):
        factories.make_job(batch=batch)
    first, second = prepared(trial)
    (sending,) = commit(trial, [first]).sendings
    credit.end_trial(trial.pk, was_accepted=False, now=NOW)
    assert commit(trial, [second]).sendings == [], "the first may have arrived"
    again = Prepared(
        sending.prepared.claim, first.request, first.request_sha256, None, doubt_before=True, sent_before=True
    )
    assert jobs_of(commit(trial, [second, again])) == [first.claim.job_id], "it goes again, alone"
    credit.end_trial(trial.pk, was_accepted=False, now=NOW)
    Job.objects.filter(pk=first.claim.job_id).update(state=JobState.PENDING)
    assert jobs_of(commit(trial, [second])) == [second.claim.job_id]


def test_a_trial_that_missed_its_slot_keeps_its_turn(batch: Batch, trial: ProviderAccount) -> None:
    for _ in range(2):
        factories.make_job(batch=batch)
    first, second = prepared(trial)
    (sending,) = commit(trial, [first]).sendings
    missed = Prepared(sending.prepared.claim, first.request, first.request_sha256, None, doubt_before=False)
    assert jobs_of(commit(trial, [second, missed])) == [first.claim.job_id]


def test_a_pump_that_died_with_the_trial_is_replaced(batch: Batch, trial: ProviderAccount) -> None:
    job = factories.make_job(batch=batch)
    commit(trial, prepared(trial))
    trial.refresh_from_db()
    late = NOW + timedelta(seconds=60)
    assert trial.probe_at < late
    Job.objects.update(lease_owner=None, lease_until=None, due_at=late)
    job.submissions.update(in_doubt=True)
    (claimed,) = claims.claim_due(trial, [JobState.SUBMITTING], owner="b", now=late, most=5)
    again = Prepared(
        claimed, PreparedRequest(route="/v1/pdf", body=b"{}"), "0" * 64, None, doubt_before=True, sent_before=True
    )
    assert jobs_of(commit(trial, [again], now=late)) == [job.pk]


def test_a_hold_that_came_meanwhile_stops_the_trial_too(batch: Batch, trial: ProviderAccount) -> None:
    factories.make_job(batch=batch)
    ready = prepared(trial)
    health.hold(trial.pk, reason=HoldReason.PERSON, words="Stop.", now=NOW)
    assert commit(trial, ready).sendings == []
    credit.end_trial(trial.pk, was_accepted=True, now=NOW)
    trial.refresh_from_db()
    assert trial.hold_reason == HoldReason.PERSON


@pytest.mark.django_db(transaction=True)
def test_pumps_that_try_at_once_send_one() -> None:
    account = factories.make_account(submit_interval_ms=1, max_in_flight=50, on_probation=True)
    batch = factories.make_batch(account=account)
    for _ in range(8):
        factories.make_job(batch=batch)
    taken = prepared(account)
    sent: list[int] = []

    def work(share: list[Prepared]) -> None:
        for each in share:
            sent.extend(jobs_of(commit(account, [each])))

    racing.answers([partial(work, taken[number::4]) for number in range(4)])
    assert len(sent) == Job.objects.filter(state="submitting").count() == 1
