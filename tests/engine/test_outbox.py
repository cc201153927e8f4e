"""The outbox: outcomes are gathered for a moment, leave only when they are committed, and are written once."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError

from batches.conf import ENGINE
from batches.engine import claims, health, transitions, writes
from batches.engine.changes import Change, Follow, FollowStep
from batches.engine.effects import AccountEffect
from batches.engine.outbox import Outbox
from batches.models import Batch, Exchange, HoldReason, Job, JobEvent, JobState, ProviderAccount
from tests import factories
from tests.engine.samples import claim, exchange
from tests.factories import NOW

CONF = replace(ENGINE, flush_rows=3, flush_seconds=0.5, flush_busy_seconds=0.9, flush_busy_rate=3.0)


FAILURE = {"failure_class": "invalid_input", "failure_words": "No."}


def outcome(job_id: int, *, poll: int = 0) -> Change:
    """One outcome of a job; with `poll`, the facts of so many status reads that changed no state."""
    its_claim = claim(JobState.ACCEPTED, job_id=job_id)
    return Change(
        claim=its_claim,
        at=NOW,
        job_fields={"poll_count": poll},
        exchanges=((exchange("poll", status=200 + poll), None),),
        after=its_claim if poll else None,
        follow=Follow(FollowStep.POLL, NOW) if poll else None,
    )


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[list[Change]]:
    """The groups that were written."""
    groups: list[list[Change]] = []

    def write_round(group: list[Change], *, now: Any, committed: writes.Committed, **_rest: Any) -> set[int]:
        groups.append(list(group))
        committed(group, set())
        return set()

    monkeypatch.setattr(writes, "write_round", write_round)
    return groups


def test_outcomes_wait_a_moment_for_others() -> None:
    outbox = Outbox(CONF)
    assert outbox.due_at() is None
    assert not outbox.is_due(NOW)
    outbox.add(outcome(1), NOW)
    outbox.add(outcome(2), NOW + timedelta(seconds=0.4))
    assert outbox.due_at() == NOW + timedelta(seconds=0.5), "counted from the oldest"
    assert not outbox.is_due(NOW + timedelta(seconds=0.4))
    assert outbox.is_due(NOW + timedelta(seconds=0.5))


def test_many_at_once_make_the_next_ones_wait_longer_and_few_make_them_wait_less(written: list[list[Change]]) -> None:
    outbox = Outbox(CONF)

    def due_after_writing(count: int) -> float:
        for job_id in range(count):
            outbox.add(outcome(job_id), NOW)
        list(outbox.write(NOW))
        outbox.add(outcome(99), NOW)
        due_at = outbox.due_at()
        assert due_at is not None
        list(outbox.write(due_at))
        return (due_at - NOW).total_seconds()

    assert due_after_writing(1) == 0.5
    assert due_after_writing(2) == 0.9, "two in half a second are more than three a second"
    assert due_after_writing(1) == 0.5, "after a single one that waited so long it is quiet again"


def test_enough_of_them_wait_no_longer() -> None:
    outbox = Outbox(CONF)
    for number in range(3):
        assert not outbox.is_due(NOW)
        outbox.add(outcome(number), NOW)
    assert outbox.is_due(NOW)


def test_what_is_written_is_gone_and_the_next_waits_anew(written: list[list[Change]]) -> None:
    outbox = Outbox(CONF)
    outbox.add(outcome(1), NOW)
    outbox.add(outcome(2), NOW)
    list(outbox.write(NOW))
    assert (len(outbox), outbox.due_at(), len(written)) == (0, None, 1)
    list(outbox.write(NOW))
    assert len(written) == 1, "nothing is written twice"


def test_two_outcomes_of_one_job_are_written_in_their_order(written: list[list[Change]]) -> None:
    outbox = Outbox(CONF)
    first, second = outcome(1), outcome(1)
    for change in (first, outcome(2), second):
        outbox.add(change, NOW)
    list(outbox.write(NOW))
    assert [[change.claim.job_id for change in group] for group in written] == [[1, 2], [1]]
    assert written[1] == [second]


def test_a_group_that_could_not_be_committed_stays_and_the_one_before_it_does_not(
    written: list[list[Change]], monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = Outbox(CONF)
    for change in (outcome(1), outcome(1), outcome(2)):
        outbox.add(change, NOW)
    write_round, calls = writes.write_round, 0

    def fail_once(group: list[Change], *, now: Any, **rest: Any) -> set[int]:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OperationalError("gone")
        return write_round(group, now=now, **rest)

    monkeypatch.setattr(writes, "write_round", fail_once)
    with pytest.raises(OperationalError):
        list(outbox.write(NOW))
    assert len(outbox) == 1
    assert outbox.is_due(NOW + timedelta(seconds=1))
    list(outbox.write(NOW))
    assert [[change.claim.job_id for change in group] for group in written] == [[1, 2], [1]]


def test_status_reads_that_change_nothing_are_set_aside_and_add_up(written: list[list[Change]]) -> None:
    outbox = Outbox(CONF)
    for poll in (1, 2, 3):
        outbox.set_aside(outcome(1, poll=poll))
    assert (len(outbox), outbox.due_at()) == (0, None)
    outbox.bring_forward(NOW)
    list(outbox.write(NOW))
    ((change,),) = written
    assert change.job_fields == {"poll_count": 3}
    assert [facts.status for facts, _submission in change.exchanges] == [201, 202, 203]
    assert change.follow is not None
    outbox.bring_forward(NOW)
    assert len(outbox) == 0


def test_what_was_set_aside_goes_with_the_outcome_that_matters(written: list[list[Change]]) -> None:
    outbox = Outbox(CONF)
    outbox.set_aside(outcome(1, poll=1))
    outbox.set_aside(outcome(2, poll=1))
    outbox.add(outcome(1), NOW)
    list(outbox.write(NOW))
    ((change,),) = written
    assert [facts.status for facts, _submission in change.exchanges] == [201, 200]
    outbox.bring_forward(NOW, let_go=True)
    list(outbox.write(NOW))
    assert [(change.claim.job_id, change.follow) for change in written[1]] == [(2, None)]


# --- the database goes away half way ---


def held_by_a_pump(batch: Batch, *, jobs: int = 1) -> list[claims.Claim]:
    for _ in range(jobs):
        factories.make_accepted_job(batch=batch)
    return claims.claim_due(batch.account, [JobState.ACCEPTED], owner="a", now=NOW, most=9)


def read(its_claim: claims.Claim, **fields: Any) -> Change:
    """A status read of a job that its pump keeps."""
    follow = Follow(FollowStep.POLL, NOW)
    kept = ((exchange("poll"), its_claim.submission.id if its_claim.submission else None),)
    given: dict[str, Any] = {"job_fields": {"poll_count": 1}, "exchanges": kept, "after": its_claim, "follow": follow}
    return Change(claim=its_claim, at=NOW, **given | fields)


def test_rows_that_are_committed_are_not_written_again_when_their_accounts_effect_cannot_be(
    batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = held_by_a_pump(batch, jobs=2)
    hold, calls = health.hold, 0

    def locked_once(*given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise OperationalError("database is locked")
        return hold(*given, **named)

    monkeypatch.setattr(health, "hold", locked_once)
    outbox = Outbox(CONF)
    effect = AccountEffect(hold=HoldReason.CREDIT, words="No funds.", repeat_was_accepted=True)
    given_back: list[int] = []
    monkeypatch.setattr(
        "batches.engine.retry_budget.give_back", lambda _account, count, **_now: given_back.append(count)
    )
    ending = transitions.Move(first.job_id, first.token, JobState.ACCEPTED, JobState.FAILED, "refused", fields=FAILURE)
    outbox.add(read(first, move=ending, job_fields={}, effect=effect, after=None, follow=None), NOW)
    outbox.add(read(second), NOW)
    told: list[tuple[list[Change], set[int]]] = []
    for _ in range(2):
        with suppress(OperationalError):
            for part in outbox.write(NOW):
                told.append(part)
        assert (len(outbox), outbox.is_due(NOW + timedelta(seconds=1))) == ((1, True) if calls == 1 else (0, False))
    assert [(len(group), stale) for group, stale in told] == [(2, set())], "told of once, and nothing is stale"
    assert calls == 2
    assert Exchange.objects.count() == 2
    assert not JobEvent.objects.filter(reason="stale_write_refused").exists()
    assert given_back == [1], "what was applied before is not applied again"
    assert ProviderAccount.objects.get(pk=batch.account_id).hold_reason == HoldReason.CREDIT
    assert (outbox.take_held_back(), outbox.take_held_back()) == (True, False)


def test_rows_that_were_written_one_by_one_before_it_went_away_are_not_written_again(
    batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = held_by_a_pump(batch, jobs=2)
    move_many, calls = transitions.move_many, 0

    def fail(moves: Any, *, now: Any) -> set[int]:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise TypeError("one of the rows")
        if calls == 3:
            raise OperationalError("gone")
        return move_many(moves, now=now)

    monkeypatch.setattr(transitions, "move_many", fail)
    outbox = Outbox(CONF)
    outbox.add(read(first), NOW)
    outbox.add(read(second), NOW)
    told: list[tuple[list[Change], set[int]]] = []
    for _ in range(2):
        with suppress(OperationalError):
            for part in outbox.write(NOW):
                told.append(part)
    assert [[change.claim.job_id for change in group] for group, _stale in told] == [[first.job_id], [second.job_id]]
    assert Exchange.objects.count() == 2
    assert set(Job.objects.values_list("poll_count", flat=True)) == {1}
