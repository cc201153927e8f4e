"""When the silence of webhooks is a fault: the rule as a table, and the alert that opens and closes by itself."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.db import connection

from batches.engine import webhook_health
from batches.models import Alert, ProviderAccount
from tests import factories
from tests.factories import NOW

MINUTES = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("finished", "minutes", "silent"),
    [
        (0, None, False),
        (20, 30, True),
        (19, 600, False),  # too few to say anything
        (20, 29, False),  # too early: a burst of documents outruns its webhooks
        (20, 30 * 24 * 60, True),
    ],
)
def test_silence_is_a_fault_after_enough_documents_and_enough_time(
    finished: int, minutes: int | None, silent: bool
) -> None:
    newest = None if minutes is None else NOW + minutes * MINUTES
    assert webhook_health.is_silent(finished, since=NOW, newest_finished_at=newest) is silent


def finish(account: ProviderAccount, count: int, at: datetime) -> None:
    batch = factories.make_batch(account=account)
    for _ in range(count):
        factories.make_duration(job=factories.make_saved_job(batch=batch), at=at)


def open_alerts() -> list[str]:
    return list(Alert.objects.filter(closed_at=None).values_list("kind", flat=True))


@pytest.fixture
def account(db: None) -> ProviderAccount:
    return factories.make_account(name="North", webhook_secret="whsec_invented")


def test_the_alert_opens_while_documents_are_found_by_polling_only_and_closes_when_events_come(
    account: ProviderAccount,
) -> None:
    assert webhook_health.sweep(now=NOW) == 0
    finish(account, 20, NOW + 40 * MINUTES)
    assert webhook_health.sweep(now=NOW + 41 * MINUTES) == 1
    assert webhook_health.sweep(now=NOW + 42 * MINUTES) == 0, "it is said once"
    alert = Alert.objects.get()
    assert (alert.kind, alert.account, alert.closed_at) == ("webhooks_silent", account, None)
    assert "No webhook of North has come at all so far." in alert.words
    factories.make_event(account=account, at=NOW + 43 * MINUTES)
    assert webhook_health.sweep(now=NOW + 44 * MINUTES) == 1
    assert open_alerts() == []
    finish(account, 20, NOW + 50 * MINUTES)
    assert webhook_health.sweep(now=NOW + 51 * MINUTES) == 0, "an idle stretch is no silence"
    finish(account, 1, NOW + 80 * MINUTES)
    assert webhook_health.sweep(now=NOW + 81 * MINUTES) == 1
    assert "since 2026-03-02 09:43 UTC" in Alert.objects.get(closed_at=None).words


def test_a_fresh_registration_begins_anew(account: ProviderAccount) -> None:
    finish(account, 30, NOW + 40 * MINUTES)
    assert webhook_health.of(account.pk).is_silent
    ProviderAccount.objects.update(webhook_registered_at=NOW + 45 * MINUTES)
    health = webhook_health.of(account.pk)
    assert (health.is_silent, health.finished_in_silence) == (False, 0)


def test_without_a_secret_nothing_is_expected_and_an_open_alert_closes(account: ProviderAccount) -> None:
    finish(account, 20, NOW + 40 * MINUTES)
    webhook_health.sweep(now=NOW + 41 * MINUTES)
    assert open_alerts() == ["webhooks_silent"]
    ProviderAccount.objects.update(webhook_secret="")
    assert webhook_health.sweep(now=NOW + 42 * MINUTES) == 1
    assert open_alerts() == []
    assert "no webhook is taken" in webhook_health.words(webhook_health.of(account.pk))


@pytest.mark.parametrize(
    ("kind", "said"),
    [("docraptor", "an address of its own"), ("lambda", "sends no webhooks"), ("relaypdf", "No secret")],
)
@pytest.mark.django_db
def test_what_is_missing_is_said_as_the_kind_has_it(kind: str, said: str) -> None:
    account = factories.make_account(kind=kind, webhook_secret="")
    assert said in webhook_health.words(webhook_health.of(account.pk))


def test_another_accounts_events_and_documents_do_not_count(account: ProviderAccount) -> None:
    other = factories.make_account(webhook_secret="whsec_other")
    finish(other, 20, NOW + 40 * MINUTES)
    factories.make_event(account=other, at=NOW + 39 * MINUTES)
    assert not webhook_health.of(account.pk).is_silent
    assert webhook_health.of(account.pk).last_received_at is None


def test_the_share_counts_what_was_announced_before_it_was_seen(account: ProviderAccount) -> None:
    finish(account, 4, NOW + MINUTES)
    ids = account.submissions.order_by("pk").values_list("provider_job_id", flat=True)
    factories.make_event(account=account, provider_job_id=ids[0], type="job.completed", at=NOW)
    factories.make_event(account=account, provider_job_id=ids[0], type="job.completed", at=NOW)
    factories.make_event(account=account, provider_job_id=ids[1], type="job.completed", at=NOW + 2 * MINUTES)
    health = webhook_health.of(account.pk)
    assert (health.told, health.completions) == (1, 4)
    assert webhook_health.words(health) == (
        "The last came at 2 Mar 09:02:00 UTC. Of the last 4 documents 1 was announced."
    )


def test_a_key_that_cannot_be_read_stops_neither_look_nor_sweep(account: ProviderAccount) -> None:
    finish(account, 20, NOW + 40 * MINUTES)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE batches_provideraccount SET webhook_secret = 'broken', api_key = 'broken'")
    assert webhook_health.sweep(now=NOW + 41 * MINUTES) == 1
