"""When a draft at the provider is begun, and what the answer to that means: one start at a time, seen to its end."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from batches.conf import ENGINE
from batches.engine import drafting, judging, polling, steps
from batches.engine.changes import Change, FollowStep
from batches.engine.claims import Claim
from batches.engine.drafting import LEAVES_WITHIN, SETTLED_AFTER
from batches.engine.polling import PollContext
from batches.engine.polls import Polls
from batches.models import AccountHealth, FailureClass, HoldReason, JobState, Lane
from batches.providers import errors
from batches.providers.base import Accepted, JobPhase, JobStatus
from batches.storage import ObjectMissing, StoreUnavailable
from tests.engine.samples import Dice, accepted_submission, account, claim, exchange, status
from tests.factories import NOW

SECOND = timedelta(seconds=1)


def context(*, at: datetime = NOW, **account_fields: Any) -> PollContext:
    return PollContext(account(**account_fields), at, Dice(0.5))


def accepted(*, started_at: datetime | None = None, **fields: Any) -> Claim:
    return claim(JobState.ACCEPTED, submission=accepted_submission(started_at=started_at), **fields)


def draft(*, at: datetime = NOW) -> JobStatus:
    return status(JobPhase.DRAFT, "draft", at=at)


def begun(at: datetime = NOW) -> Claim:
    """As `starting` leaves it for the step."""
    return accepted(started_at=at, starts_draft=True)


def judged(result: steps.JobResult, given: PollContext) -> Change:
    return judging.judge(result, given, Polls(ENGINE, Dice(0.5)))


# --- whether it may begin ---


def test_a_draft_is_begun_by_committing_first_that_this_is_tried() -> None:
    change = judged(steps.StatusRead(accepted(), draft()), context())
    assert change.move is None
    assert change.submission_fields == {"started_at": NOW}
    assert change.follow is not None
    assert change.after is not None
    assert (change.follow.step, change.follow.due_at) == (FollowStep.START, NOW)
    assert change.after.starts_draft
    assert change.after.submission.started_at == NOW
    assert change.job_fields["provider_status"] == "draft"
    assert [facts.kind for facts, _id in change.exchanges] == ["poll"]


@pytest.mark.parametrize(
    ("read_after", "may"), [(timedelta(0), False), (SETTLED_AFTER - SECOND, False), (SETTLED_AFTER, True)]
)
def test_beside_a_start_that_may_be_under_way_only_a_read_that_began_later_allows_another(
    read_after: timedelta, may: bool
) -> None:
    known, read_at = accepted(started_at=NOW), NOW + read_after
    # However late it is judged, what counts is when the read began.
    assert drafting.may_start(known, draft(at=read_at), context(at=read_at + 5 * SETTLED_AFTER)) is may
    change = judged(steps.StatusRead(known, draft(at=read_at)), context(at=read_at))
    assert change.follow is not None
    assert change.follow.step is (FollowStep.START if may else FollowStep.POLL)


@pytest.mark.parametrize("reason", [*HoldReason])
def test_nothing_is_begun_on_a_held_account(reason: HoldReason) -> None:
    held = context(health=AccountHealth.HELD, hold_reason=reason)
    change = judged(steps.StatusRead(accepted(), draft()), held)
    assert change.follow is not None
    assert change.follow.step is FollowStep.POLL
    assert "started_at" not in change.submission_fields


def test_nothing_is_begun_past_the_deadline_and_the_words_say_that_nothing_is_billed() -> None:
    at = NOW + timedelta(seconds=1800)
    change = judged(steps.StatusRead(accepted(), draft(at=at)), context(at=at))
    assert change.move is not None
    assert change.move.to_state is JobState.DEADLINE_EXCEEDED
    assert "“draft”" in change.move.words
    assert polling.NEVER_BEGUN in change.move.words


def test_where_a_start_was_lost_the_deadlines_words_leave_open_whether_it_arrived() -> None:
    at = NOW + timedelta(seconds=1800)
    change = judged(steps.StatusRead(accepted(started_at=at - SECOND), draft(at=at)), context(at=at))
    assert change.move is not None
    assert polling.MAYBE_BEGUN in change.move.words
    assert polling.NEVER_BEGUN not in change.move.words


def test_a_failure_that_was_read_before_is_taken_back_before_it_is_begun() -> None:
    known = claim(JobState.ACCEPTED, submission=accepted_submission(failed_at=NOW))
    change = judged(steps.StatusRead(known, draft()), context())
    assert change.submission_fields == {"failed_at": None}
    assert change.after is not None
    assert drafting.may_start(change.after, draft(), context())


def test_a_start_leaves_soon_or_not_at_all_and_is_settled_after_its_longest_call() -> None:
    assert drafting.may_leave(begun(), NOW + LEAVES_WITHIN)
    assert not drafting.may_leave(begun(), NOW + LEAVES_WITHIN + SECOND)
    assert not drafting.may_leave(replace(begun(), starts_draft=False), NOW)
    longest = timedelta(seconds=ENGINE.connect_timeout + ENGINE.read_timeout)
    assert LEAVES_WITHIN + longest < SETTLED_AFTER


# --- what came of it ---


def test_what_has_begun_is_read_when_such_jobs_are_usually_finished() -> None:
    answer = Accepted("pdf_7", "pending", exchange("submit"))
    change = judged(steps.Started(begun(), answer), context(transport_failure_count=2))
    assert change.follow is not None
    assert change.after is not None
    assert change.follow.step is FollowStep.POLL
    assert change.follow.due_at == change.after.due_at == NOW + SECOND
    assert not change.after.starts_draft
    assert change.after.submission.started_at == NOW, "no second one is tried beside it"
    assert change.job_fields["provider_status"] == "pending"
    assert change.effect.reached


@pytest.mark.parametrize("kind", [errors.AnswerLost, errors.ServerFault, errors.ContractBroken])
def test_a_lost_answer_to_a_start_is_settled_by_reads_and_by_nothing_else(kind: type[errors.ProviderError]) -> None:
    change = judged(steps.StartFailed(begun(), kind("No answer.", exchange=exchange(status=None))), context())
    assert change.move is None
    assert change.after is not None
    assert change.follow is not None
    assert change.follow.step is FollowStep.POLL
    assert not change.after.starts_draft
    assert change.after.submission.started_at == NOW
    assert "started_at" not in change.submission_fields
    assert not drafting.may_start(change.after, draft(at=NOW + SECOND), context(at=NOW + SECOND))


@pytest.mark.parametrize(
    "error",
    [
        errors.NotSent("Refused."),
        errors.RateLimited("Slow down.", retry_after=7),
        errors.InsufficientCredit("Empty."),
        errors.Unauthorized("No."),
        errors.NotFound("Who?"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_definite_no_had_no_effect_so_the_next_try_waits_for_nothing(error: errors.ProviderError) -> None:
    change = judged(steps.StartFailed(begun(), error), context())
    assert change.after is not None
    assert change.submission_fields == {"started_at": None}
    assert change.submission_id == 71
    assert drafting.may_start(change.after, draft(at=NOW + SECOND), context(at=NOW + SECOND))


def test_a_rate_limit_of_a_start_pauses_its_lane() -> None:
    change = judged(steps.StartFailed(begun(), errors.RateLimited("Slow down.", retry_after=7)), context())
    assert change.effect.cool_down_lane is Lane.POLL
    assert change.follow is not None
    assert change.follow.due_at >= NOW + 7 * SECOND


@pytest.mark.parametrize(
    ("error", "hold"), [(errors.InsufficientCredit, HoldReason.CREDIT), (errors.Unauthorized, HoldReason.AUTH)]
)
def test_what_is_the_accounts_fault_holds_the_account_and_not_the_document(
    error: type[errors.ProviderError], hold: HoldReason
) -> None:
    change = judged(steps.StartFailed(begun(), error("No.")), context())
    assert (change.move, change.effect.hold) == (None, hold)


def test_a_document_that_is_refused_at_its_start_has_failed() -> None:
    error = errors.InvalidInput("The template needs a name.", code="x" * 300, exchange=exchange(status=422))
    change = judged(steps.StartFailed(begun(), error), context())
    assert change.move is not None
    assert change.move.to_state is JobState.FAILED
    assert change.move.fields["failure_class"] == FailureClass.INVALID_INPUT
    assert change.move.fields["failure_words"] == "The template needs a name."
    assert len(change.move.fields["failure_code"]) == 100
    assert change.submission_fields["closed_at"] == NOW


def test_a_store_that_cannot_give_the_bytes_back_is_waited_for_and_blames_no_provider() -> None:
    change = judged(steps.StartFailed(begun(), StoreUnavailable("No disk.")), context())
    assert (change.move, change.follow) == (None, None)
    assert change.job_fields["due_at"] > NOW
    assert change.submission_fields == {"started_at": None}
    assert not change.effect.transport_failure


def test_a_stored_request_that_is_gone_ends_it() -> None:
    change = judged(steps.StartFailed(begun(), ObjectMissing("Gone.")), context())
    assert change.move is not None
    assert change.move.to_state is JobState.FAILED
    assert change.move.fields["failure_class"] == FailureClass.INTERNAL


# --- a pump that ends ---


def test_a_start_that_waits_when_its_pump_ends_is_given_back_as_one_that_never_left() -> None:
    polls = Polls(ENGINE, Dice(0.5))
    waiting = replace(begun(), due_at=NOW)
    polls.schedule(waiting, NOW)
    (change,) = polls.unwritten(NOW)
    assert change.submission_fields == {"started_at": None}
    assert change.submission_id == 71
