"""An account's health and its alerts: who may hold it, who ends the hold, and what a person is told meanwhile."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.db import connection
from django.test.utils import CaptureQueriesContext

from batches import wording
from batches.conf import ENGINE
from batches.engine import alerts, credit, health
from batches.models import (
    AccountHealth,
    Alert,
    AlertKind,
    Batch,
    Exchange,
    ExchangeKind,
    HoldReason,
    Job,
    JobState,
    ProviderAccount,
    UnreadableSecret,
)
from tests import factories
from tests.engine.samples import Dice

pytestmark = pytest.mark.django_db
RNG = random.Random(2)


def hold(account: ProviderAccount, reason: HoldReason, now: datetime, words: str = "It said no.") -> bool:
    return health.hold(account.pk, reason=reason, words=words, now=now)


def facts(account: ProviderAccount) -> tuple[Any, ...]:
    account.refresh_from_db()
    return account.health, account.hold_reason, account.hold_words, account.held_at


@pytest.mark.parametrize("reason", list(HoldReason))
def test_a_hold_says_why_and_what_to_do(account: ProviderAccount, now: datetime, reason: HoldReason) -> None:
    assert hold(account, reason, now)
    assert facts(account) == ("held", reason, "It said no.", now)
    alert = Alert.objects.get()
    assert (alert.kind, alert.account, alert.closed_at) == (AlertKind.ACCOUNT_HELD, account, None)
    for part in (account.name, "It said no.", wording.HOLD_WHAT_TO_DO[reason]):
        assert part in alert.words


@pytest.mark.parametrize(
    ("first", "second", "stands"),
    [
        (HoldReason.UNREACHABLE, HoldReason.AUTH, HoldReason.AUTH),
        (HoldReason.UNREACHABLE, HoldReason.CREDIT, HoldReason.CREDIT),
        (HoldReason.UNREACHABLE, HoldReason.PERSON, HoldReason.PERSON),
        (HoldReason.UNREACHABLE, HoldReason.UNREACHABLE, HoldReason.UNREACHABLE),
        (HoldReason.AUTH, HoldReason.UNREACHABLE, HoldReason.AUTH),
        (HoldReason.AUTH, HoldReason.CREDIT, HoldReason.AUTH),
        (HoldReason.CREDIT, HoldReason.AUTH, HoldReason.AUTH),
        (HoldReason.CREDIT, HoldReason.UNREACHABLE, HoldReason.CREDIT),
        (HoldReason.CREDIT, HoldReason.PERSON, HoldReason.PERSON),
        (HoldReason.PERSON, HoldReason.CREDIT, HoldReason.PERSON),
        (HoldReason.PERSON, HoldReason.AUTH, HoldReason.PERSON),
        (HoldReason.PERSON, HoldReason.UNREACHABLE, HoldReason.PERSON),
    ],
)
def test_only_a_hold_that_a_person_must_end_replaces_one_that_ends_by_itself(
    account: ProviderAccount, now: datetime, first: HoldReason, second: HoldReason, stands: HoldReason
) -> None:
    hold(account, first, now)
    did = hold(account, second, now + timedelta(minutes=1), "Later.")
    assert facts(account)[1] == stands
    assert did is (stands is not first)
    assert Alert.objects.filter(closed_at=None).count() == 1
    if did:
        assert "Later." in Alert.objects.get(closed_at=None).words
        account.refresh_from_db()
        # A balance is looked at; what only a person can end is not probed.
        assert (account.probe_at is None) is (second is not HoldReason.CREDIT)


def test_a_resume_makes_waiting_documents_due_and_leaves_the_rest(batch: Batch, now: datetime) -> None:
    later = now + timedelta(minutes=5)
    waiting = factories.make_job(batch=batch, due_at=later)
    sending = factories.make_job(batch=batch, state=JobState.SUBMITTING, due_at=later)
    leased = factories.make_job(batch=batch, due_at=later, lease_owner="a", lease_until=later)
    reading = factories.make_accepted_job(batch=batch, due_at=later)
    elsewhere = factories.make_job(due_at=later)
    hold(batch.account, HoldReason.AUTH, now)
    assert health.resume(batch.account_id, now=now)
    assert facts(batch.account) == ("open", "", "", None)
    due = dict(Job.objects.values_list("pk", "due_at"))
    assert due == {waiting.pk: now, sending.pk: now, leased.pk: later, reading.pk: later, elsewhere.pk: later}
    assert Alert.objects.get().closed_at == now


def test_resuming_an_open_account_is_harmless(batch: Batch, now: datetime) -> None:
    job = factories.make_job(batch=batch, due_at=now + timedelta(minutes=5))
    assert health.resume(batch.account_id, now=now) is False
    job.refresh_from_db()
    assert job.due_at == now + timedelta(minutes=5)


def test_the_next_hold_opens_an_alert_of_its_own(account: ProviderAccount, now: datetime) -> None:
    for minute in range(2):
        at = now + timedelta(minutes=minute)
        assert hold(account, HoldReason.CREDIT, at)
        assert health.resume(account.pk, now=at)
    assert [alert.closed_at is not None for alert in Alert.objects.all()] == [True, True]


# --- not reachable ---


def test_failures_in_a_row_hold_the_account_and_a_success_between_starts_anew(
    account: ProviderAccount, now: datetime
) -> None:
    for _ in range(ENGINE.unreachable_after - 1):
        health.note_transport_failures(account.pk, 1, words="Refused.", now=now)
    health.note_reached(account.pk)
    for count in range(ENGINE.unreachable_after):
        assert facts(account)[0] == "open", count
        health.note_transport_failures(account.pk, 1, words="Refused.", now=now)
    assert facts(account) == ("held", "unreachable", "Refused.", now)
    assert account.probe_at == now + timedelta(seconds=ENGINE.probe_first_seconds)


def test_failures_while_it_is_held_count_for_nothing(account: ProviderAccount, now: datetime) -> None:
    """Accepted work is still read; its failures would drive the probes apart."""
    health.note_transport_failures(account.pk, ENGINE.unreachable_after, words="Refused.", now=now)
    health.note_transport_failures(account.pk, 50, words="Refused.", now=now)
    account.refresh_from_db()
    assert account.transport_failure_count == ENGINE.unreachable_after


def test_a_late_answer_does_not_open_what_is_held(account: ProviderAccount, now: datetime) -> None:
    health.note_transport_failures(account.pk, ENGINE.unreachable_after, words="Refused.", now=now)
    health.note_reached(account.pk)
    account.refresh_from_db()
    assert (account.health, account.transport_failure_count) == ("held", ENGINE.unreachable_after)


def test_one_probe_at_a_time_and_none_before_it_is_due(account: ProviderAccount, now: datetime) -> None:
    hold(account, HoldReason.UNREACHABLE, now)
    due = now + timedelta(seconds=ENGINE.probe_first_seconds)
    assert not health.claim_probe(account.pk, now=due - timedelta(microseconds=1))
    assert [health.claim_probe(account.pk, now=due) for _ in range(3)] == [True, False, False]
    # A pump that died with its probe is replaced after the probe could have lasted.
    assert health.claim_probe(account.pk, now=due + timedelta(seconds=ENGINE.read_timeout + ENGINE.probe_most_seconds))


@pytest.mark.parametrize("reason", [HoldReason.AUTH, HoldReason.PERSON])
def test_what_a_person_must_end_is_never_probed(account: ProviderAccount, now: datetime, reason: HoldReason) -> None:
    hold(account, reason, now)
    assert not health.claim_probe(account.pk, now=now + timedelta(days=1))


def test_probes_that_fail_come_later_and_later(account: ProviderAccount, now: datetime) -> None:
    health.note_transport_failures(account.pk, ENGINE.unreachable_after, words="Refused.", now=now)
    waits = []
    for _ in range(8):
        health.probe_failed(account.pk, now=now, rng=Dice(1))
        account.refresh_from_db()
        waits.append((account.probe_at - now).total_seconds())
    assert waits == [2, 4, 8, 16, 30, 30, 30, 30]


def test_a_probe_that_failed_changes_no_other_hold(account: ProviderAccount, now: datetime) -> None:
    hold(account, HoldReason.AUTH, now)
    health.probe_failed(account.pk, now=now, rng=RNG)
    account.refresh_from_db()
    assert (account.transport_failure_count, account.probe_at) == (0, None)


# --- submissions have a row of failures of their own ---


def send(account: ProviderAccount, *outcomes: str) -> None:
    """The account's next submissions, each with the name of its error or "" for an answer."""
    for name in outcomes:
        job = factories.make_job()
        Exchange.objects.create(
            account=account, job=job, kind=ExchangeKind.SUBMIT, at=factories.NOW, duration_ms=5, error_class=name
        )


@pytest.mark.parametrize(
    ("outcomes", "failed"),
    [
        ([], 0),
        (["ServerFault", ""], 0),
        (["", "ServerFault", "NotSent"], 2),
        (["AnswerLost", "RateLimited", "AnswerLost", "AnswerLost"], 2),
        (["NotSent"] * 31, health.SUBMISSIONS_LOOKED_AT),
    ],
)
def test_only_an_answer_to_a_submission_ends_a_row_of_failed_ones(
    account: ProviderAccount, outcomes: list[str], failed: int
) -> None:
    send(account, *outcomes)
    Exchange.objects.create(account=account, kind=ExchangeKind.POLL, at=factories.NOW, duration_ms=5, status=200)
    send(factories.make_account(), "", "NotSent")
    assert health.submissions_failed(account.pk) == failed


def test_one_document_that_never_gets_through_speaks_for_itself(account: ProviderAccount) -> None:
    send(account, "", *["AnswerLost"] * 5)
    Exchange.objects.update(job=factories.make_job())
    assert health.submissions_failed(account.pk) == 0


def test_enough_failed_submissions_hold_the_account_whatever_is_read(account: ProviderAccount, now: datetime) -> None:
    send(account, *["ServerFault"] * (ENGINE.unreachable_after - 1))
    health.hold_where_submissions_fail(account.pk, words="503.", now=now)
    assert facts(account)[0] == "open"
    send(account, "ServerFault")
    health.hold_where_submissions_fail(account.pk, words="503.", now=now)
    assert facts(account) == ("held", "unreachable", "503.", now)


def test_a_probe_opens_what_submissions_closed_on_trial_under_the_same_alert(batch: Batch, now: datetime) -> None:
    account, later = batch.account, now + timedelta(minutes=5)
    waiting = factories.make_job(batch=batch, due_at=later)
    sending = factories.make_job(batch=batch, state=JobState.SUBMITTING, due_at=later)
    send(account, *["ServerFault"] * ENGINE.unreachable_after)
    hold(account, HoldReason.UNREACHABLE, now)
    waits = []
    for _ in range(6):
        assert health.reopen(account.pk, now=now)
        account.refresh_from_db()
        assert (account.health, account.on_probation) == ("open", True)
        assert wording.ON_TRIAL in Alert.objects.get(closed_at=None).words
        send(account, "ServerFault")
        health.hold_where_submissions_fail(account.pk, words="503.", now=now)
        account.refresh_from_db()
        waits.append((account.probe_at - now).total_seconds())
    assert waits == [2, 4, 8, 16, 30, 30], "each trial that fails is followed by a longer pause"
    assert Alert.objects.count() == 1
    both = Job.objects.filter(pk__in=(waiting.pk, sending.pk))
    assert dict(both.values_list("pk", "due_at")) == {waiting.pk: now, sending.pk: later}
    health.reopen(account.pk, now=now)
    credit.end_trial(account.pk, was_accepted=True, now=later)
    assert Alert.objects.get().closed_at == later


def test_a_probe_opens_what_reads_closed_at_once(account: ProviderAccount, now: datetime) -> None:
    send(account, "NotSent", "")
    hold(account, HoldReason.UNREACHABLE, now)
    assert health.reopen(account.pk, now=now)
    account.refresh_from_db()
    assert (account.on_probation, Alert.objects.get().closed_at) == (False, now)


@pytest.mark.parametrize("reason", [HoldReason.AUTH, HoldReason.PERSON, HoldReason.CREDIT])
def test_a_probe_opens_no_other_hold(account: ProviderAccount, now: datetime, reason: HoldReason) -> None:
    hold(account, reason, now)
    assert not health.reopen(account.pk, now=now)


# --- alerts ---


def test_an_alert_is_open_once_per_kind_and_subject(batch: Batch, now: datetime) -> None:
    one, other = factories.make_job(batch=batch), factories.make_job(batch=batch)
    for _ in range(3):
        alerts.open_for_job(one.pk, AlertKind.INTERNAL, "First words.", now=now)
    alerts.open_for_job(one.pk, AlertKind.SURPLUS, "Another kind.", now=now)
    alerts.open_for_job(other.pk, AlertKind.INTERNAL, "Another job.", now=now)
    assert sorted(Alert.objects.values_list("words", flat=True)) == ["Another job.", "Another kind.", "First words."]


def test_closing_closes_the_jobs_alerts_except_what_may_be_billed_twice(batch: Batch, now: datetime) -> None:
    one, other = factories.make_job(batch=batch), factories.make_job(batch=batch)
    for job in (one, other):
        for kind in (AlertKind.INTERNAL, AlertKind.SURPLUS):
            alerts.open_for_job(job.pk, kind, "x", now=now)
    alerts.close_for_jobs([one.pk], now=now)
    assert set(Alert.objects.filter(closed_at=None).values_list("job_id", "kind")) == {
        (one.pk, AlertKind.SURPLUS),
        (other.pk, AlertKind.INTERNAL),
        (other.pk, AlertKind.SURPLUS),
    }
    alerts.open_for_job(one.pk, AlertKind.INTERNAL, "again", now=now)
    assert Alert.objects.filter(job=one, kind=AlertKind.INTERNAL, closed_at=None).count() == 1


def test_holding_what_is_held_writes_nothing(account: ProviderAccount, now: datetime) -> None:
    """Every refused status read of a held account says so again."""
    hold(account, HoldReason.AUTH, now)
    with CaptureQueriesContext(connection) as queries:
        assert not hold(account, HoldReason.AUTH, now)
    asked = [query["sql"] for query in queries.captured_queries if "SAVEPOINT" not in query["sql"]]
    assert [sql.split()[0] for sql in asked] == ["SELECT"], "one look at the hold that stands"


def test_holds_and_resumes_are_logged_once_a_change(
    account: ProviderAccount, now: datetime, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        hold(account, HoldReason.AUTH, now)
    for _ in range(2):
        health.resume(account.pk, now=now)
    held, resumed = [record for record in caplog.records if record.name == health.log.name]
    assert (held.levelname, resumed.levelname) == ("WARNING", "WARNING")
    assert held.getMessage().startswith(f"account {account.slug} is held (auth): ")
    assert resumed.getMessage() == f"account {account.slug} goes on"


# --- a stored key that cannot be read ---


def sealed_with_a_lost_key(settings: Any, **fields: Any) -> int:
    """An account whose secrets were stored with a key that FIELD_KEYS no longer holds; its id."""
    before = settings.FIELD_KEYS
    settings.FIELD_KEYS = [Fernet.generate_key().decode()]
    pk = factories.make_account(**fields).pk
    settings.FIELD_KEYS = before
    with pytest.raises(UnreadableSecret):
        ProviderAccount.objects.get(pk=pk)
    return pk


def columns(pk: int, *names: str) -> tuple[Any, ...]:
    return ProviderAccount.objects.values_list(*names).get(pk=pk)


def test_an_account_whose_key_cannot_be_read_is_held_and_the_others_work(
    account: ProviderAccount, now: datetime, settings: Any
) -> None:
    pk = sealed_with_a_lost_key(settings, name="Lost")
    other = factories.make_account()
    for _ in range(2):
        assert set(health.readable_accounts(now=now)) == {account.pk, other.pk}
    found = columns(pk, "health", "hold_reason", "held_at", "probe_at")
    assert found == (AccountHealth.HELD, HoldReason.AUTH, now, None)
    assert "FIELD_KEYS" in columns(pk, "hold_words")[0]
    alert = Alert.objects.get()
    assert (alert.kind, alert.account_id) == (AlertKind.ACCOUNT_HELD, pk)
    assert "Lost is held" in alert.words
    assert "FIELD_KEYS" in alert.words


def test_readable_accounts_are_read_with_one_question(account: ProviderAccount, now: datetime) -> None:
    factories.make_account()
    with CaptureQueriesContext(connection) as queries:
        assert len(health.readable_accounts(now=now)) == 2
    assert len(queries) == 1


def test_holding_and_resuming_need_no_readable_key(now: datetime, settings: Any) -> None:
    pk = sealed_with_a_lost_key(settings)
    for reason in HoldReason:
        assert health.hold(pk, reason=reason, words="It said no.", now=now)
        assert health.resume(pk, now=now)
    assert columns(pk, "health") == (AccountHealth.OPEN,)
    assert not Alert.objects.filter(closed_at=None).exists()


def test_counting_failures_needs_no_readable_key(now: datetime, settings: Any) -> None:
    pk = sealed_with_a_lost_key(settings)
    health.note_transport_failures(pk, ENGINE.unreachable_after, words="Refused.", now=now)
    health.probe_failed(pk, now=now, rng=RNG)
    assert columns(pk, "hold_reason", "transport_failure_count") == ("unreachable", ENGINE.unreachable_after + 1)
