"""The one table of the verbs: what each may be applied to, for which price, and the sentence that refuses the rest."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from batches import rights
from batches.engine import verbs
from batches.engine.verbs import Asked, Price, Standing
from batches.models import FailureClass, JobState, Role, Verb
from tests.engine.samples import NOW
from tests.factories import make_workspace
from tests.web.conftest import make_member

P, SUB, ACC, REN = JobState.PENDING, JobState.SUBMITTING, JobState.ACCEPTED, JobState.RENDERED
SAVED, FAILED, UNKNOWN, CANCELLED = JobState.SAVED, JobState.FAILED, JobState.UNKNOWN, JobState.CANCELLED
DEADLINE, EXPIRED = JobState.DEADLINE_EXCEEDED, JobState.EXPIRED
FREE, MAYBE, ONE = Price.FREE, Price.MAYBE, Price.ONE
ID: dict[str, Any] = {"has_id": True, "may_bill": True}
DOUBT: dict[str, Any] = {"in_doubt": True, "may_bill": True, "resend_until": NOW + timedelta(hours=1)}
LAPSED: dict[str, Any] = {"in_doubt": True, "may_bill": True, "resend_until": NOW + timedelta(seconds=5)}


def failed(kind: FailureClass, **more: Any) -> dict[str, Any]:
    return {"failure_class": kind, **more}


#: How things stand, and what each verb answers: its price, or how the sentence that refuses it begins.
TABLE: list[tuple[JobState, dict[str, Any], dict[Verb, Price | str]]] = [
    (P, {}, {
        Verb.CHECK_AGAIN: "It has not been accepted yet", Verb.FETCH_AGAIN: "It waits for its turn",
        Verb.RETRY: "It waits for its turn", Verb.REGENERATE: "It has not been sent yet",
        Verb.RECONCILE: "It waits for its turn", Verb.CANCEL: FREE,
        Verb.DISMISS: "Only a failed document", Verb.REOPEN: "It is neither dismissed nor cancelled",
    }),
    (SUB, DOUBT, {
        Verb.CHECK_AGAIN: "It has not been accepted yet", Verb.FETCH_AGAIN: "It is being sent",
        Verb.RETRY: "It is being sent", Verb.REGENERATE: ONE, Verb.RECONCILE: "It is being sent", Verb.CANCEL: FREE,
        Verb.DISMISS: "Only a failed document", Verb.REOPEN: "It is neither dismissed nor cancelled",
    }),
    (ACC, ID, {
        Verb.CHECK_AGAIN: FREE, Verb.FETCH_AGAIN: "The provider has not said", Verb.RETRY: "The provider has accepted",
        Verb.REGENERATE: ONE, Verb.RECONCILE: "The provider has accepted", Verb.CANCEL: "The provider has it already",
        Verb.DISMISS: "Only a failed document", Verb.REOPEN: "It is neither dismissed nor cancelled",
    }),
    (REN, ID, {
        Verb.CHECK_AGAIN: "It is finished at the provider", Verb.FETCH_AGAIN: FREE,
        Verb.RETRY: "It is finished at the provider", Verb.REGENERATE: ONE,
        Verb.RECONCILE: "It is finished at the provider", Verb.CANCEL: "The provider has it already",
        Verb.DISMISS: "Only a failed document", Verb.REOPEN: "It is neither dismissed nor cancelled",
    }),
    (SAVED, ID, {
        Verb.CHECK_AGAIN: "It is saved", Verb.FETCH_AGAIN: "It is saved", Verb.RETRY: "It is saved",
        Verb.REGENERATE: ONE, Verb.RECONCILE: "It is saved", Verb.CANCEL: "It is saved",
        Verb.DISMISS: "Only a failed document", Verb.REOPEN: "It is neither dismissed nor cancelled",
    }),
    (CANCELLED, {}, {
        Verb.CHECK_AGAIN: "It was cancelled", Verb.FETCH_AGAIN: "It was cancelled", Verb.RETRY: "It was cancelled",
        Verb.REGENERATE: "It was cancelled", Verb.RECONCILE: "It was cancelled", Verb.CANCEL: "It was cancelled",
        Verb.DISMISS: "Only a failed document", Verb.REOPEN: MAYBE,
    }),
    (UNKNOWN, failed(FailureClass.UNKNOWN_OUTCOME, **DOUBT), {
        Verb.CHECK_AGAIN: "No provider job id is known", Verb.FETCH_AGAIN: "There is no finished file",
        Verb.RETRY: MAYBE, Verb.REGENERATE: ONE, Verb.RECONCILE: FREE, Verb.CANCEL: "It has failed",
        Verb.DISMISS: FREE, Verb.REOPEN: "It is neither dismissed nor cancelled",
    }),
    (UNKNOWN, failed(FailureClass.UNKNOWN_OUTCOME, **LAPSED), {Verb.RETRY: "The provider may no longer recognise"}),
    (UNKNOWN, failed(FailureClass.UNKNOWN_OUTCOME, **DOUBT, is_running=False), {Verb.RETRY: "Its batch is paused"}),
    (UNKNOWN, failed(FailureClass.UNKNOWN_OUTCOME, **DOUBT, is_running=False, batch_is_cancelled=True), {
        Verb.RETRY: "The whole batch was cancelled",
    }),
    (UNKNOWN, failed(FailureClass.UNKNOWN_OUTCOME, **DOUBT, batch_is_cancelled=True), {Verb.RETRY: MAYBE}),
    (UNKNOWN, failed(FailureClass.IDEMPOTENCY_CONFLICT, **DOUBT), {Verb.RETRY: "The provider knows its key"}),
    (UNKNOWN, failed(FailureClass.UNKNOWN_OUTCOME, **ID), {Verb.CHECK_AGAIN: FREE, Verb.RETRY: "The provider may no"}),
    (DEADLINE, failed(FailureClass.DEADLINE_EXCEEDED, **ID), {
        Verb.CHECK_AGAIN: FREE, Verb.FETCH_AGAIN: "The provider has not said", Verb.RETRY: "The provider accepted it",
        Verb.REGENERATE: ONE, Verb.RECONCILE: FREE, Verb.CANCEL: "It has failed", Verb.DISMISS: FREE,
    }),
    (EXPIRED, failed(FailureClass.EXPIRED, **ID), {
        Verb.CHECK_AGAIN: "The provider has said", Verb.FETCH_AGAIN: FREE, Verb.RETRY: "The provider rendered it",
        Verb.REGENERATE: ONE, Verb.RECONCILE: FREE, Verb.CANCEL: "It has failed", Verb.DISMISS: FREE,
    }),
    (EXPIRED, failed(FailureClass.EXPIRED), {Verb.FETCH_AGAIN: "No provider job id", Verb.CHECK_AGAIN: "It never had"}),
    (FAILED, failed(FailureClass.INTERNAL), {
        Verb.CHECK_AGAIN: "It never had a provider job id", Verb.FETCH_AGAIN: "There is no finished file",
        Verb.RETRY: MAYBE, Verb.REGENERATE: ONE, Verb.RECONCILE: "Nothing about it is uncertain",
        Verb.CANCEL: "It has failed", Verb.DISMISS: FREE, Verb.REOPEN: "It is neither dismissed nor cancelled",
    }),
    (FAILED, failed(FailureClass.INTERNAL, **ID), {Verb.RETRY: "An earlier submission", Verb.RECONCILE: FREE}),
    (FAILED, failed(FailureClass.INTERNAL, is_running=False), {Verb.RETRY: MAYBE}),
    (FAILED, failed(FailureClass.INVALID_INPUT), {Verb.RETRY: "The provider refuses this content"}),
    (FAILED, failed(FailureClass.BAD_OUTPUT, **ID), {Verb.FETCH_AGAIN: FREE, Verb.RETRY: "The provider delivered"}),
    (FAILED, failed(FailureClass.RENDER_FAILED, **ID), {
        Verb.CHECK_AGAIN: FREE, Verb.RETRY: "That it was not billed has to be read",
    }),
    (FAILED, failed(FailureClass.RENDER_FAILED, has_id=True), {Verb.RETRY: MAYBE, Verb.CHECK_AGAIN: FREE}),
    (FAILED, failed(FailureClass.TRANSIENT), {Verb.RETRY: MAYBE}),
    (FAILED, failed(FailureClass.INTERNAL, is_dismissed=True), {
        Verb.DISMISS: "It is dismissed already", Verb.REOPEN: FREE,
    }),
    (P, {"is_cancelled": True, "batch_is_cancelled": True}, {Verb.REOPEN: "The whole batch was cancelled"}),
    (P, {"is_cancelled": True, "is_current": False}, {Verb.REOPEN: "A newer version"}),
    (ACC, {"is_cancelled": True, **ID}, {Verb.REOPEN: FREE}),
    (SAVED, {"is_final": True, **ID}, {Verb.REGENERATE: "It is marked final"}),
    (SAVED, {"is_current": False, **ID}, {Verb.REGENERATE: "A newer version"}),
]  # fmt: skip


@pytest.mark.parametrize(("state", "facts", "expected"), TABLE)
def test_the_table(state: JobState, facts: dict[str, Any], expected: dict[Verb, Price | str]) -> None:
    for verb, wanted in expected.items():
        answer = verbs.answer(verb, Standing(state=state, **facts), now=NOW)
        if isinstance(wanted, Price):
            assert answer.price is wanted, (verb, answer)
        else:
            assert answer.price is None, (verb, answer)
            assert answer.words.startswith(wanted), (verb, answer)


def test_every_state_is_asked_for_every_verb() -> None:
    for state in JobState:
        asked = {verb for each, _facts, expected in TABLE if each is state for verb in expected}
        assert asked >= set(Verb) - {Verb.REOPEN}, (state, set(Verb) - asked)


@pytest.mark.parametrize(("state", "facts"), [(state, facts) for state, facts, _expected in TABLE])
def test_a_cancelled_item_is_only_reopened(state: JobState, facts: dict[str, Any]) -> None:
    standing = replace(Standing(state=state, **facts), is_cancelled=True)
    assert set(verbs.offered(standing, now=NOW)) <= {Verb.REOPEN}


@pytest.mark.parametrize(("state", "facts"), [(state, facts) for state, facts, _expected in TABLE])
def test_nothing_but_regenerate_bills_where_something_may_be_billed_already(
    state: JobState, facts: dict[str, Any]
) -> None:
    """But for the same submission under the same key, inside its window."""
    standing = Standing(state=state, **facts)
    if standing.may_bill and not verbs.retries.may_resend(standing.resend_until, NOW):
        priced = {verb for verb, answer in verbs.offered(standing, now=NOW).items() if answer.renders_most}
        assert priced <= {Verb.REGENERATE}


def test_regenerate_beside_an_unfinished_version_asks_first() -> None:
    for state, says in ((SUB, True), (UNKNOWN, True), (ACC, True), (SAVED, False), (EXPIRED, False)):
        answer = verbs.answer(Verb.REGENERATE, Standing(state=state, may_bill=True, version_number=3), now=NOW)
        assert (answer.to_confirm == "Version 3 may also bill.") is says, state


def test_with_other_content_also_what_was_never_sent_is_regenerated() -> None:
    for state in (P, CANCELLED):
        assert verbs.answer(Verb.REGENERATE, Standing(state=state), now=NOW, asked=Asked(has_new_input=True)).allowed


@pytest.mark.parametrize(
    ("least", "most", "words"),
    [
        (0, 0, "free"),
        (0, 1, "bills 0 or 1"),
        (1, 1, "bills 1"),
        (0, 12, "bills 0 to 12"),
        (12, 12, "bills 12"),
        (3, 4, "bills 3 or 4"),
        (0, 20_000, "bills 0 to 20,000"),
    ],
)
def test_the_price_of_many_is_said_in_the_words_of_one(least: int, most: int, words: str) -> None:
    assert verbs.bills(least, most) == words


@pytest.mark.django_db
@pytest.mark.parametrize("role", Role)
def test_who_may_which_verb(role: Role) -> None:
    workspace = make_workspace()
    held = rights.rights(make_member(workspace, "ada", role), workspace)
    allowed = {verb for verb in Verb if verb in held}
    all_but_regenerate = set(Verb) - {Verb.REGENERATE}
    expected = {Role.VIEWER: set(), Role.OPERATOR: all_but_regenerate}.get(role, set(Verb))
    assert allowed == expected


@pytest.mark.parametrize(
    ("verb", "renders_most", "words"),
    [
        (Verb.CHECK_AGAIN, 0, "free"),
        (Verb.RETRY, 1, "bills 0 or 1"),
        (Verb.RETRY, 1200, "bills 0 to 1,200"),
        (Verb.REGENERATE, 1, "bills 1"),
        (Verb.REGENERATE, 12, "bills 12"),
        (Verb.REOPEN, 0, "free"),
    ],
)
def test_a_price_over_many_is_told_in_the_words_of_one(verb: Verb, renders_most: int, words: str) -> None:
    assert verbs.price_of_many(verb, renders_most) == words


GONE = "Its input was deleted on 2026-03-02 by the rule “inputs are kept for 30 days”; upload it again."


@pytest.mark.parametrize(
    ("verb", "facts"),
    [
        (Verb.RETRY, {"state": FAILED, "failure_class": FailureClass.TRANSIENT}),
        (Verb.REGENERATE, {"state": SAVED}),
        (Verb.REGENERATE, {"state": FAILED, "failure_class": FailureClass.INVALID_INPUT}),
        (Verb.REOPEN, {"state": CANCELLED}),
    ],
)
def test_what_needs_an_input_that_was_deleted_is_refused_in_words(verb: Verb, facts: dict[str, Any]) -> None:
    standing = Standing(**facts)
    assert verbs.answer(verb, standing, now=NOW).allowed
    assert verbs.answer(verb, replace(standing, input_gone=GONE), now=NOW).words == GONE


def test_a_document_whose_input_was_deleted_takes_another_and_needs_none_for_the_rest() -> None:
    gone = Standing(state=FAILED, failure_class=FailureClass.BAD_OUTPUT, has_id=True, input_gone=GONE)
    asked = Asked(has_new_input=True)
    assert verbs.answer(Verb.REGENERATE, gone, now=NOW, asked=asked).allowed
    unsent = replace(gone, failure_class=FailureClass.TRANSIENT)
    assert verbs.answer(Verb.RETRY, unsent, now=NOW, asked=asked).words == GONE
    free = (Verb.CHECK_AGAIN, Verb.FETCH_AGAIN, Verb.DISMISS)
    assert [verbs.answer(verb, gone, now=NOW).allowed for verb in free] == [True, True, True]
    assert verbs.answer(Verb.REOPEN, replace(gone, is_dismissed=True), now=NOW).allowed
