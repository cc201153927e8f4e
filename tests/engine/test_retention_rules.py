"""What retention may delete, as a table; and when."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from batches.engine import retention_rules as rules
from batches.engine.retention_rules import Kept, Part, Policy, kept_because
from batches.models import ACTIVE_STATES, JobState
from tests.factories import NOW

LATER, EARLIER = NOW + timedelta(seconds=1), NOW - timedelta(seconds=1)
ENDED = (JobState.SAVED, JobState.FAILED, JobState.EXPIRED, JobState.CANCELLED)


def kept(state: JobState = JobState.SAVED, **facts: Any) -> Kept:
    return Kept(state=state, ended_at=NOW - timedelta(days=400), **facts)


@pytest.mark.parametrize("part", Part)
@pytest.mark.parametrize("state", JobState)
def test_only_what_has_ended_for_certain_is_deleted(part: Part, state: JobState) -> None:
    because = kept_because(part, kept(state), now=NOW)
    if state in ENDED:
        assert because == ""
    elif state in ACTIVE_STATES:
        assert because == rules.NOT_ENDED
    else:
        assert because.endswith("reconcile it")


@pytest.mark.parametrize("part", Part)
@pytest.mark.parametrize(
    ("facts", "because"),
    [
        ({"in_doubt": True}, rules.IN_DOUBT),
        ({"resend_until": LATER}, rules.RESENT),
        ({"resend_until": EARLIER}, ""),
        ({"watch_until": LATER}, rules.WATCHED),
        ({"watch_until": EARLIER}, ""),
        ({"is_acted_on": True}, rules.ACTED_ON),
    ],
)
def test_each_part_is_kept_while_something_may_still_come_of_it(part: Part, facts: Any, because: str) -> None:
    assert kept_because(part, kept(**facts), now=NOW) == because


@pytest.mark.parametrize(
    ("facts", "part", "because"),
    [
        ({"is_needed": True}, Part.INPUTS, rules.NEEDED),
        ({"is_exported": True}, Part.OUTPUTS, rules.EXPORTED),
        ({"copy_is_going": True}, Part.EVIDENCE, rules.COPY_GOING),
        ({"newest_event_at": NOW - timedelta(days=29)}, Part.EVIDENCE, rules.EVENTS_YOUNG),
    ],
)
def test_what_speaks_against_one_part_speaks_for_no_other(facts: Any, part: Part, because: str) -> None:
    found = {each: kept_because(each, kept(**facts), now=NOW) for each in Part}
    assert found == {each: because if each is part else "" for each in Part}


def test_webhooks_of_thirty_days_ago_are_known_by_nothing_any_more() -> None:
    assert kept_because(Part.EVIDENCE, kept(newest_event_at=NOW - timedelta(days=30)), now=NOW) == ""


@pytest.mark.parametrize(
    ("policy", "part", "days"),
    [
        (Policy(), Part.INPUTS, None),
        (Policy(inputs=1), Part.INPUTS, 1),
        (Policy(inputs=1), Part.OUTPUTS, None),
        (Policy(evidence=90), Part.EVIDENCE, 90),
        (Policy(evidence=3), Part.EVIDENCE, 30),
    ],
)
def test_what_is_due_when(policy: Policy, part: Part, days: int | None) -> None:
    assert policy.due_at(part, NOW) == (None if days is None else NOW + timedelta(days=days))
    assert policy.is_empty() is (policy == Policy())


def test_a_rule_is_named_in_words() -> None:
    assert Policy(inputs=1).rule(Part.INPUTS) == "inputs are kept for 1 day"
    words = rules.input_gone(NOW, Policy(inputs=30).rule(Part.INPUTS))
    assert words == "Its input was deleted on 2026-03-02 by the rule “inputs are kept for 30 days”; upload it again."
