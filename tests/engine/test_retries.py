"""What follows from a failed call, as tables: who is at fault, what is spent, and when something may be sent again."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest

from batches.conf import ENGINE
from batches.engine import retries
from batches.engine.retries import Next, SubmissionFacts
from batches.models import FailureClass, HoldReason
from batches.providers import errors
from tests.engine.samples import Dice
from tests.factories import NOW

OPEN_WINDOW = NOW + timedelta(hours=1)
CLOSED_WINDOW = NOW + timedelta(seconds=5)

#: May have arrived: the bytes left and no readable answer of this try came back.
DOUBTFUL = [errors.AnswerLost, errors.ServerFault, errors.ContractBroken, errors.OutcomeUnknown, errors.KeyConflict]
#: A definite no to the document.
DOCUMENT_REFUSED = [errors.InvalidInput, errors.NotFound]
#: The account or the way there; the document is not at fault.
ACCOUNT_TROUBLE = [
    errors.Unauthorized,
    errors.StrangeRefusal,
    errors.InsufficientCredit,
    errors.RateLimited,
    errors.NotSent,
]


def decide(
    kind: type[errors.ProviderError],
    *,
    in_doubt: bool = False,
    tries: int = 0,
    resend_until: datetime | None = OPEN_WINDOW,
    retry_after: float | None = None,
    sent_before: bool = False,
    replayed: bool = False,
    dice: random.Random | None = None,
    **more: Any,
) -> retries.Decision:
    facts = SubmissionFacts(in_doubt=in_doubt, tries=tries, resend_until=resend_until, sent_before=sent_before, **more)
    error = kind("No.", retry_after=retry_after, replayed=replayed)
    return retries.decide_submission(error, facts, now=NOW, rng=dice or random.Random(3))


@dataclass(frozen=True)
class Row:
    kind: type[errors.ProviderError]
    in_doubt: bool
    tries: int
    resend_until: datetime | None
    next: Next
    doubt_after: bool
    spends_try: bool
    failure_class: FailureClass | None = None


def _rows() -> list[Row]:
    rows = []
    for kind in DOUBTFUL:
        unknown = FailureClass.UNKNOWN_OUTCOME
        if kind is errors.KeyConflict:
            unknown = FailureClass.IDEMPOTENCY_CONFLICT
        for doubt in (False, True):
            rows += [
                Row(kind, doubt, 0, OPEN_WINDOW, Next.RESEND, True, True),
                Row(kind, doubt, ENGINE.submit_tries_most - 2, OPEN_WINDOW, Next.RESEND, True, True),
                Row(kind, doubt, ENGINE.submit_tries_most - 1, OPEN_WINDOW, Next.UNKNOWN, True, True, unknown),
                Row(kind, doubt, 0, CLOSED_WINDOW, Next.UNKNOWN, True, True, unknown),
                Row(kind, doubt, 0, None, Next.UNKNOWN, True, True, unknown),
            ]
    for kind in DOCUMENT_REFUSED:
        for tries in (0, ENGINE.submit_tries_most - 1):
            for until in (OPEN_WINDOW, CLOSED_WINDOW, None):
                rows += [
                    Row(kind, False, tries, until, Next.FAIL, False, True, FailureClass.INVALID_INPUT),
                    Row(kind, True, tries, until, Next.UNKNOWN, True, True, FailureClass.UNKNOWN_OUTCOME),
                ]
    for kind in ACCOUNT_TROUBLE:
        for tries in (0, ENGINE.submit_tries_most - 1, ENGINE.submit_tries_most):
            for until in (OPEN_WINDOW, CLOSED_WINDOW, None):
                rows += [
                    Row(kind, False, tries, until, Next.REQUEUE, False, False),
                    Row(kind, True, tries, until, Next.RESEND, True, False),
                ]
    return rows


@pytest.mark.parametrize("row", _rows())
def test_where_a_submission_goes_after_an_answer_without_an_id(row: Row) -> None:
    decision = decide(row.kind, in_doubt=row.in_doubt, tries=row.tries, resend_until=row.resend_until)
    assert decision.next is row.next
    assert decision.in_doubt is row.doubt_after
    assert decision.spends_try is row.spends_try
    assert decision.failure_class == row.failure_class
    assert decision.due_at >= NOW


@pytest.mark.parametrize("tries", range(10))
@pytest.mark.parametrize("kind", DOUBTFUL + DOCUMENT_REFUSED + ACCOUNT_TROUBLE)
def test_once_in_doubt_no_answer_of_another_try_makes_it_failed_or_pending(
    kind: type[errors.ProviderError], tries: int
) -> None:
    decision = decide(kind, in_doubt=True, tries=tries)
    assert decision.next in (Next.RESEND, Next.UNKNOWN)
    assert decision.in_doubt


@pytest.mark.parametrize("in_doubt", [False, True])
@pytest.mark.parametrize("until", [OPEN_WINDOW, CLOSED_WINDOW, None])
@pytest.mark.parametrize("tries", [0, ENGINE.submit_tries_most - 1])
@pytest.mark.parametrize(
    ("kind", "next_step", "doubt_after", "spends_try", "failure"),
    [
        (errors.InvalidInput, Next.FAIL, False, True, FailureClass.INVALID_INPUT),
        (errors.NotFound, Next.FAIL, False, True, FailureClass.INVALID_INPUT),
        (errors.Unauthorized, Next.ANEW, False, False, None),
        (errors.InsufficientCredit, Next.ANEW, False, False, None),
        (errors.RateLimited, Next.ANEW, False, False, None),
        (errors.ServerFault, Next.UNKNOWN, True, True, FailureClass.UNKNOWN_OUTCOME),
        (errors.ContractBroken, Next.UNKNOWN, True, True, FailureClass.UNKNOWN_OUTCOME),
    ],
)
def test_a_stored_definite_refusal_settles_all_doubt_and_a_stored_5xx_settles_nothing(
    kind: type[errors.ProviderError],
    next_step: Next,
    doubt_after: bool,
    spends_try: bool,
    failure: FailureClass | None,
    tries: int,
    until: datetime | None,
    in_doubt: bool,
) -> None:
    decision = decide(
        kind, in_doubt=in_doubt, tries=tries, resend_until=until, sent_before=True, replayed=True, retry_after=9.0
    )
    assert (decision.next, decision.in_doubt, decision.spends_try) == (next_step, doubt_after, spends_try)
    assert decision.failure_class == failure
    assert (decision.hold, decision.cool_down_until) == (None, None), "old news about the account"


@pytest.mark.parametrize("kind", [*DOCUMENT_REFUSED, *ACCOUNT_TROUBLE, errors.ServerFault])
def test_a_key_that_never_left_before_cannot_be_answered_from_memory(kind: type[errors.ProviderError]) -> None:
    assert decide(kind, replayed=True) == decide(kind)


@pytest.mark.parametrize("in_doubt", [False, True])
def test_a_conflict_is_never_a_stored_refusal(in_doubt: bool) -> None:
    assert decide(errors.KeyConflict, in_doubt=in_doubt, sent_before=True, replayed=True).next is Next.RESEND


@pytest.mark.parametrize(
    ("kind", "next_step", "hold"),
    [
        (errors.Unauthorized, Next.ANEW, HoldReason.AUTH),
        (errors.InsufficientCredit, Next.ANEW, HoldReason.CREDIT),
        (errors.RateLimited, Next.REQUEUE, None),
        (errors.NotSent, Next.REQUEUE, None),
    ],
)
def test_a_second_refusal_of_the_account_takes_another_key_because_this_one_may_be_bound_to_the_first(
    kind: type[errors.ProviderError], next_step: Next, hold: HoldReason | None
) -> None:
    decision = decide(kind, sent_before=True)
    assert (decision.next, decision.hold, decision.spends_try) == (next_step, hold, False)
    assert decide(kind, sent_before=True, in_doubt=True).next is Next.RESEND, "never while in doubt"


@pytest.mark.parametrize(
    ("kind", "hold", "counts_as_unreached"),
    [
        (errors.Unauthorized, HoldReason.AUTH, False),
        (errors.StrangeRefusal, HoldReason.AUTH, False),
        (errors.InsufficientCredit, HoldReason.CREDIT, False),
        (errors.RateLimited, None, False),
        (errors.NotSent, None, True),
        (errors.AnswerLost, None, True),
        (errors.ServerFault, None, True),
        (errors.ContractBroken, None, False),
        (errors.KeyConflict, None, False),
        (errors.InvalidInput, None, False),
        (errors.NotFound, None, False),
    ],
)
@pytest.mark.parametrize("in_doubt", [False, True])
def test_what_an_error_says_about_the_account(
    kind: type[errors.ProviderError], hold: HoldReason | None, counts_as_unreached: bool, in_doubt: bool
) -> None:
    decision = decide(kind, in_doubt=in_doubt)
    assert decision.hold is hold
    assert decision.transport_failure is counts_as_unreached


@pytest.mark.parametrize("sent_before", [False, True])
@pytest.mark.parametrize("kind", [errors.Unauthorized, errors.StrangeRefusal])
@pytest.mark.parametrize(
    ("refused_before", "others_pass", "in_doubt", "next_step", "failure"),
    [
        (True, True, False, Next.FAIL, FailureClass.INVALID_INPUT),
        (True, True, True, Next.UNKNOWN, FailureClass.UNKNOWN_OUTCOME),
        (True, False, True, Next.RESEND, None),
        (False, True, True, Next.RESEND, None),
        (True, False, False, None, None),
        (False, True, False, None, None),
        (False, False, False, None, None),
    ],
)
def test_only_a_document_that_is_refused_again_while_others_pass_is_at_fault_itself(
    kind: type[errors.ProviderError],
    refused_before: bool,
    others_pass: bool,
    in_doubt: bool,
    next_step: Next | None,
    failure: FailureClass | None,
    sent_before: bool,
) -> None:
    decision = decide(
        kind, sent_before=sent_before, in_doubt=in_doubt, refused_before=refused_before, others_pass=others_pass
    )
    assert decision.next is (next_step or (Next.ANEW if sent_before else Next.REQUEUE))
    assert decision.failure_class == failure
    assert decision.hold is (None if failure else HoldReason.AUTH)
    assert decision.spends_try is (failure is not None)
    assert ("refuses this document" in decision.words) is (failure is not None)


@pytest.mark.parametrize(
    ("kind", "refused_before", "is_strange"),
    [
        (errors.Unauthorized, False, False),
        (errors.StrangeRefusal, False, True),
        (errors.StrangeRefusal, True, False),
        (errors.InsufficientCredit, False, False),
    ],
)
def test_a_strange_refusal_is_only_a_suspicion_the_first_time(
    kind: type[errors.ProviderError], refused_before: bool, is_strange: bool
) -> None:
    assert decide(kind, refused_before=refused_before).is_strange is is_strange


@pytest.mark.parametrize("replayed", [False, True])
@pytest.mark.parametrize("kind", [errors.Unauthorized, errors.InsufficientCredit])
def test_a_refusal_of_the_account_fails_no_document_however_many_keys_it_had(
    kind: type[errors.ProviderError], replayed: bool
) -> None:
    for refused_keys in (0, 3, 50):
        decision = decide(kind, sent_before=True, replayed=replayed, refused_keys=refused_keys)
        assert (decision.next, decision.failure_class, decision.in_doubt) == (Next.ANEW, None, False)
        assert decision.hold is (None if replayed else decide(kind).hold)
    assert decide(kind, sent_before=True, in_doubt=True, refused_keys=3).next is Next.RESEND, "never while in doubt"


def test_further_keys_after_stored_refusals_come_later_and_later() -> None:
    waits = [
        decide(errors.RateLimited, sent_before=True, replayed=True, refused_keys=keys, dice=Dice(1)).due_at - NOW
        for keys in (0, 1, 2, 5, 50)
    ]
    assert [wait.total_seconds() for wait in waits] == [1, 2, 4, 32, 60]


def test_a_key_that_alone_is_refused_with_429_is_given_up_for_another() -> None:
    decision = decide(errors.RateLimited, sent_before=True, limited_alone=True)
    assert (decision.next, decision.in_doubt, decision.spends_try) == (Next.ANEW, False, False)
    assert decision.cool_down_until == decision.due_at, "it may be the pace after all"
    assert decide(errors.RateLimited, sent_before=True).next is Next.REQUEUE
    assert decide(errors.RateLimited, sent_before=True, limited_alone=True, in_doubt=True).next is Next.RESEND


def test_only_a_429_moves_the_shared_slot() -> None:
    for kind in DOUBTFUL + DOCUMENT_REFUSED + ACCOUNT_TROUBLE:
        decision = decide(kind, retry_after=30.0)
        if kind is errors.RateLimited:
            least = NOW + timedelta(seconds=30 + ENGINE.retry_after_skew_seconds)
            spread = timedelta(seconds=ENGINE.retry_after_spread_seconds)
            assert least <= decision.cool_down_until == decision.due_at <= least + spread
        else:
            assert decision.cool_down_until is None


def test_a_wait_that_a_5xx_asked_for_is_kept() -> None:
    assert decide(errors.ServerFault, retry_after=50.0).due_at >= NOW + timedelta(seconds=50)


def test_a_wait_that_would_outlast_the_window_ends_the_tries() -> None:
    until = NOW + timedelta(seconds=60)
    assert decide(errors.ServerFault, resend_until=until).next is Next.RESEND
    assert decide(errors.ServerFault, resend_until=until, retry_after=50.0).next is Next.UNKNOWN


# --- how long a key protects ---


@pytest.mark.parametrize(
    ("retention_seconds", "left_seconds"),
    [
        (3600, 3600 - 360),  # a tenth, where that is more than a minute
        (86_400, 86_400 - 8640),
        (600, 600 - 60),  # a minute, where that is more than a tenth
        (120, 60),
        (61, 1),
    ],
)
def test_a_resend_ends_a_margin_before_the_key_is_forgotten(retention_seconds: int, left_seconds: float) -> None:
    assert retries.resend_until(NOW, retention_seconds) == NOW + timedelta(seconds=left_seconds)


@pytest.mark.parametrize(
    ("takes_key", "harmless", "seconds"),
    [
        (True, False, 3240),
        (True, True, 3240),
        (False, True, ENGINE.harmless_resend_seconds),
        (False, False, None),
    ],
)
def test_without_a_key_only_a_harmless_render_is_ever_repeated(
    takes_key: bool, harmless: bool, seconds: float | None
) -> None:
    until = retries.resend_until(NOW, 3600, takes_key=takes_key, harmless=harmless)
    assert until == (None if seconds is None else NOW + timedelta(seconds=seconds))


@pytest.mark.parametrize("retention_seconds", [0, 1, 59, 60])
def test_a_retention_within_the_margin_allows_no_resend(retention_seconds: int) -> None:
    assert retries.resend_until(NOW, retention_seconds) is None


@pytest.mark.parametrize(
    ("until", "may"),
    [
        (None, False),
        (NOW, False),
        (NOW + timedelta(seconds=ENGINE.read_timeout), False),
        (NOW + timedelta(seconds=ENGINE.read_timeout, microseconds=1), True),
        (NOW + timedelta(hours=1), True),
    ],
)
def test_a_resend_must_arrive_inside_the_window_even_at_its_slowest(until: datetime | None, may: bool) -> None:
    assert retries.may_resend(until, NOW) is may


@pytest.mark.parametrize("asked", [-1.0, 0.0, 9_999_999_999.0, float("inf")])
@pytest.mark.parametrize("kind", [errors.ServerFault, errors.KeyConflict])
def test_what_a_doubtful_answer_asks_for_is_bounded_too(kind: type[errors.ProviderError], asked: float) -> None:
    wait = (decide(kind, retry_after=asked).due_at - NOW).total_seconds()
    assert 0 < wait <= ENGINE.retry_after_most_seconds
