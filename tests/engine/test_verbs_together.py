"""Several people at once, and deaths half way: each job moves once, whoever comes first, and never by half."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

import pytest

from batches.actions import Chosen
from batches.engine import applying, audit, carrying, running, verbs
from batches.engine.audit import By
from batches.engine.clock import SystemClock
from batches.engine.orders import Order, Result
from batches.models import (
    AuditEntry,
    Batch,
    BatchItem,
    DocumentVersion,
    FailureClass,
    ItemResult,
    Job,
    JobEvent,
    JobState,
    Verb,
)
from tests import factories
from tests.engine import racing
from tests.engine.test_bulk_actions import confirm, plan
from tests.factories import NOW

DOCUMENTS = 40


def order_of(name: str) -> Order:
    return Order(By(None, name, "127.0.0.1"), reason="The provider is back.", is_confirmed=True)


def failed_batch(count: int = DOCUMENTS) -> tuple[Batch, list[int]]:
    batch = factories.make_batch()
    for _ in range(count):
        factories.make_job(batch=batch, state=JobState.FAILED, failure_class=FailureClass.INTERNAL)
    return batch, list(batch.items.order_by("pk").values_list("pk", flat=True))


def pressed(verb: Verb, ids: list[int], name: str) -> dict[int, Result]:
    return applying.apply(verb, ids, order=order_of(name), now=NOW)


@pytest.mark.django_db(transaction=True)
def test_two_people_who_press_retry_at_the_same_moment_move_it_once() -> None:
    """Case 50. The other is told that it is under way."""
    _batch, ids = failed_batch(1)
    answers = racing.answers([partial(pressed, Verb.RETRY, ids, name) for name in ("ada", "bea")])
    results = sorted((answer[ids[0]] for answer in answers), key=lambda result: result.is_done)
    assert [result.is_done for result in results] == [False, True]
    assert results[0].words == "It waits for its turn, and is sent by itself."
    assert JobEvent.objects.filter(reason="retry").count() == AuditEntry.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_overlapping_retries_in_opposite_orders_move_every_document_once() -> None:
    """Case 107. Whatever order the items are named in, their rows are locked in one order."""
    _batch, ids = failed_batch()
    shuffled = random.Random(7).sample(ids, len(ids))
    runs = [ids, ids[::-1], shuffled, shuffled[::-1]]
    answers = racing.answers([partial(pressed, Verb.RETRY, run, f"person {at}") for at, run in enumerate(runs)])
    done = [pk for answer in answers for pk, result in answer.items() if result.is_done]
    assert sorted(done) == ids
    assert set(Job.objects.values_list("state", flat=True)) == {"pending"}
    assert JobEvent.objects.filter(reason="retry").count() == AuditEntry.objects.count() == len(ids)


@pytest.mark.django_db(transaction=True)
def test_verbs_beside_a_pause_and_a_cancellation_of_the_batch_leave_nothing_by_half() -> None:
    batch, ids = failed_batch()
    by = By(None, "cara", "127.0.0.1")
    racing.answers(
        [
            partial(pressed, Verb.RETRY, ids, "ada"),
            partial(pressed, Verb.DISMISS, ids[::-1], "bea"),
            partial(running.pause, batch.pk, reason="x", by=by, now=NOW),
            partial(running.cancel, batch.pk, reason="x", by=by, now=NOW),
        ]
    )
    running.end_unneeded(now=NOW, most=100)
    for job in Job.objects.prefetch_related("events"):
        moves = [event for event in job.events.order_by("pk") if event.from_state != event.to_state]
        assert job.state in ("failed", "cancelled"), "nothing waits for a batch that was cancelled"
        assert (job.state == "cancelled") is bool(moves)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("verb", [Verb.RETRY, Verb.DISMISS])
def test_a_death_before_the_last_statement_leaves_nothing_of_it(verb: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    _batch, ids = failed_batch(3)
    before = list(Job.objects.order_by("pk").values())

    class Killed(BaseException):
        """The process is gone."""

    written: list[str] = []

    def die(action: str, **_given: object) -> None:
        if written:
            raise Killed
        written.append(action)

    monkeypatch.setattr(audit, "record", die)
    with pytest.raises(Killed):
        pressed(verb, ids, "ada")
    assert list(Job.objects.order_by("pk").values()) == before
    assert not JobEvent.objects.exists()
    monkeypatch.undo()
    assert all(result.is_done for result in pressed(verb, ids, "ada").values())


@pytest.mark.django_db(transaction=True)
def test_two_people_who_regenerate_one_document_at_once_make_one_version() -> None:
    """The other is told that a newer version exists, and nothing is billed for them."""
    batch = factories.make_batch()
    job = factories.make_saved_job(batch=batch)
    ids = list(batch.items.values_list("pk", flat=True))
    looked_at = dict.fromkeys(ids, job.version_id)
    calls = [
        partial(applying.apply, Verb.REGENERATE, ids, order=replace(order_of(name), versions=looked_at), now=NOW)
        for name in ("ada", "bea")
    ]
    answers = racing.answers(calls)
    results = sorted((answer[ids[0]] for answer in answers), key=lambda result: result.is_done)
    assert [(result.is_done, result.words) for result in results] == [
        (False, verbs.NEWER_EXISTS),
        (True, "Version 2 was made."),
    ]
    assert DocumentVersion.objects.count() == Job.objects.count() == 2
    assert AuditEntry.objects.count() == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("verb", [Verb.RETRY, Verb.REGENERATE])
def test_regenerating_beside_a_bulk_action_over_the_same_rows_in_the_opposite_order(verb: Verb) -> None:
    """Case 107. Neither ends the other, and every document is rendered once: as it was or anew, never both."""
    batch, ids = failed_batch()
    action = confirm(plan(batch, verb, Chosen(is_everything=True)), typed=str(DOCUMENTS))
    carry = partial(carrying.carry_out, SystemClock(NOW), owner="a worker", stopping=lambda: False)
    answers = racing.answers([carry, partial(pressed, Verb.REGENERATE, ids[::-1], "ada")])
    done = {pk for pk, result in answers[1].items() if result.is_done}
    by_action = set(action.items.filter(result=ItemResult.DONE).values_list("item_id", flat=True))
    assert not action.items.filter(result__in=(ItemResult.WAITING, ItemResult.FAILED)).exists()
    assert done | by_action == set(ids)
    if verb is Verb.REGENERATE:
        assert not done & by_action
        assert DocumentVersion.objects.count() == 2 * DOCUMENTS
    pending = Job.objects.filter(state=JobState.PENDING).values_list("version__document", flat=True)
    assert sorted(pending) == sorted(set(pending)), "no document waits to be rendered twice"
    assert pending.count() == DOCUMENTS


@pytest.mark.django_db(transaction=True)
def test_a_retry_beside_the_cancellation_of_the_batch_leaves_nothing_that_would_be_sent() -> None:
    batch, ids = failed_batch()
    by = By(None, "cara", "127.0.0.1")
    answers = racing.answers(
        [
            partial(pressed, Verb.RETRY, ids, "ada"),
            partial(running.cancel, batch.pk, reason="x", by=by, now=NOW),
        ]
    )
    running.end_unneeded(now=NOW, most=100)
    retried = {pk for pk, result in answers[0].items() if result.is_done}
    states = dict(BatchItem.objects.values_list("pk", "version__job__state"))
    assert states == {pk: "cancelled" if pk in retried else "failed" for pk in ids}
    assert len(retried) in (0, DOCUMENTS), "one came first"
