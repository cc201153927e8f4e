"""Links that grow old: told at a quarter of their life, one alert per account, and nothing new where they pile up."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from batches.conf import ENGINE
from batches.engine import evidence, kept, links
from batches.models import Alert, Job, JobState, ProviderAccount
from batches.providers import PROVIDERS
from tests import factories
from tests.factories import NOW, make_accepted_job

HOUR = timedelta(hours=1)


def rendered(account: ProviderAccount, at: datetime, result: dict[str, Any] | None = None) -> Job:
    job = factories.make_job(batch=factories.make_batch(account=account), state=JobState.RENDERED, state_changed_at=at)
    factories.make_submission(
        job=job, provider_job_id=f"pdf_{job.pk}", accepted_at=at, in_doubt=False, result=result or {"url": "u"}
    )
    return job


@pytest.mark.parametrize(
    ("age", "life", "late"),
    [(timedelta(hours=5, minutes=59), 24 * HOUR, False), (6 * HOUR, 24 * HOUR, True), (HOUR, 2 * HOUR, True)],
)
def test_a_quarter_of_a_links_life_makes_it_late(age: timedelta, life: timedelta, late: bool) -> None:
    assert links.is_late(NOW - age, NOW - age + life, now=NOW) is late


@pytest.mark.django_db
def test_one_alert_per_account_says_how_many_how_old_and_when_the_first_ends() -> None:
    mine, other = factories.make_account(name="RelayPDF"), factories.make_account()
    rendered(mine, NOW - 7 * HOUR)
    rendered(mine, NOW - 8 * HOUR)
    rendered(mine, NOW - HOUR)  # young
    rendered(mine, NOW - HOUR, {"url": "u", "expires_at": (NOW + HOUR).isoformat()})  # short-lived
    rendered(other, NOW - HOUR)
    assert links.tell_late(now=NOW) == 3
    alert = Alert.objects.get(closed_at=None)
    assert (alert.kind, alert.subject, alert.account_id) == ("links_ageing", f"account:{mine.pk}", mine.pk)
    assert "RelayPDF: 3 finished PDFs are not fetched yet, the oldest for 8 h" in alert.words
    assert "The first link ends in 60 min" in alert.words
    Job.objects.filter(state_changed_at=NOW - 8 * HOUR).update(state=JobState.SAVED)
    assert links.tell_late(now=NOW) == 2
    alert.refresh_from_db()
    assert "2 finished PDFs" in alert.words
    assert Alert.objects.count() == 1


@pytest.mark.django_db
def test_the_alert_is_closed_when_none_is_left() -> None:
    account = factories.make_account()
    rendered(account, NOW - 7 * HOUR)
    links.tell_late(now=NOW)
    Job.objects.update(state=JobState.SAVED)
    assert links.tell_late(now=NOW + HOUR) == 0
    assert Alert.objects.get().closed_at == NOW + HOUR
    assert links.tell_late(now=NOW + 2 * HOUR) == 0


@pytest.mark.django_db
def test_an_account_is_crowded_by_its_own_finished_pdfs_only() -> None:
    mine, other = factories.make_account(), factories.make_account()
    for _ in range(3):
        rendered(mine, NOW)
    rendered(other, NOW)
    accounts = [mine.pk, other.pk]
    assert links.crowded(accounts, most=2) == {mine.pk}
    assert links.crowded(accounts, most=3) == set()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("said", "is_renewed", "seconds"),
    [
        (3 * 86400, False, 3 * 86400),
        (None, False, ENGINE.link_lifetime_seconds),
        (60, True, ENGINE.link_lifetime_seconds),
    ],
)
def test_a_file_is_believed_to_live_as_its_adapter_says_and_else_as_is_assumed(
    said: int | None, is_renewed: bool, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = PROVIDERS["relaypdf"]
    told = replace(adapter.capabilities, link_lifetime_seconds=said, link_refresh=is_renewed)
    monkeypatch.setattr(adapter, "capabilities", told)
    submission = make_accepted_job().submissions.get()
    believed = timedelta(seconds=seconds)
    assert kept.at_account(submission.account_id) == believed
    assert links.dies_at(NOW, None, kept.at_kind("relaypdf")) == NOW + believed
    assert evidence.time_of([submission])[1] == submission.last_sent_at + believed
