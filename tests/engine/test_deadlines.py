"""The deadline that durations suggest, what it is used for, and the table that people see."""

from __future__ import annotations

import io
import json

import pytest
from django.core.management import call_command

from batches.engine import deadlines
from batches.models import Duration, ProviderAccount
from tests import factories
from tests.factories import NOW


def fill(account: ProviderAccount, seconds: list[float], *, outcome: str = "saved", byte_count: int = 900) -> None:
    job = factories.make_saved_job(batch=factories.make_batch(account=account))
    Duration.objects.bulk_create(
        Duration(
            account=account,
            job=job,
            submission=job.submissions.get(),
            outcome=outcome,
            at=NOW,
            remote_seconds=each,
            total_seconds=each,
            poll_count=2,
            request_bytes=byte_count,
        )
        for each in seconds
    )


@pytest.mark.parametrize(
    ("times", "seconds"),
    [
        ([5.0] * 49, None),  # too few
        ([5.0] * 50, 120),  # the floor
        ([9.0] * 400 + [31.0] * 12, 120),
        ([100.0] * 100, 420),  # four times p95, rounded up to half a minute
        ([10.0] * 99 + [300.0], 600),  # twice the slowest
        ([40_000.0] * 60, 43_200),  # the ceiling
    ],
)
def test_the_suggestion(times: list[float], seconds: int | None) -> None:
    found = deadlines.suggest(1, times)
    assert (found.seconds if found else None) == seconds


def test_its_reason_is_a_sentence() -> None:
    found = deadlines.suggest(1, [9.0] * 400 + [31.0] * 12)
    assert found is not None
    assert found.words == (
        "95 % of 412 documents of up to 64 KB finished within 9 s, the slowest in 31 s: 2 min suggested."
    )


@pytest.mark.django_db
def test_a_class_with_too_few_falls_back_to_all_sizes() -> None:
    account = factories.make_account()
    fill(account, [100.0] * 60)
    fill(account, [1.0] * 10, byte_count=100_000)
    known = deadlines.suggestions(account.pk)
    assert deadlines.suggested_for(known, 900) == known[0]
    assert deadlines.suggested_for(known, 100_000) == known[None]
    assert deadlines.suggested_for({}, 900) is None


@pytest.mark.django_db
def test_a_success_that_only_the_late_watch_saw_suggests_no_longer_deadline() -> None:
    account = factories.make_account()
    fill(account, [5.0] * 60)
    fill(account, [322.0])
    Duration.objects.filter(total_seconds=322.0).update(remote_seconds=None)
    assert deadlines.suggestions(account.pk)[None].seconds == 120
    assert [row.count for row in deadlines.table(account.pk)] == [61]


@pytest.mark.django_db
def test_the_command_shows_the_table_and_the_suggestion() -> None:
    account = factories.make_account(slug="invoices")
    fill(account, [2.0] * 60)
    fill(account, [7.0], outcome="failed")
    out = io.StringIO()
    call_command("durations", stdout=out)
    text = out.getvalue()
    for part in ("invoices", "Saved", "Failed", "documents of up to 16 KB", "60", "2 min suggested"):
        assert part in text
    out = io.StringIO()
    call_command("durations", "--account", "invoices", "--json", stdout=out)
    (facts,) = json.loads(out.getvalue())
    assert facts["suggestions"][0]["seconds"] == 120
    assert {row["outcome"]: row["count"] for row in facts["durations"]} == {"saved": 60, "failed": 1}


@pytest.mark.django_db
def test_the_command_says_what_to_do_when_nothing_is_known() -> None:
    factories.make_account(slug="invoices")
    out = io.StringIO()
    call_command("durations", stdout=out)
    assert "start a batch" in out.getvalue()
