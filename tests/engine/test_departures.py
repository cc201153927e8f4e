"""What waits to be sent: how many are wanted, who comes first, and what a hold or the end makes of those that wait."""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from batches.conf import ENGINE
from batches.engine import departures, steps, submission
from batches.engine.accounts import Providers
from batches.engine.departures import READY_MOST, Departures
from batches.engine.holdings import Holdings
from batches.engine.preparing import Prepared
from batches.engine.submission import Intents
from batches.models import AccountHealth, JobState, ProviderAccount
from batches.providers.base import Capabilities
from tests.engine.samples import account, claim, open_submission, sending
from tests.engine.virtual_time import VirtualClock
from tests.factories import NOW

CONF = replace(ENGINE, submit_threads=2, submit_line=4)
PACED = account()
UNPACED = account(submit_interval_ms=0)


class Idle:
    """Threads that never begin what they are given."""

    def __init__(self) -> None:
        self.prepare = self.submit = self
        self.halt = threading.Event()
        self.started = 0

    def free(self, _account_id: int) -> int:
        return 2

    def start(self, *_given: Any, **_named: Any) -> bool:
        self.started += 1
        return True


class OneProvider:
    capabilities = Capabilities(client_key=True)

    def of(self, _account: ProviderAccount) -> Any:
        return self


class Waiting:
    """A pump's departures, and the intents that they asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, lost: Collection[int] = ()) -> None:
        self.threads = Idle()
        self.held = Holdings(CONF, cast("Any", self.threads))
        self.departures = Departures(
            CONF, cast("Any", self.threads), self.held, store=cast("Any", None), clock=VirtualClock(NOW)
        )
        self.shown: list[list[int]] = []  # all that wait
        self.asked: list[list[int]] = []  # of those, as many as may leave

        def commit_intents(
            _account: object, ready: list[Prepared], *, now: datetime, most: int, **_rest: object
        ) -> Intents:
            self.shown.append([prepared.claim.job_id for prepared in ready])
            mine = [prepared for prepared in ready if prepared.claim.job_id not in lost]
            self.asked.append([prepared.claim.job_id for prepared in mine[:most]])
            return Intents([sent(prepared) for prepared in mine[:most]], set(lost), now + timedelta(seconds=1))

        monkeypatch.setattr(submission, "commit_intents", commit_intents)

    def ready(self, *prepared: Prepared) -> None:
        for each in prepared:
            self.held.take([each.claim], NOW)
            self.departures.prepared(each)

    def leave(self, who: ProviderAccount, now: datetime = NOW) -> list[departures.Departure]:
        return list(self.departures.leave({who.pk: who}, cast("Providers", OneProvider()), now))


def fresh(job_id: int) -> Prepared:
    return replace(sending().prepared, claim=claim(job_id=job_id))


def again(job_id: int, *, doubt_before: bool) -> Prepared:
    known = claim(JobState.SUBMITTING, job_id=job_id)
    return replace(sending(doubt_before=doubt_before).prepared, claim=known)


def sent(prepared: Prepared) -> submission.Sending:
    known = open_submission()
    moved = replace(prepared, claim=prepared.claim.moved(JobState.SUBMITTING, submission=known))
    return submission.Sending(moved, known, NOW)


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Waiting:
    return Waiting(monkeypatch)


def test_a_second_of_slots_is_wanted_less_what_waits_already(waiting: Waiting) -> None:
    assert waiting.departures.wanted(PACED) == 21
    waiting.ready(fresh(1), fresh(2))
    assert waiting.departures.wanted(PACED) == 19
    assert waiting.departures.wanted(UNPACED) == READY_MOST - 2


def test_only_a_full_slice_makes_hungry(waiting: Waiting) -> None:
    hungry = []
    for count, wanted in ((3, 3), (2, 3), (0, 0), (0, -1)):
        waiting.departures.claimed(PACED.pk, count=count, wanted=wanted)
        hungry.append(waiting.departures.is_hungry(PACED.pk))
    assert hungry == [True, False, False, False]


def test_no_more_intents_than_threads_and_none_before_the_next_slot(waiting: Waiting) -> None:
    waiting.ready(fresh(1), fresh(2), fresh(3))
    waiting.leave(PACED)
    assert waiting.asked == [[1, 2]]
    assert waiting.shown == [[1, 2, 3]], "whose turn it is, is decided among all that wait"
    assert waiting.threads.started == 2
    assert list(waiting.departures.due({PACED.pk: PACED}, NOW)) == [NOW + timedelta(seconds=1)]

    waiting.leave(PACED, NOW + timedelta(seconds=0.9))
    assert waiting.asked == [[1, 2]]
    waiting.leave(PACED, NOW + timedelta(seconds=1))
    assert waiting.asked == [[1, 2], [3]]


def test_without_a_pace_the_line_before_the_threads_is_filled_in_large_blocks(waiting: Waiting) -> None:
    waiting.ready(*(fresh(job_id) for job_id in range(10)))
    waiting.leave(UNPACED)
    assert waiting.asked == [[0, 1, 2, 3, 4, 5]]

    waiting.leave(UNPACED, NOW + timedelta(seconds=1))
    assert waiting.asked == [[0, 1, 2, 3, 4, 5]], "the line is full"
    for job_id in range(4):
        waiting.departures.ended(claim(job_id=job_id))
    waiting.leave(UNPACED, NOW + timedelta(seconds=1))
    assert waiting.asked[1:] == [[6, 7, 8, 9]]


def test_what_is_another_pumps_is_not_asked_for_and_what_turns_out_to_be_is_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting = Waiting(monkeypatch, lost={2})
    waiting.ready(fresh(1), fresh(2))
    waiting.held.let_go(1)

    assert [departure.lost for departure in waiting.leave(PACED)] == [{2}]
    assert waiting.shown == [[2]]


def test_who_missed_a_slot_is_the_first_to_get_another(waiting: Waiting) -> None:
    waiting.ready(fresh(1))
    missed = again(2, doubt_before=True)
    waiting.held.take([missed.claim], NOW)
    waiting.departures.missed(steps.NotSentYet(missed.claim, sent(missed)))
    waiting.leave(PACED)

    assert waiting.asked == [[2, 1]]


def test_a_held_account_sends_nothing_and_what_never_left_is_pending_again(waiting: Waiting) -> None:
    waiting.ready(fresh(1), again(2, doubt_before=False), again(3, doubt_before=True))
    (departure,) = waiting.leave(account(health=AccountHealth.HELD))

    assert [(change.claim.job_id, change.move and change.move.to_state) for change in departure.changes] == [
        (1, None),
        (2, JobState.PENDING),
        (3, None),
    ]
    assert waiting.asked == []
    assert list(waiting.departures.due({PACED.pk: PACED}, NOW)) == []


def test_at_the_end_only_an_intent_that_never_left_is_taken_back(waiting: Waiting) -> None:
    waiting.ready(fresh(1), again(2, doubt_before=False), again(3, doubt_before=True))

    assert [change.claim.job_id for change in waiting.departures.never_left(NOW)] == [2]
