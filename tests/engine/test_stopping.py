"""A batch's own stop rules: what counts, when they hold, and what people are told."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from batches.engine import changes, claims, running, stopping, writes
from batches.engine.audit import By
from batches.models import Alert, AuditEntry, Batch, Job, JobState, ProviderAccount
from tests import factories
from tests.factories import NOW


@pytest.mark.parametrize(
    ("failed", "ended", "after", "percent", "words"),
    [
        (0, 500, 1, 1, ""),
        (1, 1, 1, None, "1 document failed, the limit is 1."),
        (4, 100, 5, None, ""),
        (5, 100, 5, None, "5 documents failed, the limit is 5."),
        (19, 19, None, 1, ""),
        (2, 20, None, 10, "2 of 20 finished documents failed, the limit is 10 %."),
        (1, 20, None, 10, ""),
        (12, 80, None, 10, "12 of 80 finished documents failed, the limit is 10 %."),
        (20, 20, None, 100, "20 of 20 finished documents failed, the limit is 100 %."),
        (50, 50, None, None, ""),
        (3, 30, 3, 5, "3 documents failed, the limit is 3."),
    ],
)
def test_the_verdict(failed: int, ended: int, after: int | None, percent: int | None, words: str) -> None:
    assert stopping.verdict(failed, ended, after=after, percent=percent) == words


def fail(batch: Batch, *, count: int = 1) -> None:
    """Documents of the batch fail, written as a pump writes them."""
    for _ in range(count):
        factories.make_job(batch=batch)
    got = claims.claim_due(batch.account, [JobState.PENDING], owner="a", now=NOW, most=count)
    assert len(got) == count
    writes.write_round([changes.parking(each, "It cannot be read.", now=NOW) for each in got], now=NOW)


@pytest.mark.parametrize(
    ("after", "percent", "failed", "ended", "noted", "seconds", "near"),
    [
        (100, None, 0, 0, 6, 0, False),
        (100, None, 0, 0, 7, 0, True),  # if as many were written by each of sixteen pumps
        (100, None, 99, 0, 1, 0, True),
        (100_000, None, 4_000, 0, 1, 3600, False),
        (None, 10, 9, 100, 1, 0.9, False),
        (None, 10, 9, 100, 1, 1, True),
        (None, 10, 9, 1_000, 1, 3600, False),
        (None, 10, 4_900, 49_000, 1, 8.9, False),  # of many the share moves slowly
        (None, 10, 4_900, 49_000, 1, 9, True),
        (5, 10, 4, 1_000, 1, 0, True),
    ],
)
def test_when_a_pump_counts_again(
    after: int | None, percent: int | None, failed: int, ended: int, noted: int, seconds: float, near: bool
) -> None:
    batch = Batch(stop_after_failures=after, stop_after_percent=percent)
    counted = stopping.Counted(NOW, NOW, failed=failed, ended_least=ended, noted=noted)
    assert stopping.may_be_near(batch, counted, now=NOW + timedelta(seconds=seconds)) is near


def paused(batch: Batch) -> bool:
    return Batch.objects.get(pk=batch.pk).paused_at is not None


def test_enough_failures_pause_the_batch_with_words_and_one_alert(batch: Batch) -> None:
    Batch.objects.update(stop_after_failures=3)
    fail(batch, count=2)
    assert not paused(batch)
    fail(batch)
    batch.refresh_from_db()
    assert (batch.paused_at, batch.pause_reason) == (NOW, "3 documents failed, the limit is 3.")
    (alert,) = Alert.objects.filter(kind="batch_stopped")
    assert alert.batch == batch
    assert "3 documents failed, the limit is 3." in alert.words
    assert "Nothing new of it is sent" in alert.words
    assert alert.words.endswith("then resume it on its page.")
    (entry,) = AuditEntry.objects.all()
    assert (entry.action, entry.actor_words) == ("pause_batch", "engine")


def test_a_share_pauses_only_once_enough_has_ended(batch: Batch) -> None:
    Batch.objects.update(stop_after_percent=10)
    fail(batch, count=2)
    assert not paused(batch)
    for _ in range(17):
        factories.make_saved_job(batch=batch)
    fail(batch)
    assert Batch.objects.get().pause_reason == "3 of 20 finished documents failed, the limit is 10 %."


def test_what_failed_before_the_batch_or_before_it_was_resumed_does_not_count(batch: Batch) -> None:
    before = NOW - timedelta(days=1)
    Batch.objects.update(stop_after_failures=2)
    for _ in range(5):
        factories.make_job(batch=batch, state=JobState.FAILED, state_changed_at=before)
    fail(batch)
    assert not paused(batch)
    fail(batch)
    assert paused(batch)
    running.resume(batch.pk, reason="Go on.", by=By(None, "a test", "here"), now=NOW + timedelta(microseconds=1))
    assert stopping.sweep(now=NOW) == 0
    Job.objects.filter(state=JobState.FAILED).exclude(state_changed_at=before).update(
        state_changed_at=NOW + timedelta(seconds=1)
    )
    assert stopping.sweep(now=NOW + timedelta(seconds=1)) == 1


def test_a_cancelled_item_does_not_count(batch: Batch) -> None:
    Batch.objects.update(stop_after_failures=1)
    factories.make_job(batch=batch, state=JobState.FAILED)
    batch.items.update(cancelled_at=NOW)
    assert stopping.sweep(now=NOW) == 0
    batch.items.update(cancelled_at=None)
    assert stopping.sweep(now=NOW) == 1
    assert stopping.sweep(now=NOW) == 0, "it is paused already"


def test_only_the_batch_with_the_rule_stops(batch: Batch, account: ProviderAccount) -> None:
    other = factories.make_batch(workspace=batch.workspace, account=account, stop_after_failures=1)
    fail(batch)
    assert not paused(other)
    assert not paused(batch)


def test_a_group_without_failures_asks_nothing(batch: Batch) -> None:
    Batch.objects.update(stop_after_failures=1)
    factories.make_job(batch=batch)
    (got,) = claims.claim_due(batch.account, [JobState.PENDING], owner="a", now=NOW, most=1)
    with CaptureQueriesContext(connection) as queries:
        writes.write_round([changes.Change(claim=got, at=NOW)], now=NOW)
    assert not [query for query in queries if "stop_after" in query["sql"]]


def counts_while(batch: Batch, watch: stopping.Watch, failures: int, *, every: timedelta = timedelta(0)) -> list[int]:
    """One flush per failure, all by one pump, until it is paused; how many counting statements each of them made."""
    made: list[int] = []
    for number in range(failures):
        if paused(batch):
            break
        factories.make_job(batch=batch)
        now = NOW + number * every
        (got,) = claims.claim_due(batch.account, [JobState.PENDING], owner="a", now=now, most=1)
        with CaptureQueriesContext(connection) as queries:
            writes.write_round([changes.parking(got, "It cannot be read.", now=now)], now=now, watch=watch)
        made.append(sum(query["sql"].startswith("SELECT COUNT(*)") for query in queries))
    return made


def test_a_limit_that_is_far_away_is_counted_once_and_not_at_each_failure(batch: Batch) -> None:
    Batch.objects.update(stop_after_failures=10_000)
    assert counts_while(batch, stopping.Watch(), 30) == [1] + [0] * 29


def test_a_limit_that_comes_nearer_is_counted_more_often_and_met_by_the_very_failure(batch: Batch) -> None:
    Batch.objects.update(stop_after_failures=60)
    made = counts_while(batch, stopping.Watch(), 59)
    assert made[:40].count(0) > 10
    assert max(made) == 1
    assert not paused(batch)
    fail(batch)
    assert Batch.objects.get().pause_reason == "60 documents failed, the limit is 60."


def test_what_other_pumps_wrote_counts_before_the_limit_is_passed_by_much(batch: Batch) -> None:
    Batch.objects.update(stop_after_failures=40)
    pumps = [stopping.Watch() for _ in range(8)]
    while not paused(batch):
        for watch in pumps:
            counts_while(batch, watch, 1)
        assert Job.objects.filter(state=JobState.FAILED).count() <= 48
    assert Batch.objects.get().pause_reason.endswith("the limit is 40.")


def test_a_share_is_counted_at_most_once_a_second_and_only_as_far_as_it_has_to_be(batch: Batch) -> None:
    Batch.objects.update(stop_after_percent=90)
    for _ in range(60):
        factories.make_saved_job(batch=batch)
    watch = stopping.Watch()
    assert counts_while(batch, watch, 20) == [2] + [0] * 19  # of all failures, and of the first forty that ended
    assert watch.known[batch.pk].ended_least == 40
    assert not paused(batch)
    made = counts_while(batch, watch, 12, every=timedelta(seconds=2))
    assert sum(made) <= 16, made
    assert not paused(batch)


def test_a_share_that_is_met_pauses_the_batch_within_a_second_of_failures(batch: Batch) -> None:
    Batch.objects.update(stop_after_percent=50)
    counts_while(batch, stopping.Watch(), 40, every=timedelta(milliseconds=100))
    batch.refresh_from_db()
    assert batch.paused_at is not None
    assert batch.paused_at <= NOW + timedelta(seconds=3), "twenty had ended after two seconds"


def test_a_batch_that_was_resumed_is_counted_anew_by_a_pump_that_knew_it(batch: Batch) -> None:
    Batch.objects.update(stop_after_failures=2)
    watch = stopping.Watch()
    counts_while(batch, watch, 2)
    assert paused(batch)
    running.resume(batch.pk, reason="Go on.", by=By(None, "a test", "here"), now=NOW + timedelta(microseconds=1))
    Job.objects.update(state_changed_at=NOW - timedelta(seconds=1))
    Batch.objects.update(stop_counts_from=NOW)
    counts_while(batch, watch, 1)
    assert not paused(batch)
    counts_while(batch, watch, 1)
    assert paused(batch)


def test_the_alert_of_a_stopped_batch_closes_once_nothing_of_it_moves(batch: Batch) -> None:
    waiting = factories.make_job(batch=batch)
    Job.objects.update(due_at=NOW + timedelta(days=1))
    Batch.objects.update(stop_after_failures=1)
    fail(batch)
    assert paused(batch)
    stopping.sweep(now=NOW)
    assert Alert.objects.get(kind="batch_stopped").closed_at is None
    Job.objects.filter(pk=waiting.pk).update(state=JobState.SAVED)  # another batch that names it sent it
    stopping.sweep(now=NOW)
    assert Alert.objects.get(kind="batch_stopped").closed_at == NOW


def test_a_stop_is_logged_once(batch: Batch, caplog: pytest.LogCaptureFixture) -> None:
    Batch.objects.update(stop_after_failures=1)
    fail(batch)
    stopping.sweep(now=NOW)
    (line,) = [record for record in caplog.records if record.name == stopping.log.name]
    assert (line.levelname, batch.public_id in line.getMessage()) == ("WARNING", True)


def test_a_rule_that_cannot_be_asked_keeps_no_other_from_being_asked(
    batch: Batch, account: ProviderAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = batch, factories.make_batch(account=account)
    for each in (first, second):
        fail(each)
        Batch.objects.filter(pk=each.pk).update(stop_after_failures=1)
    ask = stopping._ask

    def asking(batch: Batch, *given: Any, **named: Any) -> bool:
        if batch.pk == first.pk:
            raise RuntimeError("a fault of ours")
        return ask(batch, *given, **named)

    monkeypatch.setattr(stopping, "_ask", asking)
    assert stopping.sweep(now=NOW) == 1
    assert list(Batch.objects.filter(paused_at=None).values_list("pk", flat=True)) == [first.pk]
