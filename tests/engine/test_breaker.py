"""What status reads and downloads say about the way to the provider."""

from __future__ import annotations

from typing import Any

import pytest

from batches.engine import breaker, polling
from batches.engine.changes import Change
from batches.engine.effects import NO_EFFECT, AccountEffect
from batches.engine.polling import PollContext
from batches.models import AccountHealth, HoldReason, JobState
from batches.providers import errors
from batches.providers.base import JobPhase
from tests.engine.samples import Dice, accepted_submission, account, claim, exchange, status
from tests.factories import NOW

OWN = "http://127.0.0.1:9/v1/files/7"
ELSEWHERE = "https://files.example.com/7"
AWAY = AccountEffect(transport_failure=True, words="Away.")


def context(**fields: Any) -> PollContext:
    return PollContext(account(**fields), NOW, Dice(0.5))


@pytest.mark.parametrize(
    ("kind", "counts"),
    [
        (errors.NotSent, True),
        (errors.AnswerLost, True),
        (errors.ServerFault, True),
        (errors.ContractBroken, False),
        (errors.NotFound, False),
        (errors.RateLimited, False),
    ],
)
@pytest.mark.parametrize("health", list(AccountHealth))
def test_a_status_read_that_does_not_get_through_counts_while_the_account_is_open(
    kind: type[errors.ProviderError], counts: bool, health: str
) -> None:
    reason = HoldReason.UNREACHABLE if health == AccountHealth.HELD else ""
    change = polling.judge_error(claim(JobState.ACCEPTED), kind("No."), context(health=health, hold_reason=reason))
    assert change.effect.transport_failure is (counts and health == AccountHealth.OPEN)
    assert change.follow is not None, "it is read again, as far apart as any read"


@pytest.mark.parametrize(("failures", "effect"), [(0, NO_EFFECT), (2, AccountEffect(reached=True))])
@pytest.mark.parametrize("phase", list(JobPhase))
def test_a_status_read_that_gets_through_ends_the_row_of_failures(
    phase: JobPhase, failures: int, effect: AccountEffect
) -> None:
    about = context(transport_failure_count=failures)
    assert polling.judge_status(claim(JobState.ACCEPTED), status(phase, "word"), about).effect == effect


@pytest.mark.parametrize(
    ("url", "facts", "failures", "expected"),
    [
        (OWN, {"status": None, "error_class": "NotSent"}, 0, AWAY),
        ("", {"status": None, "error_class": "AnswerLost"}, 0, AWAY),
        ("HTTP://127.0.0.1:9/x", {"status": None, "error_class": "NotSent"}, 0, AWAY),
        ("/v1/files/7", {"status": None, "error_class": "NotSent"}, 0, AWAY),
        ("http://127.0.0.1/x", {"status": None, "error_class": "NotSent"}, 0, NO_EFFECT),  # another port
        (ELSEWHERE, {"status": None, "error_class": "NotSent"}, 0, NO_EFFECT),
        (OWN, {"status": None, "error_class": "TargetRefused"}, 0, NO_EFFECT),
        (OWN, {"status": 200, "error_class": "AnswerLost"}, 2, NO_EFFECT),  # it broke off: reached, and not well
        (OWN, {"status": 503, "error_class": "ServerFault"}, 0, AWAY),
        (ELSEWHERE, {"status": 503, "error_class": "ServerFault"}, 0, NO_EFFECT),
        (OWN, {"status": 200}, 0, NO_EFFECT),
        (OWN, {"status": 200}, 2, AccountEffect(reached=True)),
        (ELSEWHERE, {"status": 200}, 2, NO_EFFECT),
    ],
)
def test_a_download_speaks_of_the_provider_only_where_the_file_lies_there(
    url: str, facts: dict[str, Any], failures: int, expected: AccountEffect
) -> None:
    known = claim(JobState.RENDERED, submission=accepted_submission(result={"url": url}))
    change = Change(claim=known, at=NOW, exchanges=((exchange("download", **facts), 71),))
    about = account(transport_failure_count=failures)
    assert breaker.with_download(change, about, "Away.").effect == expected


def test_a_download_that_says_something_else_already_is_left_as_it_is() -> None:
    effect = AccountEffect(hold=HoldReason.AUTH)
    change = Change(
        claim=claim(JobState.RENDERED),
        at=NOW,
        exchanges=((exchange("download", status=None, error_class="NotSent"), 71),),
        effect=effect,
    )
    assert breaker.with_download(change, account()).effect == effect
    nothing_fetched = Change(claim=claim(JobState.RENDERED), at=NOW)
    assert breaker.with_download(nothing_fetched, account()).effect == NO_EFFECT
